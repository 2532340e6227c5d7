"""Making modules, optimizers, schedulers and losses from what users pass."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch

from grampus._training import creator
from grampus.frameworks._torch_divided import Divided
from grampus.operators import overrides
from grampus.optim import Optimizer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from grampus._training.job import Spec
    from grampus.collective import Group


class Several(torch.nn.ModuleList):  # type: ignore[misc]
    """The models of an operator that has more than one."""

    def forward(self, *_: Any, **__: Any) -> Any:
        """Nobody knows which of them is meant."""
        raise ValueError(
            "there are several models, and only the operator knows which to call: give it a validate_batch "
            "to evaluate, and a predict_batch to predict"
        )


def _several(models: Sequence[Any]) -> Several:
    for model in models:
        if not isinstance(model, torch.nn.Module):
            raise TypeError(f"one of the models is a {type(model).__name__}, not a torch.nn.Module")
    return Several(models)


def models_of(module: Any) -> list[Any]:
    """One model, or all of several."""
    return list(module) if isinstance(module, Several) else [module]


def _trains(spec: Spec) -> bool:
    """Whether code of the user's own does."""
    return overrides(spec.training_operator_cls, "train_batch", "train_epoch")


def _given(module: Any) -> Any:
    """As creators get it."""
    return list(module) if isinstance(module, Several) else module


def make_module(spec: Spec) -> Any:
    module = spec.model
    if isinstance(module, list | tuple):
        module = _several(module)
    if not isinstance(module, torch.nn.Module):
        if not callable(module):
            raise TypeError(
                f"model is a {type(module).__name__}: pass a module, its class, or a function f(config)"
            )
        module = creator.call(module, "model creator", "f(config)", spec.config)
        if isinstance(module, list | tuple):
            module = _several(module)
    if isinstance(module, Several) and not _trains(spec):
        raise ValueError(
            f"there are {len(module)} models: pass a training_operator_cls whose train_batch says what is "
            "done with them"
        )
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"the model creator returned a {type(module).__name__}, not a torch.nn.Module")
    return module


def make_optimizers(spec: Spec, module: Any, group: Group) -> list[Any]:
    """One optimizer, or those of an operator that has several."""
    optimizer = spec.optimizer
    if isinstance(optimizer, str):
        optimizer = _named_optimizer(optimizer)
    if inspect.isclass(optimizer) and issubclass(optimizer, torch.optim.Optimizer | Optimizer):
        kind: Any = optimizer
        names = inspect.signature(kind).parameters.keys() & spec.config.keys()
        settings = {name: spec.config[name] for name in names}
        own = issubclass(kind, Optimizer)
        optimizer = kind(**settings) if own else kind(module.parameters(), **settings)
    elif not isinstance(optimizer, torch.optim.Optimizer | Optimizer | list | tuple):
        if not callable(optimizer):
            raise TypeError(
                f"optimizer is a {type(optimizer).__name__}: pass a torch optimizer, one of gp.optim, a "
                "function f(model, config), or a name such as 'adam'"
            )
        optimizer = creator.call(
            optimizer, "optimizer creator", "f(model, config)", _given(module), spec.config
        )
    if isinstance(optimizer, Optimizer):
        if _trains(spec):
            raise ValueError(
                f"gp.optim.{type(optimizer).__name__} takes one step for each batch, and a "
                "training_operator_cls with a train_batch or train_epoch of its own takes others: use "
                "an optimizer of torch.optim"
            )
        return [Divided(optimizer, module, group)]
    found = list(optimizer) if isinstance(optimizer, list | tuple) else [optimizer]
    if len(found) != 1 and not _trains(spec):
        raise ValueError(
            f"there are {len(found)} optimizers: pass a training_operator_cls whose train_batch says which "
            "takes a step when"
        )
    for each in found:
        _check_optimizer(each, module)
    return found


def _check_optimizer(optimizer: Any, module: Any) -> None:
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"the optimizer creator returned a {type(optimizer).__name__}, not a torch optimizer")
    known = {id(parameter) for parameter in module.parameters()}
    held = [p for group in optimizer.param_groups for p in group["params"]]
    foreign = sum(id(parameter) not in known for parameter in held)
    if foreign:
        raise ValueError(
            f"{foreign} of the optimizer's {len(held)} parameters are not the model's: it was built for "
            "another model; build it from this one's parameters"
        )


def _named_optimizer(name: str) -> Any:
    known: dict[str, Any] = {
        kind.__name__.lower(): kind
        for kind in vars(torch.optim).values()
        if inspect.isclass(kind)
        and issubclass(kind, torch.optim.Optimizer)
        and kind is not torch.optim.Optimizer
    }
    kind = known.get(name.lower())
    if kind is None:
        raise ValueError(f"there is no optimizer {name!r}: use one of {', '.join(sorted(known))}")
    return kind


def make_loss(spec: Spec) -> Callable[..., Any] | None:
    loss = spec.loss
    if loss is None or isinstance(loss, torch.nn.Module):
        return loss
    if inspect.isclass(loss):
        made: Callable[..., Any] = loss()  # type: ignore[assignment]
        return made
    if not callable(loss):
        raise TypeError(
            f"loss is a {type(loss).__name__}: pass a module, a function f(output, target) or f(config)"
        )
    bounds = creator.required(loss)
    if bounds is not None and bounds[0] > 2:
        name = getattr(loss, "__qualname__", repr(loss))
        raise TypeError(
            f"the loss {name} needs {bounds[0]} arguments: write it as f(output, target) or f(config)"
        )
    if bounds is None or bounds[0] >= 2 or bounds[1] >= 2:
        return loss  # type: ignore[no-any-return]
    made = creator.call(loss, "loss creator", "f(config)", spec.config)
    if not callable(made):
        raise TypeError(f"the loss creator returned a {type(made).__name__}, not a module or a function")
    return made


def needs_closure(optimizer: Any) -> bool:
    """Whether a step asks for the loss several times."""
    return isinstance(optimizer, torch.optim.LBFGS)
