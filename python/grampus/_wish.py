"""What the driver wants of a call that is under way."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Wish:
    """A call that outlives the loss of a worker, and ends where it can go on later if one of these is set."""

    # Its workers have begun: before, there is nothing to save, and a signal ends the call at once.
    begun: bool = False
    # It is to go on some other day, from what it saves.
    stop: bool = False
    # It is to go on at once, with its workers in other places.
    regroup: bool = False
    # When the user interrupted it, by the monotonic clock.
    interrupted: float | None = None

    @property
    def ends(self) -> bool:
        """Whether the call is to end after its step."""
        return self.stop or self.regroup or self.interrupted is not None

    @property
    def saves(self) -> bool:
        """Whether it is to save what it has before it ends."""
        return self.stop or self.interrupted is not None
