"""Numbers as people read them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# What an epoch's record holds besides the loss and the metrics, and how it is called in tables.
BOOKKEEPING = {
    "epoch": "epoch",
    "samples": "samples",
    "seconds": "seconds",
    "samples_per_second": "samples/s",
    "data_wait": "data wait",
    "learning_rate": "lr",
    "steps": "steps",
    "val_num_samples": "val samples",
}


def measures(record: Mapping[str, Any]) -> list[str]:
    """Names of the losses and metrics of a record, those of one number.

    >>> measures({"epoch": 1, "loss": 0.5, "accuracy": 0.8, "seconds": 3.2, "confusion": [[1, 0], [0, 1]]})
    ['loss', 'accuracy']
    """
    return [name for name, value in record.items() if name not in BOOKKEEPING and is_number(value)]


def without_validation(name: str, record: Mapping[str, Any]) -> str:
    """What to add where a name is missed that only a validation measures, and there was none.

    >>> without_validation("val_loss", {"loss": 0.5})
    '; pass validation_data='
    >>> without_validation("val_acc", {"loss": 0.5, "val_loss": 0.6})
    ''
    """
    validated = any(known.startswith("val_") for known in record)
    return "; pass validation_data=" if name.startswith("val_") and not validated else ""


def curves(record: Mapping[str, Any]) -> dict[str, float]:
    """What trackers draw at the end of an epoch; the curve of the loss has a point for every step.

    >>> curves({"epoch": 1, "loss": 0.5, "accuracy": 0.8, "val_loss": 0.6, "data_wait": 0.1})
    {'train/accuracy': 0.8, 'validation/loss': 0.6, 'data_wait': 0.1}
    """
    found = {}
    for name in measures(record):
        if name.startswith("val_"):
            found[f"validation/{name.removeprefix('val_')}"] = record[name]
        elif name != "loss":
            found[f"train/{name}"] = record[name]
    speeds = ("samples_per_second", "data_wait")
    return found | {name: record[name] for name in speeds if is_number(record.get(name))}


def is_number(value: object) -> bool:
    """Whether it can be drawn and compared."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def figure(value: Any) -> str:
    """A value of a loss or metric, as wide for one epoch as for the next.

    >>> [figure(value) for value in (0.5, 12.34567, 5357.1, 0.00012, 60000, float("nan"))]
    ['0.5000', '12.3457', '5,357', '1.20e-04', '60,000', 'nan']
    """
    if not isinstance(value, float):
        return f"{value:,}" if is_number(value) else str(value)
    size = abs(value)
    if not math.isfinite(value):
        return str(value)
    if size >= 1000:
        return f"{value:,.0f}"
    return f"{value:.2e}" if 0 < size < 1e-3 else f"{value:.4f}"


def cell(name: str, value: Any) -> str:
    """A value of a record, in the manner of its name.

    >>> cell("data_wait", 0.021), cell("learning_rate", 0.001), cell("loss", None)
    ('2%', '0.001', '')
    """
    if value is None:
        return ""
    if name == "data_wait" and is_number(value):
        return f"{value:.0%}"
    if name == "learning_rate" and is_number(value):
        return f"{value:.3g}"
    if name == "samples_per_second" and is_number(value):
        return f"{value:,.0f}"
    if name == "seconds" and is_number(value):
        return f"{value:.1f}"
    return figure(value)


def duration(seconds: float) -> str:
    """Hours, minutes and seconds.

    >>> duration(5), duration(75.6), duration(3600 * 26)
    ('0:05', '1:16', '26:00:00')
    """
    whole = round(seconds)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def count(number: float, noun: str) -> str:
    """A number of things.

    >>> count(1, "epoch"), count(4690, "step"), count(0.5, "GPU"), count(2.0, "GPU")
    ('1 epoch', '4,690 steps', '0.5 GPUs', '2 GPUs')
    """
    figure = int(number) if number == int(number) else number
    return f"{figure:,} {noun}{'' if number == 1 else 's'}"


def columns(records: Iterable[Mapping[str, Any]]) -> list[str]:
    """All names that occur in the records, in the order in which they first do."""
    return list(dict.fromkeys(name for record in records for name in record))


def best_of(seen: Sequence[tuple[int, float]], min_delta: float, mode: str) -> tuple[int, float]:
    """Epoch and value of the best that was seen: the first that no later one beats by `min_delta`.

    >>> best_of([(1, 0.5), (2, 0.4), (3, 0.39)], 0.05, "min")
    (2, 0.4)
    """
    sign = 1.0 if mode == "min" else -1.0
    best = seen[0]
    for epoch, value in seen[1:]:
        # No number is worse than any number.
        if sign * value < sign * best[1] - min_delta or (math.isnan(best[1]) and not math.isnan(value)):
            best = (epoch, value)
    return best
