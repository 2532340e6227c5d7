"""What tests of estimators share: one cluster a file, and models that tell which rows they saw."""

from __future__ import annotations

from pathlib import Path

import torch
from clusters import one_cluster, scratch  # noqa: F401 - a fixture of those who import this
from torch import nn
from torch.utils.data import Dataset, IterableDataset

import grampus as gp

WORKERS = 3

runtime = one_cluster(WORKERS)


class Seen(nn.Module):
    """A model of one weight that writes the first value of each row to a file, a line for each batch."""

    def __init__(self, config):
        super().__init__()
        self.folder = Path(config["folder"])
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x):
        name = "trained" if self.training else "judged"
        note(self.folder / name, x.reshape(len(x), -1)[:, 0].tolist())
        return x * self.weight


def note(path, values):
    """Add a line; several processes may."""
    with path.open("a") as file:
        file.write(" ".join(f"{value:g}" for value in values) + "\n")


def lines(path):
    """What was noted."""
    if not path.exists():
        return []
    return [tuple(float(word) for word in line.split()) for line in path.read_text().splitlines()]


def values(path):
    """All that was noted, sorted."""
    return sorted(value for line in lines(path) for value in line)


def seeing(folder, **settings):
    """An estimator whose model writes to the folder, and never changes."""
    settings = {"optimizer": "sgd", "loss": nn.MSELoss(), **settings}
    return gp.Estimator.from_torch(
        model=Seen, config={"lr": 0.0, "folder": str(folder), **settings.pop("config", {})}, **settings
    )


def numbers(count):
    """Rows that are their own number, as features and as target."""
    return torch.arange(count, dtype=torch.float32).unsqueeze(1)


class Rows(Dataset):
    """The same as a data set."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, row):
        return torch.tensor([float(row)]), torch.tensor([float(row)])


class RowsTogether(Rows):
    """The same, read several at once."""

    def __getitem__(self, row):
        raise AssertionError("rows must be read together")

    def __getitems__(self, rows):
        return [Rows.__getitem__(self, row) for row in rows]


class Stream(IterableDataset):
    """The same as a stream."""

    def __init__(self, count):
        self.count = count

    def __iter__(self):
        for row in range(self.count):
            yield torch.tensor([float(row)]), torch.tensor([float(row)])


class StreamOfLane(Stream):
    """The same, where each lane reads rows of its own: the last lane reads the most."""

    def __iter__(self):
        lane = gp.lane()
        first, end = (self.count * at * at // lane.count**2 for at in (lane.index, lane.index + 1))
        for row in range(first, end):
            yield torch.tensor([float(row)]), torch.tensor([float(row)])
