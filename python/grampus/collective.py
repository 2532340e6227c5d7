"""Sums, gathers and broadcasts between the workers of a task.

All workers make the same calls in the same order, on numpy arrays or on tensors that speak DLPack, such as
torch's; arrays are worked on in place, without copies.

>>> import grampus as gp, numpy as np
>>> def total():
...     x = np.full(3, gp.rank() + 1.0)
...     gp.collective.all_reduce(x)
...     return x.tolist()
>>> gp.run(total, workers=2)
[[3.0, 3.0, 3.0], [3.0, 3.0, 3.0]]
>>> gp.stop()

Calls wait for all others unless `block=False`; then they return a `Handle` at once. A call that fails
ends the group on all its members: `PeerLost` names the rank that is gone, `CallMismatch` the two calls
that differ. `form` makes a new group without new processes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from grampus import _group, _native
from grampus._arguments import suggest

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "Group",
    "Handle",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "barrier",
    "broadcast",
    "empty",
    "form",
    "gather",
    "new_group",
    "norm",
    "recv",
    "reduce",
    "reduce_scatter",
    "scatter",
    "send",
    "world",
]

Array = Any
Value = TypeVar("Value")


class Handle(Generic[Value]):
    """A call on its way. Its arrays must not be touched until it is through."""

    def __init__(self, handle: _native.Handle, value: Value) -> None:
        self._handle = handle
        self._value = value

    def wait(self, timeout: float | None = None) -> Value:
        """Wait for the end of the call and return what it returns.

        After `timeout` seconds TimeoutError is raised; the call goes on.
        """
        self._handle.wait(timeout)
        return self._value

    def done(self) -> bool:
        """Whether the call is through, well or not."""
        return self._handle.done()


class Group:
    """Some workers that call collectives together.

    The module's functions are those of the group of all workers.
    """

    def __init__(self, native: _native.Group) -> None:
        self._native = native

    @property
    def rank(self) -> int:
        """Position of this worker in the group, from 0."""
        return self._native.rank

    @property
    def size(self) -> int:
        """Number of members."""
        return self._native.size

    @property
    def generation(self) -> int:
        """How often this group was formed."""
        return self._native.generation

    def all_reduce(self, array: Array, op: str = "sum", *, block: bool = True) -> Any:
        """Make every member's array the sum of all members' arrays; return it.

        `op` is sum, mean, min, max, product, and, or. The order of additions is fixed: equal inputs give
        equal bits. Given `{lane: array}`, sums over all lanes of all members in one tree that depends on
        the number of lanes alone, whoever passes which; every array becomes the sum.
        """
        if isinstance(array, dict):
            return _answer(self._native.all_reduce_lanes(array, op, block), array)
        return _answer(self._native.all_reduce(array, op, block), array)

    def reduce(self, array: Array, root: int = 0, op: str = "sum", *, block: bool = True) -> Any:
        """Make the root's array the sum; the others' stay as they are."""
        self._check_root(root)
        return _answer(self._native.reduce(array, root, op, block), array)

    def reduce_scatter(self, array: Array, op: str = "sum", *, out: Array = None, block: bool = True) -> Any:
        """Sum, and return this member's part: the first axis is cut into as many equal parts as members."""
        _native.check_buffers([array])
        size, shape = self.size, tuple(array.shape)
        if not shape or shape[0] % size:
            raise ValueError(
                f"the first axis of an array of shape {shape} cannot be cut into {size} equal parts: pad it"
            )
        if out is None:
            out = _empty(array, (shape[0] // size, *shape[1:]))
        return _answer(self._native.reduce_scatter(array, out, op, block), out)

    def all_gather(self, array: Array, *, block: bool = True) -> Any:
        """Return the arrays of all members, in order of rank. Shapes may differ; types must not."""
        parts = [_empty(array, shape) for shape in self._shapes(array)]
        return _answer(self._native.all_gather(array, parts, block), parts)

    def gather(self, array: Array, root: int = 0, *, block: bool = True) -> Any:
        """Return the arrays of all members at the root, `None` elsewhere. Shapes may differ."""
        self._check_root(root)
        shapes = self._shapes(array)
        at_root = self.rank == root
        parts = [_empty(array, shape) for shape in shapes] if at_root else None
        if len(set(shapes)) == 1:
            return _answer(self._native.gather(array, parts or [], root, block), parts)
        nothing = _empty(array, (0,))
        sends = [array if rank == root else nothing for rank in range(self.size)]
        return _answer(self._native.all_to_all(sends, parts or [nothing] * self.size, block), parts)

    def scatter(self, arrays: Sequence[Array] | None = None, root: int = 0, *, block: bool = True) -> Any:
        """Return this member's array of those that the root passes. Shapes may differ.

        What others than the root pass is not looked at.
        """
        self._check_root(root)
        at_root = self.rank == root
        parts = list(arrays) if at_root and arrays is not None else []
        if at_root and len(parts) != self.size:
            raise ValueError(f"the root must pass {self.size} arrays, one for each member, not {len(parts)}")
        _native.check_buffers(parts)
        kind = self._native.gather_bytes(str(parts[0].dtype).encode() if at_root else b"")[root]
        told = self._native.gather_bytes(_pack([tuple(part.shape) for part in parts]))
        shapes = _unpack(told[root])
        target = _named(kind.decode(), shapes[self.rank])
        if len(set(shapes)) == 1:
            return _answer(self._native.scatter(parts, target, root, block), target)
        nothing = _empty(target, (0,))
        sends = parts if at_root else [nothing] * self.size
        takes = [target if rank == root else nothing for rank in range(self.size)]
        return _answer(self._native.all_to_all(sends, takes, block), target)

    def broadcast(self, array: Array, root: int = 0, *, block: bool = True) -> Any:
        """Make every member's array the root's; return it."""
        self._check_root(root)
        return _answer(self._native.broadcast(array, root, block), array)

    def all_to_all(self, arrays: Sequence[Array], *, block: bool = True) -> Any:
        """Send one array to each member and return those that they sent here. Shapes may differ."""
        if len(arrays) != self.size:
            raise ValueError(f"{len(arrays)} arrays for {self.size} members: pass one for each")
        _native.check_buffers(list(arrays))
        told = self._native.gather_bytes(_pack([tuple(array.shape) for array in arrays]))
        parts = [_empty(arrays[0], _unpack(shapes)[self.rank]) for shapes in told]
        return _answer(self._native.all_to_all(list(arrays), parts, block), parts)

    def barrier(self, *, block: bool = True) -> Any:
        """Wait until all members have come here."""
        return _answer(self._native.barrier(block), None)

    def send(self, array: Array, to: int, tag: int = 0, *, block: bool = True) -> Any:
        """Send an array to another member; return when it has arrived there.

        Arrays of one tag arrive in the order in which they were sent.
        """
        _check_route(to, tag)
        return _answer(self._native.send(array, to, tag, block), None)

    def recv(self, array: Array, source: int, tag: int = 0, *, block: bool = True) -> Any:
        """Fill an array with one of the same size and type that another member sends; return it."""
        _check_route(source, tag)
        return _answer(self._native.recv(array, source, tag, block), array)

    def norm(self, array: Array) -> float:
        """The Euclidean norm of an array that all members hold alike.

        Its bits do not depend on the number of members.
        """
        return self._native.norm(array)

    def empty(self, shape: int | Sequence[int], dtype: Any = "float32") -> np.ndarray[Any, Any]:
        """A numpy array of zeros in shared memory, which `all_reduce` and `reduce` sum where it lies.

        `torch.from_numpy` makes it a tensor without a copy.
        """
        import numpy as np

        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        kind = np.dtype(dtype)
        if any(length < 0 for length in shape):
            raise ValueError(f"there is no array of shape {shape}: lengths count from 0")
        memory = self._native.shared(math.prod(shape) * kind.itemsize)
        array: np.ndarray[Any, Any] = np.asarray(memory).view(kind).reshape(shape)
        return array

    def close(self) -> None:
        """Leave the group; calls on their way are given up, and members that call on get `PeerLost`."""
        self._native.close()

    def _check_root(self, root: int) -> None:
        if not 0 <= root < self.size:
            raise ValueError(f"there is no root {root} in a group of {self.size}: ranks count from 0")

    def _shapes(self, array: Array) -> list[tuple[int, ...]]:
        # Before others hear of the call: whoever made it wrongly can make it again.
        _native.check_buffers([array])
        told = self._native.gather_bytes(_pack([tuple(array.shape)]))
        return [_unpack(shape)[0] for shape in told]

    def __repr__(self) -> str:
        return f"<grampus.collective.Group: rank {self.rank} of {self.size}>"


_world: tuple[object, Group] | None = None


def form(*, deadline: float = _group.DEADLINE) -> Group:
    """Form the group of all workers again, in a new generation; all of them must do so.

    The first call of this module forms it by itself. Forming is for after an error, or to say how many
    seconds (`deadline`) a call waits for a worker that lives but does something else.
    """
    global _world
    group = Group(_group.form(None, deadline))
    _world = (_group.seat(), group)
    return group


def new_group(ranks: Sequence[int], *, deadline: float = _group.DEADLINE) -> Group:
    """Form a group of some workers; just these must do so."""
    return Group(_group.form(list(ranks), deadline))


def world() -> Group:
    """The group of all workers."""
    # A group belongs to a task: the next one starts with none.
    if _world is None or _world[0] is not _group.seat() or _world[0] is None:
        return form()
    return _world[1]


def all_reduce(array: Array, op: str = "sum", *, block: bool = True) -> Any:
    """Make every worker's array the sum of all workers' arrays: see `Group.all_reduce`."""
    return world().all_reduce(array, op, block=block)


def reduce(array: Array, root: int = 0, op: str = "sum", *, block: bool = True) -> Any:
    """Make the root's array the sum: see `Group.reduce`."""
    return world().reduce(array, root, op, block=block)


def reduce_scatter(array: Array, op: str = "sum", *, out: Array = None, block: bool = True) -> Any:
    """Sum, and return this worker's part: see `Group.reduce_scatter`."""
    return world().reduce_scatter(array, op, out=out, block=block)


def all_gather(array: Array, *, block: bool = True) -> Any:
    """Return the arrays of all workers: see `Group.all_gather`."""
    return world().all_gather(array, block=block)


def gather(array: Array, root: int = 0, *, block: bool = True) -> Any:
    """Return the arrays of all workers at the root: see `Group.gather`."""
    return world().gather(array, root, block=block)


def scatter(arrays: Sequence[Array] | None = None, root: int = 0, *, block: bool = True) -> Any:
    """Return this worker's array of those that the root passes: see `Group.scatter`."""
    return world().scatter(arrays, root, block=block)


def broadcast(array: Array, root: int = 0, *, block: bool = True) -> Any:
    """Make every worker's array the root's: see `Group.broadcast`."""
    return world().broadcast(array, root, block=block)


def all_to_all(arrays: Sequence[Array], *, block: bool = True) -> Any:
    """Send one array to each worker and return those that they sent here: see `Group.all_to_all`."""
    return world().all_to_all(arrays, block=block)


def barrier(*, block: bool = True) -> Any:
    """Wait until all workers have come here."""
    return world().barrier(block=block)


def send(array: Array, to: int, tag: int = 0, *, block: bool = True) -> Any:
    """Send an array to another worker: see `Group.send`."""
    return world().send(array, to, tag, block=block)


def recv(array: Array, source: int, tag: int = 0, *, block: bool = True) -> Any:
    """Fill an array with what another worker sends: see `Group.recv`."""
    return world().recv(array, source, tag, block=block)


def norm(array: Array) -> float:
    """The Euclidean norm of an array that all workers hold alike: see `Group.norm`."""
    return world().norm(array)


def empty(shape: int | Sequence[int], dtype: Any = "float32") -> np.ndarray[Any, Any]:
    """A numpy array of zeros in shared memory: see `Group.empty`."""
    return world().empty(shape, dtype)


def _answer(handle: _native.Handle | None, value: Value) -> Value | Handle[Value]:
    return value if handle is None else Handle(handle, value)


def _check_route(rank: int, tag: int) -> None:
    if rank < 0:
        raise ValueError(f"there is no rank {rank}: name another rank of the group")
    if not 0 <= tag < 1 << 32:
        raise ValueError(f"{tag} is no tag: tags are whole numbers from 0 on, below 2 to the power of 32")


def _empty(like: Array, shape: tuple[int, ...]) -> Array:
    """A new array of the library and type of another."""
    if hasattr(like, "new_empty"):
        return like.new_empty(shape)
    import numpy as np

    return np.empty(shape, like.dtype)


def _named(kind: str, shape: tuple[int, ...]) -> Array:
    """A new array of a type such as float32 or torch.float32."""
    library, _, name = kind.rpartition(".")
    if library == "torch":
        import torch

        return torch.empty(shape, dtype=getattr(torch, name))
    import numpy as np

    return np.empty(shape, kind)


def _pack(shapes: list[tuple[int, ...]]) -> bytes:
    numbers = [len(shapes)]
    for shape in shapes:
        numbers += [len(shape), *shape]
    return struct.pack(f"<{len(numbers)}q", *numbers)


def _unpack(data: bytes) -> list[tuple[int, ...]]:
    count, *numbers = struct.unpack(f"<{len(data) // 8}q", data)
    shapes = []
    for _ in range(count):
        length, *numbers = numbers
        shapes.append(tuple(numbers[:length]))
        numbers = numbers[length:]
    return shapes


suggest(globals())
