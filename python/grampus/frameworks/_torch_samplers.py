"""Samplers of users: every worker draws the rows that a plain loop over the loader would read."""

from __future__ import annotations

import copy
import pickle
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils import data as torch_data

from grampus import _native
from grampus._training.creator import seed_all

if TYPE_CHECKING:
    from grampus.collective import Group

_GENERATORS = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)


class Draws:
    """The choices of a loader's sampler, epoch by epoch.

    The process's random numbers are seeded for each epoch. A generator that belongs to the sampler keeps its
    own seed: epoch `e` is its draw number `e`, so a resumed run repeats the draws before.
    """

    def __init__(self, loader: Any, seed: int) -> None:
        self._loader = loader
        self._seed = seed
        self._holders = _holders(loader)
        self._begun = copy.deepcopy(_generators(self._holders))
        # Epochs that were drawn.
        self._done = 0

    @property
    def has_generator(self) -> bool:
        """Whether a sampler draws from a generator of its own."""
        return any(self._begun[1:])

    def of(self, epoch: int, sampler: Any) -> list[Any]:
        """What a sampler of the loader gives in an epoch."""
        if not self.has_generator:
            return self._draw(epoch, sampler)
        if epoch < self._done:
            _give(self._holders, copy.deepcopy(self._begun))
            self._done = 0
        drawn: list[Any] = []
        for each in range(self._done, epoch + 1):
            drawn = self._draw(each, sampler)
        self._done = epoch + 1
        return drawn

    def _draw(self, epoch: int, sampler: Any) -> list[Any]:
        seed_all(_native.lane_seed("data", self._seed, epoch, 0, 0))
        for holder in self._holders[1:]:
            if hasattr(holder, "set_epoch"):
                holder.set_epoch(epoch)
        # A loader asks its sampler of batches first, draws a seed for its processes, and then goes on.
        chosen = iter(sampler) if sampler is self._loader.batch_sampler else None
        if self._loader.generator is not None and (epoch == 0 or not self._loader.persistent_workers):
            draw_seed(self._loader.generator)
        return list(sampler if chosen is None else chosen)


def draw_seed(generator: torch.Generator) -> None:
    """Draw what torch's loaders draw before each epoch."""
    torch.empty((), dtype=torch.int64).random_(generator=generator)


def share_generators(loader: Any, group: Group) -> None:
    """Let all workers have the first one's generators in a loader that each has made for itself."""
    holders = _holders(loader)
    # Peers of the group have proved the key of the job.
    told = group._native.gather_bytes(pickle.dumps(_generators(holders)))
    _give(holders, pickle.loads(told[0]))


def _holders(loader: Any) -> list[Any]:
    """The loader, its samplers, and the samplers that these hold."""
    found: list[Any] = []
    left = [loader]
    while left:
        holder = left.pop(0)
        if not any(holder is other for other in found):
            found.append(holder)
            left += [each for each in _attributes(holder).values() if isinstance(each, torch_data.Sampler)]
            if holder is loader and loader.batch_sampler is not None:
                left.append(loader.batch_sampler)
    return found


def _generators(holders: list[Any]) -> list[dict[str, Any]]:
    return [
        {name: each for name, each in _attributes(holder).items() if isinstance(each, _GENERATORS)}
        for holder in holders
    ]


def _give(holders: list[Any], generators: list[dict[str, Any]]) -> None:
    for holder, own in zip(holders, generators, strict=True):
        _attributes(holder).update(own)


def _attributes(holder: Any) -> dict[str, Any]:
    found: dict[str, Any] = getattr(holder, "__dict__", {})
    return found
