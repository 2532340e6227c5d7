"""Rows that keepers hold, as a worker reads them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from grampus import _native
from grampus.shards.batches import AHEAD, Loadable

if TYPE_CHECKING:
    from grampus.frames.depositing import Keeper, Receipt
    from grampus.shards.batches import Wanted


@dataclass(frozen=True)
class Kept(Loadable):
    """All rows of a frame, with those who hold them; what a worker is sent.

    The number of a row is its place among the rows of all partitions, in the order of the partitions: as long
    as these are the same, so is all that a model learns from them. On a host that a keeper shares, its memory
    is mapped, and stays mapped when the keeper ends; rows of other hosts, and rows on disk, are asked for as
    they are needed. A keeper that is lost before raises `grampus.errors.FeedLost`.
    """

    join: str
    wanted: Wanted
    receipts: tuple[Receipt, ...]
    skip: bool
    wait: float
    # All of it can be shuffled: no row is dearer than another.
    window: None = None

    def __repr__(self) -> str:
        """Without the key."""
        return f"<{self.rows} rows of {len(self.receipts)} partitions>"

    @property
    def rows(self) -> int:
        """How many there are."""
        return sum(receipt.rows for receipt in self.receipts)

    @property
    def copied_bytes(self) -> int:
        """Bytes that were written when they were packed."""
        return sum(receipt.bytes for receipt in self.receipts)

    def loader(self, threads: int) -> _native.Loader:
        """Threads that read, of this process."""
        return _native.Loader.kept(
            self.wanted.outputs, threads, AHEAD, self.skip, self.join, self._manifest(), self.wait
        )

    def _manifest(self) -> str:
        numbers: dict[Keeper, int] = {}
        deposits = [
            {
                "partition": receipt.partition,
                "deposit": receipt.deposit,
                "keeper": numbers.setdefault(receipt.keeper, len(numbers)),
                "blocks": receipt.blocks,
            }
            for receipt in self.receipts
            if receipt.rows
        ]
        return json.dumps({"keepers": [asdict(keeper) for keeper in numbers], "deposits": deposits})
