"""One rank of bench/ddp_lenet.py: trains LeNet-5 on its own rows, alone or with the others."""

import os
import platform
import sys
import time
from datetime import timedelta

import numpy
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from idx import read_idx
from rank_link import linked

BATCH = 64
BATCHES = 100
SEED = 1998


def lenet():
    """Return LeNet-5 as it is usually written today: 61,706 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2),
        nn.Tanh(),
        nn.AvgPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.Tanh(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.Tanh(),
        nn.Linear(120, 84),
        nn.Tanh(),
        nn.Linear(84, 10),
    )


def made_rows(rank):
    """Return rows that can be learned: ten blurred shapes, one a class, under noise."""
    shapes = torch.rand(10, 1, 7, 7, generator=torch.Generator().manual_seed(SEED))
    shapes = nn.functional.interpolate(shapes, size=28, mode="bilinear")
    own = torch.Generator().manual_seed(SEED + 1 + rank)
    labels = torch.randint(10, (BATCH * BATCHES,), generator=own)
    return shapes[labels] + 0.5 * torch.randn(len(labels), 1, 28, 28, generator=own), labels


def read_rows(folder, rank, world):
    """Return this rank's share of MNIST's training rows."""
    images = read_idx(folder, "train-images-idx3-ubyte")[rank::world][: BATCH * BATCHES]
    labels = read_idx(folder, "train-labels-idx1-ubyte")[rank::world][: BATCH * BATCHES]
    rows = torch.from_numpy(images.astype(numpy.float32)).div_(255).sub_(0.1307).div_(0.3081)
    return rows.unsqueeze(1), torch.from_numpy(labels.astype(numpy.int64))


class Training:
    """A model, its rows, and how far it has come."""

    def __init__(self, kind, folder):
        torch.set_num_threads(1)
        torch.use_deterministic_algorithms(True)
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        rows, labels = read_rows(folder, self.rank, self.world) if folder else made_rows(self.rank)
        self.batches = list(zip(rows.split(BATCH), labels.split(BATCH), strict=True))
        self.batches = [pair for pair in self.batches if len(pair[1]) == BATCH]
        self.together = kind != "alone"
        torch.manual_seed(SEED)
        self.model = lenet()
        if self.together:
            torch.distributed.init_process_group(kind, timeout=timedelta(seconds=60))
            self.model = DistributedDataParallel(self.model, gradient_as_bucket_view=True)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.loss = nn.CrossEntropyLoss()
        self.done = 0

    def train(self, steps):
        """Train on; return the seconds and the last loss, to the last bit."""
        if self.together:
            torch.distributed.barrier()
        cpu, began = time.process_time(), time.perf_counter()
        for _ in range(steps):
            rows, labels = self.batches[self.done % len(self.batches)]
            self.optimizer.zero_grad()
            loss = self.loss(self.model(rows), labels)
            loss.backward()
            self.optimizer.step()
            self.done += 1
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        return {"seconds": seconds, "cpu": cpu, "rows": steps * BATCH, "loss": loss.item()}


def main(kind, folder):
    with linked() as link:
        versions = {"torch": str(torch.__version__), "python": platform.python_version()}
        if kind == "grampus":
            import grampus.frameworks.torch_backend

            versions["grampus"] = grampus.__version__
        training = Training(kind, folder)
        link.say(rank=training.rank, versions=versions)
        link.serve({"train": training.train})
        if training.together:
            torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
