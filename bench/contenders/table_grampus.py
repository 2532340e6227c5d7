"""A table to shuffled batches with Grampus."""

import torch  # noqa: F401 - everybody's imports are done before the clock starts

import grampus as gp
from measured import arguments, report

OPTIONS = arguments()


def read():
    shards = gp.read_parquet(OPTIONS.path)
    features = [name for name in shards.columns if name != "label"]
    batches = shards.to_torch(OPTIONS.batch, shuffle=True, seed=1, feature_cols=features, label_cols="label")
    return sum(len(labels) for _, labels in batches)


report(read)
