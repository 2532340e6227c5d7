"""Tries whether a loss of the user's own is a mean over rows, on the first batch of each lane.

Several lanes equal one process only where Grampus weighs them by what the loss divides by. Of a loss that is
no loss of torch's own this is not known, so it is tried: at once, and in two parts.
"""

from __future__ import annotations

import copy
import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from grampus._training import trees

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# How far two means may differ that should be equal: sums in another order, and with 16 bits.
_NEAR = 1e-3
_NEAR_WITH_16_BITS = 5e-2

# What every module has: its parameters, buffers, parts and hooks.
_OF_TORCH = vars(nn.Module()).keys()


class RowTrial:
    """A loss of the user's own, tried on rows: at once, and as the mean over two parts of unequal size.

    A row that is alone is tried twice over: a mean stays what it was, a sum does not.
    """

    def __init__(self, rows: int, half_precision: bool) -> None:
        """Of so many rows."""
        self._rows = rows
        self._cut = max(1, rows // 3)
        self._near = _NEAR_WITH_16_BITS if half_precision else _NEAR

    def differs(self, loss_of: Callable[[Any], Any], values: Any, whole: float | None = None) -> str | None:
        """How they differ, if they do; nothing also where rows cannot be told apart."""
        if self._rows < 1 or not can_be_cut(values, self._rows):
            return None
        try:
            whole = float(loss_of(values)) if whole is None else whole
            mean, near = self._doubled(loss_of, values) if self._rows == 1 else self._parted(loss_of, values)
        except Exception:
            # It may need a batch of some size: then nothing can be said.
            return None
        if whole - whole != 0.0 or math.isclose(whole, mean, rel_tol=near, abs_tol=1e-7):
            return None
        if self._rows == 1:
            return f"for the first row it is {whole:.6g}, and {mean:.6g} for a batch of twice this row"
        return (
            f"for the first {self._rows} rows it is {whole:.6g}, and {mean:.6g} as the mean over {self._cut} "
            f"and {self._rows - self._cut} of them"
        )

    def _parted(self, loss_of: Callable[[Any], Any], values: Any) -> tuple[float, float]:
        """The mean over two parts, and how near it must be."""
        cut, rest = self._cut, self._rows - self._cut
        first = loss_of(self._part(values, 0, cut))
        second = loss_of(self._part(values, cut, self._rows))
        return (float(first) * cut + float(second) * rest) / self._rows, self._nearness(first)

    def _doubled(self, loss_of: Callable[[Any], Any], values: Any) -> tuple[float, float]:
        """The loss of the row and itself, and how near it must be."""
        both = loss_of(trees.mapped(lambda leaf: None if leaf is None else torch.cat([leaf, leaf]), values))
        return float(both), self._nearness(both)

    def _nearness(self, loss: Any) -> float:
        return max(self._near, _NEAR_WITH_16_BITS if loss.element_size() == 2 else 0.0)

    @staticmethod
    def _part(values: Any, start: int, end: int) -> Any:
        return trees.mapped(lambda leaf: None if leaf is None else leaf[start:end], values)


def can_be_cut(values: Any, rows: int) -> bool:
    """Whether all tensors have so many rows; there may be no target."""
    leaves = [leaf for leaf in trees.leaves(values) if leaf is not None]
    return all(isinstance(leaf, torch.Tensor) and leaf.dim() and len(leaf) == rows for leaf in leaves)


@contextmanager
def undisturbed(module: Any) -> Iterator[None]:
    """Inside, the module only answers; afterwards what its forward keeps beside buffers is as it was.

    Such are states of metrics, and lists and numbers that users keep for the end of an epoch.
    """
    # Not by part: the hash of a metric changes with what it has counted.
    kept = [(part, part.training, _own(part)) for part in module.modules()]
    copies = [{name: _copied(value) for name, value in own.items()} for _, _, own in kept]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for (part, trains, own), copied in zip(kept, copies, strict=True):
            part.training = trains
            for name in _own(part).keys() - own.keys():
                del vars(part)[name]
            for name, value in own.items():
                vars(part)[name] = _put_back(value, copied[name])


def _own(part: Any) -> dict[str, Any]:
    """What a module keeps, apart from what every module has."""
    return {name: value for name, value in vars(part).items() if name not in _OF_TORCH}


def _copied(value: Any) -> Any:
    """As it is now, though code of the user may change it in place."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    return copy.copy(value) if type(value) in (list, dict, set) else value


def _put_back(value: Any, copied: Any) -> Any:
    """The very object, with what it held."""
    if isinstance(value, torch.Tensor):
        if value.shape != copied.shape or not torch.equal(value, copied):
            value.data = copied
    elif isinstance(value, list):
        value[:] = copied
    elif type(value) in (dict, set):
        value.clear()
        value.update(copied)
    return value
