"""Datasets of Hugging Face as tables and streams: a batch has a tensor for each column, by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from grampus import _exception
from grampus._training import trees
from grampus._training.creator import seed_all
from grampus._training.feed import Ask, Places, StreamFeed, TableFeed, listed, row_numbers
from grampus.errors import DataError
from grampus.frameworks import _torch_data

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from grampus._training.job import Data
    from grampus._training.lanes import Lanes


def is_dataset(value: Any) -> bool:
    """Whether this is one of theirs, without importing their library."""
    return hasattr(value, "with_format") and any(
        kind.__module__.partition(".")[0] == "datasets" for kind in type(value).__mro__
    )


def portable(value: Any) -> Any:
    """Data as it travels; a dict of several datasets, such as those of training and test, does not."""
    _check_one(value)
    return _torch_data.portable(value)


def _check_one(value: Any) -> None:
    if isinstance(value, dict) and is_dataset(value):
        raise DataError(
            f"this holds {len(value)} datasets ({', '.join(value)}): choose one, as in data['train']"
        )


def feed(
    value: Any, data: Data, lanes: Lanes, size: int, weigh: Callable[[Any], float] | None, training: bool
) -> TableFeed | StreamFeed:
    """What reads a dataset, or one that is streamed."""
    _check_one(value)
    chosen = _Chosen(data)
    if hasattr(value, "__len__"):
        return TableFeed(_Table(value, chosen, training), lanes, size, weigh)
    return StreamFeed(_Stream(value.with_format("torch"), chosen), lanes, size, weigh)


class _Chosen:
    """The columns of a batch: all by their names, or those that were asked for."""

    def __init__(self, data: Data) -> None:
        self._features, self._labels = data.feature_cols, data.label_cols

    def names(self, there: Iterable[str]) -> list[str] | None:
        """Those that were asked for, if any were."""
        if self._features is None:
            return None
        return trees.leaves(self._tree(dict.fromkeys(there), lambda name, _: name, list))

    def batch(self, columns: Mapping[str, Any]) -> Any:
        """Columns of some rows as tensors."""
        if self._features is None:
            return {name: _tensor(name, values) for name, values in columns.items()}
        return self._tree(columns, _tensor, _torch_data.beside)

    def _tree(
        self,
        columns: Mapping[str, Any],
        made: Callable[[str, Any], Any],
        beside: Callable[[list[Any]], Any],
    ) -> dict[str, Any]:
        chosen = {"x": trees.columns(columns, self._features, "feature_cols", made, beside)}
        if self._labels is not None:
            chosen["y"] = trees.columns(columns, self._labels, "label_cols", made, beside)
        return chosen


class _Table:
    """A dataset whose rows can be asked for."""

    def __init__(self, dataset: Any, chosen: _Chosen, training: bool) -> None:
        self._chosen = chosen
        kind, shown = dataset.format["type"], dataset.format["columns"]
        # A transform of the user makes columns of its own, and knows what it returns.
        if kind != "custom":
            names = chosen.names(dataset.column_names) or shown
            dataset = dataset.with_format("torch", columns=names)
        self._dataset = dataset
        self._places = Places(len(dataset), training)

    def places(self, epoch: int) -> Places:  # noqa: ARG002 - a table is asked for each epoch
        """All rows, each epoch."""
        return self._places

    def read(self, asks: Iterable[Ask]) -> Iterator[Any]:
        """Read the rows of a batch at once."""
        for ask in asks:
            rows = ask.rows
            seed_all(ask.seed)
            try:
                found = self._dataset[row_numbers(rows)]
            except Exception as error:
                _exception.note(error, f"grampus: in one of the rows {listed(rows)} of the data set")
                raise
            yield self._chosen.batch(found)


class _Stream(_torch_data.Rows):
    """A dataset that is read from its beginning to its end."""

    def __init__(self, dataset: Any, chosen: _Chosen) -> None:
        super().__init__(dataset)
        self._chosen = chosen

    def collate(self, rows: list[Any], first: int | None) -> Any:  # noqa: ARG002 - errors name columns
        """Rows as columns."""
        asked = self._chosen.names(rows[0])
        for row in rows:
            odd = row.keys() ^ rows[0].keys() if asked is None else set(asked) - row.keys()
            if odd:
                raise DataError(
                    f"some rows have a column {min(odd)!r} and others have not: let all have the same"
                )
        return self._chosen.batch({name: [row[name] for row in rows] for name in asked or rows[0]})


def _tensor(name: str, values: Any) -> Any:
    """A column of some rows."""
    if not isinstance(values, list):
        return _torch_data.tensor(values, f"column {name!r}")
    if any(isinstance(value, str) for value in values):
        raise DataError(
            f"column {name!r} holds texts: turn them into numbers with a tokenizer, and leave the column out "
            "(remove_columns, or feature_cols=)"
        )
    try:
        parts = [torch.as_tensor(value) for value in values]
    except (RuntimeError, TypeError, ValueError):
        kinds = ", ".join(sorted({type(value).__name__ for value in values}))
        raise DataError(
            f"column {name!r} holds what is no number ({kinds}): fill or flatten it, or leave it out "
            "(remove_columns, or feature_cols=)"
        ) from None
    lengths = sorted({tuple(part.shape) for part in parts})
    if len(lengths) > 1:
        raise DataError(
            f"rows of column {name!r} differ in shape, such as {lengths[0]} and {lengths[-1]}: pad them, or "
            "pass DataLoader(dataset, collate_fn=…) with a collator that does"
        )
    return torch.stack(parts)
