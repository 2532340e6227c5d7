"""How the losses of lanes become that of the batch: for torch's own losses, and for those of users.

A lane counts for what its loss was divided by, so that all lanes together equal one process with the whole
batch. What a loss of the user's own divides by is not known: see `_torch_lane_check`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from grampus import _report
from grampus._training import trees
from grampus._training.model import Reduction
from grampus.frameworks._torch_losses import CLASSES, ELEMENTS, ROWS, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable

# How torch itself calls a target that counts for nothing, where the user says nothing.
_IGNORED = -100


def reduction_of(
    loss: Any, loss_weight: Callable[[Any], float] | None, target_of: Callable[[Any], Any]
) -> Reduction:
    """How the losses of lanes become that of the batch; what the user says comes first.

    >>> from torch import nn
    >>> reduction_of(nn.MSELoss(reduction="sum"), None, lambda batch: batch["y"]).sums
    True
    >>> reduction_of(lambda output, target: output.max(), None, lambda batch: batch["y"]).known
    False
    """
    if loss_weight is not None:
        return Reduction(loss_weight, minds_padding=False)
    found = kind_of(loss)
    if found is None:
        return Reduction(known=False)
    kind, options = found
    reduction = options.get("reduction", "mean")
    weight, ignored = options.get("weight"), options.get("ignore_index", _IGNORED)

    def target(values: Any) -> Any:
        """Where there is none, which the loss will not like, a place for each row."""
        given = target_of(values)
        return given if isinstance(given, torch.Tensor) else torch.zeros(len(trees.leaves(values)[0]))

    def ignores(values: Any) -> bool:
        return bool((target(values) == ignored).any())

    def is_even(values: Any) -> bool:
        return weight is None and not ignores(values)

    if reduction == "sum":
        return Reduction(sums=True, ignores=ignores if kind in CLASSES else None)
    if kind in ROWS or reduction == "batchmean":
        # Torch divides by the first axis, which counts more than rows where those are joined end to end.
        return Reduction(lambda values: float(len(torch.atleast_1d(target(values)))), by_shape=True)
    if kind in ELEMENTS:
        return Reduction(lambda values: float(target(values).numel()), by_shape=True)
    return Reduction(
        lambda values: _counted(target(values), weight, ignored), is_even=is_even, ignores=ignores
    )


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

    It is known whether that is right where a warning tells it, or where torch divides by what all rows have:
    as long as they have equally many elements.
    """
    found = kind_of(loss)
    even = found is not None and (found[0] in ELEMENTS or found[0] in ROWS)
    told = _is_uneven(found)
    known = loss_weight is not None or loss is None or even or told
    return Reduction(loss_weight, known=known, minds_padding=loss_weight is None and not told)


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
