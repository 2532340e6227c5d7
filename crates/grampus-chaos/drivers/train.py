"""A run for `grampus-chaos` to disturb: a small model on a few workers, told of in lines of JSON.

Everything that a repeated or lost step would change is in it: dropout, batch norm, momentum, a schedule,
validation. Two things are measured without asking Grampus: workers leave a file under their process id once
they begin, and one byte for every part of a batch that goes through the model.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

import grampus as gp

ROWS = 960
BATCH = 16
# A step takes long enough to be hit, and leaves the processors to those that start.
PAUSE = 0.004
# While a lost host is on its way back, so that the run is not over before.
SLOW_PAUSE = 0.2
# What a worker writes for each part where it is to be heard: a few of them fill all pipes on the way.
TALK = "." * 8000


class Net(nn.Module):
    """A few layers that keep count."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(8, 128),
            nn.BatchNorm1d(128),
            nn.ReLU(),
            nn.Dropout(0.3),
            # So many weights that the workers share the work of a sum: tiny sums go another way.
            nn.Linear(128, 24),
            nn.ReLU(),
            nn.Linear(24, 2),
        )
        self.parts = os.open(f"{folder}/parts", os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC)
        self.orders = Path(folder, "orders")
        if "GRAMPUS_WORKER" in os.environ:
            Path(folder, "workers", str(os.getpid())).touch()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Count, take a while, and compute."""
        if self.training:
            os.write(self.parts, b".")
            self.obey()
        answer: torch.Tensor = self.layers(x)
        return answer

    def obey(self) -> None:
        """Take a while; how long, and what else, `grampus-chaos` says by files."""
        late = self.orders / f"late-{os.getpid()}"
        if late.exists():
            length = float(late.read_text())
            late.unlink()
            time.sleep(length)
        if (self.orders / f"talk-{gp.rank()}").exists():
            print(TALK, flush=True)
        time.sleep(SLOW_PAUSE if (self.orders / "slow").exists() else PAUSE)


class Tells(gp.callbacks.Logger):
    """Prints what the faults are timed and judged by."""

    def event(self, event: dict[str, Any]) -> None:
        """One line for each event that matters."""
        kind = event["kind"]
        if kind == "steps" and event["steps"]:
            tell(kind, step=event["steps"][-1][0])
        elif kind == "begin":
            name = event["resumed_from"]
            step = 0 if name is None else int(name.removeprefix("step-"))
            tell(kind, step=step, workers=event["workers"])
        elif kind == "recovered":
            tell(kind, step=event["step"], workers=event["workers"])
        elif kind in ("lost", "note"):
            tell(kind, text=event["text"])


def tell(kind: str, **more: Any) -> None:
    """Print a line."""
    print(json.dumps({"kind": kind, **more}), flush=True)


def data() -> dict[str, torch.Tensor]:
    """Rows that are the same in every run."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, 8, generator=draw)
    return {"x": x, "y": (x.sum(1) > 0).long()}


def estimator(folder: str, lanes: int) -> gp.Estimator:
    """The model, with all that keeps a state."""
    return gp.Estimator.from_torch(
        model=lambda _: Net(folder),
        optimizer=lambda model, _: torch.optim.AdamW(model.parameters(), lr=0.01),
        scheduler=lambda optimizer, _: torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.7),
        loss=nn.CrossEntropyLoss(),
        metrics=[gp.metrics.Accuracy()],
        lanes=lanes,
        seed=5,
        model_dir=f"{folder}/run",
    )


def main() -> None:
    """Train, and tell how it ended."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--lanes", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True, help="at least so many")
    parser.add_argument("--heartbeat-timeout", type=float, required=True)
    parser.add_argument("--hosts", nargs="*", default=[], help="namespaces that the workers are in")
    parser.add_argument("--address", help="of the driver, as they reach it")
    parser.add_argument("--logs", required=True, help="a folder for the output of each rank")
    parser.add_argument("--resume", action="store_true")
    arguments = parser.parse_args()
    settings = {
        "threads": 1,
        "heartbeat_timeout": arguments.heartbeat_timeout,
        "preload": ["numpy", "torch"],
        "log_dir": arguments.logs,
        # A machine that plays several runs is busy.
        "start_timeout": 180.0,
    }
    if arguments.hosts:
        cluster = gp.Cluster.ssh(
            arguments.hosts,
            arguments.workers,
            command="ip netns exec {host} sh -c {command}",
            address=arguments.address,
            **settings,
        )
        gp.init(cluster=cluster)
    else:
        gp.init(workers=arguments.workers, **settings)
    est = estimator(arguments.folder, arguments.lanes)
    epochs = math.ceil(arguments.steps * BATCH / ROWS)
    history = est.fit(
        data(),
        epochs=epochs,
        batch_size=BATCH,
        validation_data={name: rows[:64] for name, rows in data().items()},
        callbacks=[Tells()],
        checkpoint=gp.Checkpoint(f"{arguments.folder}/saved", every=gp.triggers.EverySteps(20), keep=3),
        resume=arguments.resume,
        max_failures=None,
        audit=True,
    )
    names = ("loss", "accuracy", "val_loss", "val_accuracy", "learning_rate")
    tell(
        "end",
        digest=est.digest(),
        history={name: history[name] for name in names},
        samples=history["samples"],
        rows=ROWS,
        lanes=arguments.lanes,
        steps=epochs * ROWS // BATCH,
    )
    gp.stop()


if __name__ == "__main__":
    main()
