"""What models return, and what is done with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from grampus import _exception
from grampus._training import creator, trees
from grampus._training.means import as_number
from grampus.frameworks import _torch_labels
from grampus.frameworks._torch_losses import check_shapes

if TYPE_CHECKING:
    from grampus._training.feed import Batch
    from grampus._training.job import Clipping


def loss_of(criterion: Any, output: Any, target: Any) -> Any:
    """The loss of an output, which must be one number."""
    if criterion is None:
        loss = own_loss(output)
    elif target is None:
        loss = _without_target(criterion, output)
    else:
        check_shapes(criterion, output, target)
        try:
            loss = criterion(output, target)
        except (IndexError, RuntimeError) as error:
            _torch_labels.mark(error, output, target)
            raise
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        what = type(loss).__name__
        if isinstance(loss, torch.Tensor):
            what = f"tensor of shape {tuple(loss.shape)}"
        raise ValueError(
            f"the loss is a {what}, not a tensor of one number: reduce it, for example with reduction='mean'"
        )
    return loss


def _without_target(criterion: Any, output: Any) -> Any:
    called = criterion.forward if isinstance(criterion, torch.nn.Module) else criterion
    bounds = creator.required(called)
    if bounds is not None and bounds[0] > 1:
        name = getattr(criterion, "__qualname__", type(criterion).__name__)
        raise ValueError(
            f"the loss {name} needs a target, and the batch has none: name its column with label_cols=, or "
            "pass {'x': …, 'y': …}, or rows that end with the target"
        )
    return criterion(output)


def own_loss(output: Any) -> Any:
    """The loss that a model makes by itself, as those of transformers do."""
    loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if loss is None:
        # Those of transformers make one where they are given labels; many data sets call these label.
        more = ", or call the column of targets 'labels'" if isinstance(output, Mapping) else ""
        raise ValueError(
            f"no loss was given, and the model's output, a {type(output).__name__}, has none: pass "
            f"loss=…{more}"
        )
    return loss


def reported_loss(reported: Mapping[str, Any]) -> float | None:
    """The loss that an operator has reported: by its name, or all that are called so, together."""
    for name in ("train_loss", "val_loss", "loss"):
        number = as_number(reported.get(name))
        if number is not None:
            return number
    named = [as_number(value) for name, value in reported.items() if "loss" in name]
    numbers = [value for value in named if value is not None]
    return float(sum(numbers)) if numbers else None


def plain(output: Any) -> Any:
    """Outputs that are dicts, as those of transformers, without their class and the loss of the batch."""
    if not isinstance(output, Mapping):
        return output
    return {name: value for name, value in output.items() if name != "loss"}


def check_rows(output: Any, rows: int) -> None:
    for leaf in trees.leaves(output):
        if trees.is_one(leaf):
            raise TypeError(
                f"the model's output holds a {type(leaf).__name__}: let it return tensors, a row for each"
            )
        # The output for a single row may have lost its first axis.
        found = rows if not isinstance(leaf, torch.Tensor) else len(leaf) if leaf.dim() else 1
        if found != rows:
            raise ValueError(
                f"the model's output has {found} {'row' if found == 1 else 'rows'} for a batch of {rows}: "
                "let it return one for each"
            )


def judged(output: Any) -> Any:
    """What metrics see: the output itself, or the logits of a model that says more."""
    output = plain(output)
    seen = output.get("logits", output) if isinstance(output, Mapping) else getattr(output, "logits", output)
    return seen.detach() if isinstance(seen, torch.Tensor) else seen


def clip(parameters: Iterable[Any], clipping: Clipping) -> None:
    """Limit gradients."""
    parameters = [p for p in parameters if p.grad is not None]
    if clipping.norm is not None:
        torch.nn.utils.clip_grad_norm_(parameters, clipping.norm)
    if clipping.least is not None or clipping.most is not None:
        for parameter in parameters:
            parameter.grad.clamp_(clipping.least, clipping.most)


def note(error: Exception, lane: int, rows: int, part: Batch, when: str = "") -> None:
    """Say where it was, without changing what it is."""
    _torch_labels.name(error, part)
    shapes = ", ".join(
        f"{str(leaf.dtype).removeprefix('torch.')} {list(leaf.shape)}"
        for leaf in trees.leaves(part.values)
        if isinstance(leaf, torch.Tensor)
    )
    text = f"grampus: in lane {lane}, a batch of {rows} {'row' if rows == 1 else 'rows'} ({shapes}){when}"
    _exception.note(error, text)
