"""What the driver shows and writes while a run goes on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from grampus._logger import Listeners
from grampus._traceback import keep_traceback
from grampus._warning import warn
from grampus.callbacks import Progress, TensorBoard
from grampus.errors import Preempted

if TYPE_CHECKING:
    from types import TracebackType

    from grampus._training.pace import Slow
    from grampus._training.recovery import Losses
    from grampus.callbacks import Logger


def hear(rank: int, body: bytes) -> None:  # noqa: ARG001 - reports come with it
    """Warn the user of what a worker notes."""
    _warn(json.loads(body))


def _warn(event: dict[str, Any]) -> None:
    if event["kind"] == "note":
        warn(event["text"])


class Show:
    """Hands the events of a run to its loggers; progress and TensorBoard are among them unless given."""

    def __init__(self, loggers: list[Logger], folder: str | None, losses: Losses) -> None:
        """`folder` is that of the run; `losses` hears where it goes on after one."""
        self.losses = losses
        self._folder = folder
        losses.hears = self._lost
        told = list(loggers)
        if not any(isinstance(logger, Progress) for logger in loggers):
            told.insert(0, Progress())
        if folder is not None and not any(isinstance(logger, TensorBoard) for logger in loggers):
            told.append(TensorBoard())
        self._screens = [logger for logger in told if isinstance(logger, Progress)]
        self._listeners = Listeners(told)

    def __enter__(self) -> Show:
        """Return itself."""
        return self

    def _lost(self, text: str) -> None:
        self._listeners.event({"kind": "lost", "text": text})

    def _preempted(self, ranks: list[int]) -> None:
        verdict = self.losses.preempt(ranks)
        if not verdict.goes_on:
            raise Preempted(verdict.why)

    def slow(self, found: Slow, why: str) -> None:
        """Name a slow worker, and what becomes of it."""
        self.event({"kind": "note", "text": f"{found}; {why}"})
        told = {"rank": found.rank, "host": found.pace.host, "pid": found.pace.pid}
        self.event({"kind": "slow", **told, "phase": found.phase, "factor": found.factor, "text": why})

    def event(self, event: dict[str, Any]) -> None:
        """Take what a worker reports."""
        # Where somebody looks at the run, he sees it there, and once.
        if not any(screen.is_shown for screen in self._screens):
            _warn(event)
        if event["kind"] == "recovered":
            self.losses.went_on(event["step"])
        elif event["kind"] == "preempted":
            self._preempted(event["ranks"])
        elif event["kind"] in ("steps", "epoch"):
            self.losses.has_trained = True
        elif event["kind"] == "saved":
            self.losses.saved = True
        self._listeners.event(event)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None
    ) -> None:
        """Close them all, and keep the frames of a worker's error that the screen does not show."""
        if self._folder is not None and error is not None:
            keep_traceback(error, self._folder)
        self._listeners.close()
