"""Rows of Ray Data into the keeping of its nodes: tasks that end before any worker holds a CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grampus._ray_resources import scarcity
from grampus._starting import explaining
from grampus.errors import ClusterError, DataError
from grampus.frames.depositing import Order, Receipt, deposit, deposit_groups
from grampus.frames.ray_blocks import materialized
from grampus.frames.supply import Call, Site, read_by_workers
from grampus.frames.vectors import plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from grampus.shards.batches import Wanted


def site(_: Any) -> Site:
    """Where the Ray is that this process is connected to."""
    import ray

    return Site("ray", None, str(ray.util.get_node_ip_address()))


class FrameJob:
    """Deposits the blocks of a Dataset, which tasks read where they lie in the object store."""

    def __init__(self, dataset: Any, wanted: Wanted, order_by: Any) -> None:
        """Rows are sorted by columns, where some are given."""
        self._columns = wanted.columns
        self._dataset = dataset if order_by is None else dataset.sort(order_by)
        self._blocks: list[Any] = []

    def run(self, order: Order, only: Sequence[int] | None) -> list[Receipt]:
        """Deposit all blocks, or only these."""
        if only is None:
            # Before Ray Data begins, which waits without end, and in silence.
            _wait_for_cpu(order.wait)
            self._blocks = materialized(self._dataset).to_arrow_refs()
        task = _remote(_deposited, only is not None)
        chosen = range(len(self._blocks)) if only is None else only
        return _collected([task.remote(self._blocks[at], order, at, self._columns) for at in chosen])

    def again(self, order: Order, lost: Sequence[int], _: Call) -> list[Receipt]:
        """Deposit these once more, with tasks that take no CPU."""
        return self.run(order, lost)


class FilesJob:
    """Deposits row groups of Parquet files, which tasks read by themselves."""

    def __init__(self, _: Site, files: list[str], parts: list[list[int]]) -> None:
        """Each part is a partition."""
        self._files, self._parts = files, parts

    def run(self, order: Order, only: Sequence[int] | None) -> list[Receipt]:
        """Deposit all partitions, or only these."""
        if only is None:
            _wait_for_cpu(order.wait)
        task = _remote(deposit_groups, only is not None)
        chosen = range(len(self._parts)) if only is None else only
        return _collected([task.remote(self._files, self._parts[at], order, at) for at in chosen])

    def again(self, order: Order, lost: Sequence[int], call: Call) -> list[Receipt]:
        """Have workers deposit these once more."""
        return read_by_workers(call, self._files, self._parts, order, lost)


def _remote(function: Any, again: bool) -> Any:
    """A task of Ray. Where workers hold the CPUs, it takes none: rows that were lost are read again."""
    import ray

    return ray.remote(function).options(num_cpus=0 if again else 1, scheduling_strategy="SPREAD")


def _wait_for_cpu(within: float) -> None:
    """Until a task could begin; say what is waited for, and raise where that takes too long."""
    import ray

    first = ray.remote(_begun).options(num_cpus=1).remote()
    what = "a CPU for the tasks that read the rows"
    try:
        with explaining(lambda: f"waiting up to {within:g} s for {what}; {scarcity(ray)}"):
            ray.get(first, timeout=within)
    except BaseException as error:
        _cancel([first])
        if not isinstance(error, ray.exceptions.GetTimeoutError):
            raise
        raise ClusterError(
            f"there was not {what} within {within:g} s; {scarcity(ray)}: free one, start more nodes "
            "(ray start), or raise start_timeout"
        ) from None


def _begun() -> None:
    pass


def _collected(refs: list[Any]) -> list[Receipt]:
    import ray

    try:
        found: list[Receipt] = ray.get(refs)
    except ray.exceptions.RayTaskError as error:
        raise error.cause if isinstance(error.cause, DataError) else error from None
    except BaseException:
        _cancel(refs)
        raise
    return found


def _cancel(refs: list[Any]) -> None:
    """Cancel tasks that have not ended: Ray may abort this process over one that ends as it is cancelled."""
    import ray

    _, running = ray.wait(refs, num_returns=len(refs), timeout=0)
    for ref in running:
        ray.cancel(ref)


def _deposited(table: Any, order: Order, partition: int, columns: Mapping[str, Any]) -> Receipt:
    batches = (plain(batch, columns) for batch in table.to_batches())
    return deposit(batches, order, partition)
