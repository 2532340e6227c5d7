"""What shards on Spark do with whole tables, as plans of Spark."""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Any

from grampus._spark_versions import to_arrow
from grampus.errors import DataError
from grampus.frames.spark_schema import NUMBERS, quoted
from grampus.shards import groups, keys, rows, tables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_JOINS = {"inner": "inner", "left": "left_outer", "right": "right_outer", "outer": "full_outer"}
_FIGURES = ["count", "mean", "std", "min", "25%", "50%", "75%", "max"]


def transformed(
    frame: Any, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], tried: int
) -> Any:
    """The partitions, each passed through a function as an Arrow table."""
    from pyspark.sql.pandas.types import from_arrow_schema

    found = _tabular(func(to_arrow(frame.limit(tried)), *args, **kwargs))
    schema = found.schema
    kinds = from_arrow_schema(schema)

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow

        held = [batch for batch in batches if batch.num_rows]
        if held:
            made = _tabular(func(pyarrow.Table.from_batches(held), *args, **kwargs))
            keys.check(schema.names, made.column_names)
            yield from made.select(schema.names).cast(schema).to_batches()

    return frame.mapInArrow(run, kinds)


def _tabular(value: Any) -> Any:
    """A table in the types that Spark takes."""
    import pyarrow

    kind = rows.kind_of(value)
    if kind not in rows.TABULAR:
        raise DataError(
            f"on Spark a function of transform_shard returns a table or a frame, this one returned "
            f"{rows.NAMES[kind]}: return a table, or bring the rows here first, with "
            "Shards.from_arrow(shards.to_arrow())"
        )
    table = rows.as_arrow(value)
    return table.cast(pyarrow.schema([field.with_type(_taken(field.type)) for field in table.schema]))


def _taken(kind: Any) -> Any:
    import pyarrow

    if pyarrow.types.is_dictionary(kind):
        return _taken(kind.value_type)
    if pyarrow.types.is_large_string(kind):
        return pyarrow.string()
    if pyarrow.types.is_large_binary(kind):
        return pyarrow.binary()
    if pyarrow.types.is_large_list(kind) or pyarrow.types.is_fixed_size_list(kind):
        return pyarrow.list_(_taken(kind.value_type))
    return kind


def partitions(frame: Any) -> int:
    """How many there are, those without rows too."""

    def one_row(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow

        for _ in batches:
            pass
        yield pyarrow.record_batch({"one": [1]})

    return int(frame.select().mapInArrow(one_row, "one long").count())


def in_order(frame: Any, names: list[str], ascending: bool | Sequence[bool]) -> Any:
    """Rows in the order of some columns, nulls and what is no number last."""
    from pyspark.sql import functions

    ways = [ascending] * len(names) if isinstance(ascending, bool) else list(ascending)
    if len(ways) != len(names):
        raise DataError(f"ascending has {len(ways)} entries for {len(names)} columns: give one for each")
    kinds = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    orders = []
    for name, up in zip(names, ways, strict=True):
        column = functions.col(quoted(name))
        if kinds[name] in ("float", "double"):
            column = functions.nanvl(column, functions.lit(None).cast(kinds[name]))
        orders.append(column.asc_nulls_last() if up else column.desc_nulls_last())
    return frame.orderBy(*orders)


def merged(left: Any, right: Any, how: str, on: Any) -> Any:
    """Pairs of rows with equal keys, null equal to null."""
    from pyspark.sql import functions

    if how not in _JOINS:
        raise ValueError(f"how must be one of {', '.join(_JOINS)}, it is {how!r}")
    common = [name for name in left.columns if name in right.columns] if on is None else keys.listed(on)
    keys.check(common, left.columns)
    keys.check(common, right.columns)
    if not common:
        raise DataError("merge needs a column that both sides have: name it the same in both")
    # Names of the right side must not meet those of the left one.
    apart = {name: f"__right_{place}" for place, name in enumerate(right.columns)}
    other = right.select(*(functions.col(quoted(name)).alias(new) for name, new in apart.items()))
    equal = [functions.col(quoted(name)).eqNullSafe(functions.col(apart[name])) for name in common]
    both = left.join(other, functools.reduce(operator.and_, equal), _JOINS[how])
    taken = set(left.columns) & set(right.columns) - set(common)
    columns = []
    for name in left.columns:
        mine = functions.col(quoted(name))
        if name in common:
            # A key comes from the side that has the row.
            columns.append(functions.coalesce(mine, functions.col(apart[name])).alias(name))
        else:
            columns.append(mine.alias(f"{name}_x" if name in taken else name))
    columns += [
        functions.col(apart[name]).alias(f"{name}_y" if name in taken else name)
        for name in right.columns
        if name not in common
    ]
    return both.select(*columns)


def grouped(frame: Any, columns: list[str], agg: groups.Aggregations, join: bool) -> Any:
    """One row for each group; with `join`, all rows with those figures."""
    from pyspark.sql import functions

    keys.check(columns, frame.columns)
    wanted = groups._wanted(agg, columns, frame.columns)
    made = {}
    for name, function in wanted:
        if name is None:
            figure = functions.count(functions.lit(1))
        else:
            figure = _aggregated(function, functions.col(quoted(name)))
        made[groups._figure(name, function)] = figure
    figures = [figure.alias(name) for name, figure in made.items()]
    result = frame.groupBy(*(functions.col(quoted(name)) for name in columns)).agg(*figures)
    if not join:
        return result
    # A figure takes the place of the column of its name.
    others = frame.select(*(functions.col(quoted(name)) for name in frame.columns if name not in made))
    joined = merged(others, result, "left", columns) if columns else others.crossJoin(result)
    return joined.select(*(functions.col(quoted(name)) for name in dict.fromkeys([*frame.columns, *made])))


def _aggregated(function: str, column: Any) -> Any:
    from pyspark.sql import functions

    # Those that Spark calls otherwise, or does otherwise where values are missing or many.
    special: dict[str, Callable[[Any], Any]] = {
        "sumDistinct": functions.sum_distinct,
        "approx_count_distinct": functions.count_distinct,
        "first": lambda values: functions.first(values, ignorenulls=True),
        "last": lambda values: functions.last(values, ignorenulls=True),
    }
    return special.get(function, getattr(functions, function, None))(column)  # type: ignore[misc]


def described(frame: Any, columns: list[str] | None) -> Any:
    """Count, mean, deviation and quartiles of columns of numbers, as a pandas frame."""
    import pandas
    from pyspark.sql import functions

    kinds = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    numeric = [name for name, kind in kinds.items() if _is_number(kind)]
    keys.check(columns or [], frame.columns)
    for name in columns or []:
        if name not in numeric:
            raise DataError(f'describe needs numbers, column "{name}" holds {kinds[name]}')
    asked = numeric if columns is None else columns
    figures = []
    for name in asked:
        column = functions.col(quoted(name)).cast("double")
        quartiles = [functions.percentile(column, functions.lit(part)) for part in (0.25, 0.5, 0.75)]
        figures += [functions.count(column), functions.mean(column), functions.stddev(column)]
        figures += [functions.min(column), *quartiles, functions.max(column)]
    if not asked:
        return pandas.DataFrame(index=_FIGURES)
    found = [tables._figure(value) for value in frame.agg(*figures).first()]
    width = len(_FIGURES)
    made = {name: found[place * width : (place + 1) * width] for place, name in enumerate(asked)}
    return pandas.DataFrame(made, index=_FIGURES)


def _is_number(kind: str) -> bool:
    return (kind in NUMBERS and kind != "boolean") or kind.startswith("decimal")


def figure(frame: Any, column: str, which: str) -> Any:
    """The largest or smallest value of a column; `None` where there is none."""
    from pyspark.sql import functions

    keys.check([column], frame.columns)
    return frame.agg(getattr(functions, which)(functions.col(quoted(column)))).first()[0]


def null_counts(frame: Any) -> dict[str, int]:
    """How many values are missing in each column."""
    from pyspark.sql import functions

    missing = [functions.count_if(functions.isnull(functions.col(quoted(name)))) for name in frame.columns]
    return dict(zip(frame.columns, map(int, frame.agg(*missing).first()), strict=True))
