"""A run while it goes on, for people: on a terminal, in a notebook, or nowhere."""

from __future__ import annotations

import html
import importlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TextIO

from grampus import _console
from grampus._logger import Logger
from grampus._run_view import RunView, epoch_line, live_line, summary
from grampus.history import History, table_html

# Seconds between two drawings: eyes see no more.
_BETWEEN = 0.1
# Where the system does not know how wide the terminal is.
_USUAL_WIDTH = 80
_BARS = ("━─", "#-")
# Columns of names in a summary; those of longer ones are ragged.
_MOST_NAME = 20
# Of epochs that ended, in a notebook: the page is sent anew with every drawing.
_MOST_ROWS = 20


class Progress(Logger):
    """Shows a run: a live line for the epoch that goes on, a line for each that ended, and a summary.

    It writes to standard error where that is a terminal, and to the cell in a notebook. Elsewhere it is
    silent.

    Args:
        show: `False` shows nothing.
        clock: tells the time in seconds, from any moment.
    """

    # The terminal may be closed before the run ends.
    may_fail = True

    def __init__(self, show: bool = True, clock: Callable[[], float] = time.monotonic) -> None:
        self._show = show
        self._clock = clock
        self._screen: _Screen | None = None
        self._view: RunView | None = None
        self._drawn = 0.0

    def event(self, event: dict[str, Any]) -> None:
        """Show what the event changes."""
        now = self._clock()
        if event["kind"] == "begin":
            self.close()
            self._view, self._screen = RunView(event, now, now), _find_screen() if self._show else None
        if self._view is None or self._screen is None:
            return
        self._view.take(event, now)
        if event["kind"] in ("begin", "steps", "validate"):
            if event["kind"] == "begin" or now - self._drawn >= _BETWEEN:
                self._drawn = now
                self._screen.draw(self._view)
        elif event["kind"] == "epoch":
            self._screen.epoch(self._view)
        elif event["kind"] == "note":
            self._screen.note(event["text"])
        elif event["kind"] == "end":
            self._screen.end(self._view)

    @property
    def is_shown(self) -> bool:
        """Whether somebody sees it, and with it what a run has to note."""
        return self._screen is not None

    def close(self) -> None:
        """Leave the screen tidy. A run that did not end keeps its last line."""
        screen, self._screen, self._view = self._screen, None, None
        if screen is not None:
            screen.close()


class _Screen(Protocol):
    """Where a run is shown."""

    def draw(self, view: RunView) -> None:
        """Show how far the epoch is."""

    def epoch(self, view: RunView) -> None:
        """Show the epoch that has just ended."""

    def note(self, text: str) -> None:
        """Show a message."""

    def end(self, view: RunView) -> None:
        """Show the summary."""

    def close(self) -> None:
        """Show nothing more."""


def _find_screen() -> _Screen | None:
    """Where somebody looks on, if anywhere."""
    if _in_notebook():
        return _Notebook()
    if not _console.is_terminal(sys.stderr):
        return None
    return _Lines(sys.stderr) if _console.is_dumb() else _Terminal(sys.stderr)


def _in_notebook() -> bool:
    """Whether IPython runs here with a front end that displays; its terminal has none."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return hasattr(shell, "kernel")


class _Lines:
    """A terminal that knows nothing but lines."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.coloured = _console.coloured(stream)

    def width(self) -> int:
        """Columns of a line, now: windows change. The last column stays free: some terminals wrap there."""
        try:
            columns = os.get_terminal_size(self.stream.fileno()).columns
        except (OSError, ValueError):
            columns = 0
        return (columns or _USUAL_WIDTH) - 1

    def draw(self, view: RunView) -> None:
        """Nothing: it would be a line each time."""

    def epoch(self, view: RunView) -> None:
        _console.write(self.stream, epoch_line(view, self.width(), self.coloured))

    def note(self, text: str) -> None:
        with _console.above():
            _console.write(self.stream, f"[grampus] {text}")

    def end(self, view: RunView) -> None:
        headline, rows = summary(view)
        _console.write(self.stream, "\n".join(["", _bold(headline, self.coloured), *_aligned(rows)]))

    def close(self) -> None:
        """Nothing is open."""


class _Terminal(_Lines):
    """A terminal whose last line is drawn again and again."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._bar = _bar(getattr(stream, "encoding", None) or "ascii")
        self._live: RunView | None = None
        _console.set_live(self)

    def draw(self, view: RunView) -> None:
        self._live = view
        self.redraw()

    def clear(self) -> None:
        """Take the live line away, for others to write."""
        if self._live is not None:
            _console.write(self.stream, "\r\x1b[K", end="")

    def redraw(self) -> None:
        """Draw the live line over itself: one write, so that it does not flicker."""
        if self._live is not None:
            # Room for the ^C that the terminal itself writes, which would wrap the line.
            line = live_line(self._live, self.width() - len("^C"), self._bar, self.coloured)
            _console.write(self.stream, f"\r{line}\x1b[K", end="")

    def epoch(self, view: RunView) -> None:
        self.clear()
        self._live = None
        super().epoch(view)

    def end(self, view: RunView) -> None:
        self.clear()
        self._live = None
        super().end(view)

    def close(self) -> None:
        """Go to a fresh line below a live one that nothing has replaced."""
        _console.set_live(None)
        if self._live is not None:
            self.redraw()
            _console.write(self.stream, "")
            self._live = None


class _Notebook:
    """A place in the output of a cell that is drawn again and again."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._lines: list[str] = []

    def draw(self, view: RunView) -> None:
        line = live_line(view, _USUAL_WIDTH, _BARS[0], False)
        done = view.fraction()
        # Without a value the bar moves to and fro: nobody knows how much is left.
        value = "" if done is None else f' value="{done:.3f}"'
        text = html.escape(live_line(view, 2 * _USUAL_WIDTH, "", False))
        live = f'<div style="white-space:pre-wrap"><progress max="1"{value}></progress>  {text}</div>'
        self._show(view, live, [line])

    def epoch(self, view: RunView) -> None:
        self._lines.append(epoch_line(view, _USUAL_WIDTH, False))
        self._show(view, "", [])

    def note(self, text: str) -> None:
        _console.write(sys.stderr, f"[grampus] {text}")

    def end(self, view: RunView) -> None:
        headline, rows = summary(view)
        cells = "".join(
            f'<tr><th style="text-align:left">{html.escape(name)}</th>'
            f'<td style="text-align:left">{html.escape(text)}</td></tr>'
            for name, text in rows
        )
        below = f"<p><b>{html.escape(headline)}</b></p><table><tbody>{cells}</tbody></table>"
        self._show(view, below, ["", headline, *_aligned(rows)])

    def close(self) -> None:
        """What was shown stays."""

    def _show(self, view: RunView, below: str, lines: Sequence[str]) -> None:
        """Show the epochs that ended, and something below them."""
        display = importlib.import_module("IPython.display").display
        recent = History(view.records[-_MOST_ROWS:])
        table = table_html(recent._rows()) if view.records else ""
        shown = {"text/html": f"<div>{table}{below}</div>", "text/plain": "\n".join([*self._lines, *lines])}
        if self._handle is None:
            self._handle = display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)


def _bar(encoding: str) -> str:
    """The letters of a bar, of those that the terminal knows."""
    try:
        _BARS[0].encode(encoding)
    except (LookupError, UnicodeEncodeError):
        return _BARS[1]
    return _BARS[0]


def _bold(text: str, coloured: bool) -> str:
    return f"\x1b[1m{text}\x1b[0m" if coloured else text


def _aligned(rows: Sequence[tuple[str, str]]) -> list[str]:
    # One long name must not push the texts of all others over the edge of the screen.
    width = min(max((len(name) for name, _ in rows), default=0), _MOST_NAME)
    return [f"  {name:{width}}  {text}" for name, text in rows]
