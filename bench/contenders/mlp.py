"""What bench/spark.py and bench/ray.py train and ask: a small network on 35 numbers and a label."""

import argparse
import time
from pathlib import Path

import torch
from torch import nn

from by_hand import train_on

FEATURES = [f"x{at}" for at in range(35)]
BATCH = 8192  # over all workers
WORKERS = 2
SEED = 2017
# Seconds: a smoke run may share its machine.
START_WITHIN = 240


def arguments(*flags):
    parser = argparse.ArgumentParser()
    parser.add_argument("data", nargs="?", help="a folder with `columns` and `arrays`, both Parquet")
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--watch", action="store_true", help="measure memory in place of time")
    for flag in flags:
        parser.add_argument(f"--{flag}", action="store_true")
    return parser.parse_args()


def network():
    """Return the network that everybody begins with; who runs it has one thread from here on."""
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    return nn.Sequential(nn.Linear(len(FEATURES), 64), nn.ReLU(), nn.Linear(64, 2))


def optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def train(batches):
    """Train one epoch as one does by hand, as a rank among others; return the mean loss."""
    from torch.distributed import destroy_process_group, init_process_group
    from torch.nn.parallel import DistributedDataParallel

    init_process_group("gloo")
    tuned = {"gradient_as_bucket_view": True, "static_graph": True}
    model = DistributedDataParallel(network(), **tuned)
    rows, total = train_on(model, optimizer(model), nn.CrossEntropyLoss(), batches)
    destroy_process_group()
    return total / rows


class Stamped(torch.optim.SGD):
    """Writes down when it has stepped, for whoever wants to know how long the first step takes to come."""

    def __init__(self, parameters, path):
        super().__init__(parameters, lr=0.01)
        self._path = path

    def step(self, closure=None):
        super().step(closure)
        Path(self._path).write_text(str(time.time()))


def few_rows():
    return torch.zeros(64, len(FEATURES)), torch.zeros(64, dtype=torch.long)


def one_step(path):
    """Make one step with a few rows, as a rank among others."""
    from torch.distributed import destroy_process_group, init_process_group
    from torch.nn.parallel import DistributedDataParallel

    init_process_group("gloo")
    model = DistributedDataParallel(network())
    inputs, targets = few_rows()
    nn.CrossEntropyLoss()(model(inputs), targets).backward()
    Stamped(model.parameters(), path).step()
    destroy_process_group()


def first_step_of_grampus(cluster, path):
    """Start workers and train one step, whose time is stamped; return when that began."""
    import grampus as gp

    began = time.time()
    with gp.init(WORKERS, cluster, start_timeout=START_WITHIN):
        estimator = gp.Estimator.from_torch(
            model=lambda _: network(),
            optimizer=lambda model, _: Stamped(model.parameters(), path),
            loss=nn.CrossEntropyLoss(),
            threads_per_lane=1,
        )
        inputs, targets = few_rows()
        estimator.fit({"x": inputs, "y": targets}, batch_size=len(targets))
    return began
