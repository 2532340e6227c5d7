"""Batches of shards for PyTorch: in a loop of the user's own, and in the Estimator's."""

from __future__ import annotations

import copy
import os
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import data as torch_data

from grampus import _native, _report
from grampus._training.feed import Ask, Places, Renumbered
from grampus.frameworks._torch_data import Arrays, size_of
from grampus.frameworks._torch_memory import pinned
from grampus.shards.batches import Loadable, Rows, batches
from grampus.shards.feeding import left_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


class Batches(torch_data.IterableDataset):  # type: ignore[misc]
    """Batches of tensors; see `grampus.Shards.to_torch`. A loop over it is an epoch."""

    def __init__(
        self,
        rows: Any,
        batch_size: int,
        shuffle: bool,
        seed: int,
        transform: Callable[[Any], Any] | None,
        threads: int,
        drop_last: bool,
    ) -> None:
        """`rows` are those of a loader, or a tree of arrays."""
        self._source = LoaderSource(rows, threads) if isinstance(rows, Rows) else ArraySource(rows)
        self._batch_size = batch_size
        self._shuffle = shuffle
        self._seed = seed
        self._transform = transform
        self._drop_last = drop_last
        self._is_whole = False
        self._epoch = 0
        self._step = 0
        # What is wrong with rows that were left out, of the present epoch.
        self.skipped: list[str] = []

    def __len__(self) -> int:
        """Batches of an epoch."""
        rows, size = self._source.total, self._batch_size * self._ranks()[1]
        return rows // size if self._drop_last else -(-rows // size)

    @property
    def num_rows(self) -> int:
        """Rows of an epoch, of all ranks together."""
        return self._source.total

    def set_epoch(self, epoch: int) -> None:
        """Make the next loop that of another epoch."""
        self._epoch, self._step = epoch, 0

    def state_dict(self) -> dict[str, int]:
        """Where the loop is: the epoch, and the batches of it that were given."""
        return {"epoch": self._epoch, "step": self._step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Let the next loop go on from there."""
        self._epoch, self._step = state["epoch"], state["step"]

    def __iter__(self) -> Iterator[Any]:
        """The batches of an epoch, or of what is left of it."""
        rank, ranks = self._ranks()
        steps, size = len(self), self._batch_size * ranks
        self.skipped = []

        def places() -> Iterator[tuple[int, int]]:
            for step in range(self._step, steps):
                first = step * size
                rows = min(size, self._source.total - first)
                start, end = _native.rows_of(rank, ranks, size, rows)
                yield first + start, first + end

        for tree, _, skipped in self._source.read(places(), self._seed, self._epoch, self._shuffle):
            self._step += 1
            self.skipped += skipped
            batch = self._given(tree)
            yield batch if self._transform is None else self._transform(batch)
        self._epoch, self._step = self._epoch + 1, 0

    @staticmethod
    def _given(tree: Any) -> Any:
        if isinstance(tree, dict) and set(tree) == {"x", "y"}:
            return tree["x"], tree["y"]
        return tree["x"] if isinstance(tree, dict) and set(tree) == {"x"} else tree

    def whole(self) -> Batches:
        """The same, of which each process gets all rows, for one that shares them out itself."""
        again = copy.copy(self)
        again._is_whole = True
        return again

    def _ranks(self) -> tuple[int, int]:
        distributed = torch.distributed
        if self._is_whole:
            return 0, 1
        if distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        return 0, 1


class LoaderSource:
    """Rows that the threads of a loader read."""

    def __init__(self, rows: Loadable, threads: int, pins: bool = True) -> None:
        """Tables that are kept are read now. A GPU reads memory that is pinned by itself."""
        self._pins = pins and torch.cuda.is_available()
        self._rows = rows
        self._loader = rows.loader(threads)
        self.total = self._loader.num_rows
        self._process = os.getpid()
        # The loop that reads now: there is one order at a time.
        self._present: object = None

    def read(
        self, places: Iterable[tuple[int, int]], seed: int, epoch: int, shuffle: bool
    ) -> Iterator[tuple[Any, Sequence[int], list[str]]]:
        """Batches of the rows at these places of an epoch, their numbers, and why others were left out."""
        if os.getpid() != self._process:
            raise RuntimeError(
                "this process was forked from the one whose threads read: use DataLoader(num_workers=0), the "
                "threads read ahead by themselves"
            )
        self._present = present = object()
        self._loader.begin(seed, epoch, shuffle, self._rows.window)
        made = batches(self._loader, places)
        while True:
            if self._present is not present:
                raise RuntimeError("another loop over these batches has begun: make others for it (to_torch)")
            found = next(made, None)
            if found is None:
                return
            arrays, numbers, skipped = found
            tensors = [
                pinned(torch.from_numpy(array)) if self._pins else torch.from_numpy(array) for array in arrays
            ]
            yield self._rows.wanted.filled(tensors), numbers, skipped


class ArraySource:
    """Rows of arrays in memory."""

    def __init__(self, tree: Any) -> None:
        """Their first axis counts rows."""
        self._arrays = Arrays(tree, shuffled=False)
        self.total = self._arrays.places(0).total

    def read(
        self, places: Iterable[tuple[int, int]], seed: int, epoch: int, shuffle: bool
    ) -> Iterator[tuple[Any, Sequence[int], list[str]]]:
        """Batches of the rows at these places of an epoch; their numbers are not asked for."""
        order = _native.Order(seed, epoch, self.total) if shuffle else None
        asks = (
            Ask(range(first, end) if order is None else order.rows(first, end), seed=0, start=0)
            for first, end in places
        )
        return ((tree, (), []) for tree in self._arrays.read(asks))


class LoadedTable:
    """Rows that a loader reads, for the Estimator's loop: places, in an order that the loader knows."""

    # No code of the user's takes part: another thread may read.
    reads_by_itself = True

    def __init__(self, rows: Loadable, seed: int, threads: int, shuffled: bool) -> None:
        """Who does not train reads in order."""
        # Where the model is on a GPU, whoever sends batches there pins them.
        self._source = LoaderSource(rows, threads, pins=False)
        self._seed = seed
        self._shuffled = shuffled
        self._epoch = 0
        self._counted = size_of if rows.skip else None
        # What was said of rows that were left out: it is said once, not in each epoch.
        self._told: set[str] = set()

    def places(self, epoch: int) -> Places:
        """All rows, each epoch."""
        self._epoch = epoch
        return Places(self._source.total, counted=self._counted)

    def read(self, asks: Iterable[Ask]) -> Iterator[Any]:
        """Read batches of the places that are asked for."""
        places = ((ask.rows.start, ask.rows.stop) for ask in asks if isinstance(ask.rows, range))
        found: dict[str, None] = {}
        try:
            read = self._source.read(places, self._seed, self._epoch, self._shuffled)
            for tree, numbers, skipped in read:
                found |= dict.fromkeys(why for why in skipped if why not in self._told)
                yield Renumbered(tree, numbers)
        finally:
            # Nobody asks for more than the last batch, so this is not reached otherwise.
            if found:
                self._told |= found.keys()
                _report.note(left_out(list(found)))
