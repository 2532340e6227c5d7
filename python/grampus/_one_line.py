"""Exceptions that are shown as one line, without a traceback: what they say is all there is to know."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from types import TracebackType

Shown = TypeVar("Shown", bound=BaseException)

_MARK = "_render_traceback_"


def shown(error: Shown) -> Shown:
    """The exception, which a terminal and a notebook show as one line where nothing catches it."""
    # IPython asks an exception for its lines.
    vars(error)[_MARK] = lambda: [str(error)]
    if sys.excepthook is not _hook:
        _hook.before = sys.excepthook
        sys.excepthook = _hook
    return error


def is_shown(error: BaseException) -> bool:
    """Whether that was asked for, perhaps in another process.

    >>> is_shown(KeyboardInterrupt())
    False
    """
    return _MARK in vars(error)


class _Hook:
    before = staticmethod(sys.__excepthook__)

    def __call__(self, kind: type[BaseException], error: BaseException, frames: TracebackType | None) -> None:
        if is_shown(error):
            print(error, file=sys.stderr)
        else:
            self.before(kind, error, frames)


_hook = _Hook()
