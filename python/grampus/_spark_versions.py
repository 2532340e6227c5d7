"""Calls that Spark 3.5 and Spark 4, and classic and Connect sessions, have under different names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grampus.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_OLDEST, _OLDEST_CONNECT = (3, 5), (4, 0)
# Rows of a table that are sent to Spark 3.5 as one row.
_CHUNK_ROWS = 10_000


def is_connect(session: Any) -> bool:
    """Whether a session talks to a server of Spark Connect."""
    return ".connect." in type(session).__module__


def check_version(session: Any) -> None:
    """Raise for a Spark that is too old."""
    why = refusal(session.version, is_connect(session))
    if why is not None:
        raise ClusterError(why)


def refusal(version: str, connect: bool) -> str | None:
    """Why sessions of this version are refused; `None` where they are not.

    >>> refusal("3.5.9", connect=False)
    >>> print(refusal("3.5.9", connect=True))
    Spark Connect needs Spark 4.0 or newer, this is Spark 3.5.9: use a classic session
    >>> print(refusal("3.4.1", connect=False))
    Spark 3.5 or newer is needed, this is Spark 3.4.1
    """
    found = _numbers(version)
    if connect and found < _OLDEST_CONNECT:
        return f"Spark Connect needs Spark 4.0 or newer, this is Spark {version}: use a classic session"
    return f"Spark 3.5 or newer is needed, this is Spark {version}" if found < _OLDEST else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


def group_jobs(session: Any, group: str, purpose: str) -> None:
    """Put the jobs that this thread starts from now on into a group; `purpose` is shown on Spark's page."""
    if is_connect(session):
        session.addTag(group)
    else:
        session.sparkContext.setJobGroup(group, purpose)


def cancel_jobs(session: Any, group: str) -> None:
    """Cancel the jobs of a group that run."""
    if is_connect(session):
        session.interruptTag(group)
    else:
        session.sparkContext.cancelJobGroup(group)


def map_in_arrow(frame: Any, function: Callable[..., Any], schema: str, profile: Any) -> list[Any]:
    """The rows that a function of Arrow batches makes of a frame, in tasks with these resources."""
    if profile is None:
        return list(frame.mapInArrow(function, schema).collect())
    if _numbers(frame.sparkSession.version) >= (4, 0):
        return list(frame.mapInArrow(function, schema, profile=profile).collect())
    return list(frame.mapInArrow(function, schema).rdd.withResources(profile).collect())


def to_arrow(frame: Any) -> Any:
    """All rows as an Arrow table, on this machine."""
    if hasattr(frame, "toArrow"):
        return frame.toArrow()
    import pyarrow
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(frame.schema)
    batches = frame._collect_as_arrow()
    return pyarrow.Table.from_batches(batches).cast(schema) if batches else schema.empty_table()


def from_arrow(session: Any, table: Any) -> Any:
    """A DataFrame with the rows of an Arrow table."""
    if _numbers(session.version) >= (4, 0):
        return session.createDataFrame(table)
    import pyarrow
    from pyspark.sql.pandas.types import from_arrow_schema

    chunks = []
    for batch in table.to_batches(_CHUNK_ROWS) or [pyarrow.RecordBatch.from_pylist([], table.schema)]:
        sink = pyarrow.BufferOutputStream()
        with pyarrow.ipc.new_stream(sink, table.schema) as writer:
            writer.write_batch(batch)
        chunks.append((bytearray(sink.getvalue().to_pybytes()),))

    def read(parts: Iterator[Any]) -> Iterator[Any]:
        for part in parts:
            for chunk in part.column(0):
                yield from pyarrow.ipc.open_stream(chunk.as_buffer())

    return session.createDataFrame(chunks, "chunk binary").mapInArrow(read, from_arrow_schema(table.schema))
