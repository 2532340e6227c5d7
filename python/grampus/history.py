"""What a training run has measured, epoch by epoch."""

from __future__ import annotations

import base64
import colorsys
import html
import io
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, overload

from grampus._arguments import suggest
from grampus._figures import BOOKKEEPING, cell, columns, count, measures

if TYPE_CHECKING:
    import os

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

__all__ = ["History"]

# Where every epoch has the same, it is said once below the table, which otherwise is wider than a terminal.
_ONCE = {
    "samples": lambda value: count(value, "sample"),
    "steps": lambda value: count(value, "step"),
    "val_num_samples": lambda value: f"{count(value, 'sample')} to validate",
    "learning_rate": lambda value: f"learning rate {cell('learning_rate', value)}",
}


class History(Sequence[dict[str, Any]]):
    """The record of every epoch, and why the run ended.

    >>> history = History([{"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": 0.25}], reason="2 epochs done")
    >>> history[-1]["loss"], history["loss"]
    (0.25, [0.5, 0.25])
    >>> print(history)
    epoch    loss
        1  0.5000
        2  0.2500
    2 epochs done

    In a notebook it shows itself as a table with curves; `plot` gives the curves alone.
    """

    def __init__(self, records: Iterable[Mapping[str, Any]] = (), reason: str | None = None) -> None:
        self._records = [dict(record) for record in records]
        #: Why the run ended; `None` while it runs, and where it failed.
        self.reason = reason
        #: Who trained: the process id of each worker, in order of rank, and the rows that it went through.
        self.workers: list[dict[str, int]] = []
        #: Bytes that tasks of Spark or Ray have copied for the workers: each row once, unless it was lost.
        self.copied_bytes = 0

    def event(self, event: Mapping[str, Any]) -> None:
        """Take an event of the run: the end of an epoch, or of all."""
        if event["kind"] == "epoch":
            self._records.append(dict(event["record"]))
        elif event["kind"] == "end":
            self.reason = event["reason"]

    def __len__(self) -> int:
        """How many epochs there are."""
        return len(self._records)

    @overload
    def __getitem__(self, key: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, key: slice) -> History: ...
    @overload
    def __getitem__(self, key: str) -> list[Any]: ...
    def __getitem__(self, key: int | slice | str) -> dict[str, Any] | History | list[Any]:
        """The record of an epoch, those of some epochs, or the values of one name over all epochs.

        An epoch that did not measure the name has `None` there.
        """
        if isinstance(key, slice):
            return History(self._records[key], self.reason)
        if not isinstance(key, str):
            return self._records[key]
        names = columns(self._records)
        if key not in names:
            raise KeyError(f"no epoch has {key!r}; there are: {', '.join(names) or 'no records yet'}")
        return [record.get(key) for record in self._records]

    def __eq__(self, other: object) -> bool:
        """Whether both hold the same records and ended for the same reason."""
        if not isinstance(other, History):
            return NotImplemented
        return (self._records, self.reason) == (other._records, other.reason)

    def __repr__(self) -> str:
        """A table for a terminal."""
        if not self._records:
            return f"no epochs{f': {self.reason}' if self.reason else ''}"
        rows = self._rows()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.rjust, row, widths)).rstrip() for row in rows]
        return "\n".join([*lines, *self._notes()])

    def _repr_html_(self) -> str:
        """A table for a notebook, with curves where matplotlib is installed."""
        if not self._records:
            return f"<p>{html.escape(repr(self))}</p>"
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self._notes())
        return table_html(self._rows()) + notes + self._picture_html()

    def plot(self, path: str | os.PathLike[str] | None = None) -> Figure:
        """Draw loss and metrics over the epochs.

        Args:
            path: where to save the picture, as PNG whatever it is called; nowhere by default.

        Raises:
            ImportError: if matplotlib is not installed.
        """
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise ImportError("plot needs matplotlib: pip install grampus[plot]") from error

        losses, metrics = self._curves()
        figure = Figure(figsize=(10 if metrics else 5, 3.6), layout="constrained")
        # Notebooks show it also where matplotlib's own display is not loaded.
        vars(figure).update(_repr_png_=partial(_png, figure))
        sides = figure.subplots(1, 2 if metrics else 1, squeeze=False)[0]
        self._draw(sides[0], losses, "loss")
        if metrics:
            self._draw(sides[1], metrics, metrics[0] if len(metrics) == 1 else "metrics")
        if path is not None:
            figure.savefig(path, format="png", dpi=150)
        return figure

    def to_pandas(self) -> DataFrame:
        """A data frame with a row for each epoch.

        Raises:
            ImportError: if pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise ImportError("to_pandas needs pandas: pip install pandas") from error
        return pandas.DataFrame(self._records, columns=columns(self._records))

    def _once(self) -> list[str]:
        """Names of what is the same in all epochs."""
        return [name for name in _ONCE if len({record.get(name) for record in self._records}) == 1]

    def _rows(self) -> list[list[str]]:
        """The table's cells, below a row of names."""
        # What has parts, such as a profile, is too wide for a cell.
        wide = {
            name for each in self._records for name, value in each.items() if isinstance(value, dict | list)
        }
        names = [name for name in columns(self._records) if name not in wide.union(self._once())]
        names.sort(key=_place)
        head = [BOOKKEEPING.get(name, name) for name in names]
        return [head, *([cell(name, record.get(name)) for name in names] for record in self._records)]

    def _notes(self) -> list[str]:
        """What stands below the table."""
        first = self._records[0]
        once = [_ONCE[name](first[name]) for name in self._once() if first.get(name) is not None]
        notes = [f"each epoch: {', '.join(once)}"] if once else []
        return [*notes, self.reason] if self.reason else notes

    def _curves(self) -> tuple[list[str], list[str]]:
        """Names of losses and of metrics, without those that only validation has a `val_` for."""
        names = dict.fromkeys(
            name.removeprefix("val_") for record in self._records for name in measures(record)
        )
        return [name for name in names if name == "loss"], [name for name in names if name != "loss"]

    def _draw(self, axes: Axes, names: Sequence[str], title: str) -> None:
        """Curves of the names and, dashed, of their validation, each in a colour of its own."""
        from matplotlib.ticker import MaxNLocator

        curves = []
        for name in names:
            for key, style in ((name, "-"), (f"val_{name}", "--")):
                points = [
                    (record.get("epoch", place), record[key])
                    for place, record in enumerate(self._records, 1)
                    if key in measures(record)
                ]
                if points:
                    kind = "training" if style == "-" else "validation"
                    label = kind if len(names) == 1 else f"{name}, {kind}"
                    curves.append((points, style, label))
        for (points, style, label), colour in zip(curves, _colours(len(curves)), strict=True):
            epochs, values = zip(*points, strict=True)
            axes.plot(epochs, values, style, color=colour, marker=".", label=label)
        axes.set_title(title)
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.grid(alpha=0.3)
        if axes.lines:
            axes.legend(frameon=False)

    def _picture_html(self) -> str:
        try:
            figure = self.plot()
        except ImportError:
            return ""
        data = base64.b64encode(_png(figure)).decode()
        return f'<img style="max-width:100%" alt="loss and metrics" src="data:image/png;base64,{data}">'


def _place(name: str) -> int:
    """Where a name stands in a table: the epoch, what was measured, and then what it took."""
    return 1 if name not in BOOKKEEPING else 0 if name == "epoch" else 2


def _colours(number: int) -> list[Any]:
    """So many different colours: those of matplotlib's style, or all hues where these are too few."""
    from matplotlib import rcParams
    from matplotlib.colors import to_rgb

    styled = list(dict.fromkeys(map(to_rgb, rcParams["axes.prop_cycle"].by_key().get("color", ()))))
    if number <= len(styled):
        return styled[:number]
    # Neighbours differ in brightness as well.
    return [colorsys.hsv_to_rgb(place / number, 1.0, (0.9, 0.6)[place % 2]) for place in range(number)]


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=100)
    return buffer.getvalue()


def table_html(rows: Sequence[Sequence[str]]) -> str:
    """A table whose first row names the columns.

    >>> table_html([["epoch"], ["1"]])
    '<table><thead><tr><th>epoch</th></tr></thead><tbody><tr><td>1</td></tr></tbody></table>'
    """
    head, *body = ([html.escape(text) for text in row] for row in rows)
    lines = "".join(f"<tr><td>{'</td><td>'.join(row)}</td></tr>" for row in body)
    return f"<table><thead><tr><th>{'</th><th>'.join(head)}</th></tr></thead><tbody>{lines}</tbody></table>"


suggest(globals())
