"""How the losses of lanes become that of the batch: for torch's own losses, and for those of users.

A lane counts for what its loss was divided by, so that all lanes together equal one process with the whole
batch. What a loss of the user's own divides by is not known: it is tried on the first batch.
"""

from __future__ import annotations

import copy
import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from grampus import _report
from grampus._training import trees
from grampus._training.model import Reduction
from grampus.frameworks._torch_losses import CLASSES, ELEMENTS, ROWS, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from grampus._training.lanes import Lanes

# How torch itself calls a target that counts for nothing, where the user says nothing.
_IGNORED = -100

# How far two means may differ that should be equal: sums in another order, and with 16 bits.
_NEAR = 1e-3
_NEAR_WITH_16_BITS = 5e-2

# What every module has: its parameters, buffers, parts and hooks.
_OF_TORCH = vars(nn.Module()).keys()


def reduction_of(
    loss: Any, loss_weight: Callable[[Any], float] | None, target_of: Callable[[Any], Any]
) -> Reduction:
    """How the losses of lanes become that of the batch; what the user says comes first.

    >>> reduction_of(nn.MSELoss(reduction="sum"), None, lambda batch: batch["y"]).sums
    True
    >>> reduction_of(lambda output, target: output.max(), None, lambda batch: batch["y"]).known
    False
    """
    if loss_weight is not None:
        return Reduction(loss_weight)
    found = kind_of(loss)
    if found is None:
        return Reduction(known=False)
    kind, options = found
    reduction = options.get("reduction", "mean")
    if reduction == "sum":
        return Reduction(sums=True)
    if kind in ROWS or reduction == "batchmean":
        return Reduction()

    def target(values: Any) -> Any:
        """Where there is none, which the loss will not like, a place for each row."""
        given = target_of(values)
        return given if isinstance(given, torch.Tensor) else torch.zeros(len(trees.leaves(values)[0]))

    if kind in ELEMENTS:
        return Reduction(lambda values: float(target(values).numel()), by_shape=True)
    weight, ignored = options.get("weight"), options.get("ignore_index", _IGNORED)

    def is_even(values: Any) -> bool:
        return weight is None and not bool((target(values) == ignored).any())

    return Reduction(lambda values: _counted(target(values), weight, ignored), is_even=is_even)


def _counted(target: Any, weight: Any, ignored: int) -> float:
    """What targets of classes count for."""
    if target.is_floating_point():
        # Probabilities of the classes, along the second axis.
        return float(target.numel() / (target.shape[1] if target.dim() > 1 else 1))
    counts = target != ignored
    if weight is None:
        return float(counts.sum())
    # The loss itself refuses what is no class.
    classes = target[counts].long().clamp(0, len(weight) - 1)
    return float(weight.detach().to(target.device).double()[classes].sum())


def reduction_of_steps(loss: Any, loss_weight: Callable[[Any], float] | None) -> Reduction:
    """How an operator's own steps are brought together: by rows, where the user does not say by what.

    It is known whether that is right where a warning tells it, or where torch divides by what all rows have.
    """
    found = kind_of(loss)
    even = found is not None and (found[0] in ELEMENTS or found[0] in ROWS)
    known = loss_weight is not None or loss is None or even or _is_uneven(found)
    return Reduction(loss_weight, known=known)


def _is_uneven(found: tuple[Any, dict[str, Any]] | None) -> bool:
    """Whether a loss of torch's own is no mean over rows, as its options alone say."""
    if found is None:
        return False
    kind, options = found
    weighs = options.get("weight") is not None or options.get("ignore_index", _IGNORED) != _IGNORED
    return options.get("reduction", "mean") == "sum" or (kind in CLASSES and weighs)


def warn_of_criterion(loss: Any, loss_weight: Callable[[Any], float] | None) -> None:
    """Warn where an operator's own step has a criterion that is no mean over rows."""
    found = None if loss_weight is not None else kind_of(loss)
    if found is not None and _is_uneven(found):
        _report.note(
            f"the criterion {found[0].__name__} is no mean over rows, and gradients of the operator's steps "
            "are weighed by rows: pass loss_weight= where it divides by class weights or counts, and take a "
            "mean where it is a sum"
        )


# What the lanes of a worker have found in the first step: how the loss differs from a mean, and what it is.
Found = tuple[dict[int, str], dict[int, float]]


def tell(parts: Iterable[Found], lanes: Lanes) -> None:
    """Say once what all lanes have found; labels that count for nothing may all be in one of them."""
    differs: dict[int, str] = {}
    losses: dict[int, float] = {}
    for how, loss in parts:
        differs |= how
        losses |= loss
    void = [lane for lane, loss in losses.items() if math.isnan(loss)]
    if len(void) < len(losses):
        why = "the loss is nan, and a number in other lanes, as where all labels of a lane are ignored"
        differs = dict.fromkeys(void, why) | differs
    if differs and lanes.group.rank == 0:
        lane = min(differs)
        _report.note(
            f"the loss is no mean over rows: in lane {lane}, {differs[lane]}. Each of {lanes.total} lanes "
            "takes that of its own rows, so the run differs from that of one process: pass loss_weight= "
            "where the loss divides by something else, take a mean where it is a sum, use lanes=1 where "
            "it compares rows with each other; see 'Losses that are no mean over rows' in the guide to "
            "the Estimator"
        )


def tell_padding() -> None:
    """Say that lanes have more elements a row than others."""
    _report.note(
        "lanes are padded to different lengths, so the mean over elements counts less padding than that of "
        "one process, which pads the whole batch: let collate_fn pad to a fixed length, or pass a loss that "
        "leaves the padding out, with loss_weight= for what it divides by; see 'Losses that are no mean over "
        "rows' in the guide to the Estimator"
    )


class Trial:
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
