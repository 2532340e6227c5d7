"""Warnings that point at the line of the user's that called Grampus."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

_HERE = f"{Path(__file__).parent}{os.sep}"


def warn(text: str, category: type[Warning] = RuntimeWarning) -> None:
    """Warn, as if the first caller outside of Grampus did."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)
