"""Runs that lose workers: models, losses and data of which a repeated or lost step would change something."""

import os
import signal
import time

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from processes import PATIENCE
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import grampus as gp

ROWS = 96


class Net(nn.Module):
    """All that a step could get wrong if it were repeated: dropout, batch norm, momentum elsewhere."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2)
        )

    def forward(self, x):
        return self.layers(x)


class Deadly(nn.Module):
    """A loss that ends its worker when certain rows come by: each of them once, or always.

    Or not the worker but its parent, or whoever is more `levels` above it.
    """

    def __init__(self, folder, rows=(), how=signal.SIGKILL, always=False, levels=0):
        super().__init__()
        self.folder, self.rows, self.how, self.always = str(folder), rows, how, always
        self.levels = levels

    def forward(self, output, target):
        for row in self.rows:
            if (target[:, 1] == row).any() and self.training and self._first(row):
                self._end()
        return nn.functional.cross_entropy(output, target[:, 0])

    def _end(self):
        process = psutil.Process()
        for _ in range(self.levels):
            process = process.parent()
        process.send_signal(self.how)
        if self.levels:
            # Whoever is above takes a moment to take this one along.
            time.sleep(PATIENCE)

    def _first(self, row):
        if self.always:
            return True
        try:
            os.close(os.open(f"{self.folder}/{row}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True


def arrays():
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, 3, generator=draw)
    y = torch.stack([(x.sum(1) > 0).long(), torch.arange(ROWS)], dim=1)
    return {"x": x, "y": y}


def estimator(loss, workers=3, **settings):
    return gp.Estimator.from_torch(
        model=settings.pop("model", lambda config: Net()),
        optimizer=lambda model, config: torch.optim.AdamW(model.parameters(), lr=0.01),
        scheduler=lambda optimizer, config: torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5),
        loss=loss,
        workers=workers,
        lanes=settings.pop("lanes", 3),
        seed=5,
        **settings,
    )


def loader(config, batch_size):
    data = arrays()
    return DataLoader(TensorDataset(data["x"], data["y"]), batch_size=batch_size, shuffle=True)


def native(data, **columns):
    """A native model that has trained on these rows."""
    model = gp.nn.Sequential(
        gp.nn.Linear(3, 8), gp.nn.BatchNorm1d(8), gp.nn.ReLU(), gp.nn.Dropout(0.3), gp.nn.Linear(8, 2)
    )
    est = gp.Estimator.from_native(
        model=model, loss=gp.nn.CrossEntropy(), optimizer=gp.optim.Adam(lr=0.01), lanes=2, threads_per_lane=1
    )
    est.fit(data, epochs=3, batch_size=12, **columns)
    return est


def native_here(folder):
    """What such a model has become on local workers: a digest of its weights, and what it answers."""

    def run():
        data = arrays()
        est = native({"x": data["x"].numpy(), "y": data["y"][:, 0].numpy()})
        return est.digest(), est.predict(data["x"].numpy())

    return on_local_workers(folder, run)


def on_local_workers(folder, run):
    """What a run gives on two workers of this machine, with one thread each as engines have it."""
    # Workers, which import this module, have no use for it.
    import pytest

    with gp.Cluster.local(2, preload=["torch"], threads=1) as cluster, pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(gp.session, "_session", gp.session._Session())
        gp.init(cluster=cluster)
        return run()


COLUMNS = {"feature_cols": [["x0", "x1", "x2"]], "label_cols": [["y", "id"]]}


def of_every_kind(folder):
    """The same rows as a loader, as shards, kept and streamed, and as a path, each with its columns."""
    data = arrays()
    columns = {f"x{at}": data["x"][:, at].numpy() for at in range(3)}
    table = pa.table(columns | {"y": data["y"][:, 0].numpy(), "id": np.arange(ROWS)})
    path = folder / "t.parquet"
    pq.write_table(table, path, row_group_size=20)
    shards = gp.read_parquet(path)
    return [(loader, {}), (shards, COLUMNS), (shards.stream(2), COLUMNS), (str(path), COLUMNS)]


class Slow(Deadly):
    """Takes its time."""

    def forward(self, output, target):
        time.sleep(0.02)
        return super().forward(output, target)


class KillsAll(gp.callbacks.Logger):
    """Kills all workers once the run is under way, and there is a whole checkpoint if there is to be one."""

    def __init__(self, pids, saved=None):
        self.pids, self.saved = pids, saved

    def event(self, event):
        if event["kind"] == "steps" and (self.saved is None or len(list(self.saved.glob("step-*"))) > 1):
            while self.pids:
                os.kill(self.pids.pop(), signal.SIGKILL)
