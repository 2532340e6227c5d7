"""What the user sees while workers start."""

from __future__ import annotations

import contextlib
import sys
import threading
from typing import TYPE_CHECKING

from grampus import _console, _native
from grampus._figures import count
from grampus._warning import warn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Seconds after which a user wonders what the program does.
_MOMENT = 0.5
# Seconds after which a wait needs a reason.
_EXPLAINED_AFTER = 2.0
# Workers that wait for files or networks may well be more than the cores; not so many more.
_PER_CORE = 8
# Private memory of a forked worker with numpy that has done nothing yet, as measured.
_WORKER_BYTES = 6 * 2**20


@contextlib.contextmanager
def starting(workers: int) -> Iterator[None]:
    """Say that workers start, once that takes longer than a moment."""
    line = _StartLine(f"starting {count(workers, 'worker')} …")
    timer = threading.Timer(_MOMENT, line.show)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        line.close()


@contextlib.contextmanager
def explaining(why: Callable[[], str | None]) -> Iterator[None]:
    """Say once what a wait is for, where it takes longer than some seconds and `why` knows."""
    over = threading.Event()

    def say() -> None:
        pause = _EXPLAINED_AFTER
        while not over.wait(pause):
            text, pause = why(), 1.0
            if text is not None and not over.is_set():
                with _console.above():
                    _console.write(sys.stderr, f"[grampus] {text}")
                return

    # Not waited for: an engine may take its time to answer.
    threading.Thread(target=say, name="grampus-explains", daemon=True).start()
    try:
        yield
    finally:
        over.set()


class _StartLine:
    """A line that a terminal forgets when the workers are there, and that stays in files and notebooks."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._stream = sys.stderr
        # A line that is drawn already stays the last one.
        self._vanishes = (
            _console.is_terminal(self._stream) and not _console.is_dumb() and not _console.has_live()
        )
        self._shown = False

    def show(self) -> None:
        self._shown = True
        if self._vanishes:
            _console.set_live(self)
            self.redraw()
        else:
            with _console.above():
                _console.write(self._stream, self._text)
                with contextlib.suppress(OSError, ValueError):
                    self._stream.flush()

    def clear(self) -> None:
        _console.write(self._stream, "\r\x1b[K", end="")

    def redraw(self) -> None:
        _console.write(self._stream, f"\r{self._text}\x1b[K", end="")

    def close(self) -> None:
        if self._shown and self._vanishes:
            _console.set_live(None)
            self.clear()


def check_number(workers: int) -> None:
    """Warn of more workers than this machine can make use of.

    >>> import warnings
    >>> warnings.simplefilter("error")
    >>> check_number(1)
    """
    advice = advise(workers, _native.host_cores(), _native.host_memory())
    if advice is not None:
        warn(advice)


def advise(workers: int, cores: int, free: int) -> str | None:
    """What to say of so many workers on so many cores with so many free bytes; `None` where all is well.

    >>> advise(16, cores=2, free=8 * 2**30)
    >>> print(advise(1000, cores=2, free=8 * 2**30))
    1000 workers on 2 cores: 2 compute at a time, and all take 5.9 GiB of memory before they do anything, of \
which 8.0 GiB are free; workers=2 makes full use of this machine
    """
    needed = workers * _WORKER_BYTES
    if workers <= _PER_CORE * cores and needed <= free:
        return None
    return (
        f"{workers} workers on {count(cores, 'core')}: {cores} compute at a time, and all take "
        f"{needed / 2**30:.1f} GiB of memory before they do anything, of which "
        f"{free / 2**30:.1f} GiB are free; "
        f"workers={cores} makes full use of this machine"
    )
