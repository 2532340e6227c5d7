"""Flips of what Estimators of native models and of Lightning modules are made with: see `option_flips`."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from option_flips import flip, gp_folder

import grampus as gp
from grampus import nn, optim
from grampus.callbacks import Callback

X = np.random.default_rng(5).standard_normal((256, 4)).astype("float32")
ROWS = {"x": X, "y": np.eye(3, dtype="float32")[np.arange(256) % 3]}


class Threads(Callback):
    """Counts those of the worker."""

    def on_step_end(self, run):
        self.count = len(list(Path("/proc/self/task").iterdir()))


def native_model(config):
    """Layers so wide that a second thread is of use."""
    wide = config.get("width", 256)
    return nn.Sequential(nn.Linear(4, wide), nn.Dropout(), nn.Linear(wide, wide), nn.Linear(wide, 3))


def native(**other):
    """What comes of a run."""
    given = {"model": native_model, "loss": nn.MSE(), "optimizer": optim.SGD(lr=0.1)}
    return outcome(gp.Estimator.from_native, ROWS, {**given, **other})


def native_on_new_workers(**other):
    """The same where no thread was started before."""
    gp.stop()
    gp.init(workers=1)
    return native(**other)


def lightning(**other):
    """The same, of a module that says how it computes."""
    import torch
    from lightning import LightningModule

    class Lit(LightningModule):
        def __init__(self, config):
            super().__init__()
            self.net = torch.nn.Sequential(torch.nn.Linear(4, config.get("width", 8)), torch.nn.Dropout())

        def training_step(self, batch, batch_idx):
            output = self.net(batch["x"])
            self.log("threads", float(torch.get_num_threads()))
            self.log("on_host", float(output.device.type == "cpu"))
            return output.square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    return outcome(gp.Estimator.from_lightning, {"x": torch.from_numpy(X)}, {"model": Lit, **other})


def outcome(make, data, options):
    """Weights, what was measured, threads of the worker, and what is in the folder."""
    threads = Threads()
    estimator = make(**{"workers": 1, "seed": 1, "threads_per_lane": 1, **options})
    history = estimator.fit(data, epochs=2, batch_size=128, callbacks=[threads])
    timed = ("seconds", "samples_per_second", "data_wait")
    measured = [{name: record[name] for name in record if name not in timed} for record in history]
    return estimator.digest(), measured, threads.count, sorted(gp_folder().iterdir())


def _flips(see, flips):
    return flip(dict, lambda options: see(**options), flips)


class InFolder(os.PathLike):
    """A folder in that of the test, which is not there yet."""

    def __fspath__(self):
        return str(gp_folder() / "flipped")


BOTH = {
    "config": {"width": 96},
    "workers": 2,
    "model_dir": InFolder(),
    "seed": 2,
    "lanes": 2,
}
FLIPS = {
    "gp.Estimator.from_lightning": _flips(
        lightning, {**BOTH, "threads_per_lane": 2, "precision": "bf16", "device": "cuda"}
    ),
    "gp.Estimator.from_native": {
        **_flips(
            native,
            {
                **BOTH,
                "loss": nn.SmoothL1(),
                "optimizer": optim.Adam(),
                "scheduler": optim.PerEpoch(optim.Step(1, 0.5)),
                "dtype": "float64",
                "groups": [optim.Group(["2"], lr_factor=0.5)],
                "metrics": ["mae"],
            },
        ),
        **_flips(native_on_new_workers, {"threads_per_lane": 2}),
    },
}
