"""Data of PyTorch users as tables and streams: arrays, data sets, loaders."""

from __future__ import annotations

import contextlib
import copy
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.utils.rnn import PackedSequence
from torch.utils import data as torch_data
from torch.utils.data import _utils

from grampus import _exception, _report
from grampus._traceback import trace_of
from grampus._training import trees
from grampus._training.cleanup import closing, is_told_to_end, noting_interrupts
from grampus._training.creator import seed_all
from grampus._training.feed import Ask, Places, Renumbered, listed, row_numbers
from grampus._training.lanes import reading_lane
from grampus._training.saved import Packed
from grampus._training.trees import leaves, mapped
from grampus.errors import DataError
from grampus.frameworks._torch_devices import resident
from grampus.frameworks._torch_memory import packed, unpacked
from grampus.frameworks._torch_samplers import Draws, draw_seed

if TYPE_CHECKING:
    from grampus._training.job import Data
    from grampus.shards.batches import Columns

Tree = Any
# Seconds between two looks whether the worker is told to end while processes end.
_LOOK = 0.05

_AFRESH = (
    "the processes of a loader with persistent_workers=True begin anew in epoch {epoch}: a stream that "
    "counts its epochs begins with the first; give it a method set_epoch(epoch), which is called before each"
)


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
        self.tree = mapped(lambda leaf: tensor(leaf, next(places)), tree)
        counts = {len(leaf) if leaf.dim() else -1 for leaf in leaves(self.tree)}
        if len(counts) != 1 or -1 in counts:
            raise trees.uneven([(place, tuple(leaf.shape)) for place, leaf in placed(self.tree)])
        self._places = Places(counts.pop(), shuffled, counted=size_of if bad else None)
        self._bad = torch.tensor(bad, dtype=torch.int64)
        # Where all arrays are on a GPU.
        self._device: torch.device | None = None
        if device is not None:
            self.tree = resident(self.tree, device)
        if all(leaf.is_cuda for leaf in leaves(self.tree)):
            self._device = leaves(self.tree)[0].device

    @property
    def resident(self) -> bool:
        """Whether no batch has to travel to a GPU."""
        return self._device is not None

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
                rows = index.tolist()
            elif isinstance(rows, range):
                yield mapped(lambda leaf: leaf[rows.start : rows.stop], self.tree)  # noqa: B023
                continue
            else:
                index = _index(rows)
            if self._device is not None:
                # So few bytes are sent along with the command, from any memory.
                index = index.to(self._device, non_blocking=True)
            values = mapped(lambda leaf: leaf.index_select(0, index), self.tree)  # noqa: B023
            yield Renumbered(values, rows) if len(self._bad) else values


def _index(rows: Any) -> Any:
    return torch.frombuffer(rows, dtype=torch.int64)


def size_of(batch: Tree) -> int:
    """Rows of a batch."""
    leaf = leaves(batch)[0]
    return int(leaf.batch_sizes[0]) if isinstance(leaf, PackedSequence) else len(leaf)


class _Seeded(torch_data.Dataset):  # type: ignore[misc]
    """A data set that is asked for whole batches, and seeds what it draws from before each."""

    def __init__(self, dataset: Any, collate: Callable[[list[Any]], Any]) -> None:
        self._dataset = dataset
        self._collate = collate

    def __getitem__(self, ask: Ask) -> Any:
        try:
            return self._read(ask)
        except Exception as error:
            failure = None if torch_data.get_worker_info() is None else _Failure.of(error)
            if failure is None:
                raise
            return failure

    def _read(self, ask: Ask) -> Any:
        rows = row_numbers(ask.rows)
        seed_all(ask.seed)
        several = getattr(self._dataset, "__getitems__", None)
        if several is None:
            found = [self._row(row) for row in rows]
        else:
            try:
                found = several(rows)
            except Exception as error:
                _exception.note(error, f"grampus: in one of the rows {listed(rows)} of the data set")
                raise
        return collated(self._collate, found, rows)

    def _row(self, row: int) -> Any:
        try:
            return self._dataset[row]
        except Exception as error:
            _exception.note(error, f"grampus: in row {row} of the data set")
            raise


def collated(collate: Callable[[Any], Any], found: list[Any], rows: Sequence[int] | None) -> Any:
    """Rows as one batch; their numbers may not be known."""
    try:
        return collate(found)
    except Exception as error:
        which = f"{len(found)} rows" if rows is None else f"the rows {listed(rows)}"
        _exception.note(error, f"grampus: as {which} of the data set were put together")
        raise


class _Failure:
    """An exception in a loader's process of which torch would make a RuntimeError: no text makes its type."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    @classmethod
    def of(cls, error: Exception) -> _Failure | None:
        """An exception, its traceback as a note; `None` where torch keeps its type, or none can travel."""
        with contextlib.suppress(Exception):
            type(error)("")
            return None
        _exception.note(error, f"grampus: in a process of the loader\n{trace_of(error).short}")
        body = _exception.pickled(error)
        return None if body is None else cls(body)

    def raise_again(self) -> None:
        """In the process of the worker."""
        error = _exception.unpickled(self._body)
        raise (
            RuntimeError("an exception of a loader's process cannot be made here") if error is None else error
        )


def _unless_failed(batch: Any) -> Any:
    # Of a stream, rows before it may be in its batch.
    last = batch[-1] if isinstance(batch, list) and batch else batch
    if isinstance(last, _Failure):
        last.raise_again()
    return batch


class _Asks(torch_data.Sampler):  # type: ignore[misc]
    """What the loader asks the data set for."""

    def __init__(self, asks: Iterable[Ask]) -> None:
        self._asks = asks

    def __iter__(self) -> Iterator[Ask]:
        return iter(self._asks)


def _same(batch: Any) -> Any:
    return batch


def _like(loader: Any, dataset: Any, collate: Callable[[Any], Any], **other: Any) -> Any:
    """A loader with as many processes, and of the same kind, as another has."""
    same = ("num_workers", "worker_init_fn", "multiprocessing_context", "prefetch_factor", "timeout")
    settings = {**{name: getattr(loader, name) for name in same}, **other}
    return torch_data.DataLoader(dataset, collate_fn=collate, **settings)


def _in_processes(loader: Any) -> Iterator[Any]:
    """What the processes of a loader read in an epoch."""
    # An exception on its way out holds on to the iterator, and so would keep the processes.
    with closing(_Processes(loader)) as processes:
        try:
            yield from map(_unless_failed, processes.begin())
        except GeneratorExit:
            # The rest of the epoch is not wanted; the next may be.
            processes.keep()
            raise
        processes.keep()


class _Processes:
    """Those that a loader reads in, for an epoch or, where they persist, for several."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._others = set(multiprocessing.active_children())
        self._found: Any = None
        self._are_kept = False

    def begin(self) -> Any:
        """Start them; what they read."""
        with noting_interrupts():
            self._found = iter(self._loader)
        return self._found

    def keep(self) -> None:
        """Leave them for the next epoch, if they persist."""
        self._are_kept = self._loader.persistent_workers and not is_told_to_end()

    def close(self) -> None:
        """Let them end what they are at, as long as torch does; at once where this worker is told to end."""
        if self._are_kept:
            return
        if self._found is None:
            # Torch would wait for those that it has started by now.
            for process in set(multiprocessing.active_children()) - self._others:
                process.kill()
            return
        found, end = self._found, time.monotonic() + _utils.MP_STATUS_CHECK_INTERVAL
        if not found._shutdown:
            found._workers_done_event.set()
            for number in (number for number, works in enumerate(found._workers_status) if works):
                found._mark_worker_as_unavailable(number, shutdown=True)
            while (alive := [each for each in found._workers if each.is_alive()]) and time.monotonic() < end:
                if is_told_to_end():
                    break
                alive[0].join(_LOOK)
            if alive:
                self._kill()
        found._shutdown_workers()
        self._loader._iterator = None

    def _kill(self) -> None:
        found = self._found
        # Torch's handler would take their end for a failure.
        if found._worker_pids_set:
            _utils.signal_handling._remove_worker_pids(id(found))
            found._worker_pids_set = False
        for process in found._workers:
            process.kill()
        # One that was looking at it when it was killed keeps its lock for ever.
        found._workers_done_event = threading.Event()


class Dataset:
    """A map-style data set, read by a loader's processes where it has some."""

    def __init__(self, dataset: Any, training: bool, seed: int, loader: Any = None) -> None:
        """`loader` says how to read it; who does not train reads in order."""
        self._dataset = dataset
        self._training = training
        self._loader = loader
        self._draws = None if loader is None else Draws(loader, seed, training)
        self._known: tuple[int, Places] | None = None

    def places(self, epoch: int) -> Places:
        """What the loader's sampler chooses, or all rows."""
        if self._known is None or self._known[0] != epoch:
            self._known = epoch, self._chosen(epoch)
        return self._known[1]

    def _chosen(self, epoch: int) -> Places:
        loader = self._loader
        if self._draws is None:
            return Places(len(self._dataset), self._training)
        if type(loader.batch_sampler) is not torch_data.BatchSampler:
            batches = [list(batch) for batch in self._draws.batches(epoch)]
            return Places(sum(map(len, batches)), batches=[batch for batch in batches if batch])
        # A loader that was given a sampler of batches does not know the sampler within.
        sampler = loader.batch_sampler.sampler
        # Every row is evaluated and predicted.
        drop = self._training and bool(loader.batch_sampler.drop_last)
        kind = type(sampler)
        # Samplers may cover other rows than those of the data set.
        if kind is torch_data.SequentialSampler:
            return Places(len(sampler), False, drop_last=drop)
        if kind is torch_data.DistributedSampler:
            # Sharing out is done here, for any number of workers.
            return Places(len(sampler.dataset), self._training and bool(sampler.shuffle), drop_last=drop)
        plain = kind is torch_data.RandomSampler and not sampler.replacement and sampler._num_samples is None
        if plain and not (self._training and sampler.generator is not None):
            return Places(len(sampler), self._training, drop_last=drop)
        chosen = [int(row) for row in self._draws.rows(epoch)]
        return Places(len(chosen), chosen=chosen, drop_last=drop)

    def read(self, asks: Iterable[Ask]) -> Iterator[Any]:
        """Read as the loader would."""
        loader = self._loader
        collate = torch_data.default_collate if loader is None else loader.collate_fn
        seeded = _Seeded(self._dataset, collate)
        if loader is None or loader.num_workers == 0:
            return map(seeded.__getitem__, asks)
        return _in_processes(_like(loader, seeded, _same, batch_size=None, sampler=_Asks(asks)))


class Rows:
    """An iterable data set: rows, or batches where its loader makes none."""

    def __init__(self, dataset: Any, loader: Any = None, training: bool = True) -> None:
        """`loader` says how to read it."""
        self._dataset = dataset
        self._loader = loader
        self.batched = loader is not None and loader.batch_size is None
        # A loader's processes make whole batches, each of rows of its own.
        self.listed = loader is not None and loader.num_workers > 0 and not self.batched
        # Every row is evaluated and predicted.
        self.drop_last = training and loader is not None and bool(loader.drop_last)
        # Several processes read by turns.
        self.numbered = loader is None or loader.num_workers < 2
        # A process does not learn of an epoch that is said to the data set in this one.
        self._keeps = loader is not None and loader.persistent_workers and not hasattr(dataset, "set_epoch")
        # Loaders whose processes are kept from an epoch to the next, by lane.
        self._kept: dict[int, Any] = {}

    def rows(self, epoch: int) -> Iterator[Any]:
        """All rows of an epoch."""
        if hasattr(self._dataset, "set_epoch"):
            self._dataset.set_epoch(epoch)
        loader = self._loader
        if loader is None:
            return _numbered(iter(self._dataset))
        if loader.num_workers == 0:
            return map(loader.collate_fn if self.batched else _same, _numbered(iter(self._dataset)))
        if not self._keeps:
            return _in_processes(self._made(epoch))
        lane = reading_lane()
        if lane not in self._kept:
            if epoch and not lane:
                _report.note(_AFRESH.format(epoch=epoch + 1))
            # Their random numbers are seeded once.
            self._kept[lane] = self._made(0)
        return _in_processes(self._kept[lane])

    def _made(self, epoch: int) -> Any:
        """A loader with processes of its own."""
        loader = self._loader
        other = {
            "batch_size": loader.batch_size,
            "generator": self._generator(epoch),
            "persistent_workers": self._keeps,
        }
        if isinstance(self._dataset, torch_data.IterDataPipe):
            # Torch seeds and shares out what it knows to be one.
            return _like(loader, self._dataset, loader.collate_fn if self.batched else _same, **other)
        other["worker_init_fn"] = _Beginning(loader.worker_init_fn)
        collate = _UnlessFailure(loader.collate_fn) if self.batched else _same
        return _like(loader, _Numbering(self._dataset), collate, **other)

    def _generator(self, epoch: int) -> torch.Generator | None:
        """The loader's generator as it is before an epoch; it seeds the processes."""
        generator: torch.Generator | None = copy.deepcopy(self._loader.generator)
        if generator is not None:
            for _ in range(epoch):
                draw_seed(generator)
        return generator

    def collate(self, rows: list[Any], first: int | None) -> Any:
        """Rows as one batch; `first` is the number of the first of them, where it is known."""
        collate = torch_data.default_collate if self._loader is None else self._loader.collate_fn
        return collated(collate, rows, None if first is None else range(first, first + len(rows)))

    def size(self, batch: Any) -> int:
        """Rows of a batch."""
        return size_of(batch)

    def cut(self, batch: Any, start: int, end: int) -> Any:
        """Some rows of a batch."""
        if (start, end) == (0, size_of(batch)):
            return batch
        return mapped(lambda leaf: _cut(leaf, start, end), batch)


def _cut(leaf: Any, start: int, end: int) -> Any:
    if isinstance(leaf, PackedSequence):
        raise TypeError(
            "the data set gives batches with a PackedSequence, which cannot be cut into lanes: let it give "
            "rows, and DataLoader(…, batch_size=…, collate_fn=…) put them together"
        )
    return leaf[start:end]


def _numbered(rows: Iterator[Any]) -> Iterator[Any]:
    """Rows of a stream; an error names the one that was to come."""
    number = 0
    try:
        for row in rows:
            yield row
            number += 1
    except Exception as error:
        info = torch_data.get_worker_info()
        several = info is not None and info.num_workers > 1
        part = f" as process {info.id} of the loader reads it" if several else ""
        _exception.note(error, f"grampus: in row {number} of the data set{part}")
        raise


class _Numbering(torch_data.IterableDataset):  # type: ignore[misc]
    """A stream in a loader's process, which says in which row it has failed."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __iter__(self) -> Iterator[Any]:
        try:
            yield from _numbered(iter(self.dataset))
        except Exception as error:
            failure = _Failure.of(error)
            if failure is None:
                raise
            yield failure


class _Beginning:
    """What a loader's process calls as it begins: it finds the user's data set, not what stands around it."""

    def __init__(self, function: Callable[[int], None] | None) -> None:
        self._function = function

    def __call__(self, process: int) -> None:
        info = torch_data.get_worker_info()
        # Torch means it to stay as it is.
        object.__setattr__(info, "dataset", info.dataset.dataset)
        if self._function is not None:
            self._function(process)


class _UnlessFailure:
    """A collate function for what a stream gives, which may be a failure."""

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self._collate = collate

    def __call__(self, given: Any) -> Any:
        return given if isinstance(given, _Failure) else self._collate(given)


def columns(data: Mapping[str, Any], names: Columns | None, what: str) -> Tree:
    """The named columns of a dict or frame as tensors: one alone, several as a tuple."""

    def made(name: str, values: Any) -> Any:
        # Columns of a frame become what those of other tables do; arrays in a dict keep their type.
        keeps = hasattr(values, "dtype") and not hasattr(data, "columns")
        return (tensor if keeps else _column)(values, f"column {name!r}")

    return trees.columns(data, names, what, made, beside)


def _column(values: Any, place: str) -> Any:
    """Floats with single precision, whole numbers with 64 bits, bytes and truth values as they are."""
    found = tensor(values, place)
    if found.is_complex():
        raise DataError(f"{place} holds complex numbers: make their parts columns of their own")
    if found.is_floating_point():
        return found.float()
    if found.dtype == torch.uint64 and (found.view(torch.int64) < 0).any():
        row = int((found.view(torch.int64) < 0).reshape(len(found), -1).any(1).nonzero()[0])
        raise DataError(f"row {row}, {place}: its value does not fit into int64: choose another type")
    return found if found.dtype in (torch.bool, torch.uint8) else found.long()


def given(data: Data, model: Any) -> Any:
    """What the user has passed, as the model takes it."""
    value = restored(data.value)
    return _single(value, model) if data.apart else value


def _single(tree: Tree, model: Any) -> Tree:
    """Arrays, with doubles in single precision, as torch's layers are; not for a model of doubles."""
    if any(each.dtype == torch.float64 for each in model.module.parameters()):
        return tree

    def cast(leaf: Any) -> Any:
        found = tensor(leaf, "the data")
        return found.float() if found.dtype == torch.float64 else found

    return mapped(cast, tree)


def beside(found: list[Any]) -> Any:
    """Columns side by side in one matrix."""
    trees.side_by_side([tuple(each.shape) for each in found])
    return found[0] if found[0].dim() > 1 else torch.cat([each.unsqueeze(1) for each in found], dim=1)


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
