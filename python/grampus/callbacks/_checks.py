"""What callbacks need, checked before a run begins."""

from __future__ import annotations

import importlib
from typing import Any


def at_least(name: str, value: int, least: int) -> None:
    """A whole number that is not too small."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number, it is {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, it is {value}")


def installed(module: str, package: str, who: str) -> Any:
    """A module of a package that a user may not have."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        # What the package itself misses is another matter.
        if error.name is None or module.split(".")[0] != error.name.split(".")[0]:
            raise
        raise ModuleNotFoundError(
            f"{who} needs {package}, which is not installed: pip install {package}", name=error.name
        ) from None
