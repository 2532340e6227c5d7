"""Rows of Spark into the keeping of its executors: jobs that end before any worker holds a slot."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from grampus._spark_queue import run
from grampus._spark_versions import is_connect
from grampus.errors import ClusterError, DataError
from grampus.frames.depositing import Order, Receipt, deposit, deposit_groups
from grampus.frames.spark_schema import check, check_finite, in_order, numbered, quoted, with_names
from grampus.frames.supply import Call, Site, read_by_workers
from grampus.frames.vectors import plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from grampus.shards.batches import Wanted

# Rows that were lost may be read again while workers hold slots. A job that gets none must not wait for ever;
# it may take so many times as long as the first one, and at least so many seconds.
_TIMES, _LEAST = 3, 120.0


def site(frame: Any) -> Site:
    """Where the session of a frame is."""
    session = frame.sparkSession
    if is_connect(session):
        raise ClusterError(
            'a DataFrame of Spark Connect needs its workers on Spark: grampus.init(cluster="spark")'
        )
    conf = session.sparkContext.getConf()
    return Site("spark", session, conf.get("spark.driver.host"), conf.get("spark.driver.bindAddress", None))


class FrameJob:
    """Deposits the partitions of a DataFrame."""

    def __init__(self, frame: Any, wanted: Wanted, order_by: Any) -> None:
        """Rows are sorted by columns, where some are given."""
        check(frame, wanted)
        check_finite(frame)
        if order_by is not None:
            frame = in_order(frame, order_by)
        self._columns = wanted.columns
        self._frame = numbered(frame.select(*(quoted(name) for name in wanted.columns)))
        self._job = _Job(frame.sparkSession)

    def run(self, order: Order, only: Sequence[int] | None) -> list[Receipt]:
        """Deposit all partitions, or only these."""
        return self._job.run(self._frame, _Rows(order, only, self._columns), order.wait, only is not None)

    def again(self, order: Order, lost: Sequence[int], _: Call) -> list[Receipt]:
        """Deposit these once more: that takes a slot beside those of the workers."""
        return self.run(order, lost)


class FilesJob:
    """Deposits row groups of Parquet files, which tasks read by themselves."""

    def __init__(self, site: Site, files: list[str], parts: list[list[int]]) -> None:
        """Each part is a partition."""
        self._session, self._files, self._parts = site.session, files, parts
        self._job = _Job(site.session)

    def run(self, order: Order, only: Sequence[int] | None) -> list[Receipt]:
        """Deposit all partitions, or only these."""
        count = len(self._parts)
        numbers = self._session.range(0, count, 1, count)
        task = _Groups(order, only, self._files, self._parts)
        return self._job.run(numbers, task, order.wait, only is not None)

    def again(self, order: Order, lost: Sequence[int], call: Call) -> list[Receipt]:
        """Have workers deposit these once more."""
        return read_by_workers(call, self._files, self._parts, order, lost)


class _Job:
    """A job that can be interrupted, and is given up where it gets no slot."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._took = 0.0

    def run(self, frame: Any, task: Any, within: float, again: bool) -> list[Receipt]:
        patience = max(_LEAST, _TIMES * self._took) if again else None
        began = time.monotonic()
        try:
            made = frame.mapInArrow(task, "receipt string")
            rows = run(self._session, "reads the rows", made.collect, within, patience)
        except TimeoutError:
            raise DataError(
                f"rows that were lost with an executor could not be read again within {patience:.0f} s: "
                "Spark needs one slot more than there are workers (spark.cores.max); then go on with "
                "fit(resume=True)"
            ) from None
        except Exception as error:
            raise _explained(error) from None
        self._took = time.monotonic() - began
        return [Receipt.from_json(row[0]) for row in rows]


def _explained(error: BaseException) -> BaseException:
    """What a task said, without the frames of Spark around it."""
    text = str(error)
    for line in text.splitlines():
        name, _, said = line.strip().partition("grampus.errors.DataError: ")
        if said and not name:
            return DataError(said)
    if "No module named 'grampus" in text:
        return ClusterError(
            "the executors have no grampus: install it where their Python is, or ship an environment: "
            "spark-submit --archives env.tar.gz#environment with PYSPARK_PYTHON=./environment/bin/python"
        )
    return error


class _Rows:
    """Deposits the rows that come by."""

    def __init__(self, order: Order, only: Sequence[int] | None, columns: Mapping[str, Any]) -> None:
        self._order, self._columns = order, columns
        self._only = None if only is None else frozenset(only)

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        partition = context.partitionId()
        if self._only is None or partition in self._only:
            given = (plain(batch, self._columns) for batch in with_names(batches, list(self._columns)))
            yield _row(deposit(given, self._order, partition))
        # Whoever leaves rows behind may leave the Python of a step before waiting for ever to pass them on.
        for _ in batches:
            pass


class _Groups:
    """Deposits row groups, which it reads itself."""

    def __init__(
        self, order: Order, only: Sequence[int] | None, files: list[str], parts: list[list[int]]
    ) -> None:
        self._order = order
        self._only = None if only is None else frozenset(only)
        self._files, self._parts = files, parts

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for partition in batch.column(0).to_pylist():
                if self._only is None or partition in self._only:
                    yield _row(deposit_groups(self._files, self._parts[partition], self._order, partition))


def _row(receipt: Receipt) -> Any:
    import pyarrow

    return pyarrow.RecordBatch.from_pydict({"receipt": [receipt.to_json()]})
