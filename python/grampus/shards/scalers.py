"""Columns of numbers scaled, and columns of texts turned into numbers.

What is learnt is learnt from all rows at once; it is applied on the workers. On Spark both are plans.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grampus._traceback import public_methods
from grampus.errors import DataError
from grampus.shards import keys
from grampus.shards.encoding import Encoding, Moments, Scale
from grampus.shards.shared_value import SharedValue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grampus.shards.collection import Shards

    Columns = str | Sequence[str]


@public_methods
class _Scaler:
    """Scales columns by what is learnt of each."""

    def __init__(self, input_col: Columns | None, output_col: Columns | None) -> None:
        self._inputs: list[str] = []
        self._outputs: list[str] = []
        self._scales: list[Scale] | None = None
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
        self._scales = None
        return self

    def fit(self, shards: Shards) -> Any:
        """Learn from all rows; return the scaler."""
        if not self._inputs:
            raise DataError(f"{type(self).__name__} has no columns: give inputCol")
        self._scales = [self._learnt(found) for found in shards._moments(self._inputs)]
        return self

    def transform(self, shards: Shards) -> Shards:
        """Scale with what was learnt."""
        if self._scales is None:
            raise DataError(f"{type(self).__name__} has learnt nothing yet: call fit or fit_transform first")
        return shards._scaled(self._inputs, self._outputs, self._scales)

    def fit_transform(self, shards: Shards) -> Shards:
        """Learn from all rows, and scale them."""
        made: Shards = self.fit(shards).transform(shards)
        return made

    def _learnt(self, found: Moments) -> Scale:
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

    def _learnt(self, found: Moments) -> Scale:
        low, high = self._range
        if found.smallest is None or found.largest is None or found.smallest == found.largest:
            return Scale(size=0.0, base=(low + high) / 2)
        return Scale(found.smallest, found.largest - found.smallest, high - low, low)


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

    def _learnt(self, found: Moments) -> Scale:
        mean = found.mean if self._mean else 0.0
        deviation = found.deviation if self._deviation else 1.0
        return Scale(mean or 0.0, deviation or 1.0, 1.0 if deviation else 0.0)


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

    Equally frequent ones go by first appearance, on Spark by the text. A text that was not learnt, and null,
    become 0.
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

        Rows of Spark have no order, and so no first appearance: there the texts are sorted instead.

        Texts that occur less than `freq_limit` times get no number. With `do_split` a value is several
        texts, separated by `sep`.
        """
        names = keys.listed(columns)
        leasts = [
            freq_limit.get(name, 0) if isinstance(freq_limit, dict) else freq_limit or 0 for name in names
        ]
        made = []
        for name, counts in zip(
            names, shards._text_counts(names, leasts, sep if do_split else None), strict=True
        ):
            texts = sorted(counts, key=lambda text: -counts[text]) if order_by_freq else counts
            made.append(StringIndex({text: number for number, text in enumerate(texts, 1)}, name))
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
        encoding = Encoding(sep if do_split else None, sort_for_array, keep_most_frequent)
        return shards._encoded(names, held, encoding, broadcast)

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
