"""Samplers of any class, with any state: the rows of a plain torch loop, also after failures and resumes."""

import os
import random
import threading

import pytest
import torch
from estimators import Rows, lines, runtime, scratch, seeing, values  # noqa: F401 - fixtures
from torch import nn
from torch.utils import data as torch_data
from torch.utils.data import DataLoader

import grampus as gp

ROWS, SIZE = 12, 3


def permutation(seed):
    return torch.randperm(ROWS, generator=torch.Generator().manual_seed(seed)).tolist()


class Any12:
    """Of no class of torch's, which takes any iterable."""

    def __len__(self):
        return ROWS


class WithGenerator(Any12):
    def __init__(self):
        self.generator = torch.Generator().manual_seed(7)

    def __iter__(self):
        return iter(torch.randperm(ROWS, generator=self.generator).tolist())


class WithGeneratorInDict(Any12, torch_data.Sampler):
    def __init__(self):
        self.state = {"own": torch.Generator().manual_seed(7)}

    def __iter__(self):
        return iter(torch.randperm(ROWS, generator=self.state["own"]).tolist())


class WithPythons(Any12):
    def __init__(self):
        self.state = [random.Random(3)]

    def __iter__(self):
        return iter(self.state[0].sample(range(ROWS), ROWS))


class Counting(Any12, torch_data.Sampler):
    def __init__(self):
        self.epoch = 0

    def __iter__(self):
        self.epoch += 1
        return iter(permutation(self.epoch))


class Turning(Any12):
    """Keeps its order, and turns it further in each epoch."""

    def __init__(self):
        self.order = [*range(ROWS)]

    def __iter__(self):
        self.order.append(self.order.pop(0))
        return iter(list(self.order))


class OfBatches:
    """Of no class of torch's, and batches of different sizes."""

    def __init__(self):
        self.sampler = Counting()

    def __iter__(self):
        order = [*self.sampler]
        return iter([order[:4], order[4:5], order[5:]])


def sampled(kind):
    if kind is OfBatches:
        return DataLoader(Rows(ROWS), batch_sampler=kind())
    return DataLoader(Rows(ROWS), SIZE, sampler=kind())


KINDS = [WithGenerator, WithGeneratorInDict, WithPythons, Counting, Turning, OfBatches]


def batches_of(loader, epochs):
    return [tuple(batch[0].flatten().tolist()) for _ in range(epochs) for batch in loader]


# What a run learns depends on the order of its rows


class Scaled(Rows):
    def __getitem__(self, row):
        return torch.tensor([row / ROWS]), torch.tensor([float(row % 5)])


def line(config=None):
    model = nn.Linear(1, 1)
    nn.init.constant_(model.weight, 0.5)
    nn.init.constant_(model.bias, 0.1)
    return model


def plain_loop(loader, epochs):
    model = line()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
    return model.state_dict()


class Dies(gp.callbacks.Callback):
    """Ends one worker, once."""

    def __init__(self, mark, step):
        self.mark, self.step = mark, step

    def on_step_end(self, run):
        if run.step == self.step and not self.mark.exists():
            self.mark.touch()
            os._exit(9)


def estimator(**options):
    return gp.Estimator.from_torch(
        model=line, optimizer="sgd", loss=nn.MSELoss(), config={"lr": 0.1}, **options
    )


def scaled(kind):
    loader = sampled(kind)
    sampler = {"batch_sampler": loader.batch_sampler} if kind is OfBatches else {"sampler": loader.sampler}
    return DataLoader(Scaled(ROWS), **sampler, **({} if kind is OfBatches else {"batch_size": SIZE}))


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_loses_a_worker_draws_as_torch_does(kind, tmp_path):
    expected = plain_loop(scaled(kind), epochs=4)
    est = estimator(workers=2, lanes=2)
    # In its third epoch.
    step = 8 if kind is OfBatches else 11
    est.fit(scaled(kind), epochs=4, callbacks=[Dies(tmp_path / "died", step)], max_failures=1)
    assert (tmp_path / "died").exists()
    for name, value in est.state_dict().items():
        torch.testing.assert_close(value, expected[name])


@pytest.mark.parametrize("kind", KINDS)
def test_runs_that_are_resumed_or_go_on_draw_as_torch_does(kind, tmp_path):
    expected = batches_of(sampled(kind), epochs=4)
    loader, count = sampled(kind), len(expected) // 4
    for epochs in (2, 3, 4):
        (tmp_path / str(epochs)).mkdir()
        est = seeing(tmp_path, workers=1, lanes=1, config={"folder": str(tmp_path / str(epochs))})
        est.fit(loader, epochs=epochs, checkpoint=tmp_path / "saved", resume=epochs > 2)
    found = [lines(tmp_path / str(epochs) / "trained") for epochs in (2, 3, 4)]
    assert found == [expected[: 2 * count], expected[2 * count : 3 * count], expected[3 * count :]]
    est = seeing(tmp_path, workers=1, lanes=1)
    est.fit(loader, epochs=2)
    est.fit(loader, epochs=2)
    assert lines(tmp_path / "trained") == expected


class Unlike(Any12):
    """Of another seed on every worker."""

    def __init__(self):
        self.states = {"own": torch.Generator()}
        self.states["own"].seed()

    def __iter__(self):
        return iter(torch.randperm(ROWS, generator=self.states["own"]).tolist())


def test_workers_that_make_samplers_use_the_first_ones(tmp_path):
    def loader(config):
        return sampled(Unlike)

    seeing(tmp_path, workers=3).fit(loader, epochs=2)
    assert values(tmp_path / "trained") == sorted([*range(ROWS)] * 2)


# set_epoch


class Told(Any12):
    """Draws by the epoch that it is told, as torch's DistributedSampler."""

    epoch = 5

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        return iter(permutation(self.epoch))


class Wrapping(Any12):
    def __init__(self):
        self.sampler = Told()

    def __iter__(self):
        return iter(self.sampler)


@pytest.mark.parametrize("kind", [Told, Wrapping])
def test_samplers_are_told_the_epoch(kind, tmp_path):
    expected = [
        tuple(map(float, permutation(epoch)[first : first + SIZE]))
        for epoch in range(3)
        for first in range(0, ROWS, SIZE)
    ]
    loader = sampled(kind)
    for epochs, resume in ((2, False), (3, True)):
        est = seeing(tmp_path, workers=1, lanes=1)
        est.fit(loader, epochs=epochs, checkpoint=tmp_path / "saved", resume=resume)
    assert lines(tmp_path / "trained") == expected


# What cannot be copied


class Locked(Any12):
    def __init__(self):
        self.lock = threading.Lock()

    def __iter__(self):
        return iter(range(ROWS))


def test_a_sampler_that_cannot_be_copied_is_warned_about(tmp_path):
    def loader(config):
        return sampled(Locked)

    with pytest.warns(
        RuntimeWarning, match=r"samplers of a loader \(BatchSampler, Locked\) cannot be copied"
    ):
        seeing(tmp_path, workers=2).fit(loader)
    assert values(tmp_path / "trained") == [*range(ROWS)]


# What a sampler covers


class OwnBatches(torch_data.BatchSampler):
    """Of a class of the user's."""


@pytest.mark.parametrize(
    "sampler",
    [
        torch_data.SequentialSampler(range(5)),
        torch_data.RandomSampler(range(5)),
        torch_data.RandomSampler(range(5), generator=torch.Generator().manual_seed(1)),
        torch_data.DistributedSampler(range(5), num_replicas=1, rank=0),
        torch_data.SubsetRandomSampler(range(5)),
    ],
    ids=lambda sampler: type(sampler).__name__,
)
def test_rows_that_a_sampler_leaves_out_are_not_used(sampler, tmp_path):
    loader = DataLoader(Rows(ROWS), 4, sampler=sampler)
    expected = sorted(row for batch in batches_of(loader, 1) for row in batch)
    est = seeing(tmp_path, workers=2)
    assert est.fit(loader, validation_data=loader)[-1]["val_num_samples"] == 5
    assert values(tmp_path / "trained") == expected
    assert est.evaluate(loader)["num_samples"] == 5
    assert sorted(est.predict(loader).flatten().tolist()) == expected


def test_a_sampler_of_batches_that_drops_the_last_drops_none_in_evaluation(tmp_path):
    sampler = OwnBatches(torch_data.SequentialSampler(Rows(11)), 4, drop_last=True)
    loader = DataLoader(Rows(11), batch_sampler=sampler)
    est = seeing(tmp_path, workers=2)
    history = est.fit(loader, validation_data=loader)
    assert (history[-1]["samples"], history[-1]["val_num_samples"]) == (8, 11)
    assert est.evaluate(loader)["num_samples"] == 11
    assert est.predict(loader).flatten().tolist() == [*range(11)]
    assert sampler.drop_last
