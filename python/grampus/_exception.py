"""An exception on its way from a worker to the driver.

It arrives as the same type wherever its type can be made there: pickled as it is, or, where its constructor
or something it holds stands in the way, rebuilt from its type and what of it can travel.
"""

from __future__ import annotations

import contextlib
import pickle
import reprlib
import traceback
from typing import TYPE_CHECKING, Any, NamedTuple

from grampus import _payload

if TYPE_CHECKING:
    from grampus import _native
    from grampus._traceback import WorkerTrace

# Text of a failure that travels beside the exception; the whole of it is in the exception.
_LONGEST = 100_000


class Rebuilt(NamedTuple):
    """What an exception is made of again, without calling its constructor."""

    kind: type[BaseException]
    args: tuple[Any, ...]
    state: dict[str, Any]

    def build(self) -> BaseException:
        """Make it."""
        plain = next(base for base in self.kind.__mro__ if base.__module__ == "builtins")
        args = tuple(_built(part) for part in self.args)
        error: BaseException = plain.__new__(self.kind, *args)
        error.args = args
        error.__dict__.update(self.state)
        return error


def pack(error: BaseException, trace: WorkerTrace) -> _native.Payload:
    """Where an exception was raised, and, unless not even its type can travel, the exception."""
    # Tracebacks hold frames, which cannot travel; the text does instead.
    error.__traceback__ = None
    return _payload.dump((trace, pickled(error)))


def unpack(payload: _native.Payload) -> tuple[WorkerTrace, BaseException | None]:
    """Where it was raised, and the exception again; `None` where its type cannot be made here."""
    trace, body = _payload.load(payload)
    return trace, None if body is None else unpickled(body)


def pickled(error: BaseException) -> bytes | None:
    """An exception as bytes; `None` where not even its type can travel."""
    import cloudpickle

    # Whatever pickling calls may raise anything; there is another way.
    with contextlib.suppress(Exception):
        body: bytes = cloudpickle.dumps(error)
        found = unpickled(body)
        # One that says how it is pickled may leave its notes behind.
        if type(found) is type(error) and _notes(found) == _notes(error):
            return body
    try:
        body = cloudpickle.dumps(_taken_apart(error))
    except Exception:
        return None
    return body if isinstance(unpickled(body), type(error)) else None


def unpickled(body: bytes) -> BaseException | None:
    """The exception again; `None` where its type cannot be made here."""
    try:
        value = pickle.loads(body)
        error = value.build() if isinstance(value, Rebuilt) else value
    except Exception:
        return None
    return error if isinstance(error, BaseException) else None


def note(error: BaseException, text: str) -> None:
    """Say where it was, without changing what it is. (Python 3.10 keeps notes but has no method for them.)"""
    error.__dict__["__notes__"] = [*getattr(error, "__notes__", []), text]


def _notes(error: BaseException | None) -> list[str]:
    return list(getattr(error, "__notes__", []))


def message(error: BaseException) -> str:
    """What it says, if it can."""
    try:
        return clipped(str(error))
    except Exception:
        return f"<str() of the {type(error).__name__} failed>"


def text(error: BaseException) -> str:
    """What Python prints for it, all frames included."""
    return clipped("".join(traceback.format_exception(error)))


def clipped(words: str) -> str:
    """A text of bearable length.

    >>> clipped("short")
    'short'
    >>> len(clipped("x" * 1_000_000)) < 101_000
    True
    """
    if len(words) <= _LONGEST:
        return words
    half = _LONGEST // 2
    return f"{words[:half]}\n[{len(words) - 2 * half} characters are left out]\n{words[-half:]}"


def _taken_apart(error: BaseException) -> Rebuilt:
    state = {name: value for name, value in vars(error).items() if _travels(value)}
    return Rebuilt(type(error), tuple(_part(value) for value in error.args), state)


def _part(value: Any) -> Any:
    """A part of an exception as it can travel; a group of exceptions holds a list of them."""
    if _travels(value):
        return value
    if isinstance(value, BaseException):
        return _taken_apart(value)
    if isinstance(value, list | tuple):
        return [_part(each) for each in value]
    return reprlib.repr(value)


def _built(part: Any) -> Any:
    if isinstance(part, list):
        return [_built(each) for each in part]
    return part.build() if isinstance(part, Rebuilt) else part


def _travels(value: Any) -> bool:
    try:
        _payload.load(_payload.dump(value))
    except Exception:
        return False
    return True
