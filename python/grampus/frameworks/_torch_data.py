"""Data of PyTorch users as tables and streams: arrays, data sets, loaders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import data as torch_data

from grampus import _native
from grampus._training import trees
from grampus._training.creator import seed_all
from grampus._training.feed import Ask, Places
from grampus._training.saved import Packed
from grampus._training.trees import leaves, mapped
from grampus.frameworks._torch_devices import resident
from grampus.frameworks._torch_memory import packed, unpacked

if TYPE_CHECKING:
    from grampus.shards.batches import Columns

Tree = Any


def placed(tree: Tree, place: str = "") -> list[tuple[str, Any]]:
    """All leaves of a tree, in order, with the way to each.

    >>> placed({"x": [1, 2], "y": 3})
    [('x[0]', 1), ('x[1]', 2), ('y', 3)]
    """
    if isinstance(tree, Mapping):
        parts = [(f"{place}[{name!r}]" if place else str(name), part) for name, part in tree.items()]
    elif isinstance(tree, list | tuple):
        parts = [(f"{place}[{number}]", part) for number, part in enumerate(tree)]
    else:
        return [(place or "the data", tree)]
    return [found for name, part in parts for found in placed(part, name)]


def tensor(array: Any, place: str) -> Any:
    """An array of whatever library as a tensor, without a copy where it can be."""
    if isinstance(array, torch.Tensor):
        return array
    import numpy as np

    array = np.asarray(array)
    if array.dtype.kind not in "fiubc":
        raise TypeError(
            f"{place} is an array of {array.dtype}, which cannot become a tensor: make it numbers first"
        )
    if not array.flags.writeable or not array.flags.c_contiguous or array.dtype.byteorder == ">":
        array = np.array(array, dtype=array.dtype.newbyteorder("="), order="C")
    return torch.from_numpy(array)


class Arrays:
    """A tree of arrays whose first axis counts rows."""

    def __init__(
        self, tree: Tree, shuffled: bool, bad: Sequence[int] = (), device: torch.device | None = None
    ) -> None:
        """All arrays must have equally many rows; `bad` ones are left out. The model is on a `device`."""
        places = iter([place for place, _ in placed(tree)])
        self._tree = mapped(lambda leaf: tensor(leaf, next(places)), tree)
        counts = {len(leaf) if leaf.dim() else -1 for leaf in leaves(self._tree)}
        if len(counts) != 1 or -1 in counts:
            shapes = ", ".join(f"{place} {tuple(leaf.shape)}" for place, leaf in placed(self._tree))
            raise ValueError(
                f"the arrays differ in their number of rows: {shapes or 'there are none'}; the first axis of "
                "each must count the rows"
            )
        self._places = Places(counts.pop(), shuffled, counted=size_of if bad else None)
        self._bad = torch.tensor(bad, dtype=torch.int64)
        if device is not None:
            self._tree = resident(self._tree, device)

    def places(self, epoch: int) -> Places:  # noqa: ARG002 - a table is asked for each epoch
        """All rows, each epoch."""
        return self._places

    def read(self, asks: Iterable[Ask]) -> Iterator[Tree]:
        """Take rows out of the arrays."""
        for ask in asks:
            rows = ask.rows
            if len(self._bad):
                index = torch.arange(rows.start, rows.stop) if isinstance(rows, range) else _index(rows)
                index = index[~torch.isin(index, self._bad)]
            elif isinstance(rows, range):
                yield mapped(lambda leaf: leaf[rows.start : rows.stop], self._tree)  # noqa: B023
                continue
            else:
                index = _index(rows)
            yield mapped(lambda leaf: _chosen(leaf, index), self._tree)  # noqa: B023


def _chosen(leaf: Any, index: Any) -> Any:
    if leaf.is_cuda:
        index = index.pin_memory().to(leaf.device, non_blocking=True)
    return leaf.index_select(0, index)


def _index(rows: Any) -> Any:
    return torch.frombuffer(rows, dtype=torch.int64)


def size_of(batch: Tree) -> int:
    """Rows of a batch."""
    return len(leaves(batch)[0])


class _Seeded(torch_data.Dataset):  # type: ignore[misc]
    """A data set that is asked for whole batches, and seeds what it draws from before each."""

    def __init__(self, dataset: Any, collate: Callable[[list[Any]], Any]) -> None:
        self._dataset = dataset
        self._collate = collate

    def __getitem__(self, ask: Ask) -> Any:
        rows = ask.rows
        if isinstance(rows, bytearray):
            rows = torch.frombuffer(rows, dtype=torch.int64).tolist()
        seed_all(ask.seed)
        several = getattr(self._dataset, "__getitems__", None)
        found = several(list(rows)) if several is not None else [self._dataset[row] for row in rows]
        return self._collate(found)


class _Asks(torch_data.Sampler):  # type: ignore[misc]
    """What the loader asks the data set for."""

    def __init__(self, asks: Iterable[Ask]) -> None:
        self._asks = asks

    def __iter__(self) -> Iterator[Ask]:
        return iter(self._asks)


def _same(batch: Any) -> Any:
    return batch


def _in_processes(
    loader: Any, dataset: Any, collate: Callable[[Any], Any], sampler: _Asks | None = None
) -> Iterator[Any]:
    """Read in as many processes, and of the same kind, as a loader does."""
    again = torch_data.DataLoader(
        dataset,
        batch_size=None,
        sampler=sampler,
        collate_fn=collate,
        num_workers=loader.num_workers,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        prefetch_factor=loader.prefetch_factor,
        timeout=loader.timeout,
    )
    found: Any = iter(again)
    try:
        yield from found
    finally:
        # An exception on its way out holds on to the iterator, and so would keep the processes.
        found._shutdown_workers()


class Dataset:
    """A map-style data set, read by a loader's processes where it has some."""

    def __init__(self, dataset: Any, training: bool, seed: int, loader: Any = None) -> None:
        """`loader` says how to read it; who does not train reads in order."""
        self._dataset = dataset
        self._training = training
        self._seed = seed
        self._loader = loader
        self._known: tuple[int, Places] | None = None

    def places(self, epoch: int) -> Places:
        """What the loader's sampler chooses, or all rows."""
        if self._known is None or self._known[0] != epoch:
            self._known = epoch, self._chosen(epoch)
        return self._known[1]

    def _chosen(self, epoch: int) -> Places:
        loader = self._loader
        if loader is None:
            return Places(len(self._dataset), self._training)
        if type(loader.batch_sampler) is not torch_data.BatchSampler:
            batches = [list(batch) for batch in self._drawn(loader.batch_sampler, epoch)]
            return Places(sum(map(len, batches)), batches=[batch for batch in batches if batch])
        # A loader that was given a sampler of batches does not know the sampler within.
        sampler, drop = loader.batch_sampler.sampler, bool(loader.batch_sampler.drop_last)
        kind = type(sampler)
        if kind is torch_data.SequentialSampler:
            return Places(len(self._dataset), False, drop_last=drop)
        if kind is torch_data.DistributedSampler:
            # Sharing out is done here, for any number of workers.
            return Places(len(self._dataset), self._training and bool(sampler.shuffle), drop_last=drop)
        if kind is torch_data.RandomSampler and not sampler.replacement and sampler._num_samples is None:
            return Places(len(self._dataset), self._training, drop_last=drop)
        chosen = [int(row) for row in self._drawn(sampler, epoch)]
        return Places(len(chosen), chosen=chosen, drop_last=drop)

    def _drawn(self, sampler: Any, epoch: int) -> list[Any]:
        """What a user's sampler gives: the same on every worker, and again after a resume."""
        seed = _native.lane_seed("data", self._seed, epoch, 0, 0)
        seed_all(seed)
        inner = getattr(sampler, "sampler", sampler)
        for holder in {id(sampler): sampler, id(inner): inner}.values():
            generator = getattr(holder, "generator", None)
            if isinstance(generator, torch.Generator):
                generator.manual_seed(seed)
            if hasattr(holder, "set_epoch"):
                holder.set_epoch(epoch)
        return list(sampler)

    def read(self, asks: Iterable[Ask]) -> Iterator[Any]:
        """Read as the loader would."""
        loader = self._loader
        collate = torch_data.default_collate if loader is None else loader.collate_fn
        seeded = _Seeded(self._dataset, collate)
        if loader is None or loader.num_workers == 0:
            return map(seeded.__getitem__, asks)
        return _in_processes(loader, seeded, _same, _Asks(asks))


class Rows:
    """An iterable data set: rows, or batches where its loader makes none."""

    def __init__(self, dataset: Any, loader: Any = None) -> None:
        """`loader` says how to read it."""
        self._dataset = dataset
        self._loader = loader
        self.batched = loader is not None and loader.batch_size is None
        self.drop_last = loader is not None and bool(loader.drop_last)

    def rows(self, epoch: int) -> Iterator[Any]:
        """All rows of an epoch."""
        if hasattr(self._dataset, "set_epoch"):
            self._dataset.set_epoch(epoch)
        loader = self._loader
        if loader is None:
            return iter(self._dataset)
        collate = loader.collate_fn if self.batched else _same
        if loader.num_workers == 0:
            return map(collate, self._dataset)
        return _in_processes(loader, self._dataset, collate)

    def collate(self, rows: list[Any]) -> Any:
        """Rows as one batch."""
        collate = torch_data.default_collate if self._loader is None else self._loader.collate_fn
        return collate(rows)

    def size(self, batch: Any) -> int:
        """Rows of a batch."""
        return size_of(batch)

    def cut(self, batch: Any, start: int, end: int) -> Any:
        """Some rows of a batch."""
        return mapped(lambda leaf: leaf[start:end], batch)


def columns(data: Mapping[str, Any], names: Columns | None, what: str) -> Tree:
    """The named columns of a dict or frame as tensors: one alone, several as a tuple."""
    return trees.columns(data, names, what, lambda name, values: tensor(values, f"column {name!r}"))


class _Tensors:
    """A `TensorDataset` on its way to the workers, which map its memory instead of copying it."""

    def __init__(self, tensors: tuple[Any, ...]) -> None:
        self.tensors = tensors


def portable(value: Any) -> Any:
    """Data as it travels best: tensors as arrays, whose memory all workers of a host share."""
    if type(value) is torch_data.TensorDataset:
        return _Tensors(mapped(packed, value.tensors))
    if isinstance(value, Mapping | list | tuple | torch.Tensor):
        return mapped(packed, value)
    return value


def restored(value: Any) -> Any:
    """What `portable` was given."""
    if isinstance(value, _Tensors):
        return torch_data.TensorDataset(*mapped(unpacked, value.tensors))
    if isinstance(value, Mapping | list | tuple | Packed):
        return mapped(unpacked, value)
    return value
