"""Weights and states of torch objects as arrays and plain values, which are saved without any code."""

from __future__ import annotations

import hashlib
import json
import pickle
from typing import TYPE_CHECKING, Any

import torch

from grampus import _exception, _report
from grampus._training import trees
from grampus._training.saved import Packed
from grampus.frameworks._torch_memory import packed, unpacked

if TYPE_CHECKING:
    from collections.abc import Mapping

Tensor = Any


def take(model: Any) -> dict[str, Any]:
    """All that a run needs to go on: tensors by name, and plain values."""
    return {
        **described(model, [each.state_dict() for each in model.optimizers]),
        "model": {name: packed(value) for name, value in uncompiled(model.module).state_dict().items()},
    }


def described(model: Any, states: list[dict[str, Any]]) -> dict[str, Any]:
    """All but weights and buffers, with these states of the optimizers."""
    apart = _Apart()
    optimizers = [
        _optimizer_state(each, f"optimizer{number}." if number else "", apart)
        for number, each in enumerate(states)
    ]
    schedulers = [
        _scheduler_state(each, f"scheduler{number or ''}", apart)
        for number, each in enumerate(model.schedulers)
    ]
    plain: dict[str, Any] = {"optimizer": optimizers[0], "scheduler": schedulers[0] if schedulers else {}}
    plain |= {"other_optimizers": optimizers[1:], "other_schedulers": schedulers[1:]}
    plain["besides"] = _without_tensors(model.besides(), "besides", apart)
    if model.lanes.group.rank == 0:
        _tell_left(model, apart.left)
    return {
        "optimizer": {name: packed(value) for name, value in apart.items()},
        "plain": plain,
    }


def reason(error: BaseException) -> BaseException:
    """What the disk has said, where torch tells only that its own count of bytes is wrong."""
    return error.__context__ if isinstance(error.__context__, OSError) else error


def uncompiled(module: Any) -> Any:
    """The module within what `torch.compile` returned: names of weights are its own."""
    return getattr(module, "_orig_mod", module)


def _optimizer_state(whole: dict[str, Any], prefix: str, apart: _Apart) -> dict[str, Any]:
    return {
        "groups": _without_tensors(whole["param_groups"], f"{prefix}groups", apart),
        "state": {
            str(key): _without_tensors(values, f"{prefix}state.{key}", apart)
            for key, values in whole["state"].items()
        },
    }


def _scheduler_state(scheduler: Any, name: str, apart: _Apart) -> dict[str, Any]:
    values = {k: v for k, v in scheduler.state_dict().items() if k != "optimizer" and not callable(v)}
    found: dict[str, Any] = _without_tensors(values, name, apart)
    return found


def load(model: Any, state: dict[str, Any]) -> None:
    """Go on where `take` was called."""
    if "parts" in state:
        model.heal(state)
    else:
        load_weights(model.module, {name: unpacked(value) for name, value in state["model"].items()})
    plain = state.get("plain")
    if not plain:
        return
    apart = {name: unpacked(value) for name, value in state["optimizer"].items()}
    if model.optimizers:
        _load_optimizers(model, plain, apart)
    # An operator may need its own to answer, too.
    model.load_besides(_with_tensors(plain.get("besides", {}), apart))


def _load_optimizers(model: Any, plain: dict[str, Any], apart: dict[str, Tensor]) -> None:
    told = [plain["optimizer"], *plain.get("other_optimizers", [])]
    if len(told) != len(model.optimizers):
        raise ValueError(
            f"there were {len(told)} optimizers when the run was saved, and now there are "
            f"{len(model.optimizers)}: build them as they were"
        )
    for optimizer, kept in zip(model.optimizers, told, strict=True):
        _load_optimizer(optimizer, kept, apart)
    schedulers = [plain["scheduler"], *plain.get("other_schedulers", [])]
    for scheduler, values in zip(model.schedulers, schedulers, strict=False):
        if values:
            _load_scheduler(scheduler, _with_tensors(values, apart))


def _load_optimizer(optimizer: Any, told: dict[str, Any], apart: dict[str, Tensor]) -> None:
    kept = {int(key): _with_tensors(values, apart) for key, values in told["state"].items()}
    groups = _with_tensors(told["groups"], apart)
    mine = optimizer.param_groups
    if [len(group["params"]) for group in mine] != [len(group["params"]) for group in groups]:
        raise ValueError(
            f"the saved optimizer has groups of {[len(group['params']) for group in groups]} parameters, "
            f"this one of {[len(group['params']) for group in mine]}: build it as the saved one was"
        )
    optimizer.load_state_dict({"state": kept, "param_groups": groups})
    # Settings that only newer versions of torch have, it has filled in.
    missing = optimizer.defaults.keys() - optimizer.param_groups[0].keys()
    if missing:
        raise ValueError(
            f"the saved optimizer has no {', '.join(sorted(missing))}: build this one as the saved one was"
        )


def _load_scheduler(scheduler: Any, values: dict[str, Any]) -> None:
    # Schedulers of torch take whatever comes, and go on as if nothing had.
    if not values.keys() & scheduler.state_dict().keys():
        raise ValueError(
            f"the saved scheduler keeps {', '.join(values)}, of which a {type(scheduler).__name__} knows "
            "nothing: build it as the saved one was"
        )
    scheduler.load_state_dict(values)


def load_weights(module: Any, weights: dict[str, Tensor]) -> None:
    """Load weights into a module; names and shapes must be its own."""
    module = uncompiled(module)
    check_fit(module.state_dict(), weights)
    module.load_state_dict(weights)


def check_fit(own: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> None:
    """Weights have the names and shapes of the module's own."""
    missing, other = sorted(own.keys() - weights.keys()), sorted(weights.keys() - own.keys())
    shapes = [
        f"{name} {_shape(weights[name])} for {_shape(own[name])}"
        for name in own.keys() & weights.keys()
        if _shape(weights[name]) != _shape(own[name])
    ]
    said = [
        f"{what}: {', '.join(names[:5])}{' …' if len(names) > 5 else ''}"
        for what, names in (
            ("it lacks", missing),
            ("it has besides", other),
            ("shapes differ", sorted(shapes)),
        )
        if names
    ]
    if said:
        raise ValueError(f"these weights are of another model; {'; '.join(said)}")


def _shape(value: Any) -> tuple[int, ...] | None:
    """Of a tensor; a module may keep other things besides."""
    shape = getattr(value, "shape", None)
    return None if shape is None else tuple(shape)


def spread(module: Any, group: Any) -> None:
    """Let all workers have the weights and buffers of the first."""
    if group.size == 1:
        return
    weights = module.state_dict()
    extra = {name: value for name, value in weights.items() if not isinstance(value, torch.Tensor)}
    if extra:
        # Peers of the group have proved the key of the job.
        told = group._native.gather_bytes(_pickled_extra(extra))
        module.load_state_dict(pickle.loads(told[0]), strict=False)
    for value in (value for name, value in weights.items() if name not in extra):
        host = value.detach().cpu().contiguous()
        group.broadcast(host.reshape(-1).view(torch.uint8), 0)
        if host.data_ptr() != value.data_ptr():
            with torch.no_grad():
                value.copy_(host)


_HERE = "tensor"
_PAIRS = "pairs"


class _Apart(dict[str, Tensor]):
    """Tensors that are put aside, and what can be neither put aside nor written as a plain value."""

    def __init__(self) -> None:
        super().__init__()
        self.left: list[str] = []


def _tell_left(model: Any, left: list[str]) -> None:
    """Warn of state that is left out, once: a run is not thrown away for it."""
    for text in left:
        if text not in model.left_out:
            model.left_out.add(text)
            _report.note(
                f"{text}, which cannot be saved without code, and is left out: keep numbers, texts and "
                "tensors in the state of optimizers, schedulers and operators"
            )


_LEFT = object()


def _without_tensors(value: Any, name: str, apart: _Apart) -> Any:
    """Plain values, with tensors put aside under a name."""
    if isinstance(value, torch.Tensor):
        apart[name] = value
        return {_HERE: name}
    if isinstance(value, dict):
        plain = {key: _without_tensors(each, f"{name}.{key}", apart) for key, each in value.items()}
        plain = {key: each for key, each in plain.items() if each is not _LEFT}
        # JSON has texts for keys, and the milestones of a scheduler are numbers.
        return plain if all(isinstance(key, str) for key in plain) else {_PAIRS: [*map(list, plain.items())]}
    if isinstance(value, list | tuple | set):
        parts = [_without_tensors(each, f"{name}.{place}", apart) for place, each in enumerate(value)]
        return [None if part is _LEFT else part for part in parts]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if hasattr(value, "item"):
        return value.item()
    apart.left.append(f"{name.removeprefix('besides.')} is a {type(value).__name__}")
    return _LEFT


def _with_tensors(value: Any, apart: dict[str, Tensor]) -> Any:
    if isinstance(value, dict):
        if set(value) == {_HERE}:
            return apart[value[_HERE]]
        if set(value) == {_PAIRS}:
            return {key: _with_tensors(each, apart) for key, each in value[_PAIRS]}
        return {key: _with_tensors(each, apart) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_tensors(each, apart) for each in value]
    return value


def joined(outputs: list[Any], given: Any) -> Any:
    """Outputs of parts as one, in the kind of array that the input was."""
    whole = _whole(outputs)
    kinds = {type(leaf).__module__.partition(".")[0] for leaf in trees.leaves(given)}
    return trees.mapped(_array, whole) if kinds == {"numpy"} else whole


def predictions(outputs: list[Any]) -> dict[str, Any]:
    """Outputs of parts as columns of a table: `prediction`, or one for each output of the model."""
    return _arrays("prediction", trees.mapped(_array, _whole(outputs)))


def _whole(outputs: list[Any]) -> Any:
    if not outputs:
        raise ValueError("there are no rows to predict")
    return trees.mapped(lambda leaves: torch.cat(leaves.parts), _zipped(outputs))


def _array(tensor: Tensor) -> Any:
    """The same as numpy knows it, which has no bfloat16."""
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


def _arrays(name: str, whole: Any) -> dict[str, Any]:
    """One array for each output, by name."""
    if isinstance(whole, dict | tuple):
        parts = whole.items() if isinstance(whole, dict) else enumerate(whole)
        return {
            column: values for key, part in parts for column, values in _arrays(f"{name}_{key}", part).items()
        }
    return {name: whole}


class _Parts:
    """What is to be put one behind the other: a leaf, unlike a list."""

    def __init__(self, parts: list[Tensor]) -> None:
        self.parts = parts


def _zipped(trees: list[Any]) -> Any:
    """One tree of all parts of each leaf."""
    first = trees[0]
    if isinstance(first, dict):
        return {name: _zipped([tree[name] for tree in trees]) for name in first}
    if isinstance(first, list | tuple):
        return tuple(_zipped(list(parts)) for parts in zip(*trees, strict=True))
    if not isinstance(first, Packed):
        raise TypeError(f"the model's output holds a {type(first).__name__}: let it return tensors")
    parts = [unpacked(tree) for tree in trees]
    return _Parts([part.reshape(1) if part.dim() == 0 else part for part in parts])


def digest(module: Any) -> str:
    """A hash of all weights and buffers."""
    found = hashlib.sha256()
    for name, value in sorted(uncompiled(module).state_dict().items()):
        tensors = {name: value}
        if not isinstance(value, torch.Tensor):
            # What modules keep besides (`get_extra_state`) may hold tensors, too.
            tensors = _Apart()
            plain = _without_tensors(value, name, tensors)
            found.update(f"{name} {json.dumps(None if plain is _LEFT else plain)}\n".encode())
        for key, tensor in tensors.items():
            as_bytes = packed(tensor)
            found.update(f"{key} {as_bytes.dtype} {as_bytes.shape}\n".encode())
            found.update(memoryview(as_bytes.array))
    return found.hexdigest()


def _pickled_extra(extra: dict[str, Any]) -> bytes:
    try:
        return pickle.dumps(extra)
    except Exception as error:
        names = ", ".join(sorted(extra))
        _exception.note(
            error,
            f"grampus: workers must have equal states, and {names} of the model cannot be pickled: let "
            "get_extra_state return numbers, texts and tensors",
        )
        raise
