"""Training operators where some workers have no rows, or where their code does more than steps."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import torch
from clusters import one_cluster, scratch  # noqa: F401 - a fixture
from operator_models import Epochs, Gan, Steps, estimator, gan
from small_models import rows
from torch import nn

import grampus as gp

runtime = one_cluster(workers=3, heartbeat_timeout=1.5)


def few(count=9):
    return rows(count, seed=1)


def lbfgs(model, config):
    return torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=3)


def test_searches_go_on_where_a_worker_has_no_rows():
    found = {}
    for workers in (1, 2, 3):
        own = estimator(None, workers=workers, optimizer=lbfgs)
        # The last batch has one row.
        found[workers] = own.fit(few(), epochs=2, batch_size=4)["loss"]
    assert found[2] == pytest.approx(found[1], rel=1e-3)
    assert found[3] == pytest.approx(found[1], rel=1e-3)


class Closure(Steps):
    def train_batch(self, batch, batch_info):
        def closure():
            self.optimizer.zero_grad()
            loss = self.criterion(self.model(batch["x"]), batch["y"])
            self.backward(loss)
            return loss

        loss = self.optimizer.step(closure)
        return {"train_loss": float(loss), "num_samples": len(batch["y"])}


def test_closures_are_clipped_and_know_what_they_cannot_do():
    own = estimator(
        Closure, workers=2, optimizer=lambda model, config: torch.optim.SGD(model.parameters(), 0.1)
    )
    own.set_l2_norm_gradient_clipping(1e-12)
    before = own.digest()
    own.fit(few(), epochs=1, batch_size=4)
    clipped = own.state_dict()
    for name, value in estimator(Closure, workers=2).state_dict().items():
        assert torch.allclose(clipped[name], value, atol=1e-8)
    own.clear_gradient_clipping()
    own.fit(few(), epochs=1, batch_size=4)
    assert own.digest() != before
    with pytest.raises(ValueError, match=r"a step with a closure needs a worker for each lane"):
        estimator(Closure, workers=1, lanes=2).fit(few(), epochs=1, batch_size=4)
    with pytest.raises(ValueError, match=r"cannot scale losses"):
        estimator(Closure, workers=2, precision="fp16").fit(few(), epochs=1, batch_size=4)


class Unscaled(Steps):
    def backward(self, loss):
        loss.backward()


def test_half_precision_where_a_worker_has_no_rows_yet():
    for operator in (None, Steps):
        with pytest.warns(RuntimeWarning, match="leaves some of the 3 lanes without rows") as told:
            history = estimator(operator, workers=3, precision="fp16").fit(few(2), epochs=2, batch_size=2)
        # As if the line above had warned.
        assert {warning.filename for warning in told} == {__file__}
        assert history["loss"][1] < history["loss"][0]
    with pytest.raises(ValueError, match=r"call self\.backward\(loss\)"):
        estimator(Unscaled, workers=1, precision="fp16").fit(few(), epochs=1, batch_size=4)


class Means(gp.TrainingOperator):
    """Numbers of its own rows; a mean over none would fail."""

    def train_epoch(self, iterator, info):
        seen = torch.cat([batch["x"] for batch in iterator])
        return {"train_loss": seen.mean().item(), "mean": seen.mean().item(), "num_samples": len(seen)}

    def validate(self, val_iterator, info):
        seen = torch.cat([batch["x"] for batch in val_iterator])
        return {"mean": seen.mean().item(), "epoch": info["epoch_idx"], "num_samples": len(seen)}


@pytest.mark.filterwarnings("ignore:the operator changes weights")
def test_means_are_over_rows_and_nobody_is_asked_about_none():
    for count, workers in ((9, 2), (1, 3)):
        own = estimator(Means, workers=workers)
        record = own.fit(few(count), epochs=1, batch_size=4, validation_data=few(count))[-1]
        expected = pytest.approx(few(count)["x"].mean().item(), abs=1e-6)
        assert record["loss"] == record["mean"] == expected
        assert record["val_mean"] == expected
        assert record["val_num_samples"] == count


class Places(Steps):
    def validate_batch(self, batch, batch_info):
        return {"place": batch_info["batch_idx"], "step": batch_info["global_step"]}


def test_validation_knows_its_batch():
    own = estimator(Places, workers=2, lanes=4, metrics=[gp.metrics.Accuracy()])
    record = own.fit(few(), epochs=1, batch_size=4, validation_data=few())[-1]
    assert record["val_place"] == pytest.approx((4 * 0 + 4 * 1 + 1 * 2) / 9)
    assert record["val_step"] == 3
    # What an operator trains is not measured by others.
    assert "accuracy" not in record


class Moving(Steps):
    def train_batch(self, batch, batch_info):
        found = super().train_batch(batch, batch_info)
        self.update_schedulers()
        return found


class MovingEpochs(Epochs):
    def train_epoch(self, iterator, info):
        def moved():
            for batch in iterator:
                yield batch
                self.update_schedulers()

        return super().train_epoch(moved(), info)


class MovingAtTheEnd(Epochs):
    def train_epoch(self, iterator, info):
        found = super().train_epoch(iterator, info)
        self.update_schedulers()
        return {**found, "rate": self.optimizer.param_groups[0]["lr"]}


class Judging(Steps):
    def validate(self, val_iterator, info):
        list(val_iterator)
        self.update_schedulers(float(self.world_rank))
        return {"rate": self.optimizer.param_groups[0]["lr"]}


@pytest.mark.filterwarnings("ignore:the operator changes weights")
def test_schedulers_move_alike_on_all_workers():
    def halving(optimizer, config):
        return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

    def plateau(optimizer, config):
        return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)

    given = {"scheduler": halving, "scheduler_step_freq": "manual"}
    for operator, workers, lanes in ((Moving, 1, 2), (Moving, 2, 2), (MovingEpochs, 2, 2)):
        own = estimator(operator, workers=workers, lanes=lanes, **given)
        assert own.fit(few(), epochs=1, batch_size=4)["learning_rate"] == [pytest.approx(0.01 / 8)]
    # Its last batch has one row: the other worker waits with its move until that is learnt.
    own = estimator(MovingAtTheEnd, workers=2, **given)
    history = own.fit(few(), epochs=2, batch_size=4)
    assert history["rate"] == [pytest.approx(0.01 / 2), pytest.approx(0.01 / 4)]
    plain = estimator(Epochs, workers=2, scheduler=halving)
    plain.fit(few(), epochs=2, batch_size=4)
    assert own.digest() == plain.digest()
    # Their metrics are 0 and 1: by themselves they would see no plateau at different times.
    judged = estimator(Judging, workers=2, **{**given, "scheduler": plateau})
    history = judged.fit(few(), epochs=3, batch_size=4, validation_data=few())
    assert history["val_rate"] == pytest.approx([0.01, 0.01, 0.005])


class Noisy(Gan):
    """Draws behind a step, and changes weights beside steps."""

    def train_batch(self, batch, batch_info):
        found = super().train_batch(batch, batch_info)
        with torch.no_grad():
            for parameter in self.models[1].parameters():
                parameter.clamp_(-0.05, 0.05)
        return {**found, "drawn": torch.rand(()).item()}

    def validate(self, val_iterator, info):
        list(val_iterator)
        return {"largest": max(p.abs().max().item() for p in self.models[1].parameters())}


@pytest.mark.filterwarnings("ignore:the operator changes weights")
def test_code_behind_a_step_draws_its_own_and_ends_alike():
    own = estimator(Noisy, workers=2, model=_two, optimizer=_two_adams, loss=None)
    [[first, second]] = own.fit({"x": few(8)["x"]}, epochs=1, batch_size=8, reduce_results=False)
    assert first["drawn"] != second["drawn"]
    # Its last batch has one row: only one worker clamps.
    record = own.fit({"x": few(9)["x"]}, epochs=1, batch_size=4, validation_data=few())[-1]
    assert record["val_largest"] <= 0.0500001


def _two(config):
    return [nn.Linear(4, 4), nn.Linear(4, 1)]


def _two_adams(models, config):
    return [torch.optim.Adam(model.parameters(), lr=0.1) for model in models]


def test_several_models_say_what_they_need():
    with pytest.raises(ValueError, match=r"there are several models, and only the operator knows"):
        gan(workers=1).evaluate({"x": few()["x"]})


class Adding(Steps):
    def train_batch(self, batch, batch_info):
        loss = self.criterion(self.model(batch["x"]), batch["y"])
        self.backward(loss / 2)
        if batch_info["batch_idx"] % 2:
            self.optimizer.step()
            self.optimizer.zero_grad()
        return {"train_loss": loss.item(), "num_samples": len(batch["y"])}


def test_gradients_are_added_up_over_batches():
    whole = estimator(Steps, workers=1)
    whole.fit(few(8), epochs=1, batch_size=8)
    found = set()
    for workers, lanes in ((1, 1), (2, 2), (1, 2)):
        own = estimator(Adding, workers=workers, lanes=lanes)
        with pytest.warns(RuntimeWarning, match="adds gradients up over batches"):
            own.fit(few(8), epochs=1, batch_size=4)
        for name, value in own.state_dict().items():
            assert torch.allclose(value, whole.state_dict()[name], atol=1e-6), name
        found.add((lanes, own.digest()))
    assert len(found) == 2


class Deadly(Steps):
    def train_batch(self, batch, batch_info):
        found = super().train_batch(batch, batch_info)
        died_here = Path(self.config["died"])
        if self.world_rank == 1 and batch_info["global_step"] == 2 and not died_here.exists():
            died_here.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return found


@pytest.mark.filterwarnings("ignore:the first worker has the statistics")
@pytest.mark.filterwarnings("ignore:the run goes on")
def test_statistics_outlive_a_worker_that_is_lost_behind_its_step(tmp_path):
    def model(config):
        return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))

    found = []
    for died in (tmp_path, tmp_path / "died"):
        own = estimator(Deadly, workers=2, model=model, config={"died": str(died)})
        history = own.fit(few(16), epochs=2, batch_size=8)
        found.append((own.digest(), history["samples"]))
    assert (tmp_path / "died").exists()
    assert found[0] == found[1]
