"""Memory of tensors as the core takes it: contiguous, in the host."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from grampus._training.saved import Packed

Tensor = Any
Buffer = tuple[int, int, int, Any]

# The types that the core can add, with its codes for them. All others it can only move, as bytes.
CODES = {
    torch.float32: 0,
    torch.float64: 1,
    torch.float16: 2,
    torch.bfloat16: 3,
    torch.int8: 4,
    torch.uint8: 5,
    torch.int32: 6,
    torch.int64: 7,
    torch.bool: 8,
}
_BYTES = CODES[torch.uint8]
# Names of glibc's mallopt.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3


def buffer(host: Tensor) -> Buffer:
    """The memory of a tensor that a loan has given."""
    code = CODES.get(host.dtype)
    if code is None:
        return host.data_ptr(), host.numel() * host.element_size(), _BYTES, host
    return host.data_ptr(), host.numel(), code, host


def cut(host: Tensor, counts: Sequence[int]) -> list[Buffer]:
    """Parts of so many elements, one behind the other."""
    if sum(counts) != host.numel():
        raise ValueError(
            f"parts of {list(counts)} elements do not make up the tensor's {host.numel()}: let them fit"
        )
    width = host.element_size()
    code = CODES.get(host.dtype)
    parts, address = [], host.data_ptr()
    for count in counts:
        parts.append(
            (address, count, code, host) if code is not None else (address, count * width, _BYTES, host)
        )
        address += count * width
    return parts


def shaped(tensor: Tensor) -> tuple[int, int, int, Any, tuple[int, ...]]:
    """The values of a tensor as metrics read them: its memory or a copy, with the shape."""
    host = Loan().read(tensor)
    code = CODES.get(host.dtype)
    if code is None:
        names = ", ".join(str(known) for known in CODES)
        raise TypeError(f"Grampus cannot work on {host.dtype}: use {names}")
    return host.data_ptr(), host.numel(), code, host, host.shape


def is_plain(tensor: Tensor) -> bool:
    """Whether the memory of a tensor holds its values, element by element, where the core can read them."""
    if not (tensor.is_cpu and tensor.is_contiguous()) or tensor.data_ptr() % tensor.element_size():
        return False
    # Tensors whose sign is not in their memory.
    return not tensor.is_conj() and not tensor.is_neg()


class Loan:
    """Memory that a call works on: a tensor's own where that holds its values, else a copy.

    Tensors of a GPU pass through pinned memory, which torch keeps for the next time. A copy is done when it
    returns, so nothing depends on which stream or thread is the current one.
    """

    def __init__(self) -> None:
        self._copies: list[tuple[Tensor, Tensor]] = []

    def read(self, tensor: Tensor) -> Tensor:
        """Memory with the values of the tensor."""
        if is_plain(tensor):
            return tensor
        host = _like(tensor)
        host.copy_(tensor.detach())
        return host

    def write(self, tensor: Tensor) -> Tensor:
        """Memory whose values become those of the tensor."""
        if is_plain(tensor):
            return tensor
        host = _like(tensor)
        self._copies.append((tensor, host))
        return host

    def change(self, tensor: Tensor) -> Tensor:
        """Memory with the values of the tensor, which become those of the tensor."""
        host = self.read(tensor)
        if host is not tensor:
            self._copies.append((tensor, host))
        return host

    def has_copies(self) -> bool:
        """Whether there is something to give back."""
        return bool(self._copies)

    def give_back(self) -> None:
        """Copy to the tensors what was written."""
        for tensor, host in self._copies:
            tensor.detach().copy_(host)
        self._copies.clear()


def _like(tensor: Tensor) -> Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)


def pinned(tensor: Tensor) -> Tensor:
    """A copy in memory that a GPU reads by itself; torch keeps such memory for the next."""
    if tensor.is_pinned():
        return tensor
    found = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    # By one thread: torch would wake all of its own, which the readers keep busy.
    np.copyto(found.numpy(), tensor.numpy()) if tensor.dtype != torch.bfloat16 else found.copy_(tensor)
    return found


def packed(value: Any) -> Any:
    """A tensor as `Packed`; anything else as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    host = value.detach().to("cpu").contiguous()
    flat = host.reshape(-1).view(torch.uint8).numpy()
    return Packed(str(value.dtype).removeprefix("torch."), tuple(value.shape), flat)


def unpacked(value: Any) -> Any:
    """The tensor again."""
    if not isinstance(value, Packed):
        return value
    dtype = getattr(torch, value.dtype)
    if not value.array.size:
        return torch.empty(value.shape, dtype=dtype)
    return torch.from_numpy(value.array).view(dtype).view(value.shape)


def keep_freed_memory() -> None:
    """Let the allocator keep what one step frees for the next.

    Giving it back to the kernel and faulting it in again took a quarter of the time of a small model.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, 1 << 30)
        mallopt(_MMAP_THRESHOLD, 32 << 20)
