"""The lanes of a run, and those of this worker."""

from __future__ import annotations

import mmap
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from grampus import _native, _report

if TYPE_CHECKING:
    from collections.abc import Iterator

    from grampus.collective import Group


@dataclass(frozen=True)
class Lanes:
    """Who drives what: equal on all workers but for `mine`."""

    group: Group
    mine: range
    total: int
    seed: int
    threads: int

    @classmethod
    def of(
        cls, group: Group, total: int, seed: int, threads: int, shares: dict[str, float] | None = None
    ) -> Lanes:
        """The lanes of this worker; slow ones get a share of what others get."""
        first, end = _native.lanes_of(group.rank, group.size, total)
        if shares:
            sender = _report.sender()
            mine = shares.get(f"{sender['host']}:{sender['pid']}", 1.0)
            told = [float(each) for each in group._native.gather_bytes(repr(mine).encode())]
            first, end = _native.lanes_by(told, total)[group.rank]
        return cls(group, range(first, end), total, seed, threads)

    @property
    def alone(self) -> bool:
        """Whether there is one lane: then everything is as in a loop without Grampus."""
        return self.total == 1


@dataclass(frozen=True)
class Lane:
    """One lane among all: see `grampus.lane`."""

    index: int
    count: int


class _Present:
    """The lane that reads now, and whether anyone has asked for it."""

    def __init__(self) -> None:
        self.lane = Lane(0, 1)
        self.forget()

    def forget(self) -> None:
        """Nobody has asked yet; what is forked to read from here on, as a loader's processes are, may."""
        # New memory each time: workers may share what their common parent had.
        self._asked = mmap.mmap(-1, 1)

    def ask(self) -> Lane:
        self._asked[0] = 1
        return self.lane

    @property
    def asked(self) -> bool:
        return self._asked[0] == 1


_present = _Present()


def lane() -> Lane:
    """The lane for which data is read now: its `index` among the `count` lanes of the run.

    An iterable data set that yields only the rows of its lane reads nothing twice; one that does not ask is
    read whole by every worker, which then takes the rows of its lanes.

    >>> lane()
    Lane(index=0, count=1)
    """
    return _present.ask()


def reading_lane() -> int:
    """The lane that reads now; nobody has thereby asked for it.

    >>> reading_lane()
    0
    """
    return _present.lane.index


@contextmanager
def reading(index: int, count: int) -> Iterator[_Present]:
    """Let `lane` answer for this lane meanwhile."""
    before = _present.lane
    _present.lane = Lane(index, count)
    try:
        yield _present
    finally:
        _present.lane = before
