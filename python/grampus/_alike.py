"""What the ranks of `grampus run` compare before they make a call together.

The first rank's data and settings are used, so those of the others must be the same. A script for torchrun
gives each rank its own part of the rows: here that would train on the first part alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

# Longer lists are described by their length.
_SHORT = 10
# Of larger arrays, rows at equal distances are compared: data may be mapped that is larger than memory.
_MOST_BYTES = 1 << 26
# How deep arrays are looked for in data sets.
_DEEP = 4
# Longer texts are cut in errors.
_CLIPPED = 160
# Settings that do not change what is computed. A temporary folder may differ: the first rank's is used.
_FREE = ("model_dir",)


class Told(NamedTuple):
    """What one rank says of a call."""

    name: str
    arguments: str
    #: Each array of the arguments, by where it stands: its shape, type and a digest.
    arrays: dict[str, str]
    #: What the object was made with.
    settings: dict[str, str]

    @classmethod
    def of(cls, name: str, arguments: Mapping[str, Any], settings: Mapping[str, Any]) -> Told:
        """Of a call of a function, with arguments by name, of an object that was made with `settings`."""
        arrays = {place: _digest(array) for place, array in _arrays(dict(arguments), "")}
        plain = {key: _setting(value) for key, value in settings.items() if key not in _FREE}
        told = ", ".join(f"{key}={described(value)}" for key, value in arguments.items())
        return cls(name, told, arrays, plain)


def difference(told: list[Told]) -> str | None:
    """How the calls of ranks differ, and what to do about it; `None` where all are the same."""
    first = told[0]
    for rank, other in enumerate(told):
        if other == first:
            continue
        place = _differs(first.arrays, other.arrays)
        if other.name == first.name and place is not None:
            return (
                f"the ranks call {first.name} with different data: {place} is {_of(first.arrays, place)} on "
                f"rank 0, and {_of(other.arrays, place)} on rank {rank}; pass the whole data on every rank: "
                "Grampus deals the rows"
            )
        if (other.name, other.arguments) != (first.name, first.arguments):
            return (
                f"the ranks call different things: rank 0 calls {first.name}({first.arguments}), rank {rank} "
                f"calls {other.name}({other.arguments}); let all ranks make the same calls, with the same "
                "arguments"
            )
        place = _differs(first.settings, other.settings)
        return (
            f"the ranks call {first.name} with different settings: {place} is {_of(first.settings, place)} "
            f"on rank 0, and {_of(other.settings, place)} on rank {rank}; make it alike on every rank"
        )
    return None


def _differs(first: dict[str, str], other: dict[str, str]) -> str | None:
    return next((name for name in {**first, **other} if first.get(name) != other.get(name)), None)


def _of(known: dict[str, str], place: str | None) -> str:
    text = known.get(str(place), "missing")
    return text if len(text) <= _CLIPPED else f"{text[:_CLIPPED]}…"


def described(value: Any) -> str:
    """What ranks compare of an argument: numbers, texts, shapes of arrays, otherwise types and lengths.

    >>> described(([1, "a"], {"epochs": 2}))
    "[[1, 'a'], {epochs: 2}]"
    """
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {described(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple) and len(value) <= _SHORT:
        return "[" + ", ".join(map(described, value)) + "]"
    shape = getattr(value, "shape", None)
    if shape is not None:
        return f"{type(value).__name__}{tuple(shape)}"
    with contextlib.suppress(Exception):
        return f"{type(value).__name__} of {len(value)}"
    return type(value).__name__


def _arrays(value: Any, place: str, depth: int = 0) -> list[tuple[str, Any]]:
    """All arrays of a tree, and of data sets, by where they stand."""
    if depth > _DEEP:
        return []
    if isinstance(value, Mapping):
        parts = [(f"{place}[{key!r}]" if place else str(key), part) for key, part in value.items()]
    elif _is_numbers(value) or callable(getattr(value, "__array__", None)):
        return [(place, value)]
    elif isinstance(value, list | tuple) and len(value) <= _SHORT:
        parts = [(f"{place}[{number}]", part) for number, part in enumerate(value)]
    elif _is_torch_data(value):
        # A loader's sampler may be meant to differ, as torch's DistributedSampler does.
        held = {"dataset": value.dataset} if hasattr(value, "batch_sampler") else vars(value)
        parts = [(f"{place}.{key}", part) for key, part in held.items()]
    else:
        return []
    return [found for where, part in parts for found in _arrays(part, where, depth + 1)]


def _is_numbers(value: Any) -> bool:
    """Whether this is a list that is too long to be described."""
    if not isinstance(value, list | tuple) or len(value) <= _SHORT:
        return False
    first = value[0]
    while isinstance(first, list) and first:
        first = first[0]
    return isinstance(first, int | float | str)


def _is_torch_data(value: Any) -> bool:
    torch_data = sys.modules.get("torch.utils.data")
    return torch_data is not None and isinstance(value, torch_data.Dataset | torch_data.DataLoader)


def _digest(array: Any) -> str:
    """Type, shape and a few digits of a hash."""
    import numpy as np

    try:
        if hasattr(array, "detach"):
            # Types that numpy does not know, such as bfloat16, are compared by their bytes.
            rows = _some(array).detach().cpu().contiguous().reshape(-1)
            name, shape = str(array.dtype), tuple(array.shape)
            found = rows.view(sys.modules["torch"].uint8).numpy()
        else:
            given = np.asarray(array)
            name, shape = str(given.dtype), given.shape
            found = np.ascontiguousarray(_some(given)).reshape(-1)
    except Exception:
        # Such as lists of rows of different lengths, or sparse tensors.
        return described(array)
    if found.dtype.kind == "O":
        if not all(isinstance(each, str | int | float | None) for each in found.flat):
            return f"{name} {shape}"
        found = np.frombuffer("\0".join(map(repr, found.flat)).encode(), np.uint8)
    hashed = hashlib.blake2b(found.view(np.uint8).data, digest_size=4).hexdigest()
    return f"{name} {shape} with the digest {hashed}"


def _some(array: Any) -> Any:
    """The array, or as many of its rows as are compared."""
    return array if array.nbytes <= _MOST_BYTES else array[:: -(-array.nbytes // _MOST_BYTES)]


def _setting(value: Any) -> str:
    """What ranks compare of a setting: values, and what objects say of themselves."""
    description = getattr(value, "description", None)
    if callable(description) and not isinstance(value, type):
        with contextlib.suppress(Exception):
            return f"{type(value).__name__}({json.dumps(description(), sort_keys=True, default=_setting)})"
    groups = getattr(value, "param_groups", None)
    if isinstance(groups, list):
        # Of an optimizer of torch: its settings, not its parameters.
        kept = [{key: each for key, each in group.items() if key != "params"} for group in groups]
        return f"{type(value).__name__}({_setting(kept)})"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_setting(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_setting, value)) + "]"
    if hasattr(value, "named_modules") and not isinstance(value, type):
        # Layers with their sizes. All begin with the first rank's weights, which may be drawn without a seed.
        return repr(value)
    if callable(value):
        return str(getattr(value, "__qualname__", type(value).__name__))
    return _digest(value) if callable(getattr(value, "__array__", None)) else described(value)
