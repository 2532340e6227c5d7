"""Groups of rows with equal keys, and what can be worked out of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from grampus.errors import DataError
from grampus.shards import keys, rows, tables

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Aggregations = str | Sequence[str] | dict[str, str | Sequence[str]]

# Functions that Arrow has a kernel for: its name and its options.
_KERNELS: dict[str, tuple[str, dict[str, Any]]] = {
    "max": ("max", {}),
    "min": ("min", {}),
    "sum": ("sum", {"min_count": 1}),
    "avg": ("mean", {}),
    "mean": ("mean", {}),
    "stddev": ("stddev", {"ddof": 1}),
    "stddev_pop": ("stddev", {"ddof": 0}),
    "variance": ("variance", {"ddof": 1}),
    "var_pop": ("variance", {"ddof": 0}),
    "skewness": ("skew", {}),
    "kurtosis": ("kurtosis", {}),
}
_OPTIONS = {
    "max": "ScalarAggregateOptions",
    "min": "ScalarAggregateOptions",
    "sum": "ScalarAggregateOptions",
    "mean": "ScalarAggregateOptions",
    "stddev": "VarianceOptions",
    "variance": "VarianceOptions",
    "skew": "SkewOptions",
    "kurtosis": "SkewOptions",
}
_ANY_TYPE = ("count", "approx_count_distinct", "first", "last", "collect_list", "collect_set", "max", "min")


class _Column(NamedTuple):
    """The values of a column that are there, with the group of each, and the number of groups."""

    values: Any
    codes: Any
    groups: int


def group_by(values: Sequence[Any], columns: list[str], agg: Aggregations, join: bool) -> list[Any]:
    """One row for each group, in order of first appearance; with `join`, all rows with those figures."""
    import numpy
    import pyarrow

    table, kind = tables.whole(values, "group_by")
    keys.check(columns, table.column_names)
    wanted = _wanted(agg, columns, table.column_names)
    codes = keys.codes(table, columns)
    _, first = numpy.unique(codes, return_index=True)
    made: dict[str, Any] = {} if join else {name: table[name].take(first) for name in columns}
    for name, function in wanted:
        if name is None:
            figure = pyarrow.array(numpy.bincount(codes, minlength=len(first)))
        else:
            figure = _aggregated(table[name], name, function, codes, len(first))
        made[_figure(name, function)] = figure
    result = pyarrow.table(made)
    if join:
        figures = result.take(codes)
        for name in figures.column_names:
            table = rows.with_column(table, name, figures[name])
        result = table
    return rows.recut([rows.from_arrow(result, kind)], kind, len(values))


def _wanted(agg: Aggregations, columns: list[str], have: list[str]) -> list[tuple[str | None, str]]:
    """Columns and functions; no column stands for the rows themselves."""
    pairs = _pairs(agg, columns, have)
    both = {_figure(name, function) for name, function in pairs} & set(columns)
    if both:
        raise DataError(f'column "{min(both)}" is a key and the name of a figure: rename the key')
    return pairs


def _figure(name: str | None, function: str) -> str:
    """What the column of a figure is called."""
    return function if name is None else f"{function}({name})"


def _pairs(agg: Aggregations, columns: list[str], have: list[str]) -> list[tuple[str | None, str]]:
    if agg == "count":
        return [(None, "count")]
    others = [name for name in have if name not in columns]
    asked: Any = agg
    if not isinstance(agg, dict):
        asked = dict.fromkeys(others, agg)
    keys.check(asked, have)
    pairs: list[tuple[str | None, str]] = [
        (name, function) for name, each in asked.items() for function in keys.listed(each)
    ]
    for _, function in pairs:
        if function not in FUNCTIONS:
            raise DataError(f"group_by has no function {function!r}: it has {', '.join(FUNCTIONS)}")
    if not pairs:
        raise DataError("group_by has nothing to work out: give agg a function, or a dict of columns")
    return pairs


def _aggregated(column: Any, name: str, function: str, codes: Any, groups: int) -> Any:
    import pyarrow

    if not (function in _ANY_TYPE or tables._is_number(column.type) or pyarrow.types.is_boolean(column.type)):
        raise DataError(_refused(function, name, column))
    valid = column.is_valid().to_numpy()
    there = _Column(column.filter(pyarrow.array(valid)), codes[valid], groups)
    try:
        return FUNCTIONS[function](there)
    except pyarrow.ArrowNotImplementedError:
        raise DataError(_refused(function, name, column)) from None
    except OverflowError as error:
        raise DataError(
            f'the {function} of column "{name}" {error}: turn the column into floats first (transform_shard)'
        ) from None


def _refused(function: str, name: str, column: Any) -> str:
    return (
        f'group_by cannot work out {function} of column "{name}", which holds {column.type}: '
        "name the columns, as in agg={'price': 'sum'}"
    )


def _kernel(function: str) -> Callable[[_Column], Any]:
    def work_out(column: _Column) -> Any:
        import pyarrow
        import pyarrow.compute

        name, options = _KERNELS[function]
        values = column.values
        if name in ("max", "min"):
            values = keys.values_of(values)
        exact = _sum_type(values) if name == "sum" else None
        if exact is not None:
            values = values.cast(pyarrow.decimal128(20, 0))
        table = pyarrow.table({"group": column.codes, "value": values})
        how = getattr(pyarrow.compute, _OPTIONS[name])(**options)
        # One thread: sums then add in the order of the rows, so equal input gives equal bits.
        found = table.group_by("group", use_threads=False).aggregate([("value", name, how)])
        figures = found[f"value_{name}"]
        if exact is not None:
            try:
                figures = figures.cast(exact)
            except pyarrow.ArrowInvalid:
                raise OverflowError(f"does not fit into {exact}") from None
        return _spread(found["group"].to_numpy(), figures, column.groups)

    return work_out


def _sum_type(values: Any) -> Any:
    """The type of a sum of integers that may leave it, which the kernel would not notice; else nothing."""
    import pyarrow
    import pyarrow.compute

    if not pyarrow.types.is_integer(values.type) or not len(values):
        return None
    signed = pyarrow.types.is_signed_integer(values.type)
    ends = pyarrow.compute.min_max(values).as_py().values()
    if max(abs(end) for end in ends) * len(values) < 2 ** (63 if signed else 64):
        return None
    return pyarrow.int64() if signed else pyarrow.uint64()


def _spread(groups: Any, values: Any, total: int) -> Any:
    """A value for each group, null for those that have none."""
    import numpy
    import pyarrow

    places = numpy.full(total, -1, numpy.int64)
    places[groups] = numpy.arange(len(groups))
    return values.take(pyarrow.array(places, mask=places < 0))


def _count(column: _Column) -> Any:
    import numpy
    import pyarrow

    return pyarrow.array(numpy.bincount(column.codes, minlength=column.groups))


def _different(column: _Column) -> _Column:
    """Each value once a group, the first of them."""
    import numpy
    import pyarrow

    table = pyarrow.table({"group": column.codes, "value": column.values})
    _, first = numpy.unique(keys.codes(table, ["group", "value"]), return_index=True)
    return _Column(column.values.take(first), column.codes[first], column.groups)


def _edge(last: bool) -> Callable[[_Column], Any]:
    def work_out(column: _Column) -> Any:
        import numpy

        codes = column.codes[::-1] if last else column.codes
        groups, at = numpy.unique(codes, return_index=True)
        return _spread(groups, column.values.take(len(codes) - 1 - at if last else at), column.groups)

    return work_out


def _collected(column: _Column) -> Any:
    import numpy
    import pyarrow

    order = numpy.argsort(column.codes, kind="stable")
    ends = numpy.cumsum(numpy.bincount(column.codes, minlength=column.groups))
    values = column.values.take(order).combine_chunks()
    offsets = pyarrow.array(numpy.concatenate([[0], ends]), pyarrow.int64())
    return pyarrow.LargeListArray.from_arrays(offsets, values)


FUNCTIONS: dict[str, Callable[[_Column], Any]] = {
    **{name: _kernel(name) for name in _KERNELS},
    "count": _count,
    "sumDistinct": lambda column: _kernel("sum")(_different(column)),
    "approx_count_distinct": lambda column: _count(_different(column)),
    "collect_list": _collected,
    "collect_set": lambda column: _collected(_different(column)),
    "first": _edge(last=False),
    "last": _edge(last=True),
}
