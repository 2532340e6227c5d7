"""Cleaning up, and what must not be cut off, while a worker is told to end."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Closes(Protocol):
    def close(self) -> None: ...


Thing = TypeVar("Thing", bound=_Closes)

_INTERRUPT = {signal.SIGINT}
# Whether an interrupt is on its way out, past what is being closed.
_is_interrupted = False


class _Masked:
    """A context manager that blocks interrupts or lets them through; cheap enough for every step."""

    def __init__(self, how: int) -> None:
        self._how = how

    def __enter__(self) -> None:
        self._before = signal.pthread_sigmask(self._how, _INTERRUPT)

    def __exit__(self, *_: object) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)


def uninterrupted() -> _Masked:
    """Inside, an interrupt waits: what is done there is done as a whole."""
    return _Masked(signal.SIG_BLOCK)


def interruptible() -> _Masked:
    """Inside, an interrupt does not wait, as in a wait for others within `uninterrupted`."""
    return _Masked(signal.SIG_UNBLOCK)


def is_told_to_end() -> bool:
    """Whether this worker is told to end its task: its process is ended soon, with all that it keeps.

    >>> is_told_to_end()
    False
    """
    return _is_interrupted or signal.SIGINT in signal.sigpending()


@contextmanager
def noting_interrupts() -> Iterator[None]:
    """Inside, no interrupt is lost: hooks of `os.fork` swallow what is raised in them, and it comes again."""
    before: Any = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    swallowed = False

    def hear(number: int, frame: Any) -> None:
        nonlocal swallowed
        try:
            before(number, frame)
        except KeyboardInterrupt:
            swallowed = True
            raise

    signal.signal(signal.SIGINT, hear)
    try:
        yield
    finally:
        # Unless that one has put another in its place.
        if signal.getsignal(signal.SIGINT) is hear:
            signal.signal(signal.SIGINT, before)
    if swallowed:
        raise KeyboardInterrupt


@contextmanager
def closing(thing: Thing) -> Iterator[Thing]:
    """Close a thing at the end, all of it.

    Where a worker fails, the others are told to stop while they clean up already, and a process that reads
    data would be left behind by a cleaning that is cut off. So being told waits until it is done, and
    `close` asks `is_told_to_end` before it waits for anything.
    """
    global _is_interrupted
    interrupted = False
    try:
        yield thing
    except KeyboardInterrupt:
        interrupted = _is_interrupted = True
        raise
    finally:
        with uninterrupted():
            try:
                thing.close()
            finally:
                if interrupted:
                    _is_interrupted = False
