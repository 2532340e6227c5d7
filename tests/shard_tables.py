"""Random tables with all that makes tables hard: nulls, NaN, unicode, categories, dates, nested lists."""

import datetime

import numpy as np
import pyarrow as pa

WORDS = ["", "a", "b", "ß", "zażółć", "日本", "🐬", "A", "a "]


def random_table(seed, rows=None):
    """Equal seeds give equal tables; few different values, so that keys meet."""
    draw = np.random.default_rng(seed)
    rows = int(draw.integers(1, 60)) if rows is None else rows

    def column(values, kind=None):
        gaps = draw.random(rows) < draw.choice([0.0, 0.3])
        picked = [values[place] for place in draw.integers(0, len(values), rows)]
        return pa.array([None if gap else value for gap, value in zip(gaps, picked, strict=True)], kind)

    days = [datetime.date(1969, 12, 31), datetime.date(2024, 2, 29), datetime.date(2100, 1, 1)]
    moments = [datetime.datetime(2020, 1, 1, 0, 0, second) for second in range(3)]
    lists = [[], [1], [1, 2], [None, 3]]
    return pa.table(
        {
            "key": column(WORDS),
            "small": column(list(range(-3, 4)), pa.int64()),
            "wide": column([0, 2**62, -(2**62)], pa.int64()),
            "real": column([0.0, -0.0, 1.5, -2.25, 1e300, float("inf")], pa.float64()),
            "flag": column([True, False]),
            "kind": column(["red", "green", "blue"]).dictionary_encode(),
            "day": column(days),
            "moment": column(moments, pa.timestamp("us")),
            "list": column(lists, pa.list_(pa.int64())),
            "row": pa.array(np.arange(rows)),
        }
    )


def lines(table, columns=None):
    """Rows as plain values, for comparing."""
    table = table if columns is None else table.select(columns)
    return [tuple(row.values()) for row in table.to_pylist()]


def without_nan(values):
    return [None if isinstance(value, float) and value != value else value for value in values]
