"""Rows that keepers of an engine hold for as long as a model reads them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from grampus import _native, context
from grampus._tunnel import Ahead
from grampus.errors import DataError
from grampus.frames import engine_of
from grampus.frames.depositing import deposit_groups
from grampus.frames.feed import Feed
from grampus.frames.scan import files_of
from grampus.shards.segments import memory_limit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grampus.frames.depositing import Order, Receipt
    from grampus.shards.batches import Wanted


class Site(NamedTuple):
    """Where an engine is: its session, if it has one, and this machine as its executors see it."""

    engine: str
    session: Any
    address: str
    bind: str | None = None
    # The first of those that data takes; 0 for any.
    port: int = 0
    # What supervisors are to import while tasks read rows.
    ahead: Ahead | None = None
    # Seconds within which tasks must have begun.
    within: float = 60.0


# Calls a function on all workers, and returns what it returned on each.
Call = Callable[..., list[Any]]


class Job(Protocol):
    """What deposits the rows of a frame."""

    def run(self, order: Order, only: Sequence[int] | None) -> list[Receipt]:
        """Deposit all partitions, or only these; return what was deposited."""
        ...

    def again(self, order: Order, lost: Sequence[int], call: Call) -> list[Receipt]:
        """Deposit these once more, while workers hold slots; `call` runs a function on all of them."""
        ...


class Supply:
    """The rows of a frame, or of files, which tasks of an engine have packed and keepers hold."""

    def __init__(self, job: Job, wanted: Wanted, site: Site, skip: bool) -> None:
        """Read all of them; the driver listens at the port of the site."""
        self._job = job
        # A limit that is set for shards here is one for each executor.
        memory = memory_limit()
        self._feed = Feed(
            wanted,
            skip=skip,
            address=site.address,
            bind=site.bind,
            port=site.port,
            memory=memory,
            wait=site.within,
            ahead=site.ahead,
        )
        try:
            self.kept = self._feed.take(job.run(self._feed.order, None))
        except BaseException:
            self._feed.close()
            raise

    def heal(self, call: Call) -> bool:
        """Read again what was lost with executors; whether there was something."""
        lost = self._feed.lost()
        if lost:
            # Workers are there already.
            order = replace(self._feed.order, ahead=None)
            self.kept = self._feed.again(self._job.again(order, lost, call))
        return bool(lost)

    @property
    def copied_bytes(self) -> int:
        """How much was written when rows were packed."""
        return self._feed.copied_bytes

    def close(self) -> None:
        """Let go of the rows."""
        self._feed.close()


def of_frame(
    frame: Any, wanted: Wanted, site: Site | None, tasks: int, order_by: Any, skip: bool
) -> tuple[Supply, str | None]:
    """The rows of a DataFrame or Dataset, and what cannot be promised of their order, if anything.

    The order decides which rows make a batch: where it is the same, so are the weights.
    """
    engine = importlib.import_module(f"grampus.frames.{engine_of(frame)}_feed")
    here = engine.site(frame) if site is None or site.engine != engine_of(frame) else site
    if order_by is None:
        files, _ = files_of(frame)
        if files is not None:
            try:
                return of_files(files, wanted, here, tasks, skip), None
            except DataError as error:
                # Files of this machine that the executors do not see: the engine reads them itself.
                if not is_missing(error):
                    raise
    job = engine.FrameJob(frame, wanted, order_by)
    return Supply(job, wanted, here, skip), None if order_by is not None else (
        "the rows of this frame have no order of their own: another run may get them in another order, and "
        "come to other weights; pass order_by=, or read Parquet files without further steps"
    )


def of_files(files: list[str], wanted: Wanted, site: Site, tasks: int, skip: bool) -> Supply:
    """The rows of Parquet files, which tasks of an engine read by themselves."""
    engine = importlib.import_module(f"grampus.frames.{site.engine}_feed")
    groups = [count for _, _, count in _native.ParquetDataset(files).row_groups]
    return Supply(engine.FilesJob(site, files, shared_out(groups, tasks)), wanted, site, skip)


def read_by_workers(
    call: Call, files: list[str], parts: list[list[int]], order: Order, lost: Sequence[int]
) -> list[Receipt]:
    """Deposit row groups of files once more. Workers do so: no slot of the engine need be free."""
    return [receipt for found in call(_read_again, files, parts, order, list(lost)) for receipt in found]


def _read_again(files: list[str], parts: list[list[int]], order: Order, lost: list[int]) -> list[Receipt]:
    mine = lost[context.rank() :: context.world_size()]
    return [deposit_groups(files, parts[partition], order, partition) for partition in mine]


def is_missing(error: DataError) -> bool:
    """Whether rows could not be read because a file is not there."""
    return "no such file" in str(error).lower()


def shared_out(groups: Sequence[int], tasks: int) -> list[list[int]]:
    """Row groups with so many rows each, cut into about so many parts of neighbours with about equal rows.

    >>> shared_out([10, 10, 10, 10, 10], 2)
    [[0, 1, 2], [3, 4]]
    """
    size = -(-sum(groups) // tasks)
    parts: list[list[int]] = [[]]
    held = 0
    for number, rows in enumerate(groups):
        if held >= size:
            parts.append([])
            held = 0
        parts[-1].append(number)
        held += rows
    return parts
