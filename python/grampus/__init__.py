"""Grampus makes single-node model code train, evaluate and predict on many workers, unchanged.

>>> import grampus as gp
>>> gp.init(workers=2)                        # doctest: +ELLIPSIS
<grampus.Cluster of 2 workers, job ...>
>>> gp.run(lambda: gp.rank() * 10)
[0, 10]
>>> gp.stop()
"""

from grampus import callbacks, collective, images, metrics, shards, triggers
from grampus._native import __version__
from grampus._training.lanes import lane
from grampus.checkpoint import Checkpoint
from grampus.cluster import Cluster
from grampus.context import local_rank, local_world_size, rank, world_size
from grampus.errors import (
    CallMismatch,
    CheckpointError,
    ClusterError,
    CollectiveError,
    DataError,
    GrampusError,
    NoColumn,
    NotPicklable,
    PeerLost,
    WorkerDied,
    WorkerTraceback,
)
from grampus.estimator import Estimator
from grampus.history import History
from grampus.session import init, run, stop
from grampus.shards import Shards, SharedValue, read_npz

__all__ = [
    "CallMismatch",
    "Checkpoint",
    "CheckpointError",
    "Cluster",
    "ClusterError",
    "CollectiveError",
    "DataError",
    "Estimator",
    "GrampusError",
    "History",
    "NoColumn",
    "NotPicklable",
    "PeerLost",
    "Shards",
    "SharedValue",
    "WorkerDied",
    "WorkerTraceback",
    "__version__",
    "callbacks",
    "collective",
    "images",
    "init",
    "lane",
    "local_rank",
    "local_world_size",
    "metrics",
    "rank",
    "read_npz",
    "run",
    "shards",
    "stop",
    "triggers",
    "world_size",
]
