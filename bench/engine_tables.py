"""Tables that bench/spark.py and bench/ray.py read, and how their figures are laid beside each other."""

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path

from turns import Contender

FEATURES = 35


def make_tables(folder: Path, rows: int) -> Path:
    """Write the same rows twice, once: as 35 columns of doubles, and as one of arrays of floats."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    where = folder / f"rows-{rows}"
    draw = np.random.default_rng(1)
    for part in range(2):
        paths = [where / kind / f"part-{part}.parquet" for kind in ("columns", "arrays")]
        if all(path.exists() for path in paths):
            continue
        numbers = draw.normal(size=(rows // 2, FEATURES))
        label = (numbers.sum(axis=1) > 0).astype(np.int64)
        columns = {f"x{at}": np.ascontiguousarray(numbers[:, at]) for at in range(FEATURES)}
        lists = pa.FixedSizeListArray.from_arrays(numbers.astype(np.float32).reshape(-1), FEATURES)
        arrays = {"features": lists.cast(pa.list_(pa.float32())), "label": label}
        for path, table in zip(paths, ({**columns, "label": label}, arrays), strict=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.table(table), path, row_group_size=100_000)
    return where
