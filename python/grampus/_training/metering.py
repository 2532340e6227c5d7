"""Metrics of lanes: measured apart, merged in order of lanes."""

from __future__ import annotations

from typing import Any

from grampus import metrics

States = dict[str, Any]


def meters(wanted: Any) -> dict[str, Any]:
    """A fresh meter for every metric."""
    return {name: metrics.meter(metric) for name, metric in metrics.named(wanted).items()}


def states(of: dict[str, Any]) -> States:
    """What the meters have measured, ready to travel."""
    return {name: meter.state() for name, meter in of.items()}


def values(wanted: Any, by_lane: list[States]) -> dict[str, Any]:
    """The values over all lanes."""
    found = {}
    for name, metric in metrics.named(wanted).items():
        meter = metrics.meter(metric)
        meter.merge([lane[name] for lane in by_lane])
        found[name] = meter.value()
    return found


def names(wanted: Any) -> list[str]:
    """What the metrics are called."""
    return list(metrics.named(wanted))


def trainable(wanted: Any) -> dict[str, Any]:
    """Metrics that can be measured while a model trains: our own, which keep little and travel as bytes."""
    return {name: metric for name, metric in metrics.named(wanted).items() if isinstance(metric, metrics.Metric)}


def numbers(wanted: Any, by_lane: list[States]) -> dict[str, float]:
    """Those values over all lanes that are numbers."""
    found = values(wanted, by_lane).items()
    return {name: float(value) for name, value in found if isinstance(value, int | float)}
