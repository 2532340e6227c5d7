"""Columns of numbers scaled, and columns of texts turned into numbers.

What is learnt is learnt from all rows at once; it is applied on the workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from grampus._traceback import public_methods
from grampus.errors import DataError
from grampus.shards import keys, rows
from grampus.shards.shared_value import SharedValue

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from grampus.shards.collection import Shards

    Columns = str | Sequence[str]


class _Figures(NamedTuple):
    start: float = 0.0
    span: float = 1.0
    size: float = 1.0
    base: float = 0.0


@public_methods
class _Scaler:
    """Scales columns: `(value - start) / span * size + base`, four figures that are learnt for each."""

    def __init__(self, input_col: Columns | None, output_col: Columns | None) -> None:
        self._inputs: list[str] = []
        self._outputs: list[str] = []
        self._figures: list[_Figures] | None = None
        self._name(input_col, output_col)

    def _name(self, input_col: Columns | None, output_col: Columns | None) -> None:
        inputs = keys.listed(input_col)
        outputs = keys.listed(output_col) or inputs
        if len(inputs) != len(outputs):
            raise ValueError(f"{len(inputs)} input columns need as many output columns, not {len(outputs)}")
        self._inputs, self._outputs = inputs, outputs

    def setInputOutputCol(self, inputCol: Columns, outputCol: Columns | None = None) -> Any:  # noqa: N802, N803
        """Choose the columns to scale and those to write, by default the same; return the scaler."""
        self._name(inputCol, outputCol)
        self._figures = None
        return self

    def fit(self, shards: Shards) -> Any:
        """Learn from all rows; return the scaler."""
        if not self._inputs:
            raise DataError(f"{type(self).__name__} has no columns: give inputCol")
        table = shards.select(self._inputs).to_arrow()
        self._figures = [self._learnt(_numbers(table[name], name)) for name in self._inputs]
        return self

    def transform(self, shards: Shards) -> Shards:
        """Scale with what was learnt."""
        if self._figures is None:
            raise DataError(f"{type(self).__name__} has learnt nothing yet: call fit or fit_transform first")
        return shards.transform_shard(_scaled, self._inputs, self._outputs, self._figures)

    def fit_transform(self, shards: Shards) -> Shards:
        """Learn from all rows, and scale them."""
        made: Shards = self.fit(shards).transform(shards)
        return made

    def _learnt(self, column: Any) -> _Figures:
        raise NotImplementedError


class MinMaxScaler(_Scaler):
    """Scales columns so that their smallest value becomes `min` and their largest one `max`.

    A column with one value only becomes the middle of both. Nulls stay nulls.
    """

    def __init__(
        self,
        min: float = 0.0,  # noqa: A002
        max: float = 1.0,  # noqa: A002
        inputCol: Columns | None = None,  # noqa: N803
        outputCol: Columns | None = None,  # noqa: N803
    ) -> None:
        if not min < max:
            raise ValueError(f"min must be below max, they are {min} and {max}")
        super().__init__(inputCol, outputCol)
        self._range = (float(min), float(max))

    def _learnt(self, column: Any) -> _Figures:
        import pyarrow.compute

        found = pyarrow.compute.min_max(column).as_py()
        low, high = self._range
        if found["min"] is None or found["min"] == found["max"]:
            return _Figures(size=0.0, base=(low + high) / 2)
        return _Figures(found["min"], found["max"] - found["min"], high - low, low)


class StandardScaler(_Scaler):
    """Scales columns to a deviation of 1, and with `withMean` to a mean of 0.

    The deviation is that of a sample (n - 1). A column with one value only becomes 0. Nulls stay nulls.
    """

    def __init__(
        self,
        withMean: bool = False,  # noqa: N803
        withStd: bool = True,  # noqa: N803
        inputCol: Columns | None = None,  # noqa: N803
        outputCol: Columns | None = None,  # noqa: N803
    ) -> None:
        super().__init__(inputCol, outputCol)
        self._mean, self._deviation = withMean, withStd

    def _learnt(self, column: Any) -> _Figures:
        import pyarrow.compute

        mean = pyarrow.compute.mean(column).as_py() if self._mean else 0.0
        deviation = pyarrow.compute.stddev(column, ddof=1).as_py() if self._deviation else 1.0
        return _Figures(mean or 0.0, deviation or 1.0, 1.0 if deviation else 0.0)


def _numbers(column: Any, name: str) -> Any:
    import pyarrow

    if not (pyarrow.types.is_integer(column.type) or pyarrow.types.is_floating(column.type)):
        raise DataError(f'column "{name}" holds {column.type}: only numbers can be scaled')
    return column.cast(pyarrow.float64(), safe=False)


def _scaled(value: Any, inputs: list[str], outputs: list[str], figures: list[_Figures]) -> Any:
    import pyarrow.compute as kernels

    found = [_numbers(_column(value, name), name) for name in inputs]
    for column, output, (start, span, size, base) in zip(found, outputs, figures, strict=True):
        scaled = kernels.divide(kernels.subtract(column, start), span)
        scaled = kernels.add(kernels.multiply(scaled, size), base)
        value = _with_column(value, output, scaled)
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


@public_methods
class StringIndex:
    """The numbers of texts: from 1 on; 0 stands for a text that is not known, and for null."""

    def __init__(self, numbers: dict[Any, int], col_name: str) -> None:
        self.col_name = col_name
        self._numbers: dict[Any, int] | SharedValue = dict(numbers)

    @classmethod
    def from_dict(cls, indices: dict[Any, int], col_name: str) -> StringIndex:
        """Of numbers that were made elsewhere; each must be at least 1."""
        wrong = [text for text, number in indices.items() if number < 1]
        if wrong:
            raise ValueError(f"numbers of texts start at 1, that of {wrong[0]!r} is {indices[wrong[0]]}")
        return cls(indices, col_name)

    def to_dict(self) -> dict[Any, int]:
        """Text to number."""
        held = self._numbers.value if isinstance(self._numbers, SharedValue) else self._numbers
        return dict(held)

    def broadcast(self) -> StringIndex:
        """Keep the numbers in memory that all workers share; worth it for large ones."""
        if not isinstance(self._numbers, SharedValue):
            self._numbers = SharedValue(self._numbers)
        return self


@public_methods
class StringIndexer:
    """Turns texts into whole numbers: the most frequent becomes 1.

    Equally frequent ones go by first appearance. A text that was not learnt, and null, become 0.
    """

    def __init__(self, inputCol: str | None = None) -> None:  # noqa: N803
        self._input = inputCol
        self._index: StringIndex | None = None

    def setInputCol(self, inputCol: str) -> StringIndexer:  # noqa: N802, N803
        """Choose the column; return the indexer."""
        self._input, self._index = inputCol, None
        return self

    def fit(self, shards: Shards) -> StringIndexer:
        """Learn the texts of all rows; return the indexer."""
        if self._input is None:
            raise DataError("StringIndexer has no column: give inputCol")
        self._index = self.gen_string_idx(shards, self._input, order_by_freq=True)[0]
        return self

    def transform(self, shards: Shards) -> Shards:
        """Replace the texts by the numbers that were learnt."""
        if self._index is None:
            raise DataError("StringIndexer has learnt nothing yet: call fit or fit_transform first")
        return self.encode_string(shards, self._index.col_name, self._index)

    def fit_transform(self, shards: Shards) -> Shards:
        """Learn the texts of all rows, and replace them."""
        return self.fit(shards).transform(shards)

    @staticmethod
    def gen_string_idx(
        shards: Shards,
        columns: Columns,
        freq_limit: int | dict[str, int] | None = None,
        order_by_freq: bool = False,
        do_split: bool = False,
        sep: str = ",",
    ) -> list[StringIndex]:
        """Number the texts of columns, by first appearance, or with `order_by_freq` by frequency first.

        Texts that occur less than `freq_limit` times get no number. With `do_split` a value is several
        texts, separated by `sep`.
        """
        names = keys.listed(columns)
        table = shards.select(names).to_arrow()
        made = []
        for name in names:
            counts = _counted(table[name], sep if do_split else None)
            least = freq_limit.get(name, 0) if isinstance(freq_limit, dict) else freq_limit or 0
            kept = [text for text, count in counts.items() if count >= least]
            if order_by_freq:
                kept.sort(key=lambda text: -counts[text])
            made.append(StringIndex({text: number for number, text in enumerate(kept, 1)}, name))
        return made

    @staticmethod
    def encode_string(
        shards: Shards,
        columns: Columns,
        indices: StringIndex | Sequence[StringIndex],
        broadcast: bool = True,
        do_split: bool = False,
        sep: str = ",",
        sort_for_array: bool = False,
        keep_most_frequent: bool = False,
    ) -> Shards:
        """Replace the texts of columns by their numbers.

        With `do_split` a value becomes a list of numbers, sorted with `sort_for_array`; or with
        `keep_most_frequent` the smallest number in it.
        """
        held = [indices] if isinstance(indices, StringIndex) else list(indices)
        names = keys.listed(columns)
        if len(names) != len(held):
            raise ValueError(f"{len(names)} columns need as many indices, not {len(held)}")
        if broadcast:
            held = [index.broadcast() for index in held]
        encode = _Encoding(sep if do_split else None, sort_for_array, keep_most_frequent)
        return shards.transform_shard(encode, names, held)

    @classmethod
    def category_encode(
        cls,
        shards: Shards,
        columns: Columns,
        freq_limit: int | dict[str, int] | None = None,
        order_by_freq: bool = False,
        do_split: bool = False,
        sep: str = ",",
        sort_for_array: bool = False,
        keep_most_frequent: bool = False,
        broadcast: bool = True,
    ) -> tuple[Shards, list[StringIndex]]:
        """Number the texts of columns and replace them; return the shards and the numbers."""
        found = cls.gen_string_idx(shards, columns, freq_limit, order_by_freq, do_split, sep)
        made = cls.encode_string(
            shards, columns, found, broadcast, do_split, sep, sort_for_array, keep_most_frequent
        )
        return made, found


def _counted(column: Any, sep: str | None) -> dict[Any, int]:
    """How often each text occurs, in order of first appearance."""
    if len(column) == 0:
        return {}
    found = keys.values_of(column).value_counts().to_pylist()
    counts: dict[Any, int] = {}
    for each in found:
        if each["values"] is not None:
            for text in _texts(each["values"], sep):
                counts[text] = counts.get(text, 0) + each["counts"]
    return counts


def _texts(value: Any, sep: str | None) -> list[Any]:
    if sep is None:
        return [value]
    if not isinstance(value, str):
        raise DataError(f"do_split needs texts, a value is {value!r}: leave do_split out")
    return value.split(sep)


class _Encoding:
    """Replaces texts in a shard; each different text is looked up once."""

    def __init__(self, sep: str | None, sort: bool, most_frequent: bool) -> None:
        self._sep, self._sort, self._most_frequent = sep, sort, most_frequent

    def __call__(self, value: Any, names: list[str], indices: list[StringIndex]) -> Any:
        import pyarrow

        for name, index in zip(names, indices, strict=True):
            numbers = index.to_dict()
            column = keys.values_of(_column(value, name))
            known: dict[Any, Any] = {}
            for text in column.unique().to_pylist():
                known[text] = self._number(text, numbers.get)
            several = self._sep is not None and not self._most_frequent
            kind = pyarrow.list_(pyarrow.int64()) if several else pyarrow.int64()
            encoded = pyarrow.array([known[text] for text in column.to_pylist()], kind)
            value = _with_column(value, name, pyarrow.chunked_array([encoded]))
        return value

    def _number(self, text: Any, find: Callable[[Any, int], int]) -> Any:
        if self._sep is None:
            return find(text, 0)
        found = [] if text is None else [find(part, 0) for part in _texts(text, self._sep)]
        if self._most_frequent:
            return min((number for number in found if number), default=0)
        return sorted(found) if self._sort else found
