"""Workers that are slower than the others: each tells its own times, and the driver compares them."""

from __future__ import annotations

import statistics
import time
from typing import Any, NamedTuple

from grampus import _native, _notice, _report

# What a worker does by itself; in the other phases it waits for the others.
_OWN = ("data", "forward", "backward")
# Seconds of which a worker tells at once, and how often in a row it must be slow: what lasts less is noise.
_WINDOW = 0.5
_IN_A_ROW = 4
# So many times the median of the others, and so many seconds of a step more, are slow.
_TIMES = 3.0
_SECONDS = 0.01


class Stopwatch:
    """Measures the own time of this worker."""

    def __init__(self, lanes: int, step: int) -> None:
        """It drives so many lanes, and so many steps are done."""
        self._lanes = lanes
        self._last = self._now(step)

    def _now(self, step: int) -> tuple[float, int, dict[str, float]]:
        return time.monotonic(), step, {phase: _native.spent(phase) for phase in _OWN}

    def read(self, step: int) -> dict[str, Any] | None:
        """What to tell of the time since the last answer; nothing as long as that is too short."""
        began, before, spent = self._last
        if time.monotonic() - began < _WINDOW or step == before:
            return None
        self._last = self._now(step)
        lane_steps = (step - before) * self._lanes
        seconds = {phase: (total - spent[phase]) / lane_steps for phase, total in self._last[2].items()}
        return {"lanes": self._lanes, "seconds": seconds, **_report.sender()}


class Pace(NamedTuple):
    """How long a rank takes for a step of one lane, by phase."""

    lanes: int
    seconds: dict[str, float]
    host: str
    pid: int

    @property
    def own(self) -> float:
        """In all phases together."""
        return sum(self.seconds.values())

    @property
    def worker(self) -> str:
        """Which worker it is: ranks may change."""
        return f"{self.host}:{self.pid}"


class Slow(NamedTuple):
    """A worker that is slow, and in what."""

    rank: int
    pace: Pace
    phase: str
    factor: float

    def __str__(self) -> str:
        """In words."""
        return (
            f"rank {self.rank} on {self.pace.host} (pid {self.pace.pid}) takes {self.factor:.1f} times as "
            f"long as the others, most of it in {self.phase}"
        )


def slow(rank: int, paces: dict[int, Pace]) -> Slow | None:
    """Whether a rank is slow among all.

    >>> quick, late = ({"data": 0.001, "forward": 0.002, "backward": 0.002} for _ in range(2))
    >>> late["data"] = 0.1
    >>> paces = {0: Pace(1, quick, "here", 7), 1: Pace(1, late, "there", 8)}
    >>> print(slow(1, paces))
    rank 1 on there (pid 8) takes 20.8 times as long as the others, most of it in data
    >>> slow(0, paces)
    """
    mine = paces[rank]
    others = [pace for other, pace in paces.items() if other != rank]
    if not others:
        return None
    usual = statistics.median(pace.own for pace in others)
    more = mine.own - usual
    if mine.own < _TIMES * usual or more * mine.lanes < _SECONDS:
        return None
    excess = {
        phase: seconds - statistics.median(pace.seconds[phase] for pace in others)
        for phase, seconds in mine.seconds.items()
    }
    return Slow(rank, mine, max(excess, key=lambda phase: excess[phase]), mine.own / max(usual, 1e-6))


class Paces:
    """The paces of all ranks of a call."""

    def __init__(self, ranks: int, named: set[str]) -> None:
        """`named` are workers that have been named in earlier calls; it grows here."""
        self._ranks = ranks
        self._named = named
        self._paces: dict[int, Pace] = {}
        self._in_a_row: dict[int, int] = {}

    def hear(self, rank: int, told: dict[str, Any]) -> Slow | None:
        """Take what a rank tells; a worker that has been slow for long enough is returned once."""
        self._paces[rank] = Pace(**{name: told[name] for name in Pace._fields})
        if len(self._paces) < self._ranks:
            return None
        found = slow(rank, self._paces)
        self._in_a_row[rank] = 0 if found is None else self._in_a_row.get(rank, 0) + 1
        if found is None or self._in_a_row[rank] < _IN_A_ROW or found.pace.worker in self._named:
            return None
        self._named.add(found.pace.worker)
        return found


def leave(workers: set[str]) -> None:
    """Let this worker go, if it is among them."""
    told = _report.sender()
    if f"{told['host']}:{told['pid']}" in workers:
        _notice.give()
        _report.leaves()
