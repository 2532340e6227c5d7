"""Losses of torch's own: which one a user has passed, and whether shapes fit it."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import torch
from torch import nn
from torch.nn import functional

# Losses of an output and a target, with the function of each. Those that compare element by element and
# divide by the number of elements; those of classes, which divide by what the targets count for; those that
# divide by rows.
ELEMENTS: dict[Any, Any] = {
    nn.MSELoss: functional.mse_loss,
    nn.L1Loss: functional.l1_loss,
    nn.SmoothL1Loss: functional.smooth_l1_loss,
    nn.HuberLoss: functional.huber_loss,
    nn.BCELoss: functional.binary_cross_entropy,
    nn.BCEWithLogitsLoss: functional.binary_cross_entropy_with_logits,
    nn.KLDivLoss: functional.kl_div,
    nn.PoissonNLLLoss: functional.poisson_nll_loss,
    nn.SoftMarginLoss: functional.soft_margin_loss,
    nn.HingeEmbeddingLoss: functional.hinge_embedding_loss,
}
CLASSES: dict[Any, Any] = {
    nn.CrossEntropyLoss: functional.cross_entropy,
    nn.NLLLoss: functional.nll_loss,
}
ROWS: dict[Any, Any] = {
    nn.MultiMarginLoss: functional.multi_margin_loss,
    nn.MultiLabelMarginLoss: functional.multilabel_margin_loss,
    nn.MultiLabelSoftMarginLoss: functional.multilabel_soft_margin_loss,
}
_FUNCTIONS = {function: kind for kind, function in (ELEMENTS | CLASSES | ROWS).items()}


def kind_of(loss: Any) -> tuple[Any, dict[str, Any]] | None:
    """Which loss of torch's own this is, and its options; nothing for losses of others."""
    options: dict[str, Any] = {}
    kind: Any
    if isinstance(loss, nn.Module):
        kind = next((kind for kind in type(loss).__mro__ if kind in _FUNCTIONS.values()), None)
        # A subclass that computes something else is the user's own.
        own = kind is None or type(loss).forward is not kind.forward
        return None if own else (kind, vars(loss) | loss._buffers)
    if isinstance(loss, functools.partial) and not loss.args:
        loss, options = loss.func, loss.keywords
    kind = _FUNCTIONS.get(loss) if inspect.isroutine(loss) else None
    return None if kind is None or {"size_average", "reduce"} & options.keys() else (kind, options)


def check_shapes(loss: Any, output: Any, target: Any) -> None:
    """Refuse what torch would broadcast: each row would be compared with all others."""
    if not isinstance(output, torch.Tensor) or not isinstance(target, torch.Tensor):
        return
    # The output for a single row may have lost its first axis.
    if output.shape == target.shape or output.numel() == target.numel() == 1:
        return
    found = kind_of(loss)
    if found is None or found[0] not in ELEMENTS:
        return
    raise ValueError(
        f"{found[0].__name__} compares element by element, and the model's output is {_shape(output)} where "
        f"the labels are {_shape(target)}: {_advice(output, target)}"
    )


def _shape(tensor: Any) -> str:
    return str(tuple(tensor.shape))


def _advice(output: Any, target: Any) -> str:
    if output.numel() != target.numel():
        return "let the model return as many numbers as the labels have"
    if output.dim() == target.dim() + 1 and output.shape[-1] == 1:
        return (
            "write label_cols=[['name']] for a column of a table, y.unsqueeze(-1) for an array, or let the "
            "model return output.squeeze(-1)"
        )
    if target.dim() == output.dim() + 1 and target.shape[-1] == 1:
        return (
            "write label_cols='name' for a column of a table, y.squeeze(-1) for an array, or let the model "
            "return output.unsqueeze(-1)"
        )
    return "let both have the same shape"
