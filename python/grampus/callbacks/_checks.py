"""What callbacks need, checked before a run begins."""

from __future__ import annotations

import importlib.util


def at_least(name: str, value: int, least: int) -> None:
    """A whole number that is not too small."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number, it is {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, it is {value}")


def check_installed(module: str, package: str, who: str) -> None:
    """A package that a user may not have; it is not imported yet, which may take seconds."""
    if importlib.util.find_spec(module) is None:
        raise ModuleNotFoundError(
            f"{who} needs {package}, which is not installed: pip install {package}", name=module
        )
