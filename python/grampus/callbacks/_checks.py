"""What callbacks need, checked before a run begins."""

from __future__ import annotations

import importlib.util

from grampus._arguments import closest
from grampus._warning import warn
from grampus.callbacks.callback import Callback

_HOOKS = [name for name in vars(Callback) if name.startswith("on_")]
# Words of other libraries.
_WORDS = {"batch": "step", "train": "run", "fit": "run", "start": "begin"}


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


def check_hooks(callback: Callback) -> None:
    """Warn of methods that look like hooks and are none: they would never be called."""
    for name in dir(type(callback)):
        if name.lower().startswith("on_") and name not in _HOOKS and callable(getattr(callback, name)):
            words = [_WORDS.get(word, word) for word in name.lower().split("_")]
            match = closest("_".join(words), _HOOKS)
            more = f"did you mean {match}?" if match else f"there are {', '.join(_HOOKS)}"
            warn(f"{type(callback).__name__}.{name} is no hook and is never called: {more}")
