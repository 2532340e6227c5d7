"""Python values to bytes and back.

A value is pickled once; large arrays inside it are left out of the pickle and written, once, into an
anonymous memory file, whose descriptor travels. The other side maps that file privately: no copy, and a
worker that changes its array changes nobody else's.

A little travels as the pickle and then the arrays, each a part. Much is a memory file (see `_pieces`), with
the number of its pieces as the only part.
"""

from __future__ import annotations

import os
from typing import Any

from grampus import _native, _pieces

# Above this, one memory file is cheaper than copying through a socket.
_INLINE = 64 * 1024
# So do more pieces than this, however small.
_INLINE_PIECES = 1000


def dump(value: Any) -> _native.Payload:
    """Make a payload of a value; raise whatever pickling raises."""
    pieces = _pieces.take_apart(value)
    if sum(memoryview(piece).nbytes for piece in pieces) <= _INLINE and len(pieces) <= _INLINE_PIECES:
        return _native.Payload([bytes(piece) for piece in pieces])
    descriptor = os.memfd_create("grampus", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        length = _pieces.write(descriptor, pieces)
    except BaseException:
        os.close(descriptor)
        raise
    return _native.Payload([len(pieces).to_bytes(8, "little")], descriptor, length)


def load(payload: _native.Payload) -> Any:
    """Make the value again."""
    first, *rest = payload.parts
    memory = payload.memory()
    if memory is None:
        # Writable copies: an array that was sent must not come back read-only.
        return _pieces.put_together([first, *map(bytearray, rest)])
    descriptor, length = memory
    try:
        view = _pieces.private_map(descriptor, length)
    finally:
        os.close(descriptor)
    return _pieces.put_together(_pieces.read(view, int.from_bytes(first, "little")))
