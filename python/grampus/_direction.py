"""Which way a value in the record of an epoch becomes better.

Metrics declare it themselves (`higher_is_better`); of all other values, only losses have a direction.
"""

from __future__ import annotations

from collections.abc import Mapping

from grampus import _native

#: Names of metrics, and whether more of them is better; `None` where they do not say.
Directions = Mapping[str, bool | None]


def check_mode(mode: str, asks: str) -> None:
    """A mode of `asks` that is known."""
    if mode not in ("auto", "min", "max"):
        raise ValueError(f'mode of {asks} must be "auto", "min" or "max", it is {mode!r}')


def better_way(name: str, metrics: Directions) -> str | None:
    """Which way a value of this name becomes better: `"min"` or `"max"`; `None` where nothing says so.

    >>> better_way("val_loss", {}), better_way("val_f1", {"f1": True}), better_way("val_f1", {})
    ('min', 'max', None)
    """
    higher = _native.higher_is_better(name, dict(metrics))
    return None if higher is None else "max" if higher else "min"


def settled(mode: str, name: str, metrics: Directions, asks: str) -> str:
    """The mode that was asked for; with `"auto"`, that of the metric.

    >>> settled("auto", "val_speed", {"mae": False}, "EarlyStopping('val_speed')")
    Traceback (most recent call last):
    ValueError: EarlyStopping('val_speed') cannot tell whether more or less of 'val_speed' is better: ...
    """
    found = better_way(name, metrics) if mode == "auto" else mode
    if found is None:
        raise ValueError(
            f"{asks} cannot tell whether more or less of {name!r} is better: "
            'pass mode="min" or mode="max"; metrics that say so are '
            f"{', '.join(['loss', *(known for known, way in metrics.items() if way is not None)])}"
        )
    return found
