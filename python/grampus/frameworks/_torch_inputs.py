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
    #: Whether it may take more that are passed by name alone.
    by_name: bool = False

    @classmethod
    def of(cls, module: Any) -> Inputs:
        """Those of a module; one whose signature cannot be read may take any number."""
        parameters = _parameters(_unwrapped(module))
        if parameters is None:
            return cls()
        positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        least = sum(p.default is p.empty for p in positional)
        # An option such as `scaled=False` is no input; what follows it can only be passed by name.
        options = [_is_option(p) for p in positional]
        most = options.index(True) if any(options) else len(positional)
        several = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        rest = [*positional[most:], *(p for p in parameters if p.kind in (p.KEYWORD_ONLY, p.VAR_KEYWORD))]
        by_name = not all(map(_is_option, rest))
        return cls(least, sys.maxsize if several else most, frozenset(p.name for p in parameters), by_name)

    def among(self, parts: int, has_target: bool) -> int:
        """How many of the parts of a flat batch are inputs; the others are targets.

        Where `forward` and a loss that needs a target leave more than one answer, the batch is refused.
        """
        most = parts - 1 if has_target else parts
        most = most if self.by_name else min(self.most, most)
        least = min(max(self.least, 1), most)
        if least == most:
            return most
        inputs = "{'name of a parameter': …}" if self.by_name else "(…)"
        raise ValueError(
            f"of the {parts} parts of a batch {least} to {most} may be inputs of forward(), and the others "
            f"targets: write {{'x': {inputs}, 'y': …}}, without 'y' where there is no target, and for a data "
            "set let each row, or collate_fn, be such a dict"
        )


def _is_option(parameter: inspect.Parameter) -> bool:
    """Whether this is no input, by its default; `None` stands for an input that is left out."""
    has_default = parameter.default is not parameter.empty
    return has_default and parameter.default is not None


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
