"""Exceptions that are shown as one line, without a traceback: what they say is all there is to know."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from types import TracebackType

Shown = TypeVar("Shown", bound=BaseException)

_MARK = "_render_traceback_"
_HELD = "_grampus_held"


def shown(error: Shown, line: str | None = None) -> Shown:
    """The exception, which a terminal and a notebook show as one line where nothing catches it."""
    # IPython asks an exception for its lines.
    vars(error)[_MARK] = lambda: [str(error) if line is None else line]
    _install()
    return error


def held(error: Shown, seconds: float) -> Shown:
    """The exception, after which the process stays for so long where nothing catches it."""
    vars(error)[_HELD] = seconds
    _install()
    return error


def _install() -> None:
    if sys.excepthook is not _hook:
        _hook.before = sys.excepthook
        sys.excepthook = _hook


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
            print(*vars(error)[_MARK](), sep="\n", file=sys.stderr)
        else:
            self.before(kind, error, frames)
        sys.stderr.flush()
        time.sleep(vars(error).get(_HELD, 0))


_hook = _Hook()
