"""Predictions of Spark DataFrames: columns that tasks of Spark compute, when they are asked for."""

from __future__ import annotations

import tempfile
import weakref
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grampus import _native
from grampus._spark_versions import is_connect
from grampus._training.answering import Answering, answering
from grampus.errors import DataError
from grampus.frames.places import placed
from grampus.frames.spark_schema import check, quoted, rows_like
from grampus.frames.vectors import column, plain
from grampus.session import at_stop

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from grampus._training.answering import Snapshot
    from grampus.shards.batches import Wanted

# On Connect a model of more bytes is sent once, as a file of the session; a smaller one with each plan.
IN_PLAN = 256 * 1024
# Names of numpy's types in Spark's SQL.
_TYPES = {
    "float32": "float",
    "float64": "double",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "bool": "boolean",
}
# Models of a classic session that are broadcast: so many of them, by name, the newest last.
_HELD = 4
_broadcasts: weakref.WeakKeyDictionary[Any, dict[str, Any]] = weakref.WeakKeyDictionary()
# The files of models that a session of Connect has.
_sent: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()


def predicted(frame: Any, model: Snapshot, wanted: Wanted) -> Any:
    """The frame with the columns that the model answers; nothing runs yet.

    A scalar function of Arrow takes the features alone, so Spark moves filters and choices of other columns
    past it, which it could not with all columns through `mapInArrow`. The types of its answers are found
    here, with a row of zeros; where the length of a list or vector is not in the schema, with the first row
    of the frame.
    """
    check(frame, wanted)
    types = _types(_tried(plain(rows_like(frame, wanted), wanted.columns), model))
    task = _task(_shipped(frame.sparkSession, model), model.name, wanted.columns, list(types))
    features = [frame[quoted(name)] for name in wanted.columns]
    function = _function(task, types)
    if function is None:
        return _with_columns(frame, task, list(wanted.columns), types)
    if len(types) == 1:
        return frame.withColumn(next(iter(types)), function(*features))
    made = function(*features)
    # Spark sees that the function is the same, and calls it once.
    return frame.withColumns({name: made[name] for name in types})


def _function(task: Callable[..., Any], types: dict[str, str]) -> Any:
    """A scalar function of Arrow, which Spark has since 4.1."""
    try:
        from pyspark.sql.functions import arrow_udf
    except ImportError:
        return None
    if len(types) == 1:
        return arrow_udf(task, *types.values())
    return arrow_udf(task, f"struct<{', '.join(f'{quoted(name)}: {kind}' for name, kind in types.items())}>")


def _with_columns(frame: Any, task: Callable[..., Any], names: list[str], types: dict[str, str]) -> Any:
    """The same for an older Spark: all columns pass through the task.

    Its functions of pandas would not do: they make a null NaN before the model could refuse it.
    """
    import pyarrow
    from pyspark.sql import functions

    places = [frame.columns.index(name) for name in names]
    # Spark says which columns take the place of others, and in which order all of them are.
    schema = frame.withColumns({name: functions.lit(None).cast(kind) for name, kind in types.items()}).schema
    answered = {name: place for place, name in enumerate(types)}

    def answer(batches: Iterator[Any]) -> Iterator[Any]:
        seen: deque[Any] = deque()

        def features() -> Iterator[Any]:
            for batch in batches:
                if batch.num_rows:
                    seen.append(batch)
                    yield tuple(batch.column(place) for place in places)

        for found in task(features()):
            batch = seen.popleft()
            made = [found] if len(types) == 1 else found.flatten()
            columns = [
                made[answered[name]] if name in answered else batch.column(place)
                for place, name in enumerate(schema.names)
            ]
            yield pyarrow.RecordBatch.from_arrays(columns, names=schema.names)

    # `mapInArrow` cannot take names with dots.
    plain_names = (f"c{place}" for place in range(len(frame.columns)))
    return frame.toDF(*plain_names).mapInArrow(answer, schema)


def _tried(rows: Any, model: Snapshot) -> dict[str, Any]:
    """What the model answers for a few rows, in this process."""
    alone = Answering(model.body)
    try:
        return alone.answers(_native.Table.from_stream(rows))
    except DataError as error:
        raise DataError(f"in the first row, {str(error).removeprefix('shard 0, row 0, ')}") from None
    finally:
        alone.close()


def _types(answers: dict[str, Any]) -> dict[str, str]:
    """The columns of answers, with the names of their types in Spark's SQL."""
    import numpy

    found = {}
    for name, array in answers.items():
        kind = column(array).type
        lists = 0
        while lists < array.ndim - 1:
            kind, lists = kind.value_type, lists + 1
        found[name] = f"{'array<' * lists}{_TYPES[numpy.dtype(kind.to_pandas_dtype()).name]}{'>' * lists}"
    return found


def _shipped(session: Any, model: Snapshot) -> Callable[[], bytes]:
    """How a task gets the model: it is sent once.

    Classic sessions broadcast it, once for all calls. On Connect it goes with the plan up to `IN_PLAN` bytes;
    above, as a file of the session (`addArtifacts`), in pieces: the disks of executors are the limit.
    """
    if not is_connect(session):
        kept = _broadcast(session, model)
        return lambda: bytes(kept.value)
    body, name = model.body, model.name
    if len(body) <= IN_PLAN:
        return lambda: body
    sent = _sent.setdefault(session, set())
    if name not in sent:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, name)
            path.write_bytes(body)
            session.addArtifacts(str(path), file=True)
        sent.add(name)

    def read() -> bytes:
        from pyspark import SparkFiles

        return Path(SparkFiles.get(name)).read_bytes()

    return read


def _broadcast(session: Any, model: Snapshot) -> Any:
    """The broadcast of a model, which calls share while it is among the newest ones.

    Spark drops it everywhere when no plan needs it any more. It is not unpersisted: an executor may then name
    the file that is gone to a task that asks for it again.
    """
    at_stop(_broadcasts.clear)
    held = _broadcasts.setdefault(session, {})
    found = held.pop(model.name, None) or session.sparkContext.broadcast(model.body)
    held[model.name] = found
    while len(held) > _HELD:
        held.pop(next(iter(held)))
    return found


def _task(
    body: Callable[[], bytes], name: str, columns: Mapping[str, Any], answers: Sequence[str]
) -> Callable[..., Any]:
    """What a task does with the batches of its partition."""
    import pyarrow

    def answer(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context, first = TaskContext.get(), 0
        model = answering(name, body, 1 if context is None else context.cpus())
        for batch in batches:
            # One column comes without a tuple around it.
            arrays = batch if isinstance(batch, tuple) else (batch,)
            rows = len(arrays[0])
            if not rows:
                continue
            try:
                given = plain(pyarrow.record_batch(list(arrays), names=list(columns)), columns)
                found = model.answers(_native.Table.from_stream(given))
            except DataError as error:
                partition = None if context is None else context.partitionId()
                raise DataError(placed(str(error), partition, first)) from None
            first += rows
            made = [column(found[each]) for each in answers]
            yield made[0] if len(made) == 1 else pyarrow.StructArray.from_arrays(made, names=list(answers))

    # Spark reads from these that batches come one after the other, and in which form.
    given = pyarrow.Array if len(columns) == 1 else tuple[pyarrow.Array, ...]
    answer.__annotations__ = {"batches": Iterator[given], "return": Iterator[pyarrow.Array]}  # type: ignore[valid-type]
    return answer
