"""Estimators and rows that tests of Spark and Ray predict."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import torch
from torch import nn

import grampus as gp

ROWS = 200


def table(rows=ROWS):
    """Numbers of several types, texts and lists, which are functions of the number of the row."""
    draws = np.random.default_rng(7)
    lists = draws.standard_normal((rows, 3)).astype("f4")
    return pa.table(
        {
            "id": np.arange(rows),
            "a": draws.standard_normal(rows),
            "b": draws.standard_normal(rows).astype("f4"),
            "c": draws.integers(0, 9, rows).astype("i4"),
            "city": [["Oslo", "Rome", "Lima"][row % 3] for row in range(rows)],
            "list": pa.array(list(lists)),
        }
    )


def prices(rows=48):
    """Prices that are a linear function of two columns, and what another model has said of them before."""
    km, hour = np.linspace(-1, 1, rows), np.cos(np.arange(rows))
    return pa.table({"prediction": ["old"] * rows, "km": km, "hour": hour, "price": 2.5 + 3 * km - hour})


def price_learner(data):
    """An estimator that was trained on them, on the workers of the session."""
    estimator = gp.Estimator.from_torch(
        model=nn.Linear(2, 1), optimizer="sgd", loss=nn.MSELoss(), config={"lr": 0.3}, lanes=2
    )
    estimator.fit(data, epochs=60, batch_size=16, feature_cols=[["km", "hour"]], label_cols=[["price"]])
    return estimator


def mlp(inputs, outputs=2, seed=1, **other):
    """An estimator of a small network, whose weights are its seed's."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(inputs, 8), nn.ReLU(), nn.Linear(8, outputs))
    return gp.Estimator.from_torch(model=model, optimizer="sgd", config={"lr": 0.1}, workers=1, **other)


class Named(nn.Module):
    """Two inputs, and outputs by name: a number a row, and a matrix a row."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(3.0))

    def forward(self, a, b):
        return {"sum": (a + b) * self.scale, "grid": torch.stack([a, b, a, b], 1).reshape(-1, 2, 2)}


def named():
    """An estimator of it."""
    return gp.Estimator.from_torch(model=Named, optimizer="sgd", config={"lr": 0.1}, workers=1)


def answers(estimator, rows):
    """What the model says to these rows in this process."""
    with torch.no_grad():
        return estimator.get_model()(torch.as_tensor(np.asarray(rows, "f4"))).numpy()


def numbers(column):
    """A column of lists as a matrix."""
    return np.array(column.to_pylist(), "f4")


class Noted(nn.Module):
    """A model that notes in which process it is made."""

    def __init__(self, config):
        super().__init__()
        self.layer = nn.Linear(1, 1)
        with open(config["notes"], "a") as file:
            file.write(f"{os.getpid()}\n")

    def forward(self, a):
        return self.layer(a[:, None])


class Heavy(nn.Module):
    """A linear model that carries 11 MB besides."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 1)
        # Spark compresses what it sends: zeros would be next to nothing.
        self.ballast = nn.Parameter(torch.rand(2_800_000))

    def forward(self, rows):
        return self.layer(rows)
