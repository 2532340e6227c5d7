"""Python values to bytes and back.

A value is pickled once; large arrays inside it are left out of the pickle and written, once, into an
anonymous memory file, whose descriptor travels. The other side maps that file privately: no copy, and a
worker that changes its array changes nobody else's.

Layout: part 0 holds the lengths of the pickle and of every array. They follow as parts of their own, or,
where there is much, one after the other in the memory file, each at a multiple of 64 bytes.
"""

from __future__ import annotations

import mmap
import os
import pickle
import struct
from typing import TYPE_CHECKING, Any

from grampus import _native

if TYPE_CHECKING:
    from collections.abc import Sequence

# Above this, one memory file is cheaper than copying through a socket.
_INLINE = 64 * 1024
_ALIGNMENT = 64
# What one call of writev takes (IOV_MAX).
_PIECES = 1024


def dump(value: Any) -> _native.Payload:
    """Make a payload of a value; raise whatever pickling raises."""
    import cloudpickle

    buffers: list[pickle.PickleBuffer] = []
    stream = cloudpickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    pieces: list[bytes | memoryview] = [stream, *(buffer.raw() for buffer in buffers)]
    lengths = [len(stream), *(memoryview(piece).nbytes for piece in pieces[1:])]
    table = struct.pack(f"<{len(lengths)}Q", *lengths)
    if sum(lengths) <= _INLINE:
        return _native.Payload([table, stream, *(bytes(piece) for piece in pieces[1:])])
    descriptor = os.memfd_create("grampus", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        length = _write(descriptor, pieces, lengths)
    except BaseException:
        os.close(descriptor)
        raise
    return _native.Payload([table], descriptor, length)


def load(payload: _native.Payload) -> Any:
    """Make the value again."""
    table, *inline = payload.parts
    lengths = [length for (length,) in struct.iter_unpack("<Q", table)]
    memory = payload.memory()
    if memory is None:
        # Writable copies: an array that was sent must not come back read-only.
        return pickle.loads(inline[0], buffers=[bytearray(part) for part in inline[1:]])
    descriptor, length = memory
    try:
        view = _map(descriptor, length)
    finally:
        os.close(descriptor)
    places = _places(lengths)
    stream, *buffers = (view[start : start + size] for start, size in zip(places, lengths, strict=True))
    return pickle.loads(stream, buffers=buffers)


def _map(descriptor: int, length: int) -> memoryview:
    """Map a memory file privately, for as long as anything made of it lives.

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
    address = libc.mmap(None, length, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE, descriptor, 0)
    if address is None or address == ctypes.c_void_p(-1).value:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot map {length} bytes: {os.strerror(number)}")
    memory = (ctypes.c_ubyte * length).from_address(address)
    weakref.finalize(memory, libc.munmap, address, length).atexit = False
    return memoryview(memory).cast("B")


def _places(lengths: Sequence[int]) -> list[int]:
    places, end = [], 0
    for length in lengths:
        places.append(end)
        end += -(-length // _ALIGNMENT) * _ALIGNMENT
    return places


def _write(descriptor: int, pieces: Sequence[bytes | memoryview], lengths: Sequence[int]) -> int:
    """Write all pieces with their padding; the kernel allocates the pages, which is faster than faulting."""
    padded: list[bytes | memoryview] = []
    for piece, length in zip(pieces, lengths, strict=True):
        padded.append(piece)
        padded.append(bytes(-length % _ALIGNMENT))
    waiting = [memoryview(piece).cast("B") for piece in padded if memoryview(piece).nbytes]
    total = sum(piece.nbytes for piece in waiting)
    first = 0
    while first < len(waiting):
        written = os.writev(descriptor, waiting[first : first + _PIECES])
        while first < len(waiting) and written >= waiting[first].nbytes:
            written -= waiting[first].nbytes
            first += 1
        if first < len(waiting):
            waiting[first] = waiting[first][written:]
    return total
