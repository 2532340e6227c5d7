"""Warnings that name the line of the user's own program."""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

# What stands between that line and the one that warns.
_BETWEEN = ("grampus", "contextlib")


def warn(text: str) -> None:
    """Warn as if the user's own line did, which has led here."""
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, RuntimeWarning, stacklevel=level)
