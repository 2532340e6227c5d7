"""Attributes of callbacks on their way home: what cannot travel stays on the worker, and is named."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any, NamedTuple

import cloudpickle

if TYPE_CHECKING:
    from collections.abc import Sequence


class Packed(NamedTuple):
    """A pickle of a dict for each callback, and what is not in it, in words."""

    body: bytes
    left: list[str]


def packed(callbacks: Sequence[Any]) -> Packed:
    """What of the attributes of callbacks can travel.

    >>> import threading, types
    >>> one = types.SimpleNamespace(count=3, guard=threading.Lock())
    >>> found = packed([one])
    >>> pickle.loads(found.body), found.left
    ([{'count': 3}], ["'guard' of SimpleNamespace, a lock"])
    """
    states = [_state(callback) for callback in callbacks]
    # In one pickle, where possible: attributes may share objects.
    whole = _pickled(states)
    if whole is not None:
        return Packed(whole, [])
    left = []
    for callback, state in zip(callbacks, states, strict=True):
        for name in [name for name, value in state.items() if _pickled(value) is None]:
            left.append(f"{name!r} of {type(callback).__name__}, a {type(state.pop(name)).__name__}")
    return Packed(_pickled(states) or cloudpickle.dumps([{} for _ in callbacks]), left)


def unpack(body: bytes, callbacks: Sequence[Any]) -> None:
    """Give callbacks the attributes that have travelled; the others stay as they are here."""
    for callback, state in zip(callbacks, pickle.loads(body), strict=True):
        vars(callback).update(state)


def _state(callback: Any) -> dict[str, Any]:
    """A copy of the attributes; a class may say itself which of them travel."""
    own = type(callback).__dict__.get("__getstate__")
    state = None if own is None else own(callback)
    return dict(state if isinstance(state, dict) else vars(callback))


def _pickled(value: Any) -> bytes | None:
    """Nothing where it cannot be pickled, or could not be read again."""
    try:
        body: bytes = cloudpickle.dumps(value)
        pickle.loads(body)
    except Exception:
        return None
    return body
