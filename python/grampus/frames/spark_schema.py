"""What the schema of a Spark DataFrame says about the columns that a model reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grampus._spark_versions import check_version, is_connect, to_arrow
from grampus.errors import ClusterError, DataError
from grampus.shards import keys

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from grampus.shards.batches import Wanted

# Types of numbers, as Spark's SQL and Arrow name them.
NUMBERS = {
    "tinyint": "int8",
    "smallint": "int16",
    "int": "int32",
    "bigint": "int64",
    "float": "float32",
    "double": "float64",
    "boolean": "bool",
}


def kinds_of(frame: Any) -> dict[str, str]:
    """The types of the columns, as Spark's SQL names them."""
    return {field.name: field.dataType.simpleString() for field in frame.schema.fields}


def is_number(kind: str) -> bool:
    """Whether a type is one of numbers."""
    return (kind in NUMBERS and kind != "boolean") or kind.startswith("decimal")


def check(frame: Any, wanted: Wanted) -> None:
    """Raise for a stopped session, and for columns that are not there or that no model takes."""
    check_running(frame.sparkSession)
    have = {field.name: field.dataType for field in frame.schema.fields}
    keys.check(wanted.columns, list(have))
    for name, step in wanted.columns.items():
        check_type(have[name], name, step)


def check_finite(frame: Any) -> None:
    """Raise for a stream."""
    if frame.isStreaming:
        raise DataError(
            "this DataFrame is a stream, whose rows have no end and cannot be read again: train on each of "
            "its batches, with writeStream.foreachBatch, or write it to files first; predict takes streams"
        )


def in_order(frame: Any, order_by: str | Sequence[Any]) -> Any:
    """The rows in the order of some columns: names, whatever they hold, or expressions of Spark."""
    asked = [order_by] if isinstance(order_by, str) else order_by
    named = [quoted(each) if isinstance(each, str) and each in frame.columns else each for each in asked]
    return frame.orderBy(*named)


def numbered(frame: Any) -> Any:
    """The frame with plain names in the place of its own: `mapInArrow` takes none with dots."""
    return frame.toDF(*(f"c{place}" for place in range(len(frame.columns))))


def with_names(batches: Iterator[Any], names: Sequence[str]) -> Iterator[Any]:
    """Batches of such a frame, with the names that it had."""
    import pyarrow

    return (pyarrow.record_batch(batch.columns, names=list(names)) for batch in batches)


def check_running(session: Any) -> None:
    """Raise for a stopped session, and for one of a Spark that is too old."""
    stopped = session.is_stopped if is_connect(session) else session.sparkContext._jsc is None
    if stopped:
        raise ClusterError("the Spark session of this DataFrame is stopped: make a new one, and read again")
    check_version(session)


def check_type(kind: Any, name: str, step: dict[str, Any]) -> None:
    """Raise for a column that no model takes: it takes numbers, and what steps make numbers of."""
    shown = kind.simpleString()
    if shown in ("string", "binary"):
        needed = "one_hot" if shown == "string" else "images"
        if needed not in step:
            how = "gp.columns.OneHot" if shown == "string" else "gp.columns.Image"
            raise DataError(
                f'column "{name}" holds {shown}, and a model takes numbers: use {how}("{name}", …)'
            )
    elif kind.typeName() == "array":
        check_type(kind.elementType, name, step)
    elif kind.typeName() == "struct":
        for field in kind.fields:
            check_type(field.dataType, f"{name}.{field.name}", {})
    elif shown not in NUMBERS and shown != "vector" and not shown.startswith("decimal"):
        raise DataError(
            f'column "{name}" holds {shown}, and a model takes numbers: leave it out, or turn it into numbers'
        )


def rows_like(frame: Any, wanted: Wanted) -> Any:
    """Two rows of what a model reads: made up where the schema says how, else the first one twice.

    Two, because some models lose the axis of rows where there is one row.
    """
    import pyarrow

    kinds = kinds_of(frame)
    made = {name: _made_up(kinds[name], step) for name, step in wanted.columns.items()}
    if None not in made.values():
        return pyarrow.record_batch(made)
    if frame.isStreaming:
        unknown = next(name for name, array in made.items() if array is None)
        raise DataError(
            f'the length of column "{unknown}" is not in the schema, and a stream has no first row to look '
            f'at: use gp.columns.Pad("{unknown}", …)'
        )
    first = to_arrow(frame.select(*(quoted(name) for name in wanted.columns)).limit(1)).combine_chunks()
    if not first.num_rows:
        raise DataError("the DataFrame is empty: there are no rows to predict")
    return first.take([0, 0]).to_batches()[0]


def quoted(name: str) -> str:
    """A name as Spark's SQL reads it, whatever it holds."""
    doubled = name.replace("`", "``")
    return f"`{doubled}`"


def _made_up(kind: str, step: dict[str, Any]) -> Any:
    import pyarrow

    classes = step.get("one_hot", {}).get("classes")
    value = classes[0] if isinstance(classes, list) else 0
    if kind == "string":
        return pyarrow.array([str(value)] * 2)
    if "pad" in step:
        inner = NUMBERS.get(kind.removeprefix("array<").removesuffix(">"), "float64")
        zeros = [[0] * step["pad"]["length"]] * 2
        return pyarrow.array(zeros, pyarrow.list_(pyarrow.type_for_alias(inner)))
    return pyarrow.array([value] * 2).cast(NUMBERS[kind]) if kind in NUMBERS else None
