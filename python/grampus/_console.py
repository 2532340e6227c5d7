"""Output of workers on the driver's console."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from grampus._native import News

# One colour a rank, in turn; none of them is red, which means an error elsewhere.
_COLOURS = (36, 33, 35, 32, 34)


def show(news: News) -> None:
    """Print lines, each behind its rank. In a notebook they appear in the cell that runs."""
    for note in news.notes:
        _write(sys.stderr, f"[grampus] {note}")
    if news.skipped:
        _write(sys.stderr, f"[grampus] {news.skipped} earlier lines are only in the log files")
    if news.skipped_reports:
        _write(sys.stderr, f"[grampus] {news.skipped_reports} reports were dropped: nobody took them in time")
    for line in news.lines:
        stream = sys.stderr if line.error else sys.stdout
        _write(stream, f"{prefix(line.rank, _coloured(stream))} {line.text}")


def _write(stream: TextIO | None, line: str) -> None:
    """Print a line. A console that is closed, or knows fewer letters, is no reason to end a run."""
    with contextlib.suppress(OSError, ValueError):
        try:
            print(line, file=stream)
        except UnicodeEncodeError:
            encoding = getattr(stream, "encoding", None) or "ascii"
            print(line.encode(encoding, "backslashreplace").decode(encoding), file=stream)


def prefix(rank: int, coloured: bool) -> str:
    """What stands before a rank's line.

    >>> prefix(3, False)
    '[rank 3]'
    """
    text = f"[rank {rank}]"
    return f"\x1b[{_COLOURS[rank % len(_COLOURS)]}m{text}\x1b[0m" if coloured else text


def _coloured(stream: object) -> bool:
    isatty = getattr(stream, "isatty", None)
    return "NO_COLOR" not in os.environ and isatty is not None and bool(isatty())
