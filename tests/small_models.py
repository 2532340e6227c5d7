"""Small estimators of torch models, for tests of what happens around training."""

from __future__ import annotations

import torch

import grampus as gp
from grampus import metrics

ROWS = 64


class Net(torch.nn.Module):
    """It draws random numbers in every step, and keeps statistics of batches."""

    def __init__(self, config=None):
        super().__init__()
        width = (config or {}).get("width", 8)
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(4, width),
            torch.nn.BatchNorm1d(width),
            torch.nn.ReLU(),
            torch.nn.Dropout(0.25),
            torch.nn.Linear(width, 3),
        )

    def forward(self, x):
        return self.layers(x)


def rows(count=ROWS, seed=0):
    """Rows of three classes that a line cannot tell apart."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 4, generator=generator)
    return {"x": x, "y": (x[:, 0] * x[:, 1] > 0).long() + (x[:, 2] > 0.5).long()}


def adam(model, config):
    return torch.optim.Adam(model.parameters(), lr=config.get("lr", 0.01))


def falling(optimizer, config):
    return torch.optim.lr_scheduler.StepLR(optimizer, config.get("every", 3), 0.9)


def classifier(**other):
    """An estimator that has all that a resumed run could forget."""
    given = {
        "model": Net,
        "optimizer": adam,
        "loss": torch.nn.CrossEntropyLoss(),
        "metrics": [metrics.Accuracy()],
        "scheduler": falling,
        "scheduler_step_freq": "batch",
        "seed": 3,
        "lanes": 4,
        "threads_per_lane": 1,
    }
    given |= other
    if given["scheduler"] is None:
        del given["scheduler_step_freq"]
    return gp.Estimator.from_torch(**given)


def line(**other):
    """An estimator of one weight and no chance: what its steps do can be told by hand."""
    given = {
        "model": lambda config: _at_zero(torch.nn.Linear(1, 1, bias=False)),
        "optimizer": lambda model, config: torch.optim.SGD(model.parameters(), lr=config.get("lr", 0.1)),
        "loss": torch.nn.MSELoss(),
        "lanes": 2,
        "threads_per_lane": 1,
    }
    return gp.Estimator.from_torch(**{**given, **other})


def _at_zero(module):
    for parameter in module.parameters():
        torch.nn.init.zeros_(parameter)
    return module


def points(count=16):
    """Points of y = 3x, all the same: every batch has the same gradient."""
    x = torch.ones(count, 1)
    return {"x": x, "y": 3 * x}


def weight(estimator):
    """The one weight of `line`."""
    return next(iter(estimator.state_dict().values())).item()


def measured(history):
    """Records without what depends on the clock."""
    timed = {"seconds", "samples_per_second", "data_wait"}
    return [{name: value for name, value in record.items() if name not in timed} for record in history]
