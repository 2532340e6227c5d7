"""Rows of shards as batches of a model: which columns, from where, in which order."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from grampus import _native, _pieces, columns
from grampus.errors import DataError
from grampus.shards import rows
from grampus.shards.segments import Segment, exhausted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from grampus.images import ImageStep
    from grampus.shards.segments import Part

    # A name, or what is done with a column.
    Column = str | columns.ColumnStep
    # One, or several; those in a list of their own stand side by side in one matrix, also a single one.
    Columns = Column | Sequence["Column | Sequence[Column]"]

# Batches that are made ready at most: more hide no wait that these do not.
AHEAD = 16


@dataclass(frozen=True)
class Wanted:
    """What a batch has: arrays of columns, and which of them are `x` and which are `y`."""

    outputs: str
    tree: dict[str, Any]
    # Whether some are decoded when they are read.
    images: bool = False

    def filled(self, arrays: Sequence[Any]) -> dict[str, Any]:
        """The arrays in their places."""
        filled: dict[str, Any] = rows.mapped(self.tree, lambda place: arrays[place])
        return filled

    @property
    def is_random(self) -> bool:
        """Whether random numbers decide what some images look like.

        >>> from grampus.images import RandomFlip, Resize
        >>> [wanted("a", None, steps).is_random for steps in ([Resize(8)], [Resize(8), RandomFlip()])]
        [False, True]
        """
        from grampus.images import RANDOM

        images = [output.get("images", {}) for output in json.loads(self.outputs)]
        return any(step["step"] in RANDOM for each in images for step in each.get("steps", ()))

    @property
    def columns(self) -> dict[str, dict[str, Any]]:
        """The columns that are read, and what is done with each before it is a number, by name.

        >>> wanted(["a", columns.Cast("b", "bool")], None).columns
        {'a': {}, 'b': {'cast': {'kind': 'bool'}}}
        """
        read: dict[str, dict[str, Any]] = {}
        for output in json.loads(self.outputs):
            images = {"images": output["images"]} if "images" in output else {}
            for column in output["columns"]:
                name, step = (column, {}) if isinstance(column, str) else (column["name"], column["step"])
                read.setdefault(name, {}).update({**step, **images})
        return read


def wanted(
    feature_cols: Columns | None, label_cols: Columns | None, images: Sequence[ImageStep] | None = None
) -> Wanted:
    """Arrays of columns: `(n,)` for a name, a matrix `(n, k)` for columns in a list of their own.

    >>> wanted(["a", ["b", columns.OneHot("c", 10)]], "y").tree
    {'x': (0, 1), 'y': 2}
    >>> wanted("a", [["y"]]).outputs
    '[{"columns": ["a"]}, {"columns": ["y"], "matrix": true}]'
    """
    if feature_cols is None:
        raise DataError("tables need feature_cols, and for training label_cols: name the columns")
    outputs: list[dict[str, Any]] = []

    def add(chosen: Columns) -> Any:
        named = listed(chosen)
        first = len(outputs)
        outputs.extend(_output(listed(one), matrix=not is_one(one)) for one in named)
        return first if len(named) == 1 else tuple(range(first, len(outputs)))

    tree = {"x": add(feature_cols)}
    if images is not None:
        from grampus.images import pipeline

        outputs[0]["images"] = json.loads(pipeline(images))
    if label_cols is not None:
        tree["y"] = add(label_cols)
    return Wanted(json.dumps(outputs), tree, any("images" in output for output in outputs))


def _output(side_by_side: list[Any], matrix: bool) -> dict[str, Any]:
    """One array."""
    if not any(isinstance(column, columns.Image) for column in side_by_side):
        output: dict[str, Any] = {"columns": [_described(column) for column in side_by_side]}
        return {**output, "matrix": True} if matrix else output
    if len(side_by_side) > 1:
        raise DataError("an image stands alone: take it out of the list of columns that stand side by side")
    return {"columns": [side_by_side[0].column], **side_by_side[0]._step()}


def is_one(column: Any) -> bool:
    """Whether it stands for one column."""
    return isinstance(column, str | columns.ColumnStep)


def listed(chosen: Any) -> list[Any]:
    """One column or several, as a list."""
    if is_one(chosen):
        return [chosen]
    try:
        listed = list(chosen)
    except TypeError:
        raise _no_column(chosen) from None
    if not listed:
        raise DataError("a list of columns is empty: name at least one")
    return listed


def _described(column: Any) -> str | dict[str, Any]:
    if isinstance(column, columns.ColumnStep):
        return column._described()
    if isinstance(column, str):
        return column
    raise _no_column(column)


def _no_column(found: Any) -> TypeError:
    return TypeError(f"columns are names, steps of gp.columns, and lists of these, not {found!r}")


@dataclass
class Packed:
    """Arrays of all rows in memory that the workers see."""

    segment: Segment
    length: int
    arrays: list[tuple[str, tuple[int, ...], int]]
    wanted: Wanted
    # Rows that must not be used, and why.
    bad: list[tuple[int, str]]

    def load(self) -> dict[str, Any]:
        """The arrays, over a private mapping."""
        import numpy

        descriptor = self.segment.open(os.O_RDONLY)
        try:
            view = _pieces.private_map(descriptor, self.length, 0)
        finally:
            os.close(descriptor)
        arrays = [
            numpy.ndarray(shape, dtype, buffer=view, offset=offset) for dtype, shape, offset in self.arrays
        ]
        return self.wanted.filled(arrays)


class Loadable:
    """Rows that the threads of a loader read, wherever they are."""

    wanted: Wanted
    # Blocks that are shuffled among themselves where files are read each time; without it all is kept.
    window: int | None
    # Whether rows that cannot be used are left out.
    skip: bool

    def loader(self, threads: int) -> _native.Loader:
        """Threads that read, of this process."""
        raise NotImplementedError


@dataclass
class Rows(Loadable):
    """Rows of stored shards, of Parquet files, or of tables of this process, that a loader reads."""

    wanted: Wanted
    parts: list[Part] | None = None
    paths: list[str] | None = None
    window: int | None = None
    skip: bool = False
    tables: list[_native.Table] | None = None

    def pack(self) -> Packed:
        """Write all rows into memory that workers see."""
        segment = Segment(on_disk=exhausted())
        descriptor = segment.open(os.O_RDWR)
        try:
            arrays, bad, end = _native.write_packed(
                self.wanted.outputs, descriptor, 0, self.skip, tables=self._tables(), paths=self.paths
            )
            # A mapping ends where the file does, and an array of no width has no bytes.
            os.ftruncate(descriptor, max(end, 1))
        finally:
            os.close(descriptor)
        segment.count()
        found = [(dtype, tuple(shape), offset) for dtype, shape, offset in arrays]
        return Packed(segment, max(end, 1), found, self.wanted, bad)

    def loader(self, threads: int) -> _native.Loader:
        """Threads that read, of this process."""
        return _native.Loader(
            self.wanted.outputs,
            threads,
            AHEAD,
            self.window is None,
            self.skip,
            tables=self._tables(),
            paths=self.paths,
        )

    def _tables(self) -> list[_native.Table] | None:
        if self.parts is None:
            return self.tables
        return [_native.Table.from_stream(rows.as_arrow(part.load())) for part in self.parts]


def batches(
    loader: _native.Loader, places: Iterable[tuple[int, int]]
) -> Iterator[tuple[list[Any], list[int], list[str]]]:
    """Batches of the rows at these places: arrays, numbers of rows, and what is wrong with those left out."""
    import numpy

    waiting = iter(places)
    asked = 0
    while True:
        for _ in range(max(loader.room(), 1 if asked == 0 else 0)):
            place = next(waiting, None)
            if place is None:
                break
            loader.ask(*place)
            asked += 1
        if asked == 0:
            return
        numbers, row_numbers, skipped = loader.take()
        asked -= 1
        yield [numpy.asarray(each) for each in numbers], row_numbers, skipped
