"""Output of workers on the driver's console, above a line that redraws itself where there is one."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from typing import TYPE_CHECKING, Protocol, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator

    from grampus._native import Line, News

# As Python prints a warning: file, line, category, text.
_WARNING = re.compile(r".+:\d+: \w*Warning: ")
# One colour a rank, in turn; none of them is red, which means an error elsewhere.
_COLOURS = (36, 33, 35, 32, 34)


class Live(Protocol):
    """A line at the end of the terminal that redraws itself."""

    def clear(self) -> None:
        """Take the line away."""

    def redraw(self) -> None:
        """Put it back."""


class _Warnings:
    """Tells warnings that another rank has given already: workers do the same, and so they warn alike."""

    def __init__(self) -> None:
        # The rank that gave each first, and those whose next line belongs to a warning that is left out.
        self._first: dict[str, int] = {}
        self._left_out: set[int] = set()

    def is_repeated(self, line: Line) -> bool:
        """Whether a line is such a warning, or the line of the source that Python prints below it."""
        if not line.error:
            return False
        if _WARNING.match(line.text):
            if self._first.setdefault(line.text, line.rank) != line.rank:
                self._left_out.add(line.rank)
                return True
        elif line.rank in self._left_out and line.text.startswith("  "):
            self._left_out.remove(line.rank)
            return True
        self._left_out.discard(line.rank)
        return False


_live: Live | None = None
_warnings = _Warnings()


def forget_warnings() -> None:
    """Show warnings again: other workers give them."""
    global _warnings
    _warnings = _Warnings()


def set_live(live: Live | None) -> None:
    """Say which line to keep below the output; none from now on with `None`."""
    global _live
    _live = live


def has_live() -> bool:
    """Whether a line redraws itself."""
    return _live is not None


@contextlib.contextmanager
def above() -> Iterator[None]:
    """Print inside this to print above the live line."""
    live = _live
    if live is not None:
        live.clear()
    try:
        yield
    finally:
        if live is not None:
            live.redraw()


def show(news: News) -> None:
    """Print lines, each behind its rank. In a notebook they appear in the cell that runs."""
    if not (news.notes or news.skipped or news.skipped_reports or news.lines):
        return
    with above():
        for note in news.notes:
            write(sys.stderr, f"[grampus] {note}")
        if news.skipped:
            write(sys.stderr, f"[grampus] {news.skipped} earlier lines are only in the log files")
        if news.skipped_reports:
            write(
                sys.stderr, f"[grampus] {news.skipped_reports} reports were dropped: nobody took them in time"
            )
        for line in news.lines:
            if _warnings.is_repeated(line):
                continue
            stream = sys.stderr if line.error else sys.stdout
            write(stream, f"{prefix(line.rank, coloured(stream))} {line.text}")


def write(stream: TextIO | None, text: str, end: str = "\n") -> None:
    """Print a text. A console that is closed, or knows fewer letters, is no reason to end a run."""
    with contextlib.suppress(OSError, ValueError):
        # A stream keeps to itself what is no whole line, unless it is told.
        try:
            print(text, file=stream, end=end, flush=not end)
        except UnicodeEncodeError:
            encoding = getattr(stream, "encoding", None) or "ascii"
            known = text.encode(encoding, "backslashreplace").decode(encoding)
            print(known, file=stream, end=end, flush=not end)


def prefix(rank: int, coloured: bool) -> str:
    """What stands before a rank's line.

    >>> prefix(3, False)
    '[rank 3]'
    """
    text = f"[rank {rank}]"
    return f"\x1b[{_COLOURS[rank % len(_COLOURS)]}m{text}\x1b[0m" if coloured else text


def coloured(stream: object) -> bool:
    """Whether colours are wanted there."""
    return "NO_COLOR" not in os.environ and is_terminal(stream) and not is_dumb()


def is_terminal(stream: object) -> bool:
    """Whether somebody looks at the stream."""
    isatty = getattr(stream, "isatty", None)
    try:
        return isatty is not None and bool(isatty())
    except ValueError:  # it is closed
        return False


def is_dumb() -> bool:
    """Whether the terminal knows nothing but lines."""
    return os.environ.get("TERM") == "dumb"
