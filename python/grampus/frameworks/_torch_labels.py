"""Labels that are no class: which row has one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from grampus import _exception
from grampus._training import trees
from grampus._training.feed import row_numbers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from grampus._training.feed import Batch

# What torch's losses say of a label that is no class; the margin loss does not say of which.
_NO_CLASS = re.compile(r"^(?:Target (-?\d+) is out of bounds|target out of range)")
_NO_SHARE = "all elements of target should be between 0 and 1"
# Where a batch without `x` and `y` may have its targets.
_TARGETS = ("y", "labels", "label", "targets", "target")


class _OddLabel(NamedTuple):
    """A label out of range, its place in the batch, and how many classes there are, where that is known."""

    place: int
    label: float
    classes: int | None


def mark(error: Exception, output: Any, target: Any) -> None:
    """Keep with an error of a loss which label it met, if it says that it met one that is out of range."""
    if not isinstance(output, torch.Tensor) or not isinstance(target, torch.Tensor):
        return
    said = _NO_CLASS.search(str(error))
    if not target.dim() or not target.is_cpu:
        return
    if said is not None and output.dim() > 1 and not target.is_floating_point():
        classes = output.shape[1]
        # Labels that a loss ignores may be out of range, too.
        odd = (target < 0) | (target >= classes) if said[1] is None else target == int(said[1])
        _keep(error, target, odd, classes)
    elif _NO_SHARE in str(error):
        _keep(error, target, ~((target >= 0) & (target <= 1)), None)


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
    if odd is None:
        return
    rows = [] if part.numbers is None else row_numbers(part.numbers)
    # A target need not have a place for each row.
    where = f"row {rows[odd.place]}" if odd.place < len(rows) else "a row of the batch"
    text = f"{str(error).rstrip('. ')}: {where} has the label {odd.label:g}"
    if odd.classes is not None:
        text += (
            f", and the model's output has {odd.classes} classes: labels must be from 0 to {odd.classes - 1}"
        )
    error.args = (text,)


def _seek(error: Exception, values: Any) -> None:
    """Look for the label that a step of the user's own has met."""
    said = _NO_CLASS.search(str(error))
    if said is None or said[1] is None:
        return
    for leaf in trees.leaves(_targets(values)):
        is_label = isinstance(leaf, torch.Tensor) and not leaf.is_floating_point() and leaf.dim()
        if is_label and leaf.is_cpu and bool((leaf == int(said[1])).any()):
            _keep(error, leaf, leaf == int(said[1]), None)
            return


def _targets(values: Any) -> Any:
    """What are targets of a batch by its form: inputs may hold the same number."""
    if hasattr(values, "keys"):
        named: Mapping[str, Any] = values
        return [named[name] for name in _TARGETS if name in named]
    return list(values[-1:]) if isinstance(values, list | tuple) else []
