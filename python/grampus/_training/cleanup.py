"""Cleaning up, whatever else ends meanwhile."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Closes(Protocol):
    def close(self) -> None: ...


Thing = TypeVar("Thing", bound=_Closes)


@contextmanager
def closing(thing: Thing) -> Iterator[Thing]:
    """Close a thing at the end, all of it.

    Where a worker fails, the others are told to stop while they clean up already, and a process that reads
    data would be left behind by a cleaning that is cut off. So being told waits until it is done.
    """
    try:
        yield thing
    finally:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            thing.close()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
