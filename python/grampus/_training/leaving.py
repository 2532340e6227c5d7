"""Runs that end within an epoch to go on later, because a worker has to go or the driver asks for it."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from grampus import _notice, _report
from grampus._wish import Wish
from grampus.errors import CollectiveError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# How long workers may take to save a run whose driver is gone.
_SAVED_WITHIN = 10.0
# As a shell shows the end by SIGTERM.
TOLD_TO_END = 143
# What schedulers send before they take a machine away.
_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
# Their drivers have handlers that end what runs in the middle of a step: that of PySpark cancels all jobs.
_ENGINES = ("pyspark", "ray")


class Yielded(CollectiveError):
    """All workers of a run have ended it after the same step, and have what it needs to go on."""


class Interrupted(KeyboardInterrupt):
    """The user has interrupted a run, and its workers may still have what it has trained."""


def wants_to_stop() -> bool:
    """Whether this worker wants to stop after the present step."""
    return _notice.is_given() or _report.asked_to_yield() is not None


@contextmanager
def hearing() -> Iterator[None]:
    """Inside, a worker that is told to go finishes its step first; outside, it ends at once."""

    def hear(_number: int, _frame: Any) -> None:
        _notice.give()
        _report.leaves()

    before = {number: signal.signal(number, hear) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def outliving(wanted: bool) -> Iterator[None]:
    """Inside, where it is wanted, a run whose driver is lost ends after its step and is saved first."""
    if not wanted:
        yield
        return
    _report.outlive(_SAVED_WITHIN)
    try:
        yield
    finally:
        _report.outlive(0.0)


@contextmanager
def stopping() -> Iterator[Wish]:
    """Inside, SIGTERM and Ctrl-C let the run end after its step; a second one of a kind ends it at once.

    So does the first where the workers have not begun: they may be minutes away from a step.

    Where the program has a handler of its own, or does not train in its main thread, that stays so.
    """
    wish = Wish()

    def stop() -> None:
        if not wish.begun:
            raise SystemExit(TOLD_TO_END)
        wish.stop = True

    with _once(signal.SIGTERM, stop), interrupting(wish):
        yield wish


@contextmanager
def interrupting(wish: Wish) -> Iterator[None]:
    """Inside, the first Ctrl-C is noted in `wish`, or raised where that has not begun; so is the second."""

    def interrupt() -> None:
        if not wish.begun:
            raise KeyboardInterrupt
        wish.interrupted = time.monotonic()

    with _once(signal.SIGINT, interrupt):
        yield


@contextmanager
def _once(number: signal.Signals, call: Callable[[], None]) -> Iterator[None]:
    """Inside, the first signal calls a function instead of Python's handler, or an engine's."""
    before = signal.getsignal(number)
    if threading.current_thread() is not threading.main_thread() or not _is_replaceable(before):
        yield
        return

    def hear(_number: int, _frame: Any) -> None:
        signal.signal(number, before)
        call()

    signal.signal(number, hear)
    try:
        yield
    finally:
        signal.signal(number, before)


def _is_replaceable(handler: Any) -> bool:
    if handler in (signal.SIG_DFL, signal.default_int_handler):
        return True
    return str(getattr(handler, "__module__", "")).partition(".")[0] in _ENGINES
