"""Samplers of users: every worker draws the rows that a plain loop over the loader would read."""

from __future__ import annotations

import copy
import io
import pickle
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import data as torch_data

from grampus import _native, _report
from grampus._training.creator import seed_all

if TYPE_CHECKING:
    from grampus.collective import Group

# What a loader draws with. Samplers and the loader may share a generator, so these are copied together.
_DRAWN = ("batch_sampler", "sampler", "generator")
# Samplers of torch's own look at their data for its length alone.
_OWN = (torch_data.SequentialSampler, torch_data.RandomSampler, torch_data.DistributedSampler)


class Draws:
    """The choices of a loader's sampler, epoch by epoch.

    The process's random numbers are seeded for each epoch. All else that a sampler keeps, such as a generator
    or a count of epochs, is its own: epoch `e` is its draw number `e`, so a resumed run repeats those before.
    """

    def __init__(self, loader: Any, seed: int, training: bool) -> None:
        """Of a loader whose sampler nothing has drawn from yet."""
        self._loader = loader
        self._seed = seed
        self._training = training
        self._begun: bytes | None = None
        # Epochs that were drawn.
        self._done = 0

    def batches(self, epoch: int) -> list[Any]:
        """What the sampler of batches gives in an epoch."""
        return self._of(epoch, of_batches=True)

    def rows(self, epoch: int) -> list[Any]:
        """What the sampler within the sampler of batches gives in an epoch."""
        return self._of(epoch, of_batches=False)

    def _of(self, epoch: int, of_batches: bool) -> list[Any]:
        if not self._training:
            # There is one draw, of all rows.
            return self._draw(epoch, _undropped(self._loader.batch_sampler), of_batches)
        if self._done == 0:
            self._begun = _packed(self._loader)
        elif epoch < self._done and self._begun is not None:
            _give(self._loader, self._begun)
            self._done = 0
        drawn: list[Any] = []
        for each in range(min(self._done, epoch), epoch + 1):
            drawn = self._draw(each, self._loader.batch_sampler, of_batches)
        self._done = epoch + 1
        return drawn

    def _draw(self, epoch: int, batches: Any, of_batches: bool) -> list[Any]:
        seed_all(_native.lane_seed("data", self._seed, epoch, 0, 0))
        for sampler in _samplers(batches):
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)
        # A loader asks its sampler of batches first, draws a seed for its processes, and then goes on.
        chosen = iter(batches) if of_batches else None
        if self._loader.generator is not None and (epoch == 0 or not self._loader.persistent_workers):
            draw_seed(self._loader.generator)
        return list(batches.sampler if chosen is None else chosen)


def draw_seed(generator: torch.Generator) -> None:
    """Draw what torch's loaders draw before each epoch."""
    torch.empty((), dtype=torch.int64).random_(generator=generator)


def share_samplers(loader: Any, group: Group) -> None:
    """Let all workers have the first one's samplers in a loader that each has made for itself."""
    if group.size == 1:
        return
    # Peers of the group have proved the key of the job.
    told = group._native.gather_bytes((_packed(loader) or b"") if group.rank == 0 else b"")
    if told[0] and group.rank:
        _give(loader, told[0])


def _undropped(batches: Any) -> Any:
    """Every row is evaluated and predicted."""
    if not isinstance(batches, torch_data.BatchSampler):
        return batches
    batches = copy.copy(batches)
    batches.drop_last = False
    return batches


def _samplers(batches: Any) -> list[Any]:
    """A sampler of batches, and the samplers that it holds: those of torch's, and what is called so."""
    found: list[Any] = []
    left = [batches]
    while left:
        sampler = left.pop(0)
        if sampler is None or any(sampler is other for other in found):
            continue
        found.append(sampler)
        left += [getattr(sampler, name, None) for name in ("sampler", "batch_sampler")]
        held = getattr(sampler, "__dict__", {}).values()
        left += [each for each in held if isinstance(each, torch_data.Sampler)]
    return found


def _data(loader: Any) -> list[Any]:
    """What samplers refer to and never change: it may be large."""
    found = [loader.dataset]
    while isinstance(found[-1], torch_data.Subset):
        found.append(found[-1].dataset)
    for sampler in _samplers(loader.batch_sampler):
        if type(sampler) in _OWN:
            found.append(sampler.dataset if hasattr(sampler, "dataset") else sampler.data_source)
    return found


def _packed(loader: Any) -> bytes | None:
    """All that a loader draws with, as it is now, without the data; nothing where it cannot be copied."""
    import cloudpickle

    numbers = {id(each): number for number, each in reversed([*enumerate(_data(loader))])}

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def persistent_id(self, value: Any) -> int | None:
            return numbers.get(id(value))

    file = io.BytesIO()
    try:
        Pickler(file).dump({name: getattr(loader, name) for name in _DRAWN})
    except Exception as error:
        kinds = ", ".join(dict.fromkeys(type(each).__name__ for each in _samplers(loader.batch_sampler)))
        _report.note(
            f"the samplers of a loader ({kinds}) cannot be copied ({error}): where workers make them for "
            "themselves, or draw again after a failure or a resume, rows may be lost or repeated; keep in a "
            "sampler only what can be pickled"
        )
        return None
    return file.getvalue()


def _give(loader: Any, packed: bytes) -> None:
    data = _data(loader)

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, number: Any) -> Any:
            return data[number]

    # A loader refuses to change its sampler, for there may be an iterator over it; here is none.
    loader.__dict__.update(Unpickler(io.BytesIO(packed)).load())
