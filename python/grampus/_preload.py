"""What supervisors import before there is a worker: all of their workers share it."""

from __future__ import annotations

import sys

# Modules that take long to import and start no thread: worth importing once, where the driver has them.
WORTH = ("numpy", "torch")
# What they import later, when it takes longest: torch its compiler with the first optimizer. A worker that
# replaces another has no time for that.
_COMPANIONS = {"torch": "torch._dynamo"}
# These stay what they are from one job to the next; modules of users may be changed between.
LIBRARIES = frozenset({*WORTH, *_COMPANIONS.values()})


def with_companions(names: list[str]) -> list[str]:
    """These modules, and what they would import when it takes longest.

    >>> with_companions(["numpy", "torch"])
    ['numpy', 'torch', 'torch._dynamo']
    """
    return [*names, *(_COMPANIONS[name] for name in names if name in _COMPANIONS)]


def by_default() -> list[str]:
    """Those that this process has."""
    return with_companions([name for name in WORTH if name in sys.modules])
