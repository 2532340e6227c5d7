"""What trackers have kept of runs, read back from their files."""

from __future__ import annotations

import json
import struct

from mlflow import MlflowClient
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from wandb.proto.wandb_internal_pb2 import Record

# W&B's files are cut into blocks, and no head of a record is cut.
_BLOCK = 32768
_HEAD = struct.Struct("<IHB")


def mlflow_runs(uri):
    """All runs of all experiments, oldest first."""
    client = MlflowClient(uri)
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    return client, client.search_runs(experiments, order_by=["attributes.start_time"])


def mlflow_curve(uri, run, name):
    """Steps and values."""
    return [
        (point.step, point.value) for point in MlflowClient(uri).get_metric_history(run.info.run_id, name)
    ]


def wandb_runs(folder):
    """Of each file, oldest first: the run's id, its config, its rows, and its exit code."""
    return [_wandb_run(path) for path in sorted(folder.glob("wandb/offline-run-*/*.wandb"))]


def _wandb_run(path):
    found = {"id": None, "config": {}, "rows": [], "exit": None}
    for record in _records(path.read_bytes()):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            found["id"] = record.run.run_id
            found["project"], found["name"] = record.run.project, record.run.display_name
            updates = record.run.config.update
        elif kind == "config":
            updates = record.config.update
        elif kind == "exit":
            found["exit"] = record.exit.exit_code
            continue
        elif kind == "history":
            items = record.history.item
            found["rows"].append({_name(item): json.loads(item.value_json) for item in items})
            continue
        else:
            continue
        found["config"] |= {_name(item): json.loads(item.value_json) for item in updates}
    return found


def _name(item):
    return item.key or "/".join(item.nested_key)


def _records(content):
    at, whole = 7, b""  # after the mark of the file
    while at + _HEAD.size <= len(content):
        if _BLOCK - at % _BLOCK < _HEAD.size:
            at += _BLOCK - at % _BLOCK
            continue
        _, length, kind = _HEAD.unpack_from(content, at)
        at += _HEAD.size
        whole += content[at : at + length]
        at += length
        if kind in (1, 4):  # a whole record, or the last part of one
            record = Record()
            record.ParseFromString(whole)
            yield record
            whole = b""


def wandb_curve(run, name):
    """Steps and values."""
    return [(row["step"], row[name]) for row in run["rows"] if name in row]


def board(folder):
    """What TensorBoard reads."""
    return EventAccumulator(str(folder), {"images": 0, "scalars": 0}).Reload()


def board_curve(read, name):
    """Steps and values."""
    return [(point.step, point.value) for point in read.Scalars(name)]
