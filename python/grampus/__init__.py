"""Grampus makes single-node model code train, evaluate and predict on many workers, unchanged.

>>> import grampus as gp
>>> gp.init(workers=2)                        # doctest: +ELLIPSIS
<grampus.Cluster of 2 workers, job ...>
>>> gp.run(lambda: gp.rank() * 10)
[0, 10]
>>> gp.stop()
"""

from grampus import collective
from grampus._native import __version__
from grampus.cluster import Cluster
from grampus.context import local_rank, local_world_size, rank, world_size
from grampus.errors import (
    CallMismatch,
    CheckpointError,
    ClusterError,
    CollectiveError,
    GrampusError,
    NotPicklable,
    PeerLost,
    WorkerDied,
    WorkerTraceback,
)
from grampus.session import init, run, stop

__all__ = [
    "CallMismatch",
    "CheckpointError",
    "Cluster",
    "ClusterError",
    "CollectiveError",
    "GrampusError",
    "NotPicklable",
    "PeerLost",
    "WorkerDied",
    "WorkerTraceback",
    "__version__",
    "collective",
    "init",
    "local_rank",
    "local_world_size",
    "rank",
    "run",
    "stop",
    "world_size",
]
