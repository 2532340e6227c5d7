"""Scalers and indexers on tables: figures and counts of columns, and rows with encoded columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from grampus.errors import DataError
from grampus.shards import keys, rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from grampus.shards.scalers import StringIndex


class Moments(NamedTuple):
    """Figures of a column of numbers; `None` where it has too few values for one."""

    smallest: float | None
    largest: float | None
    mean: float | None
    # Of a sample.
    deviation: float | None


class Scale(NamedTuple):
    """How a column is scaled: `(value - start) / span * size + base`."""

    start: float = 0.0
    span: float = 1.0
    size: float = 1.0
    base: float = 0.0


def moments(table: Any, names: Sequence[str]) -> list[Moments]:
    """Figures of columns of a table."""
    import pyarrow.compute as kernels

    found = []
    for name in names:
        column = _numbers(table[name], name)
        ends = kernels.min_max(column).as_py()
        mean, deviation = kernels.mean(column), kernels.stddev(column, ddof=1)
        found.append(Moments(ends["min"], ends["max"], mean.as_py(), deviation.as_py()))
    return found


def not_numbers(name: str, kind: Any) -> DataError:
    """What is wrong with a column that cannot be scaled."""
    return DataError(f'column "{name}" holds {kind}: only numbers can be scaled')


def _numbers(column: Any, name: str) -> Any:
    import pyarrow

    if not (pyarrow.types.is_integer(column.type) or pyarrow.types.is_floating(column.type)):
        raise not_numbers(name, column.type)
    return column.cast(pyarrow.float64(), safe=False)


def scaled(value: Any, inputs: list[str], outputs: list[str], scales: list[Scale]) -> Any:
    """A shard with columns that are scaled from others."""
    import pyarrow.compute as kernels

    found = [_numbers(_column(value, name), name) for name in inputs]
    for column, output, (start, span, size, base) in zip(found, outputs, scales, strict=True):
        made = kernels.divide(kernels.subtract(column, start), span)
        made = kernels.add(kernels.multiply(made, size), base)
        value = _with_column(value, output, made)
    return value


def _column(value: Any, name: str) -> Any:
    """One column of a shard as Arrow's."""
    import pyarrow

    kind = rows.one_kind([value], "a scaler or indexer", rows.TABULAR)
    keys.check([name], list(value.column_names if kind == "table" else value.columns))
    if kind == "frame":
        return pyarrow.chunked_array([pyarrow.Array.from_pandas(value[name])])
    return rows.as_arrow(value.select([name]))[name]


def _with_column(value: Any, name: str, column: Any) -> Any:
    """A shard with a column replaced, or added at the end."""
    kind = rows.kind_of(value)
    if kind == "frame":
        series = column.to_pandas()
        series.index = value.index
        return value.assign(**{name: series})
    if kind == "polars":
        import polars

        return value.with_columns(polars.Series(name, column))
    place = value.schema.get_field_index(name)
    return value.append_column(name, column) if place < 0 else value.set_column(place, name, column)


def text_counts(column: Any, least: int, sep: str | None) -> dict[Any, int]:
    """How often texts occur that do so at least so often, in order of first appearance."""
    if len(column) == 0:
        return {}
    found = keys.values_of(column).value_counts().to_pylist()
    counts: dict[Any, int] = {}
    for each in found:
        if each["values"] is not None:
            for text in _texts(each["values"], sep):
                counts[text] = counts.get(text, 0) + each["counts"]
    return {text: count for text, count in counts.items() if count >= least}


def _texts(value: Any, sep: str | None) -> list[Any]:
    if sep is None:
        return [value]
    if not isinstance(value, str):
        raise DataError(f"do_split needs texts, a value is {value!r}: leave do_split out")
    return value.split(sep)


class Encoding(NamedTuple):
    """How texts become numbers: alone or as the parts between separators, sorted, or the smallest alone."""

    sep: str | None
    is_sorted: bool
    is_smallest: bool

    @property
    def makes_lists(self) -> bool:
        """Whether a text becomes several numbers."""
        return self.sep is not None and not self.is_smallest

    def number(self, text: Any, find: Callable[[Any, int], int]) -> Any:
        """What a text becomes, or a list of what its parts do."""
        if self.sep is None:
            return find(text, 0)
        found = [] if text is None else [find(part, 0) for part in _texts(text, self.sep)]
        if self.is_smallest:
            return min((number for number in found if number), default=0)
        return sorted(found) if self.is_sorted else found


def encoded(value: Any, names: list[str], indices: list[StringIndex], encoding: Encoding) -> Any:
    """A shard with numbers in the place of texts; each different text is looked up once."""
    import pyarrow

    kind = pyarrow.list_(pyarrow.int64()) if encoding.makes_lists else pyarrow.int64()
    for name, index in zip(names, indices, strict=True):
        numbers = index.to_dict()
        column = keys.values_of(_column(value, name))
        known = {text: encoding.number(text, numbers.get) for text in column.unique().to_pylist()}
        made = pyarrow.array([known[text] for text in column.to_pylist()], kind)
        value = _with_column(value, name, pyarrow.chunked_array([made]))
    return value
