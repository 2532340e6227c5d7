"""Operations that see all rows of tables at once, on the kernels of Arrow, in the driver.

Each takes the shards and returns as many again. Rows are chosen by their places wherever that is enough, so
that columns of any type go through untouched.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from grampus.errors import DataError
from grampus.shards import keys, rows

if TYPE_CHECKING:
    from collections.abc import Sequence

JOINS = {"inner": "inner", "left": "left outer", "right": "right outer", "outer": "full outer"}


def whole(values: Sequence[Any], operation: str) -> tuple[Any, str]:
    """All shards as one Arrow table, and the kind they had."""
    kind = rows.one_kind(values, operation, rows.TABULAR)
    return rows.as_arrow(rows.together(values, kind)), kind


def _chosen(values: Sequence[Any], kind: str, places: Any) -> list[Any]:
    return rows.recut([rows.take(rows.together(values, kind), kind, places)], kind, len(values))


def sort(values: Sequence[Any], by: list[str], ascending: list[bool]) -> list[Any]:
    """Rows in the order of some columns; equal ones stay in theirs, nulls come last."""
    import pyarrow
    import pyarrow.compute

    table, kind = whole(values, "sort_values")
    keys.check(by, table.column_names)
    columns = [_sortable(table[name], name) for name in by]
    named = pyarrow.table(columns, names=[str(place) for place in range(len(by))])
    orders = [
        (name, "ascending" if up else "descending")
        for name, up in zip(named.column_names, ascending, strict=True)
    ]
    places = pyarrow.compute.sort_indices(named, sort_keys=orders)
    return _chosen(values, kind, places.to_numpy())


def _sortable(column: Any, name: str) -> Any:
    import pyarrow

    if pyarrow.types.is_nested(column.type):
        raise DataError(f'sort_values cannot order column "{name}", which holds {column.type}')
    if pyarrow.types.is_dictionary(column.type) and column.type.ordered:
        return pyarrow.chunked_array([chunk.indices for chunk in column.chunks], column.type.index_type)
    column = keys.values_of(column)
    if pyarrow.types.is_floating(column.type):
        # NaN is no number, so it goes where nulls go.
        nan = pyarrow.compute.is_nan(column)
        column = pyarrow.compute.if_else(nan, pyarrow.scalar(None, column.type), column)
    return column


def deduplicate(values: Sequence[Any]) -> list[Any]:
    """The first of all equal rows, in the same order."""
    import numpy

    table, kind = whole(values, "deduplicate")
    _, first = numpy.unique(keys.codes(table, table.column_names), return_index=True)
    return _chosen(values, kind, first)


def partition_by(values: Sequence[Any], columns: list[str], parts: int) -> list[Any]:
    """Rows with equal keys in one shard, which a hash of the keys chooses; the order inside it stays."""
    import numpy

    table, kind = whole(values, "partition_by")
    keys.check(columns, table.column_names)
    if not columns:
        raise DataError("partition_by needs at least one column")
    targets = keys.hashes(table, columns) % numpy.uint64(parts)
    order = numpy.argsort(targets, kind="stable")
    edges = numpy.searchsorted(targets[order], numpy.arange(parts + 1, dtype=numpy.uint64))
    joined = rows.take(rows.together(values, kind), kind, order)
    return [rows.cut(joined, kind, int(start), int(stop)) for start, stop in itertools.pairwise(edges)]


def unique(values: Sequence[Any]) -> Any:
    """The different values of one column as an array, in order of first appearance."""
    import numpy
    import pyarrow

    kind = rows.one_kind(values, "unique", (*rows.TABULAR, "series", "arrays"))
    joined = rows.together(values, kind)
    if kind == "arrays":
        if not isinstance(joined, numpy.ndarray) or joined.ndim != 1:
            raise DataError("unique needs one column: choose it first, as in shards['name'].unique()")
        joined = pyarrow.chunked_array([pyarrow.array(joined)])
    elif kind == "series":
        joined = pyarrow.chunked_array([pyarrow.Array.from_pandas(joined)])
    else:
        table = rows.as_arrow(joined)
        if table.num_columns != 1:
            raise DataError(
                f"unique needs one column, these tables have {table.num_columns}: "
                "choose it first, as in shards['name'].unique()"
            )
        joined = table[0]
    _, first = numpy.unique(keys.codes(pyarrow.table({"": joined}), [""]), return_index=True)
    chosen = joined.take(first)
    if pyarrow.types.is_dictionary(chosen.type):
        chosen = chosen.cast(chosen.type.value_type)
    return chosen.to_numpy()


def merge(left: Sequence[Any], right: Sequence[Any], how: str, on: list[str] | None, parts: int) -> list[Any]:
    """Rows of both sides whose keys are equal, in the order of the left side, then of the right one.

    Rows of the right side alone come last. Null equals null, as in pandas.
    """
    import numpy
    import pyarrow

    (one, kind), (other, _) = whole(left, "merge"), whole(right, "merge")
    common = [name for name in one.column_names if name in other.column_names] if on is None else on
    if not common:
        raise DataError("merge needs columns that both sides have: give on=, or rename them")
    keys.check(common, one.column_names)
    keys.check(common, other.column_names)
    both = _key_columns(one, other, common)
    codes = keys.codes(both, common)
    sides = [
        pyarrow.table({"key": numbers, place: numpy.arange(len(numbers))})
        for place, numbers in (("left", codes[: one.num_rows]), ("right", codes[one.num_rows :]))
    ]
    pairs = sides[0].join(sides[1], keys="key", join_type=JOINS[how])
    pairs = pairs.sort_by([("left", "ascending"), ("right", "ascending")])
    joined = _joined(one, other, both, common, pairs)
    return rows.recut([rows.from_arrow(joined, kind)], kind, parts)


def _key_columns(one: Any, other: Any, common: list[str]) -> Any:
    """The keys of the left side, and then those of the right one."""
    import pyarrow

    columns = {}
    for name in common:
        sides = [keys.values_of(one[name]), keys.values_of(other[name])]
        try:
            pair = [pyarrow.table({name: side}) for side in sides]
            columns[name] = pyarrow.concat_tables(pair, promote_options="permissive")[name]
        except pyarrow.ArrowException:
            raise DataError(
                f'merge cannot compare column "{name}": it is {one[name].type} on the left '
                f"and {other[name].type} on the right"
            ) from None
    return pyarrow.table(columns)


def _joined(one: Any, other: Any, both: Any, common: list[str], pairs: Any) -> Any:
    import pyarrow
    import pyarrow.compute

    left, right = pairs["left"], pairs["right"]
    # A key comes from the left side where it has the row.
    either = pyarrow.compute.coalesce(left, pyarrow.compute.add(right, one.num_rows))
    taken = set(one.column_names) & set(other.column_names) - set(common)
    columns = {}
    for name in one.column_names:
        if name in common:
            same = one[name].type == other[name].type and not pyarrow.types.is_dictionary(one[name].type)
            chunks = [*one[name].chunks, *other[name].chunks]
            source = pyarrow.chunked_array(chunks, one[name].type) if same else both[name]
            columns[name] = source.take(either)
        else:
            columns[f"{name}_x" if name in taken else name] = one[name].take(left)
    for name in other.column_names:
        if name not in common:
            columns[f"{name}_y" if name in taken else name] = other[name].take(right)
    return pyarrow.table(columns)


def describe(values: Sequence[Any], columns: list[str] | None) -> Any:
    """Count, mean, deviation and quartiles of columns of numbers, as a pandas frame."""
    import pandas
    import pyarrow
    import pyarrow.compute as kernels

    table, _ = whole(values, "describe")
    numeric = [field.name for field in table.schema if _is_number(field.type)]
    if columns is not None:
        keys.check(columns, table.column_names)
        for name in columns:
            if name not in numeric:
                raise DataError(f'describe needs numbers, column "{name}" holds {table[name].type}')
    found = {}
    for name in numeric if columns is None else columns:
        column = table[name].cast(pyarrow.float64(), safe=False)
        quartiles = kernels.quantile(column, q=[0.25, 0.5, 0.75]).to_pylist()
        figures = [kernels.mean(column), kernels.stddev(column, ddof=1), kernels.min(column)]
        found[name] = [
            float(len(column) - column.null_count),
            *(_figure(each.as_py()) for each in figures),
            *map(_figure, quartiles),
            _figure(kernels.max(column).as_py()),
        ]
    return pandas.DataFrame(found, index=["count", "mean", "std", "min", "25%", "50%", "75%", "max"])


def _is_number(kind: Any) -> bool:
    import pyarrow

    return bool(
        pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind) or pyarrow.types.is_decimal(kind)
    )


def _figure(value: Any) -> float:
    return float("nan") if value is None else float(value)


def extreme(values: Sequence[Any], column: str, which: str) -> Any:
    """The largest or smallest value of a column; `None` where there is none."""
    import pyarrow
    import pyarrow.compute

    table, _ = whole(values, f"{which}_values")
    keys.check([column], table.column_names)
    try:
        return getattr(pyarrow.compute, which)(keys.values_of(table[column])).as_py()
    except pyarrow.ArrowNotImplementedError:
        raise DataError(
            f'{which}_values cannot compare column "{column}": it holds {table[column].type}'
        ) from None


def null_counts(values: Sequence[Any]) -> dict[str, int]:
    """How many values are missing in each column."""
    table, _ = whole(values, "null_counts")
    return {name: table[name].null_count for name in table.column_names}
