"""Optimizers and schedules of gp.optim for torch models; schedulers of torch that look at a metric."""

from __future__ import annotations

import json
import os
import signal
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from clusters import one_cluster, scratch  # noqa: F401 - a fixture
from deadly_runs import Deadly, arrays
from deadly_runs import Net as DeadlyNet
from processes import wait_until
from small_models import Net, classifier, measured, points, rows
from torch import nn, optim

import grampus as gp
from grampus.callbacks import Callback
from grampus.errors import WorkerDied

runtime = one_cluster(workers=4, heartbeat_timeout=1.5)

own = gp.optim
# The same optimizer of both.
PAIRS = {
    "sgd": (own.SGD(0.1), partial(optim.SGD, lr=0.1)),
    "momentum": (
        own.SGD(0.1, momentum=0.9, dampening=0.2, weight_decay=0.01),
        partial(optim.SGD, lr=0.1, momentum=0.9, dampening=0.2, weight_decay=0.01),
    ),
    "nesterov": (
        own.SGD(0.1, momentum=0.9, nesterov=True),
        partial(optim.SGD, lr=0.1, momentum=0.9, nesterov=True),
    ),
    "adam": (own.Adam(0.01, weight_decay=0.02), partial(optim.Adam, lr=0.01, weight_decay=0.02)),
    "amsgrad": (
        own.Adam(0.01, betas=(0.8, 0.9), amsgrad=True),
        partial(optim.Adam, lr=0.01, betas=(0.8, 0.9), amsgrad=True),
    ),
    "adamw": (own.AdamW(0.01, weight_decay=0.1), partial(optim.AdamW, lr=0.01, weight_decay=0.1)),
    "adagrad": (
        own.Adagrad(0.05, lr_decay=0.1, weight_decay=0.01, initial_accumulator_value=0.1),
        partial(optim.Adagrad, lr=0.05, lr_decay=0.1, weight_decay=0.01, initial_accumulator_value=0.1),
    ),
    "adadelta": (own.Adadelta(weight_decay=0.01), partial(optim.Adadelta, weight_decay=0.01)),
    "adamax": (own.Adamax(0.01, weight_decay=0.01), partial(optim.Adamax, lr=0.01, weight_decay=0.01)),
    "rmsprop": (
        own.RMSprop(0.01, weight_decay=0.01, momentum=0.9, centered=True),
        partial(optim.RMSprop, lr=0.01, weight_decay=0.01, momentum=0.9, centered=True),
    ),
    "rmsprop plain": (own.RMSprop(0.01), partial(optim.RMSprop, lr=0.01)),
}


class Mixed(nn.Module):
    """Numbers of two types, images that lie otherwise, and a layer that is used now and then."""

    def __init__(self):
        super().__init__()
        self.images = nn.Conv2d(2, 3, 2).to(memory_format=torch.channels_last)
        self.fine = nn.Linear(3, 3).double()
        self.seldom = nn.Linear(3, 3)
        self.frozen = nn.Linear(3, 3).requires_grad_(False)

    def forward(self, x):
        found = self.images(x.view(-1, 2, 2, 1).expand(-1, 2, 2, 2)).amax((2, 3))
        found = self.frozen(self.fine(found.double()).float())
        # In the first batch all rows are large.
        return found + self.seldom(found) if (x > 50).any() else found


def smooth(config):
    """Without batch norm: before it, biases have gradients that are nothing but rounding."""
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def made(optimizer, **other):
    """An estimator of a small model, of which nothing is drawn."""
    given = {"model": smooth, "optimizer": optimizer, "lanes": 4, "scheduler": None, "metrics": None}
    given["scheduler_step_freq"] = "epoch"
    return classifier(**{**given, **other})


def by_torch(make):
    return lambda model, config: make([p for p in model.parameters() if p.requires_grad])


def weights_after(est, data=None, **fitting):
    est.fit(rows() if data is None else data, **{"epochs": 2, "batch_size": 16, **fitting})
    return est.state_dict()


def assert_close(one, other):
    assert one.keys() == other.keys()
    for name in one:
        assert torch.allclose(one[name], other[name], rtol=2e-4, atol=2e-6), name


@pytest.mark.parametrize("name", PAIRS)
def test_results_are_those_of_torch(name):
    ours, theirs = PAIRS[name]
    divided = made(ours, workers=3)
    assert_close(weights_after(divided), weights_after(made(by_torch(theirs), workers=3)))
    for workers in (1, 2):
        fewer = made(ours, workers=workers)
        weights_after(fewer)
        assert fewer.digest() == divided.digest()
    # One lane has gradients of its own, which lie elsewhere.
    alone = {"workers": 1, "lanes": 1}
    assert_close(weights_after(made(ours, **alone)), weights_after(made(by_torch(theirs), **alone)))


OTHERS = [own.LAMB(0.01, weight_decay=0.1), own.Ftrl(0.1, l1=0.01, l2_shrinkage=0.01)]


@pytest.mark.parametrize("optimizer", OTHERS, ids=["lamb", "ftrl"])
def test_those_that_torch_does_not_have(optimizer):
    found = set()
    for workers in (1, 2, 3):
        est = made(optimizer, workers=workers)
        history = est.fit(rows(), epochs=4, batch_size=16)
        assert history["loss"][-1] < history["loss"][0]
        found.add(est.digest())
    assert len(found) == 1


def large_at_first():
    """Rows in order: those of the first two batches are such that all layers are used, of the rest not."""
    x = torch.randn(48, 4, generator=torch.Generator().manual_seed(1))
    x[:16] += 100
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x[:, :3].float()), batch_size=8)


def test_types_layouts_and_parameters_that_are_not_used():
    results = []
    for optimizer in (own.AdamW(0.01, weight_decay=0.1), by_torch(PAIRS["adamw"][1])):
        for workers in (1, 2, 3):
            est = made(
                optimizer, model=lambda config: Mixed(), loss=nn.MSELoss(), workers=workers, metrics=None
            )
            results.append(weights_after(est, lambda config: large_at_first(), epochs=1, batch_size=None))
    first = results[0]
    assert first["fine.weight"].dtype == torch.float64
    for other in results[1:3]:
        assert all(torch.equal(first[name], other[name]) for name in first)
    assert_close(first, results[3])
    before = made(own.AdamW(), model=lambda config: Mixed()).state_dict()
    assert torch.equal(first["frozen.weight"], before["frozen.weight"])
    assert not torch.equal(first["seldom.weight"], before["seldom.weight"])


class Late(nn.Module):
    """Two layers, of which the second is used by marked rows alone."""

    def __init__(self, config=None):
        super().__init__()
        self.one, self.two = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x):
        return self.one(x) + self.two(x) if x[:, 0].any() else self.one(x)


def marked_at_last(config=None):
    x = torch.randn(80, 4, generator=torch.Generator().manual_seed(1))
    x[:, 0] = torch.arange(80) >= 48
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x[:, 1:]), batch_size=8)


@pytest.mark.parametrize("name", ["momentum", "adamw", "adagrad", "adamax"])
def test_steps_of_a_parameter_are_counted_from_its_first(name):
    ours, theirs = PAIRS[name]
    model = {"model": Late, "loss": nn.MSELoss()}
    fitting = {"epochs": 1, "batch_size": None}
    whole = made(ours, workers=3, **model)
    plain = made(by_torch(theirs), workers=3, **model)
    assert_close(
        weights_after(whole, marked_at_last, **fitting), weights_after(plain, marked_at_last, **fitting)
    )
    made(ours, workers=1, **model).fit(marked_at_last, epochs=1, checkpoint="runs", max_steps=7)
    again = made(ours, workers=2, **model)
    again.fit(marked_at_last, epochs=1, checkpoint="runs", resume=True)
    assert again.digest() == whole.digest()


@pytest.mark.parametrize("clip", ["norm", "values"])
def test_gradients_are_clipped(clip):
    found = []
    for optimizer in (own.SGD(0.5), by_torch(partial(optim.SGD, lr=0.5)), own.SGD(0.5)):
        est = made(optimizer, workers=3 - len(found))
        if clip == "norm":
            est.set_l2_norm_gradient_clipping(0.1)
        else:
            est.set_constant_gradient_clipping(-0.01, 0.02)
        found.append(weights_after(est))
    assert_close(found[0], found[1])
    assert all(torch.equal(found[0][name], found[2][name]) for name in found[0])


@pytest.mark.parametrize(("optimizer", "before", "after"), [(own.Adam(0.01), 3, 2), (own.LAMB(0.01), 1, 3)])
def test_a_run_goes_on_at_another_number_of_workers(optimizer, before, after):
    whole = made(optimizer, workers=2, scheduler=own.Step(3, 0.5))
    history = whole.fit(rows(), epochs=3, batch_size=16)
    begun = made(optimizer, workers=before, scheduler=own.Step(3, 0.5))
    begun.fit(rows(), epochs=3, batch_size=16, checkpoint="runs", max_steps=6)
    est = made(optimizer, workers=after, scheduler=own.Step(3, 0.5))
    again = est.fit(rows(), epochs=3, batch_size=16, checkpoint="runs", resume=True)
    assert est.digest() == whole.digest()
    assert measured(again) == measured(history)
    other = made(own.SGD(0.01), workers=2, scheduler=own.Step(3, 0.5))
    with pytest.raises(ValueError, match="this one nothing: build it as the saved one was"):
        other.fit(rows(), epochs=4, batch_size=16, checkpoint="runs", resume=True)


@pytest.mark.parametrize("order", [1, -1])
def test_another_scheduler_does_not_go_on(order):
    saved, other = [own.Step(2, 0.5), lambda optimizer, config: STEP(optimizer)][::order]
    made(own.SGD(0.1), workers=2, scheduler=saved).fit(rows(), batch_size=16, checkpoint="runs")
    est = made(own.SGD(0.1), workers=2, scheduler=other)
    with pytest.raises(ValueError, match=r"the saved scheduler keeps .*: build it as the saved one was"):
        est.fit(rows(), epochs=2, batch_size=16, checkpoint="runs", resume=True)


class Spare(nn.Module):
    """A layer that no row ever uses, beside others."""

    def __init__(self, config=None):
        super().__init__()
        self.spare, self.used = nn.Linear(4, 3).double(), smooth(config)

    def forward(self, x):
        return self.used(x)


def test_a_run_of_torch_goes_on_divided():
    theirs = by_torch(partial(optim.AdamW, lr=0.02))
    fitting = {"data": rows(), "epochs": 2, "batch_size": 16}
    whole = made(theirs, model=Spare, workers=2)
    whole.fit(**fitting)
    made(theirs, model=Spare, workers=2).fit(**fitting, checkpoint="runs", max_steps=5)
    est = made(own.AdamW(0.02), model=Spare, workers=3)
    est.fit(**fitting, checkpoint="runs", resume=True)
    assert_close(est.state_dict(), whole.state_dict())


def test_another_optimizer_does_not_go_on():
    fitting = {"data": rows(), "batch_size": 16, "checkpoint": "runs"}
    made(own.SGD(0.1), workers=2).fit(**fitting)
    with pytest.raises(
        ValueError, match="the saved optimizer has no dampening, momentum, weight_decay: build"
    ):
        made("sgd", workers=2, config={"lr": 0.1}).fit(**fitting, epochs=2, resume=True)


class Remembers(Callback):
    """Logs how much the first worker remembers, and the rate that it sees."""

    def on_epoch_end(self, run):
        run.log("remembered", run.optimizer.remembered)
        # Gradients of several lanes are read where they lie.
        assert run.optimizer._flats[0]._copies is None
        run.log("rate", run.optimizer.param_groups[0]["lr"])


def test_what_is_remembered_is_divided():
    found = {}
    for workers in (1, 2, 4):
        est = made(own.AdamW(0.02), workers=workers, model=lambda config: nn.Linear(4, 3008))
        history = est.fit(rows(), epochs=1, batch_size=16, callbacks=[Remembers()])
        found[workers] = history["remembered"][0]
        assert history["rate"] == history["learning_rate"] == [0.02]
    print(f"bytes of optimizer state a worker: {found}")
    whole = 2 * 4 * 5 * 3008
    # Each has its own part, and its neighbour's.
    assert found == {1: whole, 2: whole, 4: whole / 2}


# Recovery


def dying(folder, deaths=(), workers=3, **other):
    return gp.Estimator.from_torch(
        model=lambda config: DeadlyNet(),
        optimizer=own.AdamW(0.01),
        scheduler=own.Cosine(40),
        loss=Deadly(folder, deaths),
        workers=workers,
        lanes=3,
        seed=5,
        threads_per_lane=1,
        **other,
    )


def calm(folder):
    est = dying(folder, workers=1)
    est.fit(arrays(), epochs=3, batch_size=12)
    return est.digest()


@pytest.mark.filterwarnings("ignore:the run goes on")
def test_a_lost_worker_is_made_good_by_its_neighbour(tmp_path):
    est = dying(tmp_path, (17, 60, 61))
    est.fit(arrays(), epochs=3, batch_size=12)
    assert all((tmp_path / str(row)).exists() for row in (17, 60, 61))
    assert est.digest() == calm(tmp_path)


class DiesAround(Callback):
    """Ends the first worker right before or after its optimizer has done a step: once each."""

    def __init__(self, folder, before, after):
        self.folder, self.before, self.after = str(folder), before, after

    def on_step_begin(self, run):
        hooks = {
            "before": run.optimizer.register_step_pre_hook,
            "after": run.optimizer.register_step_post_hook,
        }
        for when, hook in hooks.items():
            if run.step + 1 == getattr(self, when) and Deadly(self.folder)._first(when):
                hook(lambda *_: os.kill(os.getpid(), signal.SIGKILL))


def test_a_worker_may_be_lost_while_a_sum_is_applied(tmp_path):
    # Before: the others have the sum, and wait for all to know that. After: they have applied it.
    est = dying(tmp_path)
    with pytest.warns(RuntimeWarning, match="the run goes on") as told:
        est.fit(arrays(), epochs=3, batch_size=12, callbacks=[DiesAround(tmp_path, 5, 14)])
    where = [str(each.message).split(" on 3 workers")[0] for each in told]
    assert where == ["the run goes on from step 4", "the run goes on from step 14"]
    assert est.digest() == calm(tmp_path)


class KillsNeighbours(Callback):
    """Ends the first two workers at once, in a step, when a checkpoint is there if there is to be one."""

    def __init__(self, step, folder, saved=None):
        self.step, self.folder, self.saved = step, str(folder), saved
        self.pids = gp.run(os.getpid)

    def on_step_end(self, run):
        if run.step == self.step and Deadly(self.folder)._first("both"):
            if self.saved is not None:
                wait_until(lambda: list(Path(self.saved).glob("step-*")))
            assert self.pids[0] == os.getpid()
            os.kill(self.pids[1], signal.SIGKILL)
            os.kill(self.pids[0], signal.SIGKILL)


@pytest.mark.filterwarnings("ignore:the run goes on from step")
def test_where_neighbours_are_lost_the_last_checkpoint_is_taken(tmp_path):
    settings = {
        "epochs": 3,
        "batch_size": 12,
        "callbacks": [KillsNeighbours(11, tmp_path, tmp_path / "runs")],
    }
    est = dying(tmp_path)
    with pytest.warns(
        RuntimeWarning, match=r"goes on from the checkpoint .*: part \d of 3 of what the optim"
    ):
        est.fit(arrays(), checkpoint=tmp_path / "runs", **settings)
    assert est.digest() == calm(tmp_path)


@pytest.mark.filterwarnings("ignore:the run goes on")
def test_without_a_checkpoint_lost_neighbours_end_the_run(tmp_path):
    est = dying(tmp_path)
    with pytest.raises(WorkerDied) as caught:
        est.fit(arrays(), epochs=3, batch_size=12, callbacks=[KillsNeighbours(9, tmp_path)])
    assert "and it was not saved: pass checkpoint=" in "".join(caught.value.__notes__)


# Schedules


def test_schedules_of_grampus_move_optimizers_of_torch():
    def two_groups(model, config):
        weight, bias = model.parameters()
        return optim.SGD([{"params": [weight], "lr": 0.1}, {"params": [bias], "lr": 0.01}])

    class Rates(Callback):
        def on_step_end(self, run):
            self.seen = [*getattr(self, "seen", []), [group["lr"] for group in run.optimizer.param_groups]]

    for freq in ("epoch", "batch"):
        est = gp.Estimator.from_torch(
            model=nn.Linear(1, 1),
            optimizer=two_groups,
            scheduler=own.WarmUp(2, own.Step(2, 0.5)),
            scheduler_step_freq=freq,
            loss=nn.MSELoss(),
            workers=2,
        )
        rates = Rates()
        history = est.fit(points(), epochs=2, batch_size=4, max_steps=6, callbacks=[rates])
        # After each step that of the next.
        steps = torch.tensor([1.0, 1.0, 1.0, 0.5, 0.5, 0.25])
        assert torch.allclose(torch.tensor(rates.seen), steps.unsqueeze(1) * torch.tensor([0.1, 0.01]))
        assert history["learning_rate"] == pytest.approx([0.05, 0.025])


@pytest.mark.parametrize("optimizer", [own.SGD(0.1), by_torch(partial(optim.SGD, lr=0.1))])
def test_a_plateau_looks_at_a_metric_and_is_saved(optimizer):
    # No accuracy is ever better by so much.
    plateau = own.Plateau("val_accuracy", patience=0, mode="max", epsilon=1e9, factor=0.5)
    settings = {"scheduler": plateau, "metrics": [gp.metrics.Accuracy()], "workers": 2}
    fitting = {"validation_data": rows(20, 1), "batch_size": 16}
    history = made(optimizer, **settings).fit(rows(), epochs=4, **fitting)
    assert history["learning_rate"] == [0.1, 0.1, 0.05, 0.025]
    made(optimizer, **settings).fit(rows(), epochs=2, checkpoint="runs", **fitting)
    again = made(optimizer, **settings).fit(rows(), epochs=4, checkpoint="runs", resume=True, **fitting)
    assert again["learning_rate"] == history["learning_rate"]
    words = r"there is no \"val_accuracy\" for the schedule to look at: .*; pass validation_data="
    with pytest.raises(ValueError, match=words):
        made(optimizer, **settings).fit(rows(), epochs=1, batch_size=16)


def plateau_of_torch(monitor, **other):
    # Nothing is ever better by so much.
    def make(optimizer, config):
        kind = partial(optim.lr_scheduler.ReduceLROnPlateau, threshold=1e9, threshold_mode="abs")
        return {
            "scheduler": kind(optimizer, patience=0, factor=0.5, mode="max"),
            "monitor": monitor,
            "frequency": 1,
            **other,
        }

    return make


def test_a_scheduler_of_torch_may_say_what_it_looks_at_and_when():
    sgd = by_torch(partial(optim.SGD, lr=0.1))
    settings = {"metrics": [gp.metrics.Accuracy()], "workers": 2}
    fitting = {"validation_data": rows(20, 1), "epochs": 3, "batch_size": 16}
    told = plateau_of_torch("val_accuracy", interval="epoch")
    # What it says holds, whatever is said elsewhere.
    for optimizer in (sgd, own.SGD(0.1)):
        est = made(optimizer, scheduler=told, scheduler_step_freq="batch", **settings)
        assert est.fit(rows(), **fitting)["learning_rate"] == [0.1, 0.1, 0.05]
    each_step = {"scheduler": lambda optimizer, _: optim.lr_scheduler.StepLR(optimizer, 4, 0.5)}
    est = made(sgd, scheduler={**each_step, "interval": "step"}, **settings)
    assert est.fit(rows(), **fitting)["learning_rate"] == [0.05, 0.025, 0.0125]
    with pytest.raises(
        ValueError, match=r"there is no 'val_f1' for the scheduler to look at: .*val_accuracy"
    ):
        made(sgd, scheduler=plateau_of_torch("val_f1"), **settings).fit(rows(), **fitting)


# What is wrong

STEP = partial(optim.lr_scheduler.StepLR, step_size=1)


@pytest.mark.parametrize(
    ("scheduler", "text"),
    [
        ({"monitor": "loss"}, "a dict for scheduler has the keys monitor: it needs 'scheduler'"),
        ({"scheduler": STEP, "frequency": 2}, "keys scheduler, frequency: it needs"),
        (
            {"scheduler": lambda optimizer, _: STEP(optimizer), "interval": "week"},
            "must be 'epoch' or 'step'",
        ),
        (plateau_of_torch("loss", interval="step"), "ReduceLROnPlateau looks at what came out of an epoch"),
        ({"scheduler": lambda optimizer, _: STEP(optimizer), "monitor": "loss"}, "a StepLR looks at nothing"),
        (
            {"scheduler": own.Step(2, 0.5), "interval": "epoch"},
            "counts steps by itself, .* leave interval out",
        ),
        (own.Step(0, 0.5), "step_size"),
    ],
)
def test_schedulers_that_are_wrong(scheduler, text):
    with pytest.raises(ValueError, match=text):
        made(by_torch(partial(optim.SGD, lr=0.1)), scheduler=scheduler, workers=1).fit(rows(), batch_size=16)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: own.SGD("fast"), "lr of SGD must be a finite number, it is 'fast'"),
        (lambda: own.SGD(float("nan")), "lr of SGD must be a finite number, it is nan"),
        (lambda: own.SGD(nesterov="no"), "nesterov of SGD must be True or False"),
        (lambda: own.Adam(betas=0.9), "betas of Adam must be two finite numbers, it is 0.9"),
        (lambda: own.Step(2.5, 0.1), "step_size of Step must be a whole number from 0 on, it is 2.5"),
        (lambda: own.MultiStep([3, -1], 0.1), "step_sizes of MultiStep must be whole numbers from 0 on"),
        (lambda: own.Plateau(3), "monitor of Plateau must be a text, it is 3"),
        (lambda: own.WarmUp(2, 0.1), "then of WarmUp must be a schedule"),
        (lambda: own.Stages(2, [own.Step(1, 0.5)]), "stages of Stages must be pairs of a schedule and its"),
    ],
)
def test_settings_of_a_wrong_type_are_named_where_they_are_written(make, text):
    with pytest.raises(TypeError, match=text):
        make()


def test_settings_may_be_numbers_of_numpy_and_torch():
    given = own.AdamW(np.float32(0.5), betas=np.array([0.5, 0.75]), eps=torch.tensor(0.25), amsgrad=np.True_)
    plain = own.AdamW(0.5, betas=(0.5, 0.75), eps=0.25, amsgrad=True)
    assert json.dumps(given.description()) == json.dumps(plain.description())
    given = own.WarmUp(np.int64(3), own.MultiStep(np.array([1, 2]), np.float32(0.5)))
    assert json.dumps(given.description()) == json.dumps(
        own.WarmUp(3, own.MultiStep([1, 2], 0.5)).description()
    )


class Sparse(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(3, 3, sparse=True)

    def forward(self, x):
        return self.table((x[:, 0] > 0).long())


class Thawing(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4, 3), nn.Linear(4, 3).requires_grad_(False)

    def train(self, mode=True):
        self.two.requires_grad_(mode)
        return super().train(mode)

    def forward(self, x):
        return self.one(x) + self.two(x)


@pytest.mark.parametrize(
    ("optimizer", "model", "text"),
    [
        (own.SGD(momentum=-1), Net, "momentum must be 0 or more"),
        (
            own.SGD,
            lambda config: Net().half(),
            "layers.0.weight is of torch.float16, and optimizers of gp.optim",
        ),
        (own.SGD, lambda config: Net().requires_grad_(False), "no parameter that can be trained"),
        (own.SGD, Sparse, "the gradient of table.weight is sparse"),
        (own.SGD, lambda config: Thawing(), "two.weight was frozen when the optimizer was made"),
        (3, Net, "pass a torch optimizer, one of gp.optim, a function"),
    ],
)
def test_optimizers_that_are_wrong(optimizer, model, text):
    est = made(optimizer, model=model, workers=2, config={"lr": 0.1})
    with pytest.raises((ValueError, TypeError), match=text):
        est.fit(rows(), batch_size=16)
