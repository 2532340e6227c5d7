"""Metrics of lanes: measured apart, merged in order of lanes."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

from grampus import metrics

if TYPE_CHECKING:
    from grampus.collective import Group

States = dict[str, Any]

# States of a worker, in bytes, up to which they are sent about with every step.
_LARGEST = 64 << 10


# What else stands beside the metrics in a result.
_TAKEN = ("loss", "num_samples")


def _named(wanted: Any) -> dict[str, Any]:
    found = {} if wanted is None else metrics.named(wanted)
    for name in _TAKEN:
        if name in found:
            raise ValueError(
                f"a metric is called {name!r}, as is another part of the result: give it another name"
            )
    return found


def meters(wanted: Any) -> dict[str, Any]:
    """A fresh meter for every metric."""
    return {name: metrics.meter(metric) for name, metric in _named(wanted).items()}


def states(of: dict[str, Any]) -> States:
    """What the meters have measured, ready to travel."""
    return {name: meter.state() for name, meter in of.items()}


def values(wanted: Any, by_lane: list[States]) -> dict[str, Any]:
    """The values over all lanes."""
    found = {}
    for name, metric in _named(wanted).items():
        found[name] = metrics.meter(metric).merge([lane[name] for lane in by_lane]).value()
    return found


def directions(wanted: Any) -> dict[str, bool | None]:
    """What the metrics are called, and whether more of each is better, where that is known."""
    return metrics.directions(_named(wanted))


def trainable(wanted: Any) -> dict[str, Any]:
    """Metrics that can be measured while a model trains: our own, which keep little and travel as bytes."""
    own = {name: metric for name, metric in _named(wanted).items() if isinstance(metric, metrics.Metric)}
    return {name: metric for name, metric in own.items() if metric.in_training}


def numbers(wanted: Any, by_lane: list[States]) -> dict[str, float]:
    """Those values over all lanes that are numbers."""
    found = values(wanted, by_lane).items()
    return {name: float(value) for name, value in found if isinstance(value, int | float)}


class Tally:
    """What metrics have counted on all lanes, up to the last step that was done.

    Every worker has it: a lane whose worker is lost goes on elsewhere from what it had counted.
    """

    def __init__(self, group: Group, shares: bool) -> None:
        """Of the workers of a group; without `shares`, each has its own lanes only."""
        self._group = group
        self.shares = shares and group.size > 1
        self._known: dict[int, States] = {}
        self._told: list[bytes] = []
        self._offered: list[bytes] = []

    def begin(self, known: dict[int, States]) -> None:
        """Lanes have counted this so far."""
        self._known, self._told = known, []

    def offer(self, meters: dict[int, dict[str, Any]]) -> None:
        """Let all workers have what the lanes have counted with the step under way. It does not count yet."""
        if self.shares:
            self._offered = self._group._native.gather_bytes(pickle.dumps(by_lane(meters)))

    def commit(self) -> None:
        """The step is done."""
        if not self._offered:
            return
        self._told, self._offered = self._offered, []
        # Metrics that keep their rows would slow the run down more and more. All workers see it at once.
        self.shares = max(map(len, self._told)) <= _LARGEST

    def states(self, meters: dict[int, dict[str, Any]]) -> dict[int, States]:
        """What the lanes have counted: all of them, or those of these meters where nothing is shared."""
        if not self.shares:
            return by_lane(meters)
        # Peers of the group have proved the key of the job.
        return {**self._known, **{lane: of for part in self._told for lane, of in pickle.loads(part).items()}}


def by_lane(meters: dict[int, dict[str, Any]]) -> dict[int, States]:
    """What the meters of lanes have measured."""
    return {lane: states(of) for lane, of in meters.items()}


def gathered(group: Group, mine: dict[int, States]) -> list[States] | None:
    """What all lanes have measured, in their order, at the first worker alone: functions keep every row."""
    if group.size == 1:
        return [mine[lane] for lane in sorted(mine)]
    import numpy as np

    told = group.gather(np.frombuffer(bytearray(pickle.dumps(mine)), np.uint8))
    if told is None:
        return None
    # Peers of the group have proved the key of the job.
    return [states for _, states in sorted(item for part in told for item in pickle.loads(part).items())]
