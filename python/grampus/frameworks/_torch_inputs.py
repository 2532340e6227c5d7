"""Which parts of a batch a model is called with, and which are the target."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from grampus._training.trees import is_one
from grampus.frameworks._torch_state import uncompiled


class Inputs(NamedTuple):
    """How many inputs a model's `forward` takes, by place, and the names of all of its parameters."""

    least: int = 0
    most: int = sys.maxsize
    names: frozenset[str] = frozenset()

    @classmethod
    def of(cls, module: Any) -> Inputs:
        """Those of a module; one whose signature cannot be read may take any number."""
        parameters = _parameters(_unwrapped(module))
        if parameters is None:
            return cls()
        positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        least = sum(p.default is p.empty for p in positional)
        # An option such as `scaled=False` is no input, nor is what follows it.
        options = [p.default is not p.empty and p.default is not None for p in positional]
        most = options.index(True) if any(options) else len(positional)
        several = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        return cls(least, sys.maxsize if several else most, frozenset(p.name for p in parameters))

    def among(self, parts: int, has_target: bool) -> int:
        """How many of the parts of a flat batch are inputs: all but the last, unless forward says otherwise.

        Where there need not be a target, a part that may be either is refused.
        """
        if parts - 1 > self.most:
            if self.least != self.most:
                raise ValueError(
                    f"a batch has {parts} parts, and forward() takes {self.least} to {self.most} inputs: say "
                    "which are targets with {'x': (…), 'y': (…)}"
                )
            return self.most
        if has_target or parts > self.most:
            return parts - 1
        if self.least <= parts - 1:
            raise ValueError(
                f"of the {parts} parts of a batch the last may be an input of forward() or a target: write "
                "{'x': (…)} with the inputs alone, and for a data set let each row, or collate_fn, be such a "
                "dict"
            )
        return parts


def _unwrapped(module: Any) -> Any:
    """The module of the user's, whose signature compilers and wrappers hide."""
    while True:
        if isinstance(module, torch.nn.DataParallel):
            module = module.module
        elif uncompiled(module) is not module:
            module = uncompiled(module)
        else:
            return module


def _parameters(module: Any) -> list[inspect.Parameter] | None:
    schema = getattr(module.forward, "schema", None)
    if schema is not None:
        # TorchScript says what a method takes, and nothing to Python; itself is the first.
        return [
            inspect.Parameter(
                each.name,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=each.default_value if each.has_default_value() else inspect.Parameter.empty,
            )
            for each in schema.arguments[1:]
        ]
    try:
        return list(inspect.signature(module.forward).parameters.values())
    except (TypeError, ValueError):
        return None


def split(
    values: Any, has_loss: bool, inputs: Inputs, predicting: bool = False
) -> tuple[tuple[Any, ...], dict[str, Any], Any]:
    """Arguments of the model, by place and by name, and the target: the convention for batches."""
    target = None
    if isinstance(values, Mapping):
        if "x" in values and set(values) <= {"x", "y"}:
            if predicting and "y" in values and "y" in inputs.names:
                raise ValueError(
                    "'y' may be an input of forward() or the target: write {'x': {'x': …, 'y': …}} for two "
                    "inputs, and {'x': …} for one"
                )
            values, target = values["x"], values.get("y")
        elif has_loss and not predicting:
            raise TypeError(
                f"a batch has the keys {sorted(values)}: use the keys 'x' and 'y', name columns of a table "
                "with feature_cols and label_cols, or pass loss=None where the model makes its own loss"
            )
        else:
            # A model that makes its own loss is given them too; metrics want them besides.
            target = values.get("labels")
    elif _is_several(values):
        count = len(values)
        if count > 1:
            count = inputs.among(count, has_loss and not predicting)
        targets = tuple(values[count:])
        target = targets[0] if len(targets) == 1 else targets or None
        values = values[0] if count == 1 else tuple(values[:count])
    if isinstance(values, Mapping):
        return (), dict(values), target
    return (tuple(values) if _is_several(values) else (values,)), {}, target


def _is_several(values: Any) -> bool:
    return isinstance(values, list | tuple) and not is_one(values)
