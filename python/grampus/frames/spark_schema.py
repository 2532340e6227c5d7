"""What the schema of a Spark DataFrame says about the columns that a model reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grampus._spark_versions import check_version, is_connect, to_arrow
from grampus.errors import ClusterError, DataError
from grampus.shards import keys

if TYPE_CHECKING:
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


def check(frame: Any, wanted: Wanted) -> None:
    """Raise for a stopped session, and for columns that are not there or that no model takes."""
    check_running(frame.sparkSession)
    have = {field.name: field.dataType for field in frame.schema.fields}
    keys.check(wanted.columns, list(have))
    for name, step in wanted.columns.items():
        check_type(have[name], name, step)


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

    kinds = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    made = {name: _made_up(kinds[name], step) for name, step in wanted.columns.items()}
    if None not in made.values():
        return pyarrow.record_batch(made)
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
    return pyarrow.array([value] * 2).cast(NUMBERS[kind]) if kind in NUMBERS else None
