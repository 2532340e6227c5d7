"""What models of all frameworks have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grampus._training.means import Means

if TYPE_CHECKING:
    from grampus.operators import Timers


class LoopModel:
    """What the loop and its watcher ask of a model, where most have nothing to say."""

    # Whether code of the user goes through the batches of an epoch, or judges them, itself.
    owns_epoch = False
    judges = False
    # Whether metrics are measured while it trains.
    measures = True
    # Which batch is being judged or answered.
    place = 0

    def __init__(self) -> None:
        # How long parts of the work take, where that is asked for.
        self.timers: Timers | None = None
        # What this worker's own rows have said in this epoch.
        self.own = Means()
        # What the user passes to operators.
        self.info: dict[str, Any] = {}
        # What code of the user has said about the epoch, and is no number.
        self.words: dict[str, Any] = {}

    def hurry(self) -> None:
        """Nobody asks for the loss of each step: it need not be waited for."""

    def late(self, wait: bool) -> list[float]:  # noqa: ARG002
        """Losses that are known by now, of steps whose commit did not say them."""
        return []

    def said(self) -> dict[str, float]:
        """What code of the user has said about the epoch's batches, over all workers."""
        return {}

    def judged(self) -> None:
        """All rows of an evaluation on this worker are judged."""

    def warn(self, saved: bool) -> None:
        """Say what a loss would cost, where that is more than a step."""
