"""Sums of some sizes, to each of which the last rank comes late: first without a deadline, then beyond one.

Each rank, or the driver, writes a line of JSON for each: size, deadline, rank, seconds, and the error.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import numpy as np

import grampus as gp

# Many of these programs may start at once on a busy machine.
START_TIMEOUT = 240.0
# Since when this process waits for the late rank, if it is one of them.
_waits_since = None


def add_up(count, late, deadline):
    """Sum twice; the last rank is late to the second sum. Return for how long it was waited for."""
    global _waits_since
    group = gp.collective.form() if deadline is None else gp.collective.form(deadline=deadline)
    last = group.size - 1
    array = np.empty(count, "float32")
    for pause in (0.0, late):
        array[:] = group.rank + 1
        began = _waits_since = time.monotonic()
        if group.rank == last:
            time.sleep(pause)
        group.all_reduce(array)
        wanted = group.size * (group.size + 1) / 2
        assert (array == wanted).all(), f"the sum is {array[0]}, not {wanted}"
    return time.monotonic() - began


def add_up_in_torch(count, late, deadline):
    """The same with torch.distributed, whose timeout is the deadline."""
    import torch
    import torch.distributed as dist

    global _waits_since
    limit = {} if deadline is None else {"timeout": timedelta(seconds=deadline)}
    # Torch's store of the meeting before may still listen at its port: each meeting has its own.
    os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 1)
    dist.init_process_group("grampus", **limit)
    try:
        last = dist.get_world_size() - 1
        for pause in (0.0, late):
            array = torch.full((count,), dist.get_rank() + 1.0)
            began = _waits_since = time.monotonic()
            if dist.get_rank() == last:
                time.sleep(pause)
            dist.all_reduce(array)
            assert (array == (last + 1) * (last + 2) / 2).all(), "the sum is wrong"
        return time.monotonic() - began
    finally:
        dist.destroy_process_group()


def train(count, late, deadline):
    """Train a model of so many weights; the last worker is late in its third step. Return its seconds."""
    import torch
    from torch import nn

    marker = Path(f"was-late-{count}-{deadline}").absolute()

    class Late(nn.Module):
        def __init__(self):
            super().__init__()
            self.weights = nn.Parameter(torch.zeros(count))
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            if self.calls == 3 and gp.rank() == gp.world_size() - 1 and not marker.exists():
                marker.touch()
                time.sleep(late)
            return self.weights.mean() + x

    class Losses(gp.callbacks.Logger):
        def __init__(self):
            self.told = []

        def event(self, event):
            if event["kind"] == "lost":
                self.told.append(event["text"])

    losses = Losses()
    x = torch.ones(64, 1)
    estimator = gp.Estimator.from_torch(
        model=lambda config: Late(), optimizer="sgd", loss=nn.MSELoss(), config={"lr": 0.1}, seed=1
    )
    limit = {} if deadline is None else {"step_timeout": deadline}
    began = time.monotonic()
    estimator.fit({"x": x, "y": x}, epochs=1, batch_size=8, callbacks=[losses], **limit)
    assert marker.exists(), "nobody was late"
    assert not losses.told, f"workers were lost: {losses.told}"
    return time.monotonic() - began


def each_case(arguments, rank, call):
    """Make all calls in turn, and write what came of each."""
    global _waits_since
    cases = [(arguments.late, None), (arguments.late_beyond, arguments.deadline)]
    for size in arguments.sizes:
        for late, deadline in cases:
            _waits_since, error = time.monotonic(), None
            try:
                waited = call(size // 4, late, deadline)
            except Exception as raised:
                error, waited = f"{type(raised).__name__}: {raised}", time.monotonic() - _waits_since
            told = {"size": size, "deadline": deadline, "rank": rank, "seconds": waited, "error": error}
            with open(arguments.results, "a") as results:
                results.write(json.dumps(told) + "\n")


def drive(arguments):
    """On a cluster, from its driver."""
    in_fit = arguments.what == "fit"
    cluster = gp.Cluster.ssh(
        arguments.hosts,
        arguments.each * len(arguments.hosts),
        command="ip netns exec {host} sh -c {command}",
        address=arguments.address,
        start_timeout=START_TIMEOUT,
        threads=1,
        preload=["numpy", "torch"] if in_fit else ["numpy"],
    )
    gp.init(cluster=cluster)
    # What it takes to start is not waited for below.
    gp.run(gp.rank)
    if in_fit:
        each_case(arguments, None, train)
    else:
        each_case(arguments, None, lambda *case: max(gp.run(add_up, *case)))
    gp.stop()


def take_part(arguments):
    """As one rank of `grampus run`."""
    sums = add_up_in_torch if arguments.what == "torch" else add_up
    each_case(arguments, int(os.environ["RANK"]), sums)


def main():
    """Read what to do, and do it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["fit", "run", "ranks", "torch"])
    parser.add_argument("--results", required=True)
    parser.add_argument("--sizes", type=lambda text: [int(size) for size in text.split(",")], required=True)
    parser.add_argument("--late", type=float, required=True)
    parser.add_argument("--deadline", type=float, required=True)
    parser.add_argument("--late-beyond", type=float, required=True, help="late where there is a deadline")
    parser.add_argument("--each", type=int, help="workers of a host")
    parser.add_argument("--hosts", nargs="*", help="where the workers of a cluster are")
    parser.add_argument("--address", help="of the driver, as they reach it")
    arguments = parser.parse_args()
    (drive if arguments.what in ("fit", "run") else take_part)(arguments)


if __name__ == "__main__":
    sys.exit(main())
