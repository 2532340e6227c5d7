"""Predictions of Ray Datasets: columns that tasks of Ray compute, when they are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grampus import _native
from grampus._training.answering import answering
from grampus.errors import ClusterError, DataError
from grampus.frames.places import placed
from grampus.frames.ray_blocks import batches, rows_at_once
from grampus.frames.vectors import column, plain
from grampus.shards import keys, rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from grampus._training.answering import Answering, Snapshot
    from grampus.shards.batches import Wanted


def predicted(dataset: Any, model: Snapshot, wanted: Wanted) -> Any:
    """The data set with the columns that the model answers; nothing runs yet.

    The model lies in the object store once; a process of Ray loads it once, for all blocks that it gets. What
    it answers goes there in parts, so that neither a block nor its answers need to fit into memory twice.
    """
    import ray

    check_running()
    known = dataset.schema(fetch_if_missing=False)
    if known is not None:
        keys.check(wanted.columns, known.names)
    kept, name, columns = ray.put(model.body), model.name, wanted.columns

    def answer(table: Any) -> Iterator[Any]:
        if not table.num_rows:
            yield table
            return
        keys.check(columns, table.column_names)
        yield from _answered(answering(name, lambda: ray.get(kept)), table, columns)

    return dataset.map_batches(answer, batch_format="pyarrow", batch_size=None, zero_copy_batch=True)


def _answered(model: Answering, table: Any, columns: Mapping[str, Any]) -> Iterator[Any]:
    """The rows of a block with what the model answers, in parts."""
    first, size = 0, model.at_once
    while first < table.num_rows:
        for given in batches(table.slice(first, size).select(list(columns))):
            try:
                found = model.answers(_native.Table.from_stream(plain(given, columns)))
            except DataError as error:
                raise DataError(placed(str(error), first=first)) from None
            answered = sum(array.nbytes for array in found.values()) / given.num_rows
            yield from _with_columns(table.slice(first, given.num_rows), found, rows_at_once(answered))
            first += given.num_rows
            size = rows_at_once(given.nbytes / given.num_rows + answered, model.at_once)


def _with_columns(table: Any, found: dict[str, Any], together: int) -> Iterator[Any]:
    for first in range(0, table.num_rows, together):
        part = table.slice(first, together)
        for name, array in found.items():
            part = rows.with_column(part, name, column(array[first : first + together]))
        yield part


def check_running() -> None:
    """Raise where Ray was not started, or was shut down: it would start anew by itself, and know nothing."""
    import ray

    if not ray.is_initialized():
        raise ClusterError("Ray is not running in this process: call ray.init(), and make the data set again")
