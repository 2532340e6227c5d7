"""Parameters that had another name where users come from."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_P = ParamSpec("_P")
_R = TypeVar("_R")


def former(**names: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Say what to pass instead of parameters that are not there.

    >>> @former(colour="pass color=")
    ... def paint(color): ...
    >>> paint(colour="red")
    Traceback (most recent call last):
    TypeError: paint has no colour=: pass color=
    """

    def decorated(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @functools.wraps(function)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            for name in kwargs.keys() & names.keys():
                raise TypeError(f"{function.__name__} has no {name}=: {names[name]}")
            return function(*args, **kwargs)

        return call

    return decorated
