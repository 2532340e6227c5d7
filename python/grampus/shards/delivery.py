"""Memory of shards on other hosts than the driver's: each host gets it once, and its workers share the copy.

The driver hands what no worker can open to the first one, in pieces. When a call begins, all workers tell
each other what they can open. Where a host lacks something, one of its workers gets it from a worker that has
it, over a group of theirs, and the others of that host open its descriptor. Copies go when the call has
ended; those of a call that is to be repeated stay, so that a worker that replaces another finds them.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from grampus import collective
from grampus.errors import DataError, FeedLost, GrampusError
from grampus.shards import segments as held
from grampus.shards.batches import Packed, Rows
from grampus.shards.segments import machine, write_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from grampus.cluster import Cluster
    from grampus.collective import Group
    from grampus.shards.collection import Shards
    from grampus.shards.segments import Part, Segment

# Bytes that travel at once: no process has more of them twice.
_PIECE = 32 << 20
_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
# Copies of which some has arrived: descriptor, and how many bytes.
_arriving: dict[str, tuple[int, int]] = {}


@dataclass
class Load:
    """Memory that a call needs on every host."""

    segment: Segment
    length: int
    # Known where the links between workers are not sealed: shards may be pickles, which can run code.
    digest: bytes | None = None


def loads_of(segments: Iterable[Segment]) -> list[Load]:
    """Each of these once, with its length; what is empty, nobody reads."""
    found = {segment.name: segment for segment in segments}
    loads = [Load(segment, segment.length) for segment in found.values()]
    return [load for load in loads if load.length]


def loads_of_parts(parts: Iterable[Part]) -> list[Load]:
    """The same for shards."""
    return loads_of(part.segment for part in parts)


def sent(value: Any, shards: Shards) -> tuple[Any, list[Load]]:
    """What a model reads, as workers of other hosts can, and what they need for it."""
    if isinstance(value, Packed):
        return value, loads_of([value.segment])
    if not isinstance(value, Rows) or value.window is not None:
        return value, []
    if value.paths is not None:
        # Other hosts need not have the files.
        value = replace(value, parts=shards._computed(), paths=None)
    return value, loads_of_parts(value.parts or [])


def deliver(cluster: Cluster, loads: list[Load]) -> None:
    """Let some worker have what none can open; called by the driver."""
    if not loads:
        return
    found = cluster._call(_openable, (loads,), {}, None, least=1)
    # A call of one worker waits for all of them; where some are missing, one of two does not.
    most = 1 if len(found) == cluster.workers else 2
    for load in loads:
        if load.digest is None and any(plain for _, plain in found):
            descriptor = load.segment.open(os.O_RDONLY)
            load.digest = _digest(descriptor, load.length)
            os.close(descriptor)
        if not any(load.segment.name in names for names, _ in found):
            _hand_over(cluster, load, most)


@contextlib.contextmanager
def released(cluster: Cluster, loads: list[Load]) -> Iterator[None]:
    """Inside, the driver calls what reads them; where that fails for good, workers let them go."""
    try:
        yield
    except Exception:
        if loads:
            with contextlib.suppress(GrampusError):
                cluster._call(_let_go, (set(),), {}, None, least=1)
        raise


def _hand_over(cluster: Cluster, load: Load, most: int) -> None:
    import numpy

    descriptor = load.segment.open(os.O_RDONLY)
    try:
        arrived = 0
        while arrived < load.length:
            piece = numpy.empty(min(_PIECE, load.length - arrived), numpy.uint8)
            _read_at(descriptor, piece, arrived)
            # Another process, which replaces the one that had the pieces before, begins anew.
            arrived = cluster._call(_arrive, (load, arrived, piece), {}, most, least=1)[0]
    finally:
        os.close(descriptor)


def _openable(loads: list[Load]) -> tuple[list[str], bool]:
    """What this worker can open, and whether links to others are not sealed."""
    _let_go({load.segment.name for load in loads})
    return [load.segment.name for load in loads if _opens(load)], _is_plain()


def _is_plain() -> bool:
    return os.environ.get("GRAMPUS_COLLECTIVE_SECURITY") == "plain"


def _digest(descriptor: int, length: int) -> bytes:
    import numpy

    found = hashlib.blake2b(digest_size=32)
    buffer = numpy.empty(min(_PIECE, length), numpy.uint8)
    for start in range(0, length, _PIECE):
        piece = buffer[: length - start]
        _read_at(descriptor, piece, start)
        found.update(piece.data)
    return found.digest()


def _arrive(load: Load, start: int, piece: Any) -> int:
    """Take a piece that continues what is here already; return how many bytes are here then."""
    name = load.segment.name
    if name in held.delivered:
        return load.length
    descriptor, arrived = _arriving.pop(name) if name in _arriving else (_memory(), 0)
    try:
        if start == arrived:
            write_at(descriptor, piece, start)
            arrived += len(piece)
    finally:
        _arriving[name] = descriptor, arrived
    if arrived == load.length:
        del _arriving[name]
        _take(name, descriptor)
    return arrived


@contextlib.contextmanager
def brought(loads: list[Load], group: Group) -> Iterator[None]:
    """Inside, the segments open on every worker of a group, all of which must come here.

    Whoever fails keeps its copies: the call may be repeated.
    """
    _bring(loads, group)
    yield
    _let_go(set())


def _bring(loads: list[Load], group: Group) -> None:
    # What is read twice, as to train and to validate, comes once.
    loads = list({load.segment.name: load for load in loads}.values())
    _let_go({load.segment.name for load in loads})
    if not loads:
        return
    # Workers of one host that cannot open what the others have get copies of their own.
    for alone in (False, True):
        told = _told(loads, group, alone)
        if all(len(state.found) == len(loads) for state in told):
            return
        _spread(loads, group, told)
        told = _told(loads, group, alone)
        for load in loads:
            if not _opens(load):
                _open_beside(load, told, group.rank)


class _State(NamedTuple):
    """What a worker tells the others: its host, and where what it has is found there."""

    home: str
    # By the name of a segment: process, descriptor, and the device and number of the file.
    found: dict[str, list[int]]


def _told(loads: list[Load], group: Group, alone: bool) -> list[_State]:
    found = {}
    for name in (load.segment.name for load in loads if _opens(load)):
        file = os.fstat(held.delivered[name])
        found[name] = os.getpid(), held.delivered[name], file.st_dev, file.st_ino
    space = Path("/proc/self/ns/pid").stat().st_ino
    home = f"rank {group.rank}" if alone else f"{machine()} {space} {os.getuid()}"
    told = group._native.gather_bytes(json.dumps([home, found]).encode())
    return [_State(*json.loads(each)) for each in told]


def _spread(loads: list[Load], group: Group, told: list[_State]) -> None:
    """Have one worker of each host that has none get a copy."""
    groups: dict[tuple[int, ...], Group] = {}
    for load in loads:
        name = load.segment.name
        having = [rank for rank, state in enumerate(told) if name in state.found]
        if not having:
            raise FeedLost("rows of shards are gone with the workers that held them", [])
        supplied = {told[rank].home for rank in having}
        takers: dict[str, int] = {}
        for rank, state in enumerate(told):
            if state.home not in supplied:
                takers.setdefault(state.home, rank)
        ranks = tuple(sorted([having[0], *takers.values()]))
        if takers and group.rank in ranks:
            if ranks not in groups:
                groups[ranks] = collective.new_group(ranks)
            _broadcast(load, groups[ranks], ranks.index(having[0]))
    for formed in groups.values():
        formed.close()


def _broadcast(load: Load, group: Group, root: int) -> None:
    import numpy

    name, sends = load.segment.name, group.rank == root
    descriptor = held.delivered[name] if sends else _memory()
    try:
        buffer = numpy.empty(min(_PIECE, load.length), numpy.uint8)
        for start in range(0, load.length, _PIECE):
            piece = buffer[: load.length - start]
            if sends:
                _read_at(descriptor, piece, start)
            group.broadcast(piece, root)
            if not sends:
                write_at(descriptor, piece, start)
        if not sends and _is_plain() and _digest(descriptor, load.length) != load.digest:
            raise DataError(
                "rows of shards were changed on their way from another worker: leave out "
                "GRAMPUS_COLLECTIVE_SECURITY, or set it on all hosts alike"
            )
    except BaseException:
        if not sends:
            os.close(descriptor)
        raise
    if not sends:
        _take(name, descriptor)


def _open_beside(load: Load, told: list[_State], rank: int) -> None:
    """Open what another worker of this host has."""
    name = load.segment.name
    for state in told:
        if state.home != told[rank].home or name not in state.found:
            continue
        process, number, *meant = state.found[name]
        with contextlib.suppress(OSError):
            descriptor = os.open(f"/proc/{process}/fd/{number}", os.O_RDONLY | os.O_CLOEXEC)
            file = os.fstat(descriptor)
            if [file.st_dev, file.st_ino] == meant:
                held.delivered[name] = descriptor
                return
            # Another process has that number in the table that is seen here.
            os.close(descriptor)


def _opens(load: Load) -> bool:
    """Whether this process has it; from the driver's memory it is taken along as it is met."""
    name = load.segment.name
    if name not in held.delivered:
        descriptor = load.segment.open_made(os.O_RDONLY)
        if descriptor is not None:
            held.delivered[name] = descriptor
    return name in held.delivered


def _memory() -> int:
    return os.memfd_create("grampus-shards", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)


def _take(name: str, descriptor: int) -> None:
    """Let a copy that is whole be found; nobody can change it any more."""
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    held.delivered[name] = descriptor


def _let_go(names: set[str]) -> None:
    """Close all that is not among these; memory in which an array lies stays until that goes."""
    for name in held.delivered.keys() - names:
        os.close(held.delivered.pop(name))
    for name in _arriving.keys() - names:
        os.close(_arriving.pop(name)[0])


def _read_at(descriptor: int, buffer: Any, offset: int) -> None:
    """Fill an array of bytes; the system gives only so many at once."""
    view = memoryview(buffer)
    while view:
        count = os.preadv(descriptor, [view], offset)
        if not count:
            raise EOFError("the memory of shards is shorter than it was")
        view, offset = view[count:], offset + count
