"""Equal lanes, seed and threads give equal bits for all numbers of workers, and those of a plain loop."""

import random
import sys

import numpy as np
import plain_loop
import pytest
import torch
from clusters import one_cluster, scratch  # noqa: F401 - a fixture
from lane_models import (
    Attending,
    Codebook,
    Convolving,
    Counted,
    Counting,
    Double,
    Drawing,
    Dropping,
    Half,
    Recurrent,
    Replacing,
)
from torch import nn

import grampus as gp

LANES = 4
TIMES = {"seconds", "samples_per_second", "data_wait"}


runtime = one_cluster(workers=4)


def points(rows=203, features=8, classes=3):
    """Rows that are a multiple of nothing."""
    generator = torch.Generator().manual_seed(11)
    x = torch.randn(rows, features, generator=generator)
    return {"x": x, "y": (x[:, :classes] + 0.1).argmax(1)}


def images(rows=45):
    generator = torch.Generator().manual_seed(12)
    return {
        "x": torch.randn(rows, 3, 8, 8, generator=generator),
        "y": torch.randint(0, 3, (rows,), generator=generator),
    }


def values(rows=61, features=4):
    generator = torch.Generator().manual_seed(13)
    x = torch.randn(rows, features, generator=generator)
    return {"x": x, "y": x.sum(1, keepdim=True) ** 2}


def cross_entropy(output, target):
    return nn.functional.cross_entropy(output, target)


def squared(output, target):
    return nn.functional.mse_loss(output, target)


def adam(model, config):
    return torch.optim.Adam(model.parameters(), lr=0.01)


def sgd(model, config):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def decaying(optimizer, config):
    return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)


def estimator(model, optimizer=sgd, loss=cross_entropy, **options):
    options = {"workers": 1, "threads_per_lane": 1, "seed": 5, **options}
    return gp.Estimator.from_torch(model=model, optimizer=optimizer, loss=loss, **options)


def fitted(model, data, workers, *, epochs=1, batch_size=32, lanes=LANES, **options):
    made = estimator(model, workers=workers, lanes=lanes, **options)
    made.fit(data, epochs=epochs, batch_size=batch_size)
    return made


def digests(model, data, worker_counts=(1, 2, 3, 4), **options):
    return {workers: fitted(model, data, workers, **options).digest() for workers in worker_counts}


def assert_all_equal(found):
    assert len(set(found.values())) == 1, found


def test_equal_weights_history_and_answers_with_1_2_3_and_4_workers():
    data = points()
    found = []
    for workers in (1, 2, 3, 4):
        made = estimator(
            Dropping,
            adam,
            workers=workers,
            lanes=LANES,
            scheduler=decaying,
            scheduler_step_freq="batch",
            metrics=[gp.metrics.Accuracy()],
        )
        history = made.fit(data, epochs=3, batch_size=32, validation_data=data)
        assert len({worker["pid"] for worker in history.workers}) == workers
        assert all(worker["rows"] > 0 for worker in history.workers)
        assert sum(worker["rows"] for worker in history.workers) == 3 * 203
        records = [{k: v for k, v in record.items() if k not in TIMES} for record in history]
        found.append((made.digest(), records, made.evaluate(data), made.predict(data["x"]).tolist()))
    for workers, other in enumerate(found[1:], start=2):
        for what, one, two in zip(
            ("weights", "history", "evaluate", "predict"), found[0], other, strict=True
        ):
            assert one == two, f"{what} at {workers} workers"
    # The run has learnt something: equal nonsense is easy.
    assert found[0][1][-1]["val_accuracy"] > 0.6


@pytest.mark.parametrize("lanes", [3, 5, 7])
def test_any_number_of_lanes(lanes):
    # 206 = 6 * 32 + 14 rows: the last batch leaves lanes empty, and none with a single row.
    found = digests(Dropping, points(206), range(1, min(lanes, 4) + 1), lanes=lanes)
    assert_all_equal(found)


@pytest.mark.parametrize(
    "model", [Recurrent, Attending, Drawing, Counting, Replacing, Codebook, Double, Half]
)
def test_every_kind_of_model(model):
    # 2 and 3 workers drive 2 lanes, or unequally many.
    found = digests(model, points(77), (1, 2, 3), batch_size=16)
    assert_all_equal(found)


def test_convolutions():
    assert_all_equal(digests(Convolving, images(), (1, 2, 4), batch_size=20, optimizer=adam))


@pytest.mark.parametrize("model", [Counting, Replacing, Codebook])
def test_buffers_are_those_of_lane_0(model):
    weights = fitted(model, points(77), 2, batch_size=16).state_dict()
    name = {"Codebook": "codes"}.get(model.__name__, "seen")
    # The rows of lane 0: the first quarter of each batch.
    seen = torch.zeros(8)
    for x, _ in plain_loop.batches(points(77), 16, 5, 0):
        mine = x[: min(4, len(x))]
        seen = (0.9 * seen if model is Replacing else seen) + mine.mean(0)
    torch.testing.assert_close(weights[name][-1] if model is Codebook else weights[name], seen)


class Caching(nn.Module):
    """Makes one buffer when it is first used, and another anew for more rows than ever."""

    def __init__(self, config=None):
        super().__init__()
        self.layer, self.norm = nn.Linear(8, 3), nn.BatchNorm1d(8)
        self.register_buffer("places", torch.arange(2.0), persistent=False)

    def forward(self, x):
        if not hasattr(self, "mask"):
            self.register_buffer("mask", torch.linspace(0, 1, 8), persistent=False)
        if len(self.places) < len(x):
            self.places = torch.arange(float(len(x)))
        return self.layer(self.norm(x) * self.mask) + 0.01 * self.places[: len(x), None]


def test_buffers_that_are_made_within_a_step():
    # Lanes of one batch have different numbers of rows.
    assert_all_equal(digests(Caching, points(), batch_size=30, epochs=2))


def test_evaluation_depends_on_no_worker_and_changes_nothing():
    data, found = points(77), []
    for workers in (1, 2, 4):
        made = estimator(Counted, workers=workers, lanes=LANES)
        history = made.fit(data, epochs=2, batch_size=16, validation_data=data)
        predicted = made.predict(data["x"], batch_size=16).tolist()
        found.append((made.digest(), history["val_loss"], made.evaluate(data, batch_size=16), predicted))
    assert found[0] == found[1] == found[2]
    unwatched = estimator(Counted, workers=2, lanes=LANES)
    unwatched.fit(data, epochs=2, batch_size=16)
    assert unwatched.digest() == found[0][0]


class Augmented(torch.utils.data.Dataset):
    def __init__(self):
        self.data = points(50)

    def __len__(self):
        return len(self.data["y"])

    def __getitem__(self, row):
        noise = torch.rand(8) + random.random() + float(np.random.rand())
        return self.data["x"][row] + 0.1 * noise, self.data["y"][row]


def test_random_numbers_of_a_data_set_belong_to_the_lane():
    assert_all_equal(digests(Dropping, Augmented(), batch_size=16, epochs=2))


class Echo(nn.Linear):
    """Answers with what it is asked."""

    def __init__(self, config):
        super().__init__(1, 1)

    def forward(self, x):
        return x


class Backwards(torch.utils.data.Sampler):
    def __iter__(self):
        return iter(range(299, -1, -1))

    def __len__(self):
        return 300


@pytest.mark.parametrize("workers", [1, 3])
def test_answers_come_in_the_order_of_the_questions(workers):
    rows = torch.arange(300.0).unsqueeze(1)
    made = estimator(Echo, workers=workers, lanes=LANES)
    dataset = torch.utils.data.TensorDataset(rows)
    for options, expected in (
        ({"shuffle": False}, rows),
        ({"shuffle": True}, rows),
        ({"sampler": Backwards()}, rows.flip(0)),
    ):
        loader = torch.utils.data.DataLoader(dataset, batch_size=16, **options)
        assert torch.equal(made.predict(loader, batch_size=None), expected), options


class Noisy(torch.optim.SGD):
    """Adds noise to the weights."""

    def step(self, closure=None):
        super().step(closure)
        with torch.no_grad():
            for parameter in self.param_groups[0]["params"]:
                parameter.add_(torch.randn(parameter.shape), alpha=0.01 * random.random())


def noisy(model, config):
    return Noisy(model.parameters(), lr=0.05)


def test_an_optimizer_draws_alike_on_all_workers():
    found = digests(Drawing, points(77), (1, 2, 4), optimizer=noisy, batch_size=16, epochs=2)
    assert_all_equal(found)
    halves = estimator(Drawing, noisy, workers=2, lanes=LANES)
    for _ in range(2):
        halves.fit(points(77), batch_size=16)
    assert halves.digest() == found[1]


@pytest.mark.filterwarnings("ignore:batch_size=3 leaves")
def test_fewer_rows_than_lanes():
    data = points(20)
    assert_all_equal(digests(linear_net, data, batch_size=3))
    plain = plain_loop.train(linear_net, sgd, cross_entropy, data, seed=5, batch_size=3)
    made = fitted(linear_net, data, 4, batch_size=3)
    plain_loop.assert_close(made.state_dict(), plain.state_dict())


# One lane


def linear_net(config):
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))


def momentum(model, config):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01, nesterov=True)


def adamw(model, config):
    return torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)


@pytest.mark.parametrize(
    ("model", "optimizer", "scheduled"),
    [(linear_net, momentum, "batch"), (linear_net, adamw, "epoch"), (Dropping, adam, "batch")],
)
def test_one_lane_is_a_plain_loop(model, optimizer, scheduled):
    made = estimator(model, optimizer, lanes=1, scheduler=decaying, scheduler_step_freq=scheduled)
    made.fit(points(), epochs=2, batch_size=32)
    plain = plain_loop.train(
        model,
        optimizer,
        cross_entropy,
        points(),
        seed=5,
        epochs=2,
        scheduler=decaying,
        per_batch=scheduled == "batch",
    )
    assert plain_loop.same_bits(made.state_dict(), plain.state_dict()) == []


def by_norm(parameters):
    nn.utils.clip_grad_norm_(parameters, 0.1)


def by_value(parameters):
    nn.utils.clip_grad_value_(parameters, 0.01)


@pytest.mark.parametrize("clip", [by_norm, by_value])
@pytest.mark.parametrize("lanes", [1, 2])
def test_clipping(clip, lanes):
    made = estimator(linear_net, lanes=lanes, workers=lanes)
    if clip is by_norm:
        made.set_l2_norm_gradient_clipping(0.1)
    else:
        made.set_constant_gradient_clipping(-0.01, 0.01)
    made.fit(points(), batch_size=32)
    plain, unclipped = (
        plain_loop.train(linear_net, sgd, cross_entropy, points(), seed=5, clip=each).state_dict()
        for each in (clip, None)
    )
    if lanes == 1:
        assert plain_loop.same_bits(made.state_dict(), plain) == []
    else:
        plain_loop.assert_close(made.state_dict(), plain)
    assert plain_loop.same_bits(plain, unclipped)
    made.clear_gradient_clipping()
    again = estimator(linear_net, lanes=1)
    again.fit(points(), batch_size=32)
    assert plain_loop.same_bits(again.state_dict(), unclipped) == []


# Several lanes


@pytest.mark.parametrize(("lanes", "workers"), [(2, 1), (3, 2), (4, 4)])
@pytest.mark.parametrize("optimizer", [momentum, adamw])
def test_several_lanes_are_a_plain_loop_to_rounding(lanes, workers, optimizer):
    made = fitted(linear_net, points(), workers, lanes=lanes, optimizer=optimizer, epochs=2)
    plain = plain_loop.train(linear_net, optimizer, cross_entropy, points(), seed=5, epochs=2)
    plain_loop.assert_close(made.state_dict(), plain.state_dict(), rtol=1e-3, atol=1e-4)


CLASS_WEIGHTS = torch.tensor([0.0, 1.0, 50.0])


def weighted(output, target):
    return nn.functional.cross_entropy(output, target, weight=CLASS_WEIGHTS)


def weight_of(batch):
    return CLASS_WEIGHTS[batch["y"]].sum()


def test_loss_weight_makes_a_weighted_loss_that_of_the_whole_batch():
    data = points()
    plain = plain_loop.train(linear_net, sgd, weighted, data, seed=5)
    made = fitted(linear_net, data, 2, loss=weighted, loss_weight=weight_of)
    plain_loop.assert_close(made.state_dict(), plain.state_dict())
    by_rows = fitted(linear_net, data, 2, loss=weighted)
    with pytest.raises(AssertionError):
        plain_loop.assert_close(by_rows.state_dict(), plain.state_dict(), rtol=0.01, atol=0.01)
    with torch.no_grad():
        whole = weighted(made.get_model()(data["x"]), data["y"]).item()
    assert made.evaluate(data)["loss"] == pytest.approx(whole, rel=1e-5)


def test_a_lane_that_weighs_nothing_counts_as_zero():
    data = points(64)
    data["y"][:] = torch.tensor([0, 1]).repeat(32)
    # Lanes of 2 rows: the weighted mean over two rows of class 0 is not a number.
    made = fitted(linear_net, data, 2, loss=weighted, loss_weight=weight_of, batch_size=8)
    plain = plain_loop.train(linear_net, sgd, weighted, data, seed=5, batch_size=8)
    plain_loop.assert_close(made.state_dict(), plain.state_dict())


# What the bits depend on


def test_the_seed_decides():
    one, two, other = (fitted(Dropping, points(77), 2, seed=seed).digest() for seed in (5, 5, 6))
    assert one == two != other


class Threads(nn.Linear):
    def __init__(self, config):
        super().__init__(8, 3)
        self.register_buffer("threads", torch.zeros(1, dtype=torch.int64))

    def forward(self, x):
        self.threads.fill_(torch.get_num_threads())
        return super().forward(x)


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_per_lane_are_those_of_torch(threads):
    made = fitted(Threads, points(40), 2, threads_per_lane=threads)
    assert made.state_dict()["threads"].item() == threads
    assert gp.run(torch.get_num_threads, workers=2) == gp.run(torch.get_num_threads, workers=4)[:2]


def stepped(optimizer, config):
    return torch.optim.lr_scheduler.MultiStepLR(optimizer, [1, 2, 9], 0.1)


def warmed(optimizer, config):
    schedulers = torch.optim.lr_scheduler
    first, then = (
        schedulers.LinearLR(optimizer, 0.1, total_iters=5),
        schedulers.CosineAnnealingLR(optimizer, 9),
    )
    return schedulers.SequentialLR(optimizer, [first, then], [5])


@pytest.mark.parametrize(
    ("optimizer", "scheduler", "scheduled"),
    [(adam, decaying, "batch"), (momentum, stepped, "epoch"), (adamw, warmed, "batch")],
)
def test_two_fits_are_one(optimizer, scheduler, scheduled):
    options = {"lanes": 2, "workers": 2, "scheduler": scheduler, "scheduler_step_freq": scheduled}
    whole, halves = (estimator(Dropping, optimizer, **options) for _ in range(2))
    whole.fit(points(77), epochs=3)
    for _ in range(3):
        halves.fit(points(77))
    assert whole.digest() == halves.digest()


def normed(config):
    return nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))


def test_one_row_in_a_lane_with_batch_norm():
    made = estimator(normed, workers=2, lanes=2)
    with pytest.raises(ValueError, match="Expected more than 1 value per channel") as raised:
        made.fit(points(33), batch_size=16)
    notes = "\n".join(raised.value.__notes__)
    assert "in lane 0, a batch of 1 row (float32 [1, 8], int64 [1]) at step 3 of the run" in notes


# Backends


def test_torch_distributed_gives_the_same_to_rounding():
    data, found = points(77), []
    for backend in ("grampus", "torch_distributed"):
        made = fitted(Dropping, data, 2, lanes=2, backend=backend, epochs=2)
        found.append((made.state_dict(), made.evaluate(data)["loss"]))
    plain_loop.assert_close(found[0][0], found[1][0])
    assert found[0][1] == pytest.approx(found[1][1], rel=1e-4)


class Branching(nn.Module):
    """Few rows use one part of it, no rows another; an embedding has sparse gradients."""

    def __init__(self, config):
        super().__init__()
        self.words = nn.Embedding(9, 3, sparse=True)
        self.rare, self.never = nn.Linear(8, 3), nn.Linear(8, 3)
        self.wide = nn.Linear(8, 3).double()

    def forward(self, x):
        output = self.words((x[:, 0] * 4).long().clamp(0, 8)) + self.wide(x.double()).float()
        rows = (x[:, 1] > 1.5).nonzero()[:, 0]
        return output.index_add(0, rows, self.rare(x[rows])) if len(rows) else output


def decaying_sgd(model, config):
    # Embeddings first: torch does not decay by sparse gradients.
    rest = [p for name, p in model.named_parameters() if name != "words.weight"]
    return torch.optim.SGD([{"params": [model.words.weight]}, {"params": rest, "weight_decay": 0.1}], lr=0.1)


@pytest.mark.filterwarnings("ignore:batch_size=1 leaves")
@pytest.mark.parametrize("batch_size", [1, 6])
def test_torch_distributed_with_parameters_that_are_not_always_used(batch_size):
    found = []
    for backend in ("grampus", "torch_distributed"):
        made = fitted(
            Branching, points(20), 2, lanes=2, backend=backend, optimizer=decaying_sgd, batch_size=batch_size
        )
        found.append(made.state_dict())
    plain_loop.assert_close(*found)
    first = estimator(Branching).state_dict()
    assert torch.equal(found[0]["never.weight"], first["never.weight"])
    assert not torch.equal(found[0]["rare.weight"], first["rare.weight"])


def uses_a_group():
    return torch.distributed.is_initialized()


def test_torch_distributed_leaves_no_process_group():
    fitted(linear_net, points(40), 2, lanes=2, backend="torch_distributed")
    assert gp.run(uses_a_group, workers=2) == [False, False]


def test_torch_distributed_needs_a_lane_a_worker():
    made = estimator(linear_net, workers=2, lanes=4, backend="torch_distributed")
    with pytest.raises(ValueError, match=r"needs as many lanes as workers.*'grampus'"):
        made.fit(points(40))


class FailsOnOne(nn.Linear):
    def forward(self, x):
        if gp.rank() == 1:
            raise ArithmeticError("one worker cannot go on")
        return super().forward(x)


def test_torch_distributed_tells_the_error_of_the_worker_that_failed():
    made = estimator(lambda config: FailsOnOne(8, 3), workers=2, backend="torch_distributed")
    # The other worker's broken connection is often seen first.
    for _ in range(5):
        with pytest.raises(ArithmeticError, match="one worker cannot go on"):
            made.fit(points(40))


def test_torch_distributed_does_not_go_on_with_other_lanes_than_workers(tmp_path):
    estimator(linear_net, workers=2, lanes=4).fit(points(40), checkpoint=tmp_path / "run")
    made = estimator(linear_net, workers=2, backend="torch_distributed")
    with pytest.raises(ValueError, match=r"needs as many lanes as workers, not 4 lanes on 2 workers"):
        made.fit(points(40), epochs=2, checkpoint=tmp_path / "run", resume=True)


def test_backends_that_are_not_there(monkeypatch):
    # As if it were not installed.
    monkeypatch.setitem(sys.modules, "horovod", None)
    with pytest.raises(ValueError, match=r"no backend 'mpi': use 'grampus'"):
        estimator(linear_net, backend="mpi")
    with pytest.raises(ValueError, match=r"not installed: use backend='grampus'"):
        estimator(linear_net, backend="horovod")
