"""Anonymous memory, and anonymous files past a limit, in which shards live.

The driver owns them. A worker of the same machine opens them through the driver's descriptor table, so that
all processes see one copy; nothing has a name, so nothing is left behind. Workers of other hosts hold copies,
one for each host, while a call that reads them runs: see `delivery`.
"""

from __future__ import annotations

import mmap
import os
import re
import secrets
import tempfile
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from grampus import _native, _pieces
from grampus.errors import DataError
from grampus.shards import stored

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_UNITS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


class _Budget:
    """How much memory shards may take in this process, and where the rest goes."""

    def __init__(self) -> None:
        self.limit: int | None = None
        self.folder = ""
        self.used = 0


_budget = _Budget()


def set_memory_limit(limit: int | str | None, spill: str | os.PathLike[str] | None = None) -> None:
    """Let shards take this much memory, and put what comes after it into files of a folder.

    Args:
        limit: bytes, or a text such as "8GB" or "512 MiB"; `None` for no limit, which is the default.
        spill: the folder, on a disk; by default that of temporary files. The files have no names there and
            go with the shards, or with this process.

    >>> set_memory_limit("8GB")
    >>> set_memory_limit(None)
    """
    size = None if limit is None else _bytes(limit)
    folder = os.fspath(spill) if spill is not None else tempfile.gettempdir()
    if size is not None:
        os.close(_nameless(folder))  # whether it can be done is said now, not in the middle of the work
    _budget.limit, _budget.folder = size, folder


def memory_limit() -> int | None:
    """How much memory shards may take, in bytes."""
    return _budget.limit


def exhausted() -> bool:
    """Whether shards take all the memory that they may."""
    return _budget.limit is not None and _budget.used >= _budget.limit


def _bytes(limit: int | str) -> int:
    if isinstance(limit, int) and not isinstance(limit, bool) and limit >= 0:
        return limit
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?\s*", str(limit), re.IGNORECASE)
    if found is None or isinstance(limit, bool):
        raise ValueError(f"a limit of memory is a number of bytes or a text such as '8GB', not {limit!r}")
    number, unit, binary = found.groups()
    return int(float(number) * (1024 if binary else 1000) ** _UNITS[unit.upper()])


def _nameless(folder: str) -> int:
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise DataError(
            f"the folder {folder!r} cannot hold files without names ({error.strerror}): "
            "give set_memory_limit another one as spill"
        ) from None


@cache
def machine() -> str:
    """The running kernel: what descriptors and processes are numbered by."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


# Descriptors of the copies that this process holds of segments of another host, by their names.
delivered: dict[str, int] = {}


class Segment:
    """One anonymous file, which lives as long as this object does in the process that made it.

    In another process it stands for the file that the maker holds.
    """

    def __init__(self, on_disk: bool) -> None:
        self._descriptor = (
            _nameless(_budget.folder) if on_disk else os.memfd_create("grampus-shards", os.MFD_CLOEXEC)
        )
        held = os.fstat(self._descriptor)
        self._path = f"/proc/{os.getpid()}/fd/{self._descriptor}"
        self._identity = (machine(), held.st_dev, held.st_ino)
        # Like no other, on any machine.
        self.name = secrets.token_hex(8)
        # A list, because what is counted when the segment goes is not known when it comes.
        self._counted = [0]
        self._on_disk = on_disk
        weakref.finalize(self, _release, self._descriptor, self._counted).atexit = False

    def count(self) -> None:
        """Count its size among the memory that shards take, now that all is written."""
        if not self._on_disk:
            size = os.fstat(self._descriptor).st_size
            _budget.used += size - self._counted[0]
            self._counted[0] = size

    def open(self, flags: int) -> int:
        """A descriptor of its own, here or in a worker."""
        if self.name in delivered:
            return os.dup(delivered[self.name])
        descriptor = self.open_made(flags)
        if descriptor is None:
            raise DataError(
                "the memory of these shards is not there: it belongs to the driver, on the driver's machine, "
                "and lives only as long as the driver keeps the shards; on other hosts pass shards to an "
                "Estimator or to transform_shard, and other functions the data itself"
            )
        return descriptor

    def open_made(self, flags: int) -> int | None:
        """A descriptor of the file of the process that made it; nothing where that cannot be reached."""
        try:
            descriptor = os.open(self._path, flags | os.O_CLOEXEC)
        except OSError:
            return None
        held = os.fstat(descriptor)
        if (machine(), held.st_dev, held.st_ino) == self._identity:
            return descriptor
        os.close(descriptor)
        return None

    @property
    def length(self) -> int:
        """How many bytes it holds."""
        descriptor = self.open(os.O_RDONLY)
        try:
            return os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)

    def __getstate__(self) -> dict[str, Any]:
        """What another process needs to open it: not the descriptor, which is the maker's."""
        return {"_path": self._path, "_identity": self._identity, "name": self.name}


def _release(descriptor: int, counted: list[int]) -> None:
    os.close(descriptor)
    _budget.used -= counted[0]


class Record(NamedTuple):
    """Where a shard stands in the segments of a room, and what it is."""

    on_disk: bool
    offset: int
    length: int
    form: stored.Form


class Part(NamedTuple):
    """A stored shard."""

    segment: Segment
    offset: int
    length: int
    form: stored.Form

    def load(self) -> Any:
        """The value, over a private mapping: changing it does not change what is stored."""
        descriptor = self.segment.open(os.O_RDONLY)
        try:
            view = _pieces.private_map(descriptor, self.length, self.offset)
        finally:
            os.close(descriptor)
        return stored.read(view, self.form)


class Room:
    """What one process may fill with shards: memory, and a file once its part of the limit is used up."""

    def __init__(self, sharers: int = 1) -> None:
        self._memory = Segment(on_disk=False)
        self._disk: Segment | None = None
        self._allowed: int | None = None
        if _budget.limit is not None:
            self._disk = Segment(on_disk=True)
            self._allowed = max(0, _budget.limit - _budget.used) // sharers

    def writer(self) -> Writer:
        """Open it for writing, in any process of this machine."""
        return Writer(self._memory, self._disk, self._allowed)

    def contents(self) -> Any:
        """What was written into memory, as an array of bytes."""
        import numpy

        descriptor = self._memory.open(os.O_RDONLY)
        try:
            length = os.fstat(descriptor).st_size
            if not length:
                return numpy.empty(0, numpy.uint8)
            return numpy.frombuffer(_pieces.private_map(descriptor, length), numpy.uint8)
        finally:
            os.close(descriptor)

    def parts(self, records: list[Record]) -> list[Part]:
        """The shards that were written, for the process that made the room."""
        self._memory.count()
        places = {False: self._memory, True: self._disk or self._memory}
        return [Part(places[record.on_disk], record.offset, record.length, record.form) for record in records]


class Writer:
    """Writes shards into a room, one after the other."""

    def __init__(self, memory: Segment, disk: Segment | None, allowed: int | None) -> None:
        self._allowed = allowed
        self._memory = memory.open(os.O_RDWR)
        self._disk = None if disk is None else disk.open(os.O_RDWR)

    def __enter__(self) -> Writer:
        """Return the writer itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the descriptors; what was written stays in the room."""
        for descriptor in (self._memory, self._disk):
            if descriptor is not None:
                os.close(descriptor)

    def write(self, value: Any) -> Record:
        """Add a shard; raise what pickling raises."""
        ready = stored.prepare(value)
        offset, descriptor, on_disk = os.lseek(self._memory, 0, os.SEEK_END), self._memory, False
        if self._disk is not None and offset + ready.size > (self._allowed or 0):
            offset, descriptor, on_disk = os.lseek(self._disk, 0, os.SEEK_END), self._disk, True
        # Only a multiple of this can be mapped.
        offset = -(-offset // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
        os.lseek(descriptor, offset, os.SEEK_SET)
        return Record(on_disk, offset, ready.write(descriptor), ready.form)


def adopt(records: list[Record], written: Any) -> list[Part]:
    """Keep what a worker of another host wrote into a room of its own: bytes of an array."""
    segment = Segment(on_disk=exhausted())
    descriptor = segment.open(os.O_RDWR)
    try:
        write_at(descriptor, written, 0)
    finally:
        os.close(descriptor)
    segment.count()
    return [Part(segment, record.offset, record.length, record.form) for record in records]


def write_at(descriptor: int, data: Any, offset: int) -> None:
    """Write all of some bytes; the system takes only so many at once."""
    view = memoryview(data).cast("B")
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written


def store(values: Iterable[Any]) -> list[Part]:
    """Put values into segments, each as a shard."""
    room = Room()
    with room.writer() as writer:
        return room.parts([writer.write(value) for value in values])


def store_at_once(tables: Sequence[Any]) -> list[Part]:
    """Do the same with tables, by several threads, each with a room: the system copies, without Python."""
    threads = max(1, min(_native.host_cores(), len(tables)))
    rooms = [Room(threads) for _ in range(threads)]

    def write(number: int) -> list[Record]:
        with rooms[number].writer() as writer:
            return [writer.write(table) for table in tables[number::threads]]

    with ThreadPoolExecutor(threads) as pool:
        written = list(pool.map(write, range(threads)))
    made = [iter(room.parts(records)) for room, records in zip(rooms, written, strict=True)]
    return [next(made[number % threads]) for number in range(len(tables))]
