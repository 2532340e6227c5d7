"""What models of all frameworks have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from grampus import _report
from grampus._training.means import Means

if TYPE_CHECKING:
    from collections.abc import Callable

    from grampus._training.lanes import Lanes
    from grampus.operators import Timers


class Reduction(NamedTuple):
    """How the losses of lanes become that of the batch: by default as a mean over rows."""

    # What a batch counts for, where that is not the number of its rows.
    weigh: Callable[[Any], float] | None = None
    # Whether the loss is a sum: then lanes are added up as they are.
    sums: bool = False
    # Whether a batch counts for its shape alone, so that rows of one shape count the same.
    by_shape: bool = False
    # Whether all rows count the same, of which a batch holds all there are.
    is_even: Callable[[Any], bool] | None = None
    # Whether some targets of a batch are left out of the loss, as those of padding are.
    ignores: Callable[[Any], bool] | None = None
    # Whether padding that differs from lane to lane makes another result; with a user's weight none knows.
    minds_padding: bool = True
    # Whether this is sure; a loss of the user's own may divide by anything.
    known: bool = True


class LoopModel:
    """What the loop and its watcher ask of a model, where most have nothing to say."""

    # Whether code of the user goes through the batches of an epoch, or judges them, itself.
    owns_epoch = False
    judges = False
    # Whether metrics that such code does not return were told of.
    has_told_metrics = False
    # Whether metrics are measured while it trains.
    measures = True
    # Which batch is being judged or answered, and how many of its rows count.
    place = rows_there = 0
    lanes: Lanes
    # How losses of lanes are brought together, in an evaluation.
    reduction = Reduction()
    # Steps that were done before, and whether one of them was skipped.
    step = 0
    _has_skipped = False

    def __init__(self) -> None:
        # How long parts of the work take, where that is asked for.
        self.timers: Timers | None = None
        # What this worker's own rows have said in this epoch.
        self.own = Means()
        # What the user passes to operators.
        self.info: dict[str, Any] = {}
        # What code of the user has said about the epoch, and is no number.
        self.words: dict[str, Any] = {}

    @property
    def trained_by(self) -> Reduction:
        """How losses of lanes are brought together in training."""
        return self.reduction

    def skip(self) -> None:
        """No row of a batch counts: the step is counted, and changes nothing."""
        if not self._has_skipped and self.lanes.group.rank == 0:
            self._has_skipped = True
            _report.note(
                f"no row of the batch at step {self.step + 1} counts, as where all labels are ignored: such "
                "steps are skipped"
            )
        self.step += 1

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

    def found(self) -> Any:
        """What this worker's lanes have found out about the loss in an evaluation."""

    def tell(self, found: list[Any]) -> None:
        """Warn of what all workers have found out."""

    def warn(self, saved: bool) -> None:
        """Say what a loss would cost, where that is more than a step."""
