"""Grampus makes single-node model code train, evaluate and predict on many workers, unchanged.

>>> import grampus as gp
>>> gp.init(workers=2)                        # doctest: +ELLIPSIS
<grampus.Cluster of 2 workers, job ...>
>>> gp.run(lambda: gp.rank() * 10)
[0, 10]
>>> gp.stop()
"""

import importlib
from typing import TYPE_CHECKING, Any

from grampus import collective
from grampus._native import __version__
from grampus.cluster import Cluster
from grampus.context import local_rank, local_world_size, rank, world_size
from grampus.errors import (
    CallMismatch,
    CheckpointError,
    ClusterError,
    CollectiveError,
    DataError,
    FeedLost,
    GrampusError,
    NoColumn,
    NotPicklable,
    NotReproducible,
    PeerLost,
    Preempted,
    RunInUse,
    StepTimeout,
    WorkerDied,
    WorkerTraceback,
)
from grampus.session import init, run, stop

if TYPE_CHECKING:
    from grampus import callbacks, columns, images, metrics, models, nn, optim, shards, triggers
    from grampus._training.lanes import lane
    from grampus.checkpoint import Checkpoint
    from grampus.estimator import Estimator
    from grampus.history import History
    from grampus.operators import TrainingOperator
    from grampus.shards import (
        Shards,
        SharedValue,
        read_csv,
        read_images,
        read_json,
        read_npz,
        read_parquet,
    )

# Imported when they are asked for: whoever only starts workers does not wait for them, in any process.
_MODULES = ("callbacks", "columns", "images", "metrics", "models", "nn", "optim", "shards", "triggers")
_HOMES = {
    "Checkpoint": "checkpoint",
    "Estimator": "estimator",
    "History": "history",
    "Shards": "shards",
    "SharedValue": "shards",
    "TrainingOperator": "operators",
    "lane": "_training.lanes",
    "read_csv": "shards",
    "read_images": "shards",
    "read_json": "shards",
    "read_npz": "shards",
    "read_parquet": "shards",
}

__all__ = [
    "CallMismatch",
    "Checkpoint",
    "CheckpointError",
    "Cluster",
    "ClusterError",
    "CollectiveError",
    "DataError",
    "Estimator",
    "FeedLost",
    "GrampusError",
    "History",
    "NoColumn",
    "NotPicklable",
    "NotReproducible",
    "PeerLost",
    "Preempted",
    "RunInUse",
    "Shards",
    "SharedValue",
    "StepTimeout",
    "TrainingOperator",
    "WorkerDied",
    "WorkerTraceback",
    "__version__",
    "callbacks",
    "collective",
    "columns",
    "images",
    "init",
    "lane",
    "local_rank",
    "local_world_size",
    "metrics",
    "models",
    "nn",
    "optim",
    "rank",
    "read_csv",
    "read_images",
    "read_json",
    "read_npz",
    "read_parquet",
    "run",
    "shards",
    "stop",
    "triggers",
    "world_size",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"grampus.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'grampus' has no attribute {name!r}")
    globals()[name] = found = getattr(importlib.import_module(f"grampus.{_HOMES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
