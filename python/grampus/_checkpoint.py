"""The memory of tensors that were read from a file, as Python's own views."""

from __future__ import annotations

import ctypes

from grampus._native import TensorMemory

__all__ = ["bytes_of"]


def bytes_of(memory: TensorMemory) -> memoryview:
    """Return the bytes of a tensor, not copied.

    They may be written to, and stay for as long as the view or anything made from it does. It is what
    `torch.frombuffer` and `numpy.frombuffer` take; mind that torch refuses a view of no bytes.
    """
    address, _ = memory.__array_interface__["data"]
    (length,) = memory.__array_interface__["shape"]
    array = (ctypes.c_ubyte * length).from_address(address)
    # The stable interface of Python 3.10 has no buffers: so it is ctypes that lends the memory.
    array.owner = memory
    return memoryview(array).cast("B")
