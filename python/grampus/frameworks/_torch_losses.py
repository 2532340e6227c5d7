"""Losses of torch's own: which one a user has passed, and whether shapes fit it."""

from __future__ import annotations

import functools
import inspect
import math
import re
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

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
# Of the last, the one that broadcasts as those of elements do.
_ELEMENTWISE = {*ELEMENTS, nn.MultiLabelSoftMarginLoss}
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
    if isinstance(target, list | tuple) and kind_of(loss) is not None:
        raise TypeError(
            f"{kind_of(loss)[0].__name__} takes one target, and the batch has {len(target)}: write "  # type: ignore[index]
            "label_cols=[['b', 'c']] to put columns side by side in one matrix, or pass a loss of your own, "
            "f(output, targets)"
        )
    if not isinstance(output, torch.Tensor) or not isinstance(target, torch.Tensor):
        return
    # The output for a single row may have lost its first axis.
    if output.shape == target.shape or output.numel() == target.numel() == 1:
        return
    found = kind_of(loss)
    if found is None or found[0] not in _ELEMENTWISE:
        return
    raise _different(found[0].__name__, output.shape, target.shape)


# What torch warns of in functions of its own, with both shapes.
_BROADCAST = re.compile(
    r"Using a target size \(torch\.Size\(\[([\d, ]*)\]\)\) that is different to the input size "
    r"\(torch\.Size\(\[([\d, ]*)\]\)\)"
)


@contextmanager
def refusing_broadcasts() -> Iterator[None]:
    """Inside, losses that compare each row with all others are refused, whoever calls them."""
    with warnings.catch_warnings():
        # Each time, also where it was shown before.
        warnings.filterwarnings("always", message="Using a target size", category=UserWarning)
        show = warnings.showwarning

        def refuse(message: Warning | str, *details: Any, **named: Any) -> None:
            found = _BROADCAST.match(str(message))
            if found is None:
                show(message, *details, **named)
                return
            target, output = ([int(size) for size in found[place].split(",") if size] for place in (1, 2))
            # A number for all rows, or a row for all, makes no more pairs than there are elements.
            if torch.broadcast_shapes(target, output).numel() > max(math.prod(target), math.prod(output)):
                raise _different("the loss", output, target)

        warnings.showwarning = refuse
        yield


def may_broadcast(loss: Any, output: Any, target: Any) -> bool:
    """Whether a loss of the user's own has got a column and a row of numbers, which torch would pair."""
    if loss is None or not isinstance(output, torch.Tensor) or not isinstance(target, torch.Tensor):
        return False
    if output.shape == target.shape or output.numel() != target.numel():
        return False
    return kind_of(loss) is None and _is_paired(output.shape, target.shape)


def _is_paired(one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether torch makes more of two shapes than either has elements."""
    try:
        found: Sequence[int] = torch.broadcast_shapes(one, other)
    except RuntimeError:
        return False
    return math.prod(found) > max(math.prod(one), math.prod(other))


class _Pairing(TorchFunctionMode):  # type: ignore[misc]
    """Looks for calls that pair tensors of these two shapes."""

    def __init__(self, shapes: set[Any]) -> None:
        super().__init__()
        self._shapes = shapes
        self.has_paired = False

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        del types
        given = [each for each in (*arguments, *(named or {}).values()) if isinstance(each, torch.Tensor)]
        found = function(*arguments, **(named or {}))
        most = max((each.numel() for each in given), default=0)
        if {each.shape for each in given} == self._shapes and isinstance(found, torch.Tensor):
            self.has_paired |= found.numel() > most
        return found


def broadcast_of(compute: Callable[[], Any], output: Any, target: Any) -> str | None:
    """What to tell the user where computing the loss pairs each row of the output with all of the target."""
    with warnings.catch_warnings(), _Pairing({output.shape, target.shape}) as mode:
        warnings.simplefilter("ignore")
        try:
            compute()
        except Exception:
            # It has worked before: then nothing can be said.
            return None
    if not mode.has_paired:
        return None
    shapes = tuple(output.shape), tuple(target.shape)
    return (
        f"the loss compares each row with all others: the model's output is {shapes[0]} and the labels are "
        f"{shapes[1]}, which torch broadcasts to {tuple(torch.broadcast_shapes(*shapes))}; unless that is "
        f"what you want, {_advice(*shapes)}"
    )


def _different(name: str, output: Sequence[int], target: Sequence[int]) -> ValueError:
    return ValueError(
        f"{name} compares element by element, and the model's output is {tuple(output)} where the labels are "
        f"{tuple(target)}: {_advice(output, target)}"
    )


def _advice(output: Sequence[int], target: Sequence[int]) -> str:
    if math.prod(output) != math.prod(target):
        return "let the model return as many numbers as the labels have"
    if len(output) == len(target) + 1 and output[-1] == 1:
        return (
            "write label_cols=[['name']] for a column of a table, y.unsqueeze(-1) for an array, or let the "
            "model return output.squeeze(-1)"
        )
    if len(target) == len(output) + 1 and target[-1] == 1:
        return (
            "write label_cols='name' for a column of a table, y.squeeze(-1) for an array, or let the model "
            "return output.unsqueeze(-1)"
        )
    return "let both have the same shape"
