"""Checks that lanes together come to the result of one process, and warns where they do not.

Two things show it: a trial of the loss on the first batch of each lane (see `_torch_trial`), and how many
elements a row has in each lane of a batch. Lanes that are padded by themselves, or whose rows are joined end
to end, differ in that; such lanes are never compared by a trial, which sees the rows of one lane alone.
"""

from __future__ import annotations

import math
import pickle
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from grampus import _report
from grampus._training import trees
from grampus.frameworks._torch_trial import RowTrial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from grampus._training.job import Spec
    from grampus._training.lanes import Lanes
    from grampus._training.model import Reduction

# Batches between two comparisons of lanes that are kept; more would only cost memory.
_MOST_KEPT = 1024
# The size of a lane with targets that are left out: padding is left out, too, so that lanes may differ.
_IGNORES = -1.0
# Estimators whose user this process has warned, and of what.
_warned: set[tuple[str, str, str]] = set()


class Found(NamedTuple):
    """What the lanes of a worker have found since they last told."""

    # By lane, how its loss differs from a mean over rows, and its first loss.
    differs: dict[int, str]
    losses: dict[int, float]
    # By batch and lane, how many elements a row has.
    sizes: dict[int, dict[int, float]]


class LaneCheck:
    """What the lanes of this worker find out about one loss, in training or in evaluation."""

    def __init__(self, spec: Spec, lanes: Lanes, reduction: Reduction, half_precision: bool) -> None:
        """Of a loss whose lanes are brought together in this way."""
        self._spec = spec
        self._lanes = lanes
        self._reduction = reduction
        self._half_precision = half_precision
        # Whether nothing was compared yet, and whether the user was warned: then there is no more to find.
        self._is_new, self._has_warned = True, False
        self._found = Found({}, {}, {})
        # Steps that were done, and of those the ones after which lanes were compared.
        self._steps = self._compared = 0

    def tries(self, lane: int) -> bool:
        """Whether the loss of a lane's next batch is to be tried: the first that counts."""
        return self._is_new and not self._reduction.known and lane not in self._found.losses

    def add_loss(self, lane: int, loss: float) -> None:
        """Keep the first loss of a lane, or one that is NaN, as where none of its labels count."""
        losses = self._found.losses
        if not self._reduction.known and (lane not in losses or math.isnan(loss)):
            losses[lane] = loss

    def try_loss(
        self, lane: int, rows: int, loss_of: Callable[[Any], Any], values: Any, whole: float | None = None
    ) -> None:
        """Look whether the loss of these values is a mean over rows."""
        found = RowTrial(rows, self._half_precision).differs(loss_of, values, whole)
        if found is not None:
            self._found.differs[lane] = found

    def add_size(
        self, lane: int, rows: int, target: Any, values: Any = None, batch: int | None = None
    ) -> None:
        """Keep how many elements of the target a row has; `batch` counts those of an epoch or evaluation."""
        place = self._steps if batch is None else batch
        sizes = self._found.sizes
        is_full = place not in sizes and len(sizes) == _MOST_KEPT
        if is_full or self._has_warned or not self._reduction.minds_padding:
            return
        tensors = [leaf for leaf in trees.leaves(target) if isinstance(leaf, torch.Tensor) and leaf.dim()]
        by_rows = self._reduction.weigh is None and not self._reduction.sums
        # Rows that are joined have no padding: they weigh what torch divides by, where that is known.
        if not rows or not tensors or not (by_rows or all(len(each) == rows for each in tensors)):
            return
        size = sum(each.numel() for each in tensors) / rows
        # All targets of one axis have one element a row, so that nobody has to look into them.
        is_padded = self._reduction.ignores is not None and size > 1 and self._reduction.ignores(values)
        sizes.setdefault(place, {})[lane] = _IGNORES if is_padded else size

    def step_ends(self) -> bool:
        """Count a step; whether lanes are to be compared: after the first, and ever more seldom."""
        self._steps += 1
        return self.is_due and self._steps.bit_count() == 1

    @property
    def is_due(self) -> bool:
        """Whether there is anything to compare, as all workers know alike."""
        compares = not self._reduction.known or self._reduction.minds_padding
        return compares and not self._has_warned and self._steps > self._compared

    def take(self) -> Found:
        """What was found since the last time."""
        found, self._found = self._found, Found({}, {}, {})
        self._compared, self._is_new = self._steps, False
        return found

    def share(self) -> None:
        """Compare with the lanes of all workers, which do so at the same time."""
        # Peers of the group have proved the key of the job.
        told = self._lanes.group._native.gather_bytes(pickle.dumps(self.take()))
        self.tell(map(pickle.loads, told))

    def tell(self, parts: Iterable[Found]) -> None:
        """Warn once of what all lanes have found; labels that count for nothing may all be in one of them."""
        differs: dict[int, str] = {}
        losses: dict[int, float] = {}
        sizes: dict[int, dict[int, float]] = {}
        for part in parts:
            differs |= part.differs
            losses |= part.losses
            for place, of_lanes in part.sizes.items():
                sizes.setdefault(place, {}).update(of_lanes)
        void = [lane for lane, loss in losses.items() if math.isnan(loss)]
        if len(void) < len(losses):
            why = "the loss is nan, and a number in other lanes, as where all labels of a lane are ignored"
            differs = dict.fromkeys(void, why) | differs
        unequal = next(filter(None, (_unequal(sizes[place]) for place in sorted(sizes))), None)
        # What is no mean over rows is to be changed first.
        if differs:
            lane = min(differs)
            self._warn("reduction", _no_row_mean(lane, differs[lane], self._lanes.total))
        elif unequal is not None:
            by_rows = self._reduction.weigh is None and not self._reduction.sums
            self._warn("sizes", _unequal_rows(*unequal) if by_rows else _PADDED)

    def _warn(self, what: str, text: str) -> None:
        self._has_warned = True
        if self._lanes.group.rank == 0 and is_first_warning(self._spec, what):
            _report.note(text)


def is_first_warning(spec: Spec, what: str) -> bool:
    """Whether the user of this Estimator was not yet warned of this; another loss is another matter."""
    loss = spec.loss
    key = spec.id, what, str(getattr(loss, "__qualname__", None) or type(loss).__qualname__)
    is_new = key not in _warned
    _warned.add(key)
    return is_new


def _unequal(sizes: dict[int, float]) -> tuple[tuple[int, float], tuple[int, float]] | None:
    """The lanes with the least and the most elements a row, in a batch where they differ."""
    least, most = (of(sizes.items(), key=lambda item: item[1]) for of in (min, max))
    return (least, most) if least[1] < most[1] and least[1] != _IGNORES else None


def _no_row_mean(lane: int, why: str, lanes: int) -> str:
    return (
        f"the loss is no mean over rows: in lane {lane}, {why}. Each of {lanes} lanes takes that of its own "
        "rows, so the result differs from that of one process: pass loss_weight= where the loss divides by "
        "something else, take a mean where it is a sum, use lanes=1 where it compares rows with each other; "
        "see 'Losses that are no mean over rows' in the guide to the Estimator"
    )


_PADDED = (
    "lanes are padded to different lengths, so the loss counts less padding than that of one process, which "
    "pads the whole batch: let collate_fn pad to a fixed length, or pass a loss that leaves the padding out, "
    "with loss_weight= for what it divides by; see 'Losses that are no mean over rows' in the guide to the "
    "Estimator"
)


def _unequal_rows(least: tuple[int, float], most: tuple[int, float]) -> str:
    return (
        f"targets have {least[1]:.4g} elements a row in lane {least[0]} and {most[1]:.4g} in lane {most[0]}, "
        "as where lanes are padded to different lengths or rows are joined end to end, and lanes count for "
        "their rows: where the loss divides by elements, the result differs from that of one process. Pass "
        "loss_weight= for what the loss divides by, also where that is rows, and let collate_fn pad to a "
        "fixed length where the loss counts the padding; see 'Losses that are no mean over rows' in the "
        "guide to the Estimator"
    )
