"""What the driver wants of a call that is under way."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from grampus import _native


class Wish:
    """A call that outlives the loss of a worker, and ends where it can go on later if asked to."""

    def __init__(self) -> None:
        self.stop = False
        self._task: _native.Task | None = None

    def begins(self, task: _native.Task) -> None:
        """The run is this task now."""
        self._task = task
        if self.stop:
            task.ask_to_yield(True)

    def ask(self) -> None:
        """Let it end after the present step, and be saved."""
        self.stop = True
        if self._task is not None:
            self._task.ask_to_yield(True)
