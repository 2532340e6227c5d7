"""What trackers of runs have in common."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from grampus._figures import curves
from grampus._logger import Logger
from grampus._warning import warn
from grampus.callbacks._checks import at_least

# What is known of a run as it begins.
_PARAMETERS = ("batch_size", "lanes", "workers", "epochs", "threads")


class Point(NamedTuple):
    """Values at one step."""

    step: int
    values: Mapping[str, float]


class Tracker(Logger, ABC):
    """Tells a tracker of one run, and of a run that goes on as of the one that it was."""

    may_fail = True
    #: File with the tracker's name of the run.
    _NAME_FILE: str

    def __init__(self, every: int) -> None:
        at_least(f"every of {type(self).__name__}", every, 1)
        self.every = every
        #: The tracker's name of the last run.
        self.run_id: str | None = None
        self._is_open = False
        self._step = 0

    def event(self, event: dict[str, Any]) -> None:
        """Tell the tracker what the event says."""
        if event["kind"] == "begin":
            self._begin(event)
        elif not self._is_open:
            return
        elif event["kind"] == "steps":
            self._steps(event["steps"])
        elif event["kind"] == "epoch":
            self._log([Point(self._step, curves(event["record"]))])
        elif event["kind"] == "scalars":
            self._log(_by_step(event["values"]))
        elif event["kind"] == "image":
            self._show(event["name"], event["bytes"], event["step"])
        elif event["kind"] == "end":
            self._is_open = False
            self._finish(failed=False)

    def close(self) -> None:
        """Mark a run that has not ended well as failed."""
        if not self._is_open:
            return
        self._is_open = False
        try:
            self._finish(failed=True)
        except Exception as error:
            # Why the run has failed is what `fit` raises.
            warn(f"{type(self).__name__} could not mark the run as failed: {error}")

    def _begin(self, event: dict[str, Any]) -> None:
        folders = [
            Path(place) for place in map(event.get, ("run", "saved_in")) if place and "://" not in place
        ]
        known = self._known(folders) if event.get("resumed_from") else None
        # A run that has lost too many workers at once begins again, from its checkpoint.
        if not self._is_open or known is None or known != self.run_id:
            self.close()
            parameters = {name: event[name] for name in _PARAMETERS if event.get(name) is not None}
            self.run_id = self._open(parameters, known)
            self._is_open = True
        self._step = 0
        for folder in folders:
            # A disk that takes no note of it is no reason to end a run.
            with contextlib.suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
                (folder / self._NAME_FILE).write_text(self.run_id + "\n", encoding="utf-8")

    def _known(self, folders: list[Path]) -> str | None:
        """What the tracker calls the run that goes on; where no folder says, the last run was this one."""
        for folder in folders:
            # A file that is empty or none of ours says nothing.
            with contextlib.suppress(OSError, UnicodeDecodeError):
                if name := (folder / self._NAME_FILE).read_text(encoding="utf-8").strip():
                    return name
        return self.run_id if self._is_open or not folders else None

    def _steps(self, steps: list[tuple[int, float, float]]) -> None:
        told = [
            Point(step, {"train/loss": loss, "train/learning_rate": rate})
            for step, loss, rate in steps
            if step % self.every == 0
        ]
        if steps:
            self._step = steps[-1][0]
        if told:
            self._log(told)

    @abstractmethod
    def _open(self, parameters: Mapping[str, Any], known: str | None) -> str:
        """Begin a run, or go on with the one that is known; return its name."""

    @abstractmethod
    def _log(self, points: list[Point]) -> None:
        """Take values."""

    @abstractmethod
    def _show(self, name: str, png: bytes, step: int) -> None:
        """Take a picture."""

    @abstractmethod
    def _finish(self, failed: bool) -> None:
        """End the run."""


def _by_step(values: list[tuple[int, str, float]]) -> list[Point]:
    """All values of a step together.

    >>> _by_step([(1, "a", 0.5), (1, "b", 0.25), (2, "a", 0.125)])
    [Point(step=1, values={'a': 0.5, 'b': 0.25}), Point(step=2, values={'a': 0.125})]
    """
    found: dict[int, dict[str, float]] = {}
    for step, name, value in values:
        found.setdefault(step, {})[name] = value
    return [Point(step, together) for step, together in found.items()]
