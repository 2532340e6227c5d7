"""The driver's side of a feed: what tasks are told, who holds the rows, and what to read again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grampus import _native
from grampus.errors import DataError
from grampus.frames.depositing import Order
from grampus.frames.kept import Kept

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from grampus._tunnel import Ahead
    from grampus.frames.depositing import Receipt
    from grampus.shards.batches import Wanted


class Feed:
    """The rows of one frame, on the executors that read them.

    A job of the engine, before any worker holds a slot, lets each of its tasks `deposit` one partition with
    `order`; `take` makes of the receipts what workers read. A keeper that ends takes its rows along: `lost`
    names the partitions, and once they were deposited again, `again` puts them in the place of those lost.
    Closing the feed ends all keepers; so does the end of this process.
    """

    def __init__(
        self,
        wanted: Wanted,
        *,
        skip: bool = False,
        address: str = "127.0.0.1",
        bind: str | None = None,
        port: int = 0,
        memory: int | None = None,
        folder: str | None = None,
        wait: float = 60.0,
        silent: float = 30.0,
        ahead: Ahead | None = None,
    ) -> None:
        """Listen at `bind`, by default `address`, under which executors reach this driver.

        Each keeper has `memory` bytes in memory at most, by default half of what is free on its host, and the
        rest on disk, in `folder` or one of the engine's. Meanwhile supervisors import what `ahead` says.
        """
        self._wanted = wanted
        self._skip = skip
        self._hub = _native.Hub(address if bind is None else bind, address, port, silent)
        self.order = Order(self._hub.join, wanted.outputs, skip, memory, folder, wait, silent, ahead)
        self._taken: dict[int, Receipt] = {}
        # Bytes that tasks have written, those of partitions that were read again included.
        self.copied_bytes = 0

    def take(self, receipts: Iterable[Receipt]) -> Kept:
        """The rows of all partitions, in their order; deposits that are not among these are dropped."""
        taken: dict[int, Receipt] = {}
        for receipt in receipts:
            if receipt.partition in taken:
                raise DataError(
                    f"partition {receipt.partition} has two receipts: pass those that the job gave"
                )
            taken[receipt.partition] = receipt
        return self._keep(taken)

    def lost(self) -> list[int]:
        """Partitions whose keeper is gone, in order: what is to be deposited again."""
        living = {keeper for keeper, _, _, why in self._hub.keepers() if why is None}
        return [
            partition
            for partition, receipt in sorted(self._taken.items())
            if receipt.rows and receipt.keeper.id not in living
        ]

    def again(self, receipts: Iterable[Receipt]) -> Kept:
        """All rows, with partitions that were deposited again in their places.

        The rows must be the same as before: what was learned from them, and their order, rests on it.
        """
        taken = dict(self._taken)
        for receipt in receipts:
            before = taken.get(receipt.partition)
            if before is None:
                raise DataError(f"partition {receipt.partition} was not taken before: pass those of `lost`")
            if (receipt.rows, receipt.digest) != (before.rows, before.digest):
                found = (
                    f"there are {receipt.rows}, there were {before.rows}"
                    if receipt.rows != before.rows
                    else "they have other values, or another order"
                )
                raise DataError(
                    f"the rows of partition {receipt.partition} were not the same when they were read again: "
                    f"{found}; the lineage of this DataFrame is not deterministic (a random function, or an "
                    "order that a shuffle does not keep): cache it or write it to Parquet first"
                )
            taken[receipt.partition] = receipt
        return self._keep(taken)

    def close(self) -> None:
        """End all keepers."""
        self._hub.close()

    def _keep(self, taken: dict[int, Receipt]) -> Kept:
        receipts = tuple(receipt for _, receipt in sorted(taken.items()))
        some = [receipt for receipt in receipts if receipt.rows]
        if not some:
            raise DataError("there are no rows: give a DataFrame or Dataset that has at least one")
        for receipt in some:
            if receipt.forms != some[0].forms:
                raise DataError(
                    f"the rows of partition {receipt.partition} are arrays of {_shown(receipt)} and those of "
                    f"partition {some[0].partition} of {_shown(some[0])}: pad lists to one length, and give "
                    "images one size"
                )
        self.copied_bytes += sum(
            receipt.bytes for receipt in receipts if self._taken.get(receipt.partition) != receipt
        )
        self._taken = taken
        self._hub.keep([receipt.deposit for receipt in receipts])
        return Kept(self._hub.join, self._wanted, receipts, self._skip, self.order.wait)

    def __enter__(self) -> Feed:
        """The feed."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End all keepers."""
        self.close()


def _shown(receipt: Receipt) -> str:
    return ", ".join(f"{kind} {list(shape)}" for kind, shape in receipt.forms)
