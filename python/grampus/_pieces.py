"""A pickle and the large arrays that are left out of it, side by side in a file.

Layout: a table of the lengths of all pieces, the pickle, the arrays, each at a multiple of 64 bytes. Whoever
maps the file privately has the arrays without a copy, and a change of one changes nobody else's.
"""

from __future__ import annotations

import mmap
import os
import pickle
import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    Piece = bytes | memoryview

_ALIGNMENT = 64
# What one call of writev takes (IOV_MAX).
_PIECES = 1024


def take_apart(value: Any) -> list[Piece]:
    """The pickle of a value, then its large arrays; raise whatever pickling raises."""
    import cloudpickle

    buffers: list[pickle.PickleBuffer] = []
    stream = cloudpickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return [stream, *(buffer.raw() for buffer in buffers)]


def put_together(pieces: Sequence[Any]) -> Any:
    """Make the value again."""
    return pickle.loads(pieces[0], buffers=pieces[1:])


def write(descriptor: int, pieces: Sequence[Piece]) -> int:
    """Write pieces and the table of their lengths where the descriptor stands; return how many bytes."""
    lengths = [memoryview(piece).nbytes for piece in pieces]
    table = struct.pack(f"<{len(lengths)}Q", *lengths)
    return _write(descriptor, [table, *pieces])


def read(view: memoryview, count: int) -> list[memoryview]:
    """The pieces that were written, as parts of what was mapped."""
    end, pieces = _padded(8 * count), []
    for (size,) in struct.iter_unpack("<Q", view[: 8 * count]):
        pieces.append(view[end : end + size])
        end += _padded(size)
    return pieces


def private_map(descriptor: int, length: int, offset: int = 0) -> memoryview:
    """Map a part of a file privately, for as long as anything made of it lives.

    `mmap.mmap` would hold a descriptor for all that time (Python 3.13 can be told not to): a user who keeps
    many results would run out of them.
    """
    import ctypes
    import weakref

    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_longlong,
    )
    libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    access = mmap.PROT_READ | mmap.PROT_WRITE
    address = libc.mmap(None, length, access, mmap.MAP_PRIVATE, descriptor, offset)
    if address is None or address == ctypes.c_void_p(-1).value:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot map {length} bytes: {os.strerror(number)}")
    memory = (ctypes.c_ubyte * length).from_address(address)
    weakref.finalize(memory, libc.munmap, address, length).atexit = False
    return memoryview(memory).cast("B")


def _padded(length: int) -> int:
    return -(-length // _ALIGNMENT) * _ALIGNMENT


def _write(descriptor: int, pieces: Sequence[Piece]) -> int:
    """Write all pieces with their padding; the kernel allocates the pages, which is faster than faulting."""
    waiting: list[memoryview] = []
    for piece in pieces:
        view = memoryview(piece).cast("B")
        padding = memoryview(bytes(_padded(view.nbytes) - view.nbytes))
        waiting += [part for part in (view, padding) if part.nbytes]
    total = sum(part.nbytes for part in waiting)
    first = 0
    while first < len(waiting):
        written = os.writev(descriptor, waiting[first : first + _PIECES])
        while first < len(waiting) and written >= waiting[first].nbytes:
            written -= waiting[first].nbytes
            first += 1
        if first < len(waiting):
            waiting[first] = waiting[first][written:]
    return total
