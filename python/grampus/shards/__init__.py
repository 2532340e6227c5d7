"""A collection cut into shards, which functions of the user pass through on the workers.

>>> import numpy as np, grampus as gp
>>> shards = gp.Shards.partition({"x": np.arange(6), "y": np.ones(6)}, num_shards=2)
>>> shards["x"].collect()
[array([0, 1, 2]), array([3, 4, 5])]
>>> gp.stop()
"""

from grampus._arguments import suggest
from grampus.shards.collection import Shards
from grampus.shards.readers import read_csv, read_images, read_json, read_npz, read_parquet
from grampus.shards.scalers import MinMaxScaler, StandardScaler, StringIndexer
from grampus.shards.segments import set_memory_limit
from grampus.shards.shared_value import SharedValue

__all__ = [
    "MinMaxScaler",
    "Shards",
    "SharedValue",
    "StandardScaler",
    "StringIndexer",
    "read_csv",
    "read_images",
    "read_json",
    "read_npz",
    "read_parquet",
    "set_memory_limit",
]


suggest(globals())
