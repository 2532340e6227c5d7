"""Epochs in one piece, for code of the user that goes through the batches itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grampus._training.feed import Batch

if TYPE_CHECKING:
    from grampus._training.feed import Answer, Part
    from grampus._training.lanes import Lanes


class WholeEpochs:
    """A feed that gives all of an epoch at once: the loop sees one step."""

    def __init__(self, feed: Any, lanes: Lanes) -> None:
        """Of a feed whose batches the user's code asks for."""
        self._feed = feed
        self._lanes = lanes
        self._left = 0
        self.batch_size = feed.batch_size

    def __getattr__(self, name: str) -> Any:
        return getattr(self._feed, name)

    def steps(self, epoch: int) -> int:  # noqa: ARG002 - that of a feed depends on it
        """One."""
        return 1

    def open(self, epoch: int, step: int) -> None:
        """Go to an epoch; after its step nothing is left."""
        self._left = 1 - step
        self._epoch = epoch
        if self._left:
            self._feed.open(epoch, 0)

    def next(self) -> Answer | None:
        """The epoch; nothing afterwards."""
        if not self._left:
            return None
        self._left = 0
        total = self._feed.samples(self._epoch)
        # Who reads a stream does not know how many rows there are, and none have to be weighed here.
        rows = 1 if total is None else max(1, total // self._lanes.total)
        whole = Batch(range(rows), self._feed, 0)
        parts: list[Part] = [(lane, rows, float(rows), whole) for lane in self._lanes.mine]
        known = rows * self._lanes.total if total is None else total
        return known, float(known), parts
