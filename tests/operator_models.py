"""Operators of users, and estimators that use them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import torch
from small_models import rows
from torch import nn
from torch.nn.functional import softplus

import grampus as gp

ROWS = 100


class Plain(nn.Module):
    """No dropout, no statistics: what comes out depends on the rows alone."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, x):
        return self.layers(x)


def data():
    return rows(ROWS, seed=1)


class Steps(gp.TrainingOperator):
    """One step for each batch; counts them in a state of its own."""

    def setup(self, config):
        self.seen = 0
        self.factor = config.get("factor", 1.0)

    def train_batch(self, batch, batch_info):
        self.seen += 1
        output = self.model(batch["x"])
        loss = self.criterion(output, batch["y"]) * self.factor
        self.optimizer.zero_grad()
        self.backward(loss)
        self.optimizer.step()
        told = {"train_loss": loss.item(), "num_samples": len(output), "seen": self.seen}
        right = (output.argmax(1) == batch["y"]).float().mean()
        return {**told, "right": right, "asked": batch_info.get("asked", 0), "place": batch_info["batch_idx"]}

    def state_dict(self):
        return {"seen": self.seen, "tensor": torch.tensor([self.seen])}

    def load_state_dict(self, state_dict):
        assert state_dict["tensor"].tolist() == [state_dict["seen"]]
        self.seen = state_dict["seen"]


class Epochs(gp.TrainingOperator):
    """Goes through the batches itself."""

    def train_epoch(self, iterator, info):
        count, total = 0, 0.0
        for batch in iterator:
            loss = self.criterion(self.model(batch["x"]), batch["y"])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            count, total = count + len(batch["y"]), total + loss.item() * len(batch["y"])
        return {"train_loss": total / count, "num_samples": count, "epoch_was": info["epoch_idx"]}


class Gan(gp.TrainingOperator):
    """Two models and two optimizers: the second step needs what the first has done."""

    def setup(self, config):
        self.deadly = config.get("deadly")

    def train_batch(self, batch, batch_info):
        (generator, judge), (of_generator, of_judge) = self.models, self.optimizers
        real = batch["x"]
        fake = generator(torch.randn(len(real), 4))
        of_judge.zero_grad()
        judged = softplus(-judge(real)).mean() + softplus(judge(fake.detach())).mean()
        judged.backward()
        of_judge.step()
        if self.deadly is not None and self.world_rank == 1 and batch_info["global_step"] == 6:
            died_here = Path(self.deadly)
            if not died_here.exists():
                died_here.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        of_generator.zero_grad()
        made = softplus(-judge(fake)).mean()
        made.backward()
        of_generator.step()
        return {"loss_g": made.item(), "loss_d": judged.item(), "num_samples": len(real)}

    def predict_batch(self, batch):
        return self.models[0](batch)


def adam(model, config):
    return torch.optim.Adam(model.parameters(), lr=config.get("lr", 0.01))


def estimator(operator, **other):
    given = {
        "model": Plain,
        "optimizer": adam,
        "loss": nn.CrossEntropyLoss(),
        "training_operator_cls": operator,
        "threads_per_lane": 1,
        "seed": 1,
    }
    return gp.Estimator.from_torch(**{**given, **other})


def by_hand(epochs, batch_size, seed=1):
    """The same training on one lane, without an operator."""
    plain = estimator(None, workers=1, seed=seed)
    history = plain.fit(data(), epochs=epochs, batch_size=batch_size)
    return plain, history


def gan(**other):
    given = {
        "model": lambda config: [nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))],
        "optimizer": lambda models, config: [adam(model, config) for model in models],
        "loss": None,
    }
    return estimator(Gan, **{**given, **other})
