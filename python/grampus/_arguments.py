"""Keyword arguments that do not exist: the error says which one is meant."""

from __future__ import annotations

import difflib
import functools
import inspect
import sys
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any, TypeVar

from grampus._traceback import public

_F = TypeVar("_F", bound=Callable[..., Any])


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word that is most like this one, if one is like it at all.

    >>> closest("epoch", ["data", "epochs"]), closest("colour", ["data", "epochs"])
    ('epochs', None)
    """
    return next(iter(difflib.get_close_matches(word, list(known), n=1)), None)


def former(**names: str) -> Callable[[_F], _F]:
    """Say what to pass instead of parameters that had another name where users come from."""

    def decorated(function: _F) -> _F:
        vars(function)["_former"] = names
        return function

    return decorated


def suggest(namespace: dict[str, Any]) -> None:
    """Let the public functions and classes of a module name the argument that is meant by a misspelt one.

    >>> @former(size="pass width= and height=")
    ... def paint(color, width=1): ...
    >>> here = {"__all__": ["paint"], "paint": paint}
    >>> suggest(here)
    >>> here["paint"]("red", widht=2)
    Traceback (most recent call last):
    TypeError: paint() got an unexpected keyword argument 'widht': did you mean width=?
    >>> here["paint"]("red", size=2)
    Traceback (most recent call last):
    TypeError: paint has no size=: pass width= and height=
    """
    for name in namespace.get("__all__") or _own(namespace):
        found = namespace.get(name)
        if inspect.isclass(found) and not issubclass(found, BaseException):
            for kind in found.__mro__:
                if kind.__module__.startswith("grampus."):
                    _suggest_in(kind)
        elif isinstance(found, FunctionType):
            namespace[name] = _suggesting(found)
            home = vars(sys.modules[found.__module__])
            if home.get(name) is found:
                # Pickle looks for a function where it was written.
                home[name] = namespace[name]


def _own(namespace: dict[str, Any]) -> list[str]:
    """Public names of what a module defines itself."""
    return [
        name
        for name, found in namespace.items()
        if not name.startswith("_") and getattr(found, "__module__", None) == namespace["__name__"]
    ]


def _suggest_in(kind: type) -> None:
    """Do the same for a class: as it is made, and in its public methods."""
    for name, found in list(vars(kind).items()):
        if name.startswith("_") and name != "__init__":
            continue
        if isinstance(found, FunctionType):
            setattr(kind, name, _suggesting(found))
        elif isinstance(found, classmethod | staticmethod) and isinstance(found.__func__, FunctionType):
            setattr(kind, name, type(found)(_suggesting(found.__func__)))


def _suggesting(function: FunctionType) -> FunctionType:
    parameters = inspect.signature(function).parameters.values()
    known = {each.name for each in parameters if each.kind in (each.KEYWORD_ONLY, each.POSITIONAL_OR_KEYWORD)}
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters)
    if hasattr(function, "_suggests") or takes_any:
        return function

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for name in kwargs.keys() - known:
            raise TypeError(_unknown(function, name, known - {"self", "cls"}))
        return function(*args, **kwargs)

    vars(call)["_suggests"] = True
    # The outermost of all: what it lets through gets no further frame of ours.
    return public(call)  # type: ignore[return-value]


def _unknown(function: FunctionType, name: str, known: set[str]) -> str:
    where = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]
    instead = vars(function).get("_former", {}).get(name)
    if instead is not None:
        return f"{where} has no {name}=: {instead}"
    match = closest(name, known)
    more = f"did you mean {match}=?" if match else f"it takes {', '.join(sorted(known)) or 'none'}"
    return f"{where}() got an unexpected keyword argument {name!r}: {more}"
