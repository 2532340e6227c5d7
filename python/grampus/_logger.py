"""What the driver hears of a run, and who listens."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from typing import Any

from grampus._warning import warn
from grampus.errors import GrampusError
from grampus.history import History

# Seconds for which a logger that failed is left alone: a server that is away keeps callers waiting.
_AGAIN = 60.0


class Logger:
    """Listens to a run in the driver. Write a class with `event` for a listener of your own.

    An event is a dict with a `kind`; kinds and keys that a listener does not know are no errors:

    - `begin`: `epochs` (to train in all), `epoch` (finished before), `steps` and `samples` (of an epoch),
      `workers`, `lanes`, `threads` (per lane), `batch_size`, `metrics`, `resumed_from`, `run` (its folder),
      `saved_in` (where its checkpoints are); what is not known is `None`
    - `steps`, at most about ten a second: `steps` (a list of `[step, loss, learning rate]`, with steps
      counted over all epochs) and, for this epoch so far, `step`, `samples`, `seconds`, `waited` (for data)
      and `metrics`
    - `scalars`: what callbacks have logged at steps: `values`, a list of `[step, name, value]`
    - `image`: a picture of a callback: `name`, `step`, `width`, `height`, `channels`, its PNG file as `bytes`
    - `graph`: the model, as `bytes` of a `GraphDef`
    - `validate`: `done` and `samples`
    - `epoch`: `record`, as `History` keeps it
    - `checkpoint`: `name` and `path`
    - `note`: `text`
    - `lost`: a worker is, `text` says how; and `recovered`: the run goes on, from `step` on, with `workers`
    - `preempted`: the workers `ranks` were told to go, and the run goes on without them
    - `slow`: a worker is much slower than the others: `rank`, `host`, `pid`, the `phase` in which it is, by
      what `factor`, and in `text` what becomes of it; once for each worker
    - `end`: `reason` and `step`. A run that fails has none
    """

    #: Whether a run that has begun goes on where this fails: with a warning, and a gap in what it shows.
    may_fail = False
    # A file that cannot be written is no reason not to begin, either.
    _is_file = False

    def event(self, event: dict[str, Any]) -> None:
        """Take an event. An exception ends the run, and is raised by `fit`, unless this `may_fail`."""

    def close(self) -> None:
        """Let go of files. Called when a run ends, however it does; the next one starts with `begin`."""

    @property
    def place(self) -> str | None:
        """Where the run was written to, for the summary at its end."""
        return None


class Listeners:
    """All that listen to one run, and its history. Keeps a list of its own.

    >>> listeners = Listeners([])
    >>> listeners.event({"kind": "epoch", "epoch": 0, "record": {"epoch": 1, "loss": 0.5}})
    >>> listeners.history["loss"]
    [0.5]
    """

    def __init__(self, loggers: Iterable[Logger]) -> None:
        self._loggers = list(loggers)
        self._has_begun = False
        # Until when those that failed are left alone.
        self._left_alone: dict[int, float] = {}
        self.history = History()
        for logger in self._loggers:
            if not isinstance(logger, Logger):
                raise TypeError(f"{logger!r} is no logger: derive its class from grampus.callbacks.Logger")

    def event(self, event: dict[str, Any]) -> None:
        """Tell all of them; at the end also where each has written."""
        self.history.event(event)
        if event["kind"] == "end":
            places = {type(logger).__name__: logger.place for logger in self._loggers if logger.place}
            event = {**event, "places": places}
        for logger in self._loggers:
            # The end is told in any case: a tracker marks the run as finished.
            if event["kind"] == "end" or time.monotonic() >= self._left_alone.get(id(logger), 0.0):
                self._call(logger, logger.event, event)
        self._has_begun |= event["kind"] == "begin"

    def close(self) -> None:
        """Close all of them, also where one fails."""
        with contextlib.ExitStack() as stack:
            for logger in reversed(self._loggers):
                stack.callback(self._call, logger, logger.close)

    def _call(self, logger: Logger, method: Callable[..., None], *given: Any) -> None:
        try:
            method(*given)
        except Exception as error:
            unwritten = logger._is_file and isinstance(error, OSError | GrampusError)
            # Before the first step nothing is lost by it, and the user is still there.
            if not logger.may_fail or not (self._has_begun or unwritten):
                raise
            if id(logger) not in self._left_alone:
                name = type(logger).__name__
                warn(f"{name} fails, and the run goes on: {error}; it is tried again every {_AGAIN:.0f} s")
            self._left_alone[id(logger)] = time.monotonic() + _AGAIN
