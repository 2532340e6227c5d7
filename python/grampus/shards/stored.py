"""The bytes of a shard: Arrow's IPC stream for tables, a pickle and its arrays for all else.

All that is known here of how tables are stored is known only here.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from grampus import _pieces
from grampus.shards import rows

if TYPE_CHECKING:
    from collections.abc import Callable


class Form(NamedTuple):
    """What a stored shard is: its kind, its rows and the number of its pieces (none for tables)."""

    kind: str
    rows: int
    pieces: int


class Ready(NamedTuple):
    """A shard that can be written: what it is, about how many bytes, and how."""

    form: Form
    size: int
    write: Callable[[int], int]


def prepare(value: Any) -> Ready:
    """Make a value ready to be written; raise what pickling raises."""
    kind = rows.kind_of(value)
    count = rows.count(value, kind)
    if kind in rows.ARROW:
        table = rows.as_arrow(value)
        return Ready(Form(kind, count, 0), table.nbytes, lambda descriptor: _write_table(descriptor, table))
    pieces = _pieces.take_apart(value)
    size = sum(memoryview(piece).nbytes for piece in pieces)
    form = Form(kind, count, len(pieces))
    return Ready(form, size, lambda descriptor: _pieces.write(descriptor, pieces))


def read(view: memoryview, form: Form) -> Any:
    """The value again, over the same memory."""
    if form.kind in rows.ARROW:
        return rows.from_arrow(_read_table(view), form.kind)
    return _pieces.put_together(_pieces.read(view, form.pieces))


def _write_table(descriptor: int, table: Any) -> int:
    import pyarrow
    from pyarrow import fs

    start = os.lseek(descriptor, 0, os.SEEK_CUR)
    os.ftruncate(descriptor, start)
    # Opened once more by Arrow itself, which needs no Python to write: other threads go on meanwhile.
    with (
        fs.LocalFileSystem().open_append_stream(f"/proc/self/fd/{descriptor}") as file,
        pyarrow.ipc.new_stream(file, table.schema) as out,
    ):
        out.write_table(table)
    return os.lseek(descriptor, 0, os.SEEK_END) - start


def _read_table(view: memoryview) -> Any:
    import pyarrow

    return pyarrow.ipc.open_stream(pyarrow.py_buffer(view)).read_all()
