"""The first batch of many files, with Grampus."""

import torch  # noqa: F401 - imports are done before the clock starts

import grampus as gp
from measured import arguments, report

OPTIONS = arguments()


def read():
    shards = gp.read_parquet(OPTIONS.path).stream()
    batches = shards.to_torch(OPTIONS.batch, shuffle=True, seed=1, feature_cols=["a", "b"], label_cols="y")
    return len(next(iter(batches))[1])


report(read)
