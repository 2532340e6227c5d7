"""Data of native models: trees of numpy arrays, and rows that a loader reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from grampus import _report
from grampus._training import trees
from grampus._training.feed import Ask, Places, Renumbered
from grampus._training.saved import Packed
from grampus._training.trees import leaves, mapped
from grampus.shards.batches import batches

if TYPE_CHECKING:
    from grampus.shards.batches import Loadable

Tree = Any


def array(leaf: Any) -> Any:
    """Numbers of whatever library as a numpy array."""
    if isinstance(leaf, Packed):
        return np.frombuffer(leaf.array, leaf.dtype).reshape(leaf.shape)
    made = np.asarray(leaf)
    if made.dtype.kind not in "fiub":
        raise TypeError(f"an array of {made.dtype} came: make it numbers first")
    return made


def beside(found: list[Any]) -> Any:
    """Columns side by side in one matrix."""
    trees.side_by_side([each.shape for each in found])
    return found[0] if found[0].ndim > 1 else np.column_stack(found)


class Arrays:
    """A tree of arrays whose first axis counts rows."""

    def __init__(self, tree: Tree, shuffled: bool, bad: Sequence[int] = ()) -> None:
        """All arrays must have equally many rows; `bad` ones are left out."""
        self._tree = mapped(array, tree)
        counts = {len(leaf) if leaf.ndim else -1 for leaf in leaves(self._tree)}
        if len(counts) != 1 or -1 in counts:
            raise trees.uneven([("", leaf.shape) for leaf in leaves(self._tree)])
        self._places = Places(counts.pop(), shuffled, counted=size_of if bad else None)
        self._bad = np.array(bad, dtype=np.int64)

    def places(self, epoch: int) -> Places:  # noqa: ARG002 - a table is asked for each epoch
        """All rows, each epoch."""
        return self._places

    def read(self, asks: Iterable[Ask]) -> Iterator[Tree]:
        """Take rows out of the arrays."""
        for ask in asks:
            rows: Any = ask.rows
            if not isinstance(rows, range):
                index: Any = np.frombuffer(rows, np.int64)
            elif len(self._bad):
                index = np.arange(rows.start, rows.stop)
            else:
                index = slice(rows.start, rows.stop)
            if len(self._bad):
                index = index[~np.isin(index, self._bad)]
            values = mapped(lambda leaf: leaf[index], self._tree)  # noqa: B023
            yield Renumbered(values, index.tolist()) if len(self._bad) else values


def size_of(batch: Tree) -> int:
    """Rows of a batch."""
    return len(leaves(batch)[0])


class LoadedTable:
    """Rows that a loader reads, in an order that it knows."""

    def __init__(self, rows: Loadable, seed: int, threads: int, shuffled: bool) -> None:
        """Who does not train reads in order."""
        self._rows = rows
        self._loader = rows.loader(threads)
        self._seed = seed
        self._shuffled = shuffled
        self._epoch = 0
        self._told: set[str] = set()

    def places(self, epoch: int) -> Places:
        """All rows, each epoch."""
        self._epoch = epoch
        return Places(self._loader.num_rows, counted=size_of if self._rows.skip else None)

    def read(self, asks: Iterable[Ask]) -> Iterator[Tree]:
        """Read batches of the places that are asked for."""
        self._loader.begin(self._seed, self._epoch, self._shuffled, self._rows.window)
        places = ((ask.rows.start, ask.rows.stop) for ask in asks if isinstance(ask.rows, range))
        for arrays, numbers, skipped in batches(self._loader, places):
            for why in skipped:
                if why not in self._told:
                    self._told.add(why)
                    _report.note(f"a row was left out: {why}")
            yield Renumbered(self._rows.wanted.filled(arrays), numbers)
