"""Predictions of Ray Datasets: columns that tasks of Ray compute, when they are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grampus import _native
from grampus._training.answering import answering
from grampus.errors import ClusterError, DataError
from grampus.frames.places import placed
from grampus.frames.vectors import column, plain
from grampus.shards import keys, rows

if TYPE_CHECKING:
    from grampus._training.answering import Snapshot
    from grampus.shards.batches import Wanted


def predicted(dataset: Any, model: Snapshot, wanted: Wanted) -> Any:
    """The data set with the columns that the model answers; nothing runs yet.

    The model lies in the object store once; a process of Ray loads it once, for all blocks that it gets.
    """
    import ray

    check_running()
    known = dataset.schema(fetch_if_missing=False)
    if known is not None:
        keys.check(wanted.columns, known.names)
    kept, name, names = ray.put(model.body), model.name, list(wanted.columns)

    def answer(table: Any) -> Any:
        if not table.num_rows:
            return table
        keys.check(names, table.column_names)
        given = plain(table.select(names).combine_chunks().to_batches()[0])
        try:
            found = answering(name, lambda: ray.get(kept)).answers(_native.Table.from_stream(given))
        except DataError as error:
            raise DataError(placed(str(error))) from None
        for each, array in found.items():
            table = rows.with_column(table, each, column(array))
        return table

    return dataset.map_batches(answer, batch_format="pyarrow", batch_size=None, zero_copy_batch=True)


def check_running() -> None:
    """Raise where Ray was not started, or was shut down: it would start anew by itself, and know nothing."""
    import ray

    if not ray.is_initialized():
        raise ClusterError("Ray is not running in this process: call ray.init(), and make the data set again")
