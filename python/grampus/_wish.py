"""What the driver wants of a call that is under way."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Wish:
    """A call that outlives the loss of a worker, and ends where it can go on later once `stop` is set."""

    stop: bool = False
