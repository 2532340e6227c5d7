"""Folders of runs, each claimed by one driver at a time: two of them would write two histories into it.

The claim is a lock that the kernel holds for the process, on a file that names it; whoever is killed lets go,
and the file that stays means nothing. Where there are no locks, as in object stores, nothing is claimed.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grampus.errors import RunInUse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_FILE = ".grampus.lock"
# Workers of a driver that was killed may be saving its run: a little longer than they are given.
_SAVED_WITHIN = 15.0
_LOOK_AGAIN = 0.05


@contextmanager
def claimed(places: Iterable[str | os.PathLike[str] | None]) -> Iterator[None]:
    """Inside, these folders are this driver's; raise `RunInUse` where one is another's."""
    named = [os.fspath(place) for place in places if place is not None]
    with ExitStack() as stack:
        for folder in sorted({Path(place).absolute() for place in named if "://" not in place}):
            stack.enter_context(_claim(folder))
        yield


@contextmanager
def shared(place: str | None) -> Iterator[None]:
    """Inside, a worker holds the claim of its driver, too: it may outlive it for a while."""
    if place is None or "://" in place:
        yield
        return
    descriptor = None
    with suppress(OSError):
        descriptor = os.open(Path(place, _FILE), os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


@contextmanager
def _claim(folder: Path) -> Iterator[None]:
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    path = folder / _FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = _locked(path)
    except OSError:
        # A place that takes no files is named by whoever writes there.
        yield
        return
    try:
        os.ftruncate(descriptor, 0)
        os.write(descriptor, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode())
        # So that workers can hold it as well.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield
    finally:
        with suppress(OSError):
            path.unlink()
            for each in made:
                each.rmdir()
        os.close(descriptor)


def _locked(path: Path) -> int:
    until = time.monotonic() + _SAVED_WITHIN
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        taken = False
        try:
            taken = _takes(descriptor, path, until)
            if taken:
                return descriptor
        finally:
            if not taken:
                os.close(descriptor)


def _takes(descriptor: int, path: Path, until: float) -> bool:
    """Whether the lock is ours now; false where it is worth another try."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = _owner(descriptor)
        if not _is_gone(owner) or time.monotonic() > until:
            raise RunInUse(
                f"{path.parent} is in use by another driver, process {owner.get('pid', '?')} on "
                f"{owner.get('host', '?')}: wait for its end, or give each run a folder of its own"
            ) from None
        time.sleep(_LOOK_AGAIN)
        return False
    return _is_at(path, descriptor)


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether the file is still the one that others find: its last owner may have removed it."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _owner(descriptor: int) -> dict[str, Any]:
    try:
        told: dict[str, Any] = json.loads(os.pread(descriptor, 4096, 0))
    except ValueError:
        # It has just begun.
        return {}
    return told


def _is_gone(owner: dict[str, Any]) -> bool:
    """Whether the driver has ended, and only its workers hold on."""
    return owner.get("host") == socket.gethostname() and not Path(f"/proc/{owner.get('pid')}").exists()
