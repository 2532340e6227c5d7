"""What was trained comes home: whatever callbacks hold, and whatever fails or interrupts a run."""

import os
import threading
from pathlib import Path

import pytest
import torch
from clusters import one_cluster, scratch  # noqa: F401 - a fixture
from small_models import line, points, weight
from torch import nn

import grampus as gp
from grampus.callbacks import Callback, Logger

runtime = one_cluster(workers=2, start_timeout=200)


def alone(steps):
    """The weight of `line` after so many steps, as torch's own loop on one process has it."""
    module = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(module.weight)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    data = points(4)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.mse_loss(module(data["x"]), data["y"]).backward()
        optimizer.step()
    return module.weight.item()


# Sixteen rows in batches of four.
STEPS = 4


class Holds(Callback):
    """Has something that cannot travel, made where it runs."""

    def __init__(self, make):
        self.make = make
        self.thing = None
        self.epochs = 0

    def on_run_begin(self, run):
        self.thing = self.make()

    def on_epoch_end(self, run):
        self.epochs += 1


class Odd(Exception):
    """It can be pickled, and not be read again."""

    def __init__(self, one, other):
        super().__init__(f"{one} {other}")


def _writer():
    return open(os.devnull, "w")


@pytest.mark.parametrize(
    "make",
    [_writer, threading.Lock, lambda: (n for n in "abc"), lambda: Odd(1, 2)],
    ids=["file", "lock", "generator", "odd"],
)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_callback_that_holds_what_cannot_travel(make, workers):
    est, holds = line(workers=workers), Holds(make)
    with pytest.warns(RuntimeWarning, match=r"stays on the worker.*'thing' of Holds, a "):
        history = est.fit(points(), epochs=3, batch_size=4, callbacks=[holds])
    assert len(history) == 3
    assert weight(est) == pytest.approx(alone(3 * STEPS))
    assert (holds.epochs, holds.thing) == (3, None)


class Tidy(Holds):
    def __getstate__(self):
        return {"epochs": self.epochs, "make": self.make}

    def __setstate__(self, state):
        vars(self).update(state, thing=None)


def test_a_callback_that_says_what_travels_is_not_warned_about(recwarn):
    holds = Tidy(_writer)
    line().fit(points(), epochs=2, batch_size=4, callbacks=[holds])
    assert holds.epochs == 2
    assert not [str(each.message) for each in recwarn if "stays on" in str(each.message)]


class Fails(Callback):
    def __init__(self, hook, epoch=0):
        self.hook, self.epoch = hook, epoch

    def _fail(self, hook, run):
        if hook == self.hook and run.epoch >= self.epoch:
            raise RuntimeError("the callback is broken")

    def on_run_end(self, run):
        self._fail("on_run_end", run)

    def on_epoch_end(self, run):
        self._fail("on_epoch_end", run)

    def on_step_end(self, run):
        self._fail("on_step_end", run)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("fails", "steps", "epochs"),
    [
        (Fails("on_run_end"), 3 * STEPS, 3),
        (Fails("on_epoch_end", 2), 2 * STEPS, 1),
        (Fails("on_step_end", 1), STEPS + 1, 1),
    ],
    ids=["run", "epoch", "step"],
)
def test_weights_outlive_a_callback_that_fails(workers, fails, steps, epochs):
    est = line(workers=workers)
    with pytest.raises(RuntimeError, match="the callback is broken") as caught:
        est.fit(points(), epochs=3, batch_size=4, callbacks=[fails])
    assert weight(est) == pytest.approx(alone(steps))
    assert len(est.history) == epochs
    assert (
        f"the estimator keeps the weights of epoch {-(-steps // STEPS)}, step {steps}"
        in caught.value.__notes__[-1]
    )
    # And the next fit goes on from there.
    est.fit(points(), epochs=1, batch_size=4)
    assert weight(est) == pytest.approx(alone(steps + STEPS))


@pytest.mark.parametrize("sharded", [False, True])
def test_weights_of_a_native_model_outlive_it_too(sharded):
    def made():
        model = gp.nn.Sequential().add(gp.nn.Linear(1, 1))
        how = {"loss": gp.nn.MSE(), "optimizer": gp.optim.Adam(lr=0.1), "sharded": sharded}
        return gp.Estimator.from_native(model=model, workers=2, **how)

    data = {name: value.numpy() for name, value in points().items()}
    whole, broken = made(), made()
    whole.fit(data, epochs=2, batch_size=4)
    with pytest.raises(RuntimeError, match="the callback is broken"):
        broken.fit(data, epochs=3, batch_size=4, callbacks=[Fails("on_epoch_end", 3)])
    whole.fit(data, epochs=1, batch_size=4)
    assert broken.digest() == whole.digest()


class Rows(torch.utils.data.Dataset):
    def __init__(self, bad):
        self.bad = bad

    def __len__(self):
        return 16

    def __getitem__(self, row):
        if row == 3 and self.bad.exists():
            raise OSError("the row cannot be read")
        return torch.ones(1), 3 * torch.ones(1)


class Breaks(Callback):
    def __init__(self, path):
        self.path = str(path)

    def on_epoch_end(self, run):
        Path(self.path).touch()


def test_weights_outlive_data_that_fails(tmp_path):
    est = line(workers=2)
    with pytest.raises(OSError, match="cannot be read"):
        est.fit(Rows(tmp_path / "bad"), epochs=50, batch_size=4, callbacks=[Breaks(tmp_path / "bad")])
    # Rows are read ahead of their steps.
    steps = est._at["step"]
    assert STEPS <= steps < 50 * STEPS
    assert weight(est) == pytest.approx(alone(steps))


class Broken(Logger):
    def __init__(self, kind):
        self.kind = kind

    def event(self, event):
        if event["kind"] == self.kind:
            raise OSError("no plot today")

    def close(self):
        if self.kind == "close":
            raise OSError("no plot today")


@pytest.mark.parametrize("kind", ["end", "close"])
def test_weights_outlive_what_fails_in_the_driver(kind):
    est = line()
    with pytest.raises(OSError, match="no plot today") as caught:
        est.fit(points(), epochs=2, batch_size=4, callbacks=[Broken(kind)])
    assert weight(est) == pytest.approx(alone(2 * STEPS))
    assert len(est.history) == 2
    assert "keeps the weights of epoch 2" in caught.value.__notes__[-1]


def test_a_loss_that_is_no_number_does_not_replace_good_weights():
    est = line()
    est.fit(points(), epochs=1, batch_size=4)
    bad = {"x": torch.full((16, 1), 1e30), "y": torch.ones(16, 1)}
    with pytest.raises(FloatingPointError):
        est.fit(bad, epochs=1, batch_size=4, callbacks=[gp.callbacks.StopOnNaN()])
    assert weight(est) == pytest.approx(alone(STEPS))


class Marks(Callback):
    """Puts things into records that no record holds."""

    def on_epoch_end(self, run):
        run.record["mark"] = torch.tensor(0.5)
        run.record["guard"] = threading.Lock()


def test_what_callbacks_put_into_records_is_no_reason_to_fail():
    est = line()
    history = est.fit(points(), epochs=2, batch_size=4, callbacks=[Marks()])
    assert weight(est) == pytest.approx(alone(2 * STEPS))
    assert history["mark"] == [0.5, 0.5]


class Keeps(gp.TrainingOperator):
    """An operator whose state holds what no file can."""

    def state_dict(self):
        return {"seen": 3, "guard": threading.Lock()}

    def load_state_dict(self, state):
        assert state["seen"] == 3


def test_an_operator_whose_state_cannot_travel():
    est = line(training_operator_cls=Keeps)
    with pytest.warns(RuntimeWarning, match=r"operator\.guard.* is a lock"):
        est.fit(points(), epochs=2, batch_size=4)
    assert weight(est) == pytest.approx(alone(2 * STEPS))


class RaisesOnRounding(Callback):
    """As code does under `numpy.seterr(all="raise")`."""

    def on_epoch_end(self, run):
        if run.epoch == 2:
            raise FloatingPointError("underflow encountered in exp")


def test_a_floating_point_error_that_is_not_of_the_loss_keeps_the_weights():
    est = line()
    with pytest.raises(FloatingPointError, match="underflow"):
        est.fit(points(), epochs=3, batch_size=4, callbacks=[RaisesOnRounding()])
    assert weight(est) == pytest.approx(alone(2 * STEPS))


def fails_after(optimizer, steps):
    def rate(step):
        if step > steps:
            raise ValueError(f"there is no step {step}")
        return 1.0

    return torch.optim.lr_scheduler.LambdaLR(optimizer, rate)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("operator", [None, gp.TrainingOperator, "own"], ids=["none", "usual", "own"])
def test_weights_outlive_a_scheduler_that_fails(workers, operator):
    """Its step comes after that of the optimizer, which is done."""
    given = {"scheduler": lambda optimizer, config: fails_after(optimizer, 5), "scheduler_step_freq": "batch"}
    est = line(workers=workers, training_operator_cls=Own if operator == "own" else operator, **given)
    with pytest.raises(ValueError, match="there is no step 6") as caught:
        est.fit(points(), epochs=3, batch_size=4)
    assert "keeps the weights of epoch 2, step 6: save()" in caught.value.__notes__[-1]
    assert weight(est) == pytest.approx(alone(6))


class Own(gp.TrainingOperator):
    """A step of its own."""

    def train_batch(self, batch, info):
        loss = self.criterion(self.model(batch["x"]), batch["y"])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return {"train_loss": loss.item()}


class Unsound(torch.optim.SGD):
    """Fails in a step whose weights it has changed: on all workers, or on the first to come there."""

    def __init__(self, parameters, config):
        super().__init__(parameters, lr=0.1)
        self.config, self.steps = config, 0

    def step(self, closure=None):
        self.steps += 1
        super().step()
        if self.steps == 6 and self._fails():
            raise RuntimeError("the optimizer is broken")

    def _fails(self):
        if self.config["mark"] is None:
            return True
        try:
            Path(self.config["mark"]).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


@pytest.mark.parametrize("alike", [True, False], ids=["all", "one"])
def test_weights_outlive_an_optimizer_that_fails(alike, tmp_path):
    mark = None if alike else str(tmp_path / "mark")
    optimizer = lambda model, config: Unsound(model.parameters(), config)  # noqa: E731
    est = line(workers=2, optimizer=optimizer, config={"mark": mark})
    with pytest.raises(RuntimeError, match="the optimizer is broken") as caught:
        est.fit(points(), epochs=3, batch_size=4)
    told = caught.value.__notes__[-1]
    # Where another worker has the whole step, its state is taken.
    assert ("which the next step has changed in part" in told) == alike, told
    assert f"keeps the weights of epoch 2, step {5 if alike else 6}" in told
    assert weight(est) == pytest.approx(alone(6))


class Epochs(gp.TrainingOperator):
    """An epoch of its own, in the midst of which the third fails."""

    def train_epoch(self, batches, info):
        for number, batch in enumerate(batches):
            if info["epoch_idx"] == 2 and number == 2:
                raise RuntimeError("the operator is broken")
            loss = self.criterion(self.model(batch["x"]), batch["y"])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return {"train_loss": loss.item()}


def test_epochs_of_an_operator_that_fails_in_a_later_one():
    est = line(workers=2, training_operator_cls=Epochs)
    with pytest.raises(RuntimeError, match="the operator is broken") as caught:
        est.fit(points(), epochs=4, batch_size=4)
    assert (
        "keeps the weights of epoch 2, step 2, which the next step has changed" in caught.value.__notes__[-1]
    )
    assert len(est.history) == 2
    # The one that fails first may find the other before it applies the second step of that epoch.
    found = [pytest.approx(alone(2 * STEPS + steps)) == weight(est) for steps in (1, 2)]
    assert any(found), weight(est)
