"""Labels that are no class: which row has one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from grampus import _exception
from grampus._training import trees
from grampus._training.feed import row_numbers

if TYPE_CHECKING:
    from grampus._training.feed import Batch

# What torch's losses say, and what indexing says.
_SAID = re.compile(
    r"Target (-?\d+) is out of bounds|index (-?\d+) is out of bounds for dimension 1 with size (\d+)"
)
_SHARES = "between 0 and 1"
_IGNORED = -100


class _OddLabel(NamedTuple):
    """A label out of range, its place in the batch, and how many classes there are, where that is known."""

    place: int
    label: float
    classes: int | None


def mark(error: Exception, criterion: Any, output: Any, target: Any) -> None:
    """Keep with an error of a loss which label it met, if it was one."""
    tensors = isinstance(output, torch.Tensor) and isinstance(target, torch.Tensor)
    if not tensors or output.dim() < 2 or not target.dim() or not target.is_cpu:
        return
    if isinstance(criterion, torch.nn.MultiLabelMarginLoss):
        return
    classes = None
    if not target.is_floating_point():
        classes = output.shape[1]
        odd = (target < 0) | (target >= classes)
        odd &= target != getattr(criterion, "ignore_index", _IGNORED)
    elif _SHARES in str(error):
        odd = ~((target >= 0) & (target <= 1))
    else:
        return
    _keep(error, target, odd, classes)


def _keep(error: Exception, target: Any, odd: Any, classes: int | None) -> None:
    places = odd.reshape(len(target), -1)
    if places.any():
        place = int(places.any(1).nonzero()[0])
        label = target.reshape(len(target), -1)[place][places[place]][0].item()
        error.__dict__["_label"] = _OddLabel(place, label, classes)


def name(error: Exception, part: Batch) -> None:
    """Say in the error which row has a label out of range, if it is about one."""
    if "device-side assert" in str(error):
        _exception.note(error, "grampus: a label or an index is out of range: device='cpu' names the row")
    if "_label" not in error.__dict__:
        _seek(error, part.values)
    odd: _OddLabel | None = error.__dict__.pop("_label", None)
    rows = row_numbers(part.rows)
    if odd is None or odd.place >= len(rows):
        return
    text = f"{str(error).rstrip('. ')}: row {rows[odd.place]} has the label {odd.label:g}"
    if odd.classes is not None:
        text += (
            f", and the model's output has {odd.classes} classes: labels must be from 0 to {odd.classes - 1}"
        )
    error.args = (text,)


def _seek(error: Exception, values: Any) -> None:
    """Look for the label that a step of the user's own has met: targets are last."""
    said = _SAID.search(str(error))
    if said is None:
        return
    label = int(said[1] or said[2])
    for leaf in reversed(trees.leaves(values)):
        is_label = isinstance(leaf, torch.Tensor) and not leaf.is_floating_point() and leaf.dim()
        if is_label and leaf.is_cpu and bool((leaf == label).any()):
            _keep(error, leaf, leaf == label, None if said[3] is None else int(said[3]))
            return
