"""Python values to bytes and back.

A value is pickled once; large arrays inside it are left out of the pickle and written, once, into an
anonymous memory file, whose descriptor travels. The other side maps that file privately: no copy, and a
worker that changes its array changes nobody else's.

Layout: a little travels as the pickle and then the arrays, each a part. Much is a memory file, with the
number of its pieces as the only part: a table of their lengths, the pickle, the arrays, each at a multiple of
64 bytes.
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
# So do more pieces than this, however small.
_INLINE_PIECES = 1000
_ALIGNMENT = 64
# What one call of writev takes (IOV_MAX).
_PIECES = 1024


def dump(value: Any) -> _native.Payload:
    """Make a payload of a value; raise whatever pickling raises."""
    import cloudpickle

    buffers: list[pickle.PickleBuffer] = []
    stream = cloudpickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    arrays = [buffer.raw() for buffer in buffers]
    if len(stream) + sum(array.nbytes for array in arrays) <= _INLINE and len(arrays) < _INLINE_PIECES:
        return _native.Payload([stream, *map(bytes, arrays)])
    lengths = [len(stream), *(array.nbytes for array in arrays)]
    table = struct.pack(f"<{len(lengths)}Q", *lengths)
    descriptor = os.memfd_create("grampus", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        length = _write(descriptor, [table, stream, *arrays])
    except BaseException:
        os.close(descriptor)
        raise
    return _native.Payload([len(lengths).to_bytes(8, "little")], descriptor, length)


def load(payload: _native.Payload) -> Any:
    """Make the value again."""
    first, *rest = payload.parts
    memory = payload.memory()
    if memory is None:
        # Writable copies: an array that was sent must not come back read-only.
        return pickle.loads(first, buffers=[bytearray(part) for part in rest])
    descriptor, length = memory
    try:
        view = _map(descriptor, length)
    finally:
        os.close(descriptor)
    table = 8 * int.from_bytes(first, "little")
    end, pieces = _padded(table), []
    for (size,) in struct.iter_unpack("<Q", view[:table]):
        pieces.append(view[end : end + size])
        end += _padded(size)
    return pickle.loads(pieces[0], buffers=pieces[1:])


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


def _padded(length: int) -> int:
    return -(-length // _ALIGNMENT) * _ALIGNMENT


def _write(descriptor: int, pieces: Sequence[bytes | memoryview]) -> int:
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
