"""The criterion of an operator: its shapes are checked with each call, and it is tried on the first batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from grampus._training import trees
from grampus.frameworks._torch_losses import check_shapes

if TYPE_CHECKING:
    from collections.abc import Callable


class CriterionCalls:
    """The first call of the criterion for a batch: the shape of its target, and, where wanted, all of it."""

    def __init__(self) -> None:
        self._keeps = False
        self._first: tuple[tuple[Any, Any], float] | None = None
        # An empty tensor of the target's shape, or of that of the only argument; nothing before a call.
        self.target: Any = None

    def begin(self, keeps: bool) -> None:
        """Wait for the first call for a batch, and keep it as a whole if `keeps`."""
        self._keeps, self._first, self.target = keeps, None, None

    def renew(self) -> None:
        """Wait for the first call for another batch of the same epoch."""
        self.target = None

    def keep(self, arguments: tuple[Any, ...], named: dict[str, Any], loss: Any) -> None:
        """Keep a call, as it is now: the user may change tensors in place."""
        if self.target is not None:
            return
        tensors = [leaf for leaf in trees.leaves((arguments, named)) if isinstance(leaf, torch.Tensor)]
        target = _given(arguments, named).get("target", tensors[0] if tensors else ())
        # Only its shape matters, and memory is the model's.
        self.target = trees.mapped(_shape_of, target)
        if self._keeps and self._first is None and isinstance(loss, torch.Tensor) and loss.numel() == 1:
            self._first = trees.mapped(_kept, (arguments, named)), float(loss.detach())

    def end(self) -> tuple[tuple[Any, Any], float] | None:
        """The arguments of the first call, by place and by name, and its loss, if that was wanted."""
        found, self._first = self._first, None
        return found


class _Watched:
    """A function of the user's, and what it was called with; otherwise it is that function."""

    def __init__(self, function: Callable[..., Any], calls: CriterionCalls) -> None:
        self._function = function
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        # A copy asks before it has any.
        if name == "_function":
            raise AttributeError(name)
        return getattr(self._function, name)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        _check(self._function, arguments, named)
        loss = self._function(*arguments, **named)
        self._calls.keep(arguments, named, loss)
        return loss


def watched(loss: Any, calls: CriterionCalls) -> tuple[Any, Callable[[], None]]:
    """The criterion as an operator gets it, and what ends the watch: a module stays the object that it is."""
    if loss is None or isinstance(loss, torch.jit.ScriptModule):
        return loss, lambda: None
    if not isinstance(loss, torch.nn.Module):
        return _Watched(loss, calls), lambda: None

    def before(module: Any, arguments: Any, named: Any) -> None:
        _check(module, arguments, named)

    def after(module: Any, arguments: Any, named: Any, found: Any) -> None:
        del module
        calls.keep(arguments, named, found)

    hooks = [
        loss.register_forward_pre_hook(before, with_kwargs=True),
        loss.register_forward_hook(after, with_kwargs=True),
    ]

    def end() -> None:
        for hook in hooks:
            hook.remove()

    return loss, end


def _check(loss: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
    check_shapes(loss, *pair_of(arguments, named))


def _given(arguments: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    # As torch calls the two, of which either may be named.
    return dict(zip(("input", "target"), arguments, strict=False)) | named


def pair_of(arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, Any]:
    """The output and the target that a criterion is called with."""
    given = _given(arguments, named)
    return given.get("input"), given.get("target")


def _shape_of(leaf: Any) -> Any:
    return leaf.new_empty(()).expand(leaf.shape) if isinstance(leaf, torch.Tensor) else leaf


def _kept(leaf: Any) -> Any:
    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf
