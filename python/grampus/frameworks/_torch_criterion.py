"""The criterion of an operator: its shapes are checked with each call, and it is tried on the first batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from grampus._training import trees
from grampus.frameworks._torch_losses import check_shapes

if TYPE_CHECKING:
    from collections.abc import Callable


class CriterionCalls:
    """What the first batch of each lane has called the criterion with, and what it returned."""

    def __init__(self) -> None:
        # The lane whose batch is worked on, while calls are kept.
        self.lane: int | None = None
        self._first: dict[int, tuple[tuple[Any, Any], float] | None] = {}

    def begin(self, lane: int) -> None:
        """Keep the first call for a batch of this lane."""
        self.lane = lane
        self._first.pop(lane, None)

    def keep(self, arguments: tuple[Any, ...], named: dict[str, Any], loss: Any) -> None:
        """Keep a call, as it is now: the user may change tensors in place."""
        if self.lane is None or self.lane in self._first:
            return
        is_loss = isinstance(loss, torch.Tensor) and loss.numel() == 1
        seen = trees.mapped(_kept, (arguments, named))
        self._first[self.lane] = (seen, float(loss.detach())) if is_loss else None

    def end(self) -> tuple[tuple[Any, Any], float] | None:
        """The arguments of the first call, by place and by name, and its loss, if it was one number."""
        lane, self.lane = self.lane, None
        return None if lane is None else self._first.get(lane)


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
    # As torch calls the two, of which either may be named.
    given = dict(zip(("input", "target"), arguments, strict=False)) | named
    check_shapes(loss, given.get("input"), given.get("target"))


def _kept(leaf: Any) -> Any:
    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf
