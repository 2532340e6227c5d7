"""What the driver hears of a run, and who listens."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

from grampus.history import History


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

    def event(self, event: dict[str, Any]) -> None:
        """Take an event. An exception ends the run, and is raised by `fit`."""

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
            logger.event(event)

    def close(self) -> None:
        """Close all of them, also where one fails."""
        with contextlib.ExitStack() as stack:
            for logger in reversed(self._loggers):
                stack.callback(logger.close)
