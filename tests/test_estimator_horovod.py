"""`backend="horovod"`: Horovod itself sums the gradients, and nothing of it stays."""

import os
import socket
import threading

import plain_loop
import psutil
import pytest
import torch
from clusters import one_cluster, scratch  # noqa: F401 - a fixture
from torch import nn

import grampus as gp

pytest.importorskip(
    "horovod.torch", reason="Horovod is not installed, or was built without PyTorch", exc_type=ImportError
)


runtime = one_cluster(workers=3)


def points(rows=47):
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(rows, 6, generator=generator)
    return {"x": x, "y": x[:, :2] ** 2}


def squared(output, target):
    return nn.functional.mse_loss(output, target)


def sgd(model, config):
    return torch.optim.SGD(model.parameters(), lr=0.05)


def estimator(model, **options):
    options = {"workers": 2, "threads_per_lane": 1, "seed": 7, "backend": "horovod", **options}
    return gp.Estimator.from_torch(model=model, optimizer=sgd, loss=squared, **options)


class Net(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2))

    def forward(self, x):
        return self.layers(x)


class Mixed(nn.Module):
    """Parameters of several types; few rows use one, no rows another; one has sparse gradients."""

    def __init__(self, config):
        super().__init__()
        self.words = nn.Embedding(9, 2, sparse=True)
        self.wide, self.narrow = nn.Linear(6, 2).double(), nn.Linear(6, 2).bfloat16()
        self.rare, self.never = nn.Linear(6, 2), nn.Linear(6, 2)

    def forward(self, x):
        output = self.words((x[:, 0] * 4).long().clamp(0, 8)) + self.wide(x.double()).float()
        output = output + self.narrow(x.bfloat16()).float()
        rows = (x[:, 1] > 1.3).nonzero()[:, 0]
        return output.index_add(0, rows, self.rare(x[rows])) if len(rows) else output


@pytest.mark.parametrize("model", [Net, Mixed])
def test_two_fits_in_a_row_end_where_grampus_ends(model):
    found = []
    for backend in ("grampus", "horovod"):
        made = estimator(model, backend=backend)
        for _ in range(2):
            made.fit(points(), batch_size=8)
        found.append((made.state_dict(), made.evaluate(points())["loss"]))
    plain_loop.assert_close(found[0][0], found[1][0], rtol=1e-4, atol=1e-5)
    assert found[0][1] == pytest.approx(found[1][1], rel=1e-3)
    first = estimator(model).state_dict()
    unused = [name for name, value in found[1][0].items() if torch.equal(value, first[name])]
    assert unused == [name for name in first if name.startswith("never.")]


class CountSums(gp.callbacks.Callback):
    def __init__(self):
        self.sizes = []
        self.sums = 0

    def on_run_begin(self, run):
        import horovod.torch as hvd

        self.real = hvd.allreduce_

        def counting(*arguments, **named):
            self.sums += 1
            return self.real(*arguments, **named)

        hvd.allreduce_ = counting

    def on_step_end(self, run):
        import horovod.torch as hvd

        self.sizes.append(hvd.size())

    def on_run_end(self, run):
        import horovod.torch as hvd

        hvd.allreduce_ = self.real
        del self.real


def test_it_is_horovod_that_sums():
    count = CountSums()
    estimator(Net).fit(points(40), batch_size=8, callbacks=[count])
    # The gradients of a step, and its loss.
    assert (count.sizes, count.sums) == ([2] * 5, 10)


def holdings():
    import horovod.torch as hvd

    return {
        "initialized": hvd.is_initialized(),
        "variables": sorted(name for name in os.environ if name.startswith(("HOROVOD", "NCCL"))),
        "threads": threading.active_count(),
        "connections": len(psutil.Process().net_connections()),
    }


def test_nothing_stays_in_the_workers():
    estimator(Net).fit(points(), batch_size=8)
    before = gp.run(holdings, workers=2)
    assert not any(found["initialized"] or found["variables"] for found in before)
    for _ in range(2):
        estimator(Net).fit(points(), batch_size=8)
    assert gp.run(holdings, workers=2) == before


def test_another_number_of_workers_in_the_same_processes():
    estimator(Net).fit(points(), batch_size=8)
    made = estimator(Net, workers=3)
    history = made.fit(points(45), batch_size=9)
    assert [worker["rows"] for worker in history.workers] == [15, 15, 15]


class FailsOnOne(Net):
    def forward(self, x):
        if gp.rank() == 1:
            raise ArithmeticError("one worker cannot go on")
        return super().forward(x)


def test_an_error_of_one_worker_is_told_and_the_next_run_works():
    # That Horovod has ended on the other worker is often seen first.
    for _ in range(5):
        with pytest.raises(ArithmeticError, match="one worker cannot go on"):
            estimator(FailsOnOne).fit(points(), batch_size=8)
    assert len(estimator(Net).fit(points(), batch_size=8)) == 1


def starts_horovod(config):
    import horovod.torch as hvd

    hvd.init()
    return Net(config)


def stop_horovod():
    import horovod.torch as hvd

    hvd.shutdown()


def test_horovod_that_was_started_alone():
    try:
        with pytest.raises(RuntimeError, match=r"found 1 of 2 workers: leave it out"):
            estimator(starts_horovod).fit(points(), batch_size=8)
    finally:
        gp.run(stop_horovod)


def test_it_needs_a_lane_a_worker():
    with pytest.raises(ValueError, match=r"backend='horovod' needs as many lanes as workers.*'grampus'"):
        estimator(Net, lanes=4).fit(points())


def test_a_host_that_others_cannot_reach_by_its_name(monkeypatch):
    from grampus.frameworks import _torch_horovod

    monkeypatch.setattr(socket, "gethostbyname", lambda name: "127.0.1.1")
    with pytest.raises(RuntimeError, match=r"leads to 127\.0\.1\.1: .* or use backend='grampus'"):
        _torch_horovod._check_own_name()
