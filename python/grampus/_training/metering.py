"""Metrics of lanes: measured apart, merged in order of lanes."""

from __future__ import annotations

from typing import Any

from grampus import metrics

States = dict[str, Any]


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


def names(wanted: Any) -> list[str]:
    """What the metrics are called."""
    return list(_named(wanted))


def trainable(wanted: Any) -> dict[str, Any]:
    """Metrics that can be measured while a model trains: our own, which keep little and travel as bytes."""
    return {name: metric for name, metric in _named(wanted).items() if isinstance(metric, metrics.Metric)}


def numbers(wanted: Any, by_lane: list[States]) -> dict[str, float]:
    """Those values over all lanes that are numbers."""
    found = values(wanted, by_lane).items()
    return {name: float(value) for name, value in found if isinstance(value, int | float)}
