"""Shards of every kind as rows: counted, cut, chosen and put together."""

from __future__ import annotations

import itertools
import posixpath
import sys
from typing import TYPE_CHECKING, Any

from grampus.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

# How each kind is called in messages.
NAMES = {
    "table": "tables",
    "polars": "polars frames",
    "frame": "pandas frames",
    "series": "pandas series",
    "arrays": "arrays",
    "list": "lists",
    "object": "objects",
}
# Stored as Arrow's own bytes.
ARROW = ("table", "polars")
# What has columns of its own.
TABULAR = ("table", "polars", "frame")
# Values that lists of Arrow hold together: they are counted with 32 bits.
_MOST_VALUES = 2**31 - 1


def kind_of(value: Any) -> str:
    """What a shard is; no library is imported to find out."""
    if _is(value, "pyarrow", "Table") or _is(value, "pyarrow", "RecordBatch"):
        return "table"
    if _is(value, "pandas", "DataFrame"):
        return "frame"
    if _is(value, "pandas", "Series"):
        return "series"
    if _is(value, "polars", "DataFrame"):
        return "polars"
    if _is_arrays(value):
        return "arrays"
    return "list" if isinstance(value, list) else "object"


def _is(value: Any, module: str, name: str) -> bool:
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(value, getattr(loaded, name))


def _is_arrays(value: Any) -> bool:
    """Whether it is a tree whose leaves are arrays with one and the same number of rows."""
    if "numpy" not in sys.modules or not isinstance(value, (dict, tuple, list, sys.modules["numpy"].ndarray)):
        return False
    found = [leaf for _, leaf in leaves(value)]
    if not found or not all(_is(leaf, "numpy", "ndarray") and leaf.ndim for leaf in found):
        return False
    return len({len(leaf) for leaf in found}) == 1


def leaves(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """What stands in nested dicts, tuples and lists, each with its place.

    >>> list(leaves({"x": [1, (2,)]}))
    [("['x'][0]", 1), ("['x'][1][0]", 2)]
    """
    if isinstance(tree, dict):
        for key, part in tree.items():
            yield from leaves(part, f"{path}[{key!r}]")
    elif isinstance(tree, tuple | list):
        for place, part in enumerate(tree):
            yield from leaves(part, f"{path}[{place}]")
    else:
        yield path, tree


def mapped(tree: Any, function: Callable[..., Any], *others: Any) -> Any:
    """The same tree with every leaf, and those in the same place of the others, passed through a function.

    >>> mapped({"x": (1, 2)}, lambda a, b: a + b, {"x": (10, 20)})
    {'x': (11, 22)}
    """
    if isinstance(tree, dict):
        return {key: mapped(tree[key], function, *(other[key] for other in others)) for key in tree}
    if isinstance(tree, tuple | list):
        parts = [mapped(part, function, *(o[at] for o in others)) for at, part in enumerate(tree)]
        if isinstance(tree, list):
            return parts
        # A named tuple takes its parts one by one.
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    return function(tree, *others)


def count(value: Any, kind: str) -> int:
    """Rows of a shard; an object is one."""
    if kind in ARROW:
        return int(value.num_rows if kind == "table" else value.height)
    if kind == "arrays":
        return len(next(leaves(value))[1])
    return 1 if kind == "object" else len(value)


def as_arrow(value: Any) -> Any:
    """A shard with columns as one Arrow table, with plain texts in place of views, which few kernels take.

    What pandas notes beside a table is left out: it would turn changed columns into what they were before.
    """
    import pyarrow

    if _is(value, "pandas", "DataFrame"):
        return _frame_as_arrow(value)
    if isinstance(value, pyarrow.RecordBatch):
        table = pyarrow.Table.from_batches([value])
    else:
        # Unlike `pyarrow.table`, this does not import pandas to find out what it is given.
        table = pyarrow.RecordBatchReader.from_stream(value).read_all()
    plain = {pyarrow.string_view(): pyarrow.large_string(), pyarrow.binary_view(): pyarrow.large_binary()}
    for place, field in enumerate(table.schema):
        wanted = plain.get(field.type)
        if pyarrow.types.is_dictionary(field.type) and field.type.value_type in plain:
            kind = field.type
            wanted = pyarrow.dictionary(kind.index_type, plain[kind.value_type], kind.ordered)
        if wanted is not None:
            table = table.set_column(place, field.with_type(wanted), table[place].cast(wanted))
    notes = {key: note for key, note in (table.schema.metadata or {}).items() if key != b"pandas"}
    return table.replace_schema_metadata(notes).unify_dictionaries()


def _frame_as_arrow(frame: Any) -> Any:
    import pyarrow

    odd = [name for name in frame.columns if not isinstance(name, str)]
    if odd:
        raise DataError(f"columns must be named by texts, {odd[0]!r} is a {type(odd[0]).__name__}: rename it")
    try:
        return pyarrow.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata()
    except pyarrow.ArrowException as error:
        why = " ".join(str(part) for part in error.args)
        raise DataError(f"a frame holds values of different types where one is needed: {why}") from None


def with_column(table: Any, name: str, column: Any) -> Any:
    """An Arrow table with a column, in the place of that of the same name where there is one."""
    if name in table.column_names:
        return table.set_column(table.column_names.index(name), name, column)
    return table.append_column(name, column)


def nested(array: Any) -> Any:
    """An array as an Arrow column: where it has several axes, lists within lists.

    >>> import numpy as np
    >>> nested(np.eye(2)).to_pylist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    import numpy
    import pyarrow

    if array.ndim > 1 and array.size > _MOST_VALUES:
        raise DataError(
            f"{len(array)} rows of {array.size // len(array)} numbers each were answered at once, and a "
            f"column of lists holds {_MOST_VALUES} numbers: answer fewer numbers for a row, or pass fewer "
            "rows at once (on Spark spark.sql.execution.arrow.maxRecordsPerBatch)"
        )
    values = pyarrow.array(array.reshape(-1))
    for axis in range(array.ndim - 1, 0, -1):
        lists = int(numpy.prod(array.shape[:axis]))
        offsets = numpy.arange(lists + 1, dtype=numpy.int32) * numpy.int32(array.shape[axis])
        values = pyarrow.ListArray.from_arrays(pyarrow.array(offsets), values)
    return values


def text_suffix(path: str) -> str:
    """The end of the name of a file that says what it holds, not how that is compressed.

    >>> text_suffix("in/a.CSV.gz")
    '.csv'
    """
    name, end = posixpath.splitext(path.lower())
    return posixpath.splitext(name)[1] if end in (".gz", ".zst") else end


def from_arrow(table: Any, kind: str) -> Any:
    """An Arrow table as a shard of a kind."""
    if kind == "frame":
        return table.to_pandas()
    if kind == "polars":
        import polars

        return polars.from_arrow(table)
    return table


def cut(value: Any, kind: str, start: int, stop: int) -> Any:
    """Some rows, without a copy where the kind allows it."""
    if kind in ARROW:
        return value.slice(start, stop - start)
    if kind in ("frame", "series"):
        return value.iloc[start:stop]
    if kind == "arrays":
        return mapped(value, lambda leaf: leaf[start:stop])
    return value[start:stop]


def take(value: Any, kind: str, places: Any) -> Any:
    """The rows at these places (an array of whole numbers), in this order."""
    if kind == "table":
        return value.take(places)
    if kind == "polars":
        return value[places]
    if kind in ("frame", "series"):
        return value.iloc[places]
    if kind == "arrays":
        return mapped(value, lambda leaf: leaf[places])
    return [value[place] for place in places]


def together(values: Sequence[Any], kind: str) -> Any:
    """Shards of one kind as one."""
    if len(values) == 1:
        return values[0]
    if kind == "table":
        return _tables_together(values)
    if kind in ("frame", "series", "polars"):
        module = sys.modules["polars" if kind == "polars" else "pandas"]
        return module.concat(list(values))
    if kind == "arrays":
        import numpy

        try:
            return mapped(values[0], lambda *parts: numpy.concatenate(parts), *values[1:])
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise DataError(f"shards hold trees of arrays that differ: {error}") from None
    return [row for value in values for row in value]


def _tables_together(tables: Sequence[Any]) -> Any:
    import pyarrow

    first = tables[0].schema
    for number, table in enumerate(tables[1:], 1):
        if not table.schema.equals(first):
            raise DataError(f"the tables of shards 0 and {number} differ: {_difference(first, table.schema)}")
    return pyarrow.concat_tables(tables).unify_dictionaries()


def _difference(one: Any, other: Any) -> str:
    for name in dict.fromkeys([*one.names, *other.names]):
        if name not in one.names or name not in other.names:
            return f"only one of them has a column {name!r}"
        if one.field(name).type != other.field(name).type:
            return (
                f"column {name!r} is {one.field(name).type} in one and {other.field(name).type} in the other"
            )
    return "their columns come in different orders"


def one_kind(values: Sequence[Any], operation: str, allowed: Sequence[str]) -> str:
    """The kind that all shards have; an error that says what the operation needs where it is another."""
    kinds = list(dict.fromkeys(kind_of(value) for value in values))
    found = " and ".join(NAMES[kind] for kind in kinds)
    if len(kinds) > 1 or kinds[0] not in allowed:
        shown = _shown(values[0]) if len(kinds) == 1 else ""
        needed = "tables" if tuple(allowed) == TABULAR else " or ".join(NAMES[kind] for kind in allowed)
        raise DataError(
            f"{operation} needs {needed}, these shards are {found}{shown}: "
            "turn them into what is needed with transform_shard first"
        )
    return kinds[0]


def _shown(value: Any) -> str:
    """What a shard without columns is made of, in a few words."""
    if kind_of(value) == "object":
        return f" ({type(value).__name__})"
    if kind_of(value) == "arrays" and not _is(value, "numpy", "ndarray"):
        return f" ({type(value).__name__} of arrays)"
    return ""


def evenly(total: int, parts: int) -> list[tuple[int, int]]:
    """Where to cut rows into parts that differ by at most one row, the longer ones first.

    >>> evenly(5, 3)
    [(0, 2), (2, 4), (4, 5)]
    """
    whole, more = divmod(total, parts)
    edges = [part * whole + min(part, more) for part in range(parts + 1)]
    return list(itertools.pairwise(edges))


def recut(values: Sequence[Any], kind: str, parts: int) -> list[Any]:
    """The rows of all shards in the same order, cut evenly into so many."""
    sizes = [count(value, kind) for value in values]
    made = []
    for start, stop in evenly(sum(sizes), parts):
        pieces, first = [], 0
        for value, size in zip(values, sizes, strict=True):
            low, high = max(start, first), min(stop, first + size)
            if low < high:
                pieces.append(cut(value, kind, low - first, high - first))
            first += size
        made.append(together(pieces, kind) if pieces else cut(values[0], kind, 0, 0))
    return made
