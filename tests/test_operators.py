"""Training operators: code of the user's own in place of a step, of an epoch, of validation."""

from __future__ import annotations

import itertools
import os
import threading
import time
from pathlib import Path

import pytest
import torch
from clusters import one_cluster, scratch  # noqa: F401 - a fixture
from operator_models import ROWS, Epochs, Gan, Plain, Steps, by_hand, data, estimator, gan
from torch import nn

import grampus as gp

runtime = one_cluster(workers=3, heartbeat_timeout=1.5)


def test_a_step_of_ones_own_is_a_step():
    own = estimator(Steps, workers=1)
    history = own.fit(data(), epochs=2, batch_size=32)
    plain, expected = by_hand(2, 32)
    assert own.digest() == plain.digest()
    assert history["loss"] == expected["loss"]


@pytest.mark.parametrize("lanes", [2, 3])
def test_weights_are_the_same_at_any_number_of_workers(lanes):
    found = {}
    for workers in range(1, lanes + 1):
        own = estimator(Steps, workers=workers, lanes=lanes)
        history = own.fit(data(), epochs=2, batch_size=32)
        found[workers] = own.digest(), history["right"], history["samples"]
    assert len({digest for digest, _, _ in found.values()}) == 1
    plain = by_hand(2, 32)[0]
    for name, value in own.state_dict().items():
        assert torch.allclose(value, plain.state_dict()[name], atol=1e-6)
    for _, right, samples in found.values():
        assert samples == [ROWS] * 2
        assert right == pytest.approx(found[1][1])


def test_more_lanes_than_the_cluster_has_workers():
    own = estimator(Steps, lanes=4)
    own.fit(data(), epochs=2, batch_size=32)
    other = estimator(Steps, lanes=4, workers=1)
    other.fit(data(), epochs=2, batch_size=32)
    assert own.digest() == other.digest()


def test_numbers_are_means_over_rows_and_info_arrives():
    own = estimator(Steps, workers=2)
    history = own.fit(data(), epochs=1, batch_size=32, info={"asked": 7})
    record = history[-1]
    assert record["asked"] == 7
    # Batches 0, 1, 2 of 32 rows and the last of 4.
    assert record["place"] == pytest.approx((32 * (0 + 1 + 2) + 4 * 3) / ROWS)


def test_config_reaches_setup():
    one, other = (estimator(Steps, workers=1, config={"factor": factor}) for factor in (1.0, 2.0))
    losses = [each.fit(data(), epochs=1, batch_size=100)["loss"][0] for each in (one, other)]
    assert losses[1] == pytest.approx(2 * losses[0])


def test_results_of_each_worker():
    own = estimator(Steps, workers=2)
    both = own.fit(data(), epochs=2, batch_size=32, reduce_results=False)
    # Of three batches of 32 rows both have a half, of the last four rows the first worker has all.
    assert [[each["samples"] for each in epoch] for epoch in both] == [[52, 48]] * 2
    assert [[each["epoch"] for each in epoch] for epoch in both] == [[1, 1], [2, 2]]
    again = estimator(Steps, workers=2)
    whole = again.fit(data(), epochs=2, batch_size=32)
    for epoch, record in zip(both, whole, strict=True):
        rows = [each["samples"] for each in epoch]
        mean = sum(each["loss"] * count for each, count in zip(epoch, rows, strict=True)) / sum(rows)
        assert mean == pytest.approx(record["loss"])
        assert epoch[0]["loss"] != epoch[1]["loss"]


@pytest.mark.filterwarnings("ignore:the operator changes weights more than once")
def test_an_epoch_of_ones_own():
    own = estimator(Epochs, workers=1)
    history = own.fit(data(), epochs=2, batch_size=32)
    plain, expected = by_hand(2, 32)
    assert own.digest() == plain.digest()
    assert history["loss"] == pytest.approx(expected["loss"])
    assert history["epoch_was"] == [0.0, 1.0]
    several = estimator(Epochs, workers=3)
    # The last batch has one row, so two of three workers have one batch less.
    assert several.fit(data(), epochs=2, batch_size=33)["samples"] == [ROWS] * 2
    plain = by_hand(2, 33)[0]
    for name, value in several.state_dict().items():
        assert torch.allclose(value, plain.state_dict()[name], atol=1e-6)


class GanOfOne(Gan):
    """Half of the judge's step, which the others then miss."""

    def train_batch(self, batch, batch_info):
        if self.world_rank == 1:
            self.optimizers[0].step()
        return super().train_batch(batch, batch_info)


@pytest.mark.filterwarnings("ignore:the operator changes weights more than once")
def test_two_models_with_two_optimizers_learn_in_step():
    own = gan(workers=2)
    history = own.fit({"x": data()["x"]}, epochs=3, batch_size=32)
    record = history[-1]
    assert record["loss"] == pytest.approx(record["loss_g"] + record["loss_d"])
    generator, judge = own.get_model()
    made = own.predict(torch.zeros(5, 4))
    assert torch.equal(made, generator(torch.zeros(5, 4)).detach())
    assert judge(made).shape == (5, 1)
    again = gan(workers=2)
    again.fit({"x": data()["x"]}, epochs=3, batch_size=32)
    assert again.digest() == own.digest()
    wrong = gan(workers=2, training_operator_cls=GanOfOne)
    with pytest.raises(ValueError, match=r"operators take different steps: that of rank 0 optimizer 1"):
        wrong.fit({"x": data()["x"]}, batch_size=32)


@pytest.mark.filterwarnings("ignore:the operator changes weights more than once")
def test_a_saved_gan_goes_on(tmp_path):
    def trained(place, epochs, **options):
        own = gan(workers=2)
        saved = gp.Checkpoint(place, every=gp.triggers.EverySteps(3))
        own.fit({"x": data()["x"]}, epochs=epochs, batch_size=32, checkpoint=saved, **options)
        return own.digest()

    trained(tmp_path / "a", 3, max_steps=5)
    assert trained(tmp_path / "a", 3, resume=True) == trained(tmp_path / "b", 3)


@pytest.mark.filterwarnings("ignore:the run goes on", "ignore:no worker", "ignore:the operator changes")
@pytest.mark.parametrize("saved", [True, False])
def test_a_gan_whose_worker_is_killed_between_its_steps(tmp_path, saved):
    calm = gan(workers=2)
    calm.fit({"x": data()["x"]}, epochs=3, batch_size=32)
    own = gan(workers=2, config={"deadly": str(tmp_path / "died")})
    if not saved:
        with pytest.raises(gp.WorkerDied) as raised:
            own.fit({"x": data()["x"]}, epochs=3, batch_size=32)
        # What is left comes home; the run itself cannot go on from it.
        assert "pass checkpoint=" in "".join(raised.value.__notes__)
        assert "which the next step has changed in part" in raised.value.__notes__[-1]
        (tmp_path / "died").unlink()
        own = gan(workers=2, config={"deadly": str(tmp_path / "died")})
        seldom = gp.Checkpoint(tmp_path / "seldom", every=gp.triggers.EverySteps(1000))
        with pytest.warns(RuntimeWarning, match=r"begins anew, since it was not saved yet: .*rank 1"):
            own.fit({"x": data()["x"]}, epochs=3, batch_size=32, checkpoint=seldom)
        assert own.digest() == calm.digest()
        return
    checkpoint = gp.Checkpoint(tmp_path / "saved", every=gp.triggers.EverySteps(3))
    own.fit({"x": data()["x"]}, epochs=3, batch_size=32, checkpoint=checkpoint)
    assert (tmp_path / "died").exists()
    assert own.digest() == calm.digest()


class DeadlyStep(Steps):
    """Dies once, before or behind its step."""

    def train_batch(self, batch, batch_info):
        place = Path(self.config["deadly"])
        dies = self.world_rank == 1 and batch_info["global_step"] == 5 and not place.exists()
        if dies and self.config["when"] == "before":
            place.touch()
            os._exit(9)
        found = super().train_batch(batch, batch_info)
        if dies:
            place.touch()
            os._exit(9)
        return found


@pytest.mark.filterwarnings("ignore:the run goes on")
@pytest.mark.parametrize("when", ["before", "behind"])
def test_one_step_for_a_batch_heals_without_a_checkpoint(tmp_path, when):
    calm = estimator(Steps, workers=2)
    calm.fit(data(), epochs=3, batch_size=32)
    own = estimator(DeadlyStep, workers=2, config={"deadly": str(tmp_path / "died"), "when": when})
    history = own.fit(data(), epochs=3, batch_size=32)
    assert (tmp_path / "died").exists()
    assert own.digest() == calm.digest()
    assert history["samples"] == [ROWS] * 3


def test_the_state_of_an_operator_is_saved(tmp_path):
    own = estimator(Steps, workers=2)
    own.fit(data(), epochs=2, batch_size=32)
    own.save(tmp_path / "saved")
    later = estimator(Steps, workers=2).load(tmp_path / "saved")
    record = later.fit(data(), epochs=1, batch_size=50)[-1]
    # Eight batches were seen before.
    assert record["seen"] == pytest.approx(9.5)


class Twice(Steps):
    def train_batch(self, batch, batch_info):
        super().train_batch(batch, batch_info)
        return super().train_batch(batch, batch_info)


class Average(Steps):
    """Answers with the mean of its weights so far."""

    def setup(self, config):
        super().setup(config)
        self.mean = None

    def train_batch(self, batch, batch_info):
        found = super().train_batch(batch, batch_info)
        now = {name: value.clone() for name, value in self.model.state_dict().items()}
        self.mean = self.mean or now
        for name, value in self.mean.items():
            value.lerp_(now[name], 0.1)
        return found

    def predict_batch(self, batch):
        return torch.func.functional_call(self.model, self.mean, batch)

    def validate_batch(self, batch, batch_info):
        return {"seen_so_far": self.seen}

    def state_dict(self):
        return {**super().state_dict(), "mean": self.mean}

    def load_state_dict(self, state_dict):
        super().load_state_dict(state_dict)
        self.mean = state_dict["mean"]


def test_the_state_of_an_operator_is_there_when_it_answers(tmp_path):
    own = estimator(Average, workers=2)
    own.fit(data(), epochs=2, batch_size=32)
    assert own.evaluate(data())["seen_so_far"] == 8
    answers = own.predict(data()["x"])
    assert not torch.allclose(answers, own.get_model()(data()["x"]))
    own.save(tmp_path / "run")
    again = estimator(Average, workers=1).load(tmp_path / "run")
    assert torch.allclose(again.predict(data()["x"]), answers, atol=1e-6)


def test_several_steps_need_a_worker_for_each_lane():
    twice = estimator(Twice, workers=2, lanes=4)
    with pytest.raises(ValueError, match=r"more than one step for a batch.*4 lanes on 2 workers"):
        twice.fit(data(), batch_size=32)
    one = estimator(Twice, workers=2)
    one.fit(data(), epochs=1, batch_size=32)
    assert one.fit(data(), epochs=1, batch_size=32)["seen"][-1] == pytest.approx(13.04, abs=1.0)
    with pytest.raises(ValueError, match=r"needs a worker for each lane: there are 4 lanes on 2 workers"):
        gan(workers=2, lanes=4).fit({"x": data()["x"]}, batch_size=32)


class Judge(gp.TrainingOperator):
    """Only validates and predicts in its own way; training stays as it is."""

    def validate_batch(self, batch, batch_info):
        output = self.model(batch["x"])
        return {
            "val_loss": output.abs().mean().item(),
            "largest": output.max().item(),
            "num_samples": len(output),
        }

    def predict_batch(self, batch):
        return self.model(batch).argmax(1)


class JudgeAll(gp.TrainingOperator):
    def validate(self, val_iterator, info):
        rows = sum(len(batch["x"]) for batch in val_iterator)
        return {"rows_here": rows, "num_samples": rows, "asked": info.get("asked", 0)}


def test_validation_and_prediction_of_ones_own():
    own = estimator(Judge, workers=2, lanes=4)
    plain = estimator(None, workers=2, lanes=4)
    history = own.fit(data(), epochs=1, batch_size=32, validation_data=data())
    plain.fit(data(), epochs=1, batch_size=32)
    assert own.digest() == plain.digest()
    model = own.get_model()
    output = model(data()["x"]).detach()
    assert history[-1]["val_loss"] == pytest.approx(output.abs().mean().item(), rel=1e-5)
    found = own.evaluate(data())
    assert found["num_samples"] == ROWS
    assert found["val_loss"] == pytest.approx(output.abs().mean().item(), rel=1e-5)
    assert torch.equal(own.predict(data()["x"]), output.argmax(1))
    every = estimator(JudgeAll, workers=2).evaluate(data(), info={"asked": 3})
    assert every == {"rows_here": pytest.approx(50.0, abs=2), "asked": 3.0, "num_samples": ROWS}


def test_the_first_steps_are_all_that_is_evaluated():
    own = estimator(None, workers=2)
    assert own.evaluate(data(), batch_size=8, num_steps=3)["num_samples"] == 24
    assert own.evaluate(data(), batch_size=8)["num_samples"] == ROWS
    first = {name: values[:24] for name, values in data().items()}
    assert own.evaluate(data(), batch_size=8, num_steps=3)["loss"] == pytest.approx(
        own.evaluate(first)["loss"]
    )


def test_profiles_say_how_long_parts_take():
    own = estimator(None, workers=2)
    record = own.fit(data(), epochs=1, batch_size=32, profile=True, validation_data=data())[-1]
    names = {"train_epoch", "fwd", "bwd", "sync", "apply", "validation", "eval_fwd"}
    assert set(record["profile"]) == {f"mean_{name}_s" for name in names}
    assert all(value > 0 for value in record["profile"].values())
    assert "profile" not in own.fit(data(), epochs=1, batch_size=32)[-1]
    found = own.evaluate(data(), profile=True)
    assert set(found["profile"]) == {"mean_eval_fwd_s", "mean_validation_s"}
    timed = estimator(Timed, workers=1).fit(data(), epochs=1, batch_size=50, profile=True)[-1]["profile"]
    assert timed["mean_own_part_s"] >= 0.001


class Timed(Steps):
    def train_batch(self, batch, batch_info):
        with self.timers.record("own_part"):
            time.sleep(0.001)
        return super().train_batch(batch, batch_info)


def count_starts(folder):
    def hook():
        (Path(folder) / f"{os.getpid()}-{time.monotonic_ns()}").touch()

    return hook


def test_the_hook_is_called_once_on_every_worker(tmp_path):
    told = tmp_path / "told"
    told.mkdir()
    own = estimator(None, workers=2, initialization_hook=count_starts(str(told)))
    for _ in range(2):
        own.fit(data(), epochs=1, batch_size=32)
    own.evaluate(data())
    pids = [path.name.split("-")[0] for path in told.iterdir()]
    assert sorted(pids) == sorted(set(pids))
    assert len(pids) == 2
    with pytest.raises(TypeError, match=r"initialization_hook must be a function"):
        estimator(None, initialization_hook=3)


def test_so_many_workers_on_each_node():
    own = estimator(None, workers_per_node=2)
    assert len(own.fit(data(), epochs=1, batch_size=32).workers) == 2
    with pytest.raises(ValueError, match=r"workers and workers_per_node were both passed"):
        estimator(None, workers=2, workers_per_node=2)


def halving(optimizer, config):
    return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)


class Manual(Steps):
    def train_batch(self, batch, batch_info):
        found = super().train_batch(batch, batch_info)
        if batch_info["batch_idx"] == 1:
            self.update_schedulers()
        return found


def test_schedulers_that_wait_to_be_asked(capfd):
    own = estimator(None, workers=2, scheduler=halving, scheduler_step_freq="manual")
    assert own.fit(data(), epochs=2, batch_size=32)["learning_rate"] == [0.01] * 2
    own.update_schedulers()
    # Torch has seen no step of this very optimizer, and would say that the order is wrong.
    assert "lr_scheduler.step()" not in capfd.readouterr().err
    assert own.fit(data(), epochs=1, batch_size=32)["learning_rate"] == [0.005]
    by_operator = estimator(Manual, workers=2, scheduler=halving, scheduler_step_freq="manual")
    assert by_operator.fit(data(), epochs=2, batch_size=32)["learning_rate"] == [0.005, 0.0025]

    def plateau(optimizer, config):
        return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.1, patience=0)

    other = estimator(None, workers=1, scheduler=plateau, scheduler_step_freq="manual")
    for loss, expected in ((1.0, 0.01), (2.0, 0.001)):
        other.update_scheduler(loss)
        assert other.fit(data(), epochs=1, batch_size=50)["learning_rate"] == [pytest.approx(expected)]
    with pytest.raises(ValueError, match=r"there is no scheduler to update"):
        estimator(None).update_schedulers()
    with pytest.raises(ValueError, match=r"scheduler_step_freq=None: say when it steps"):
        estimator(None, scheduler=halving, scheduler_step_freq=None)


def test_an_optimizer_that_asks_for_the_loss_itself():
    def lbfgs(model, config):
        return torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4)

    found = {}
    for workers in (1, 2, 3):
        own = estimator(None, workers=workers, optimizer=lbfgs)
        found[workers] = own.fit(data(), epochs=3, batch_size=100)["loss"]
    module = Plain()
    torch.manual_seed(0)
    module.load_state_dict(estimator(None, workers=1).state_dict())
    rule = torch.optim.LBFGS(module.parameters(), lr=0.5, max_iter=4)
    x, y = data()["x"], data()["y"]
    expected = []
    for _ in range(3):

        def closure():
            rule.zero_grad()
            loss = nn.functional.cross_entropy(module(x), y)
            loss.backward()
            return loss

        expected.append(rule.step(closure).item())
    for losses in found.values():
        assert losses == pytest.approx(expected, rel=1e-4)


class Nothing(gp.TrainingOperator):
    def train_batch(self, batch, batch_info):
        return None


class Lossless(Steps):
    def train_batch(self, batch, batch_info):
        super().train_batch(batch, batch_info)
        return {"judge": 1.0}


class WrongJudge(Steps):
    def validate_batch(self, batch, batch_info):
        return [1.0]


class WrongState(Steps):
    def state_dict(self):
        return {"function": self.setup}


class Broken(Steps):
    def train_batch(self, batch, batch_info):
        raise KeyError("the user's own")


def test_wrong_use_is_named():
    with pytest.raises(TypeError, match=r"train_batch of the operator returned a NoneType: return a dict"):
        estimator(Nothing, workers=2).fit(data(), batch_size=32)
    with pytest.warns(RuntimeWarning, match=r"the operator returns no loss, .*'train_loss'") as told:
        estimator(Lossless, workers=2, lanes=4).fit(data(), epochs=2, batch_size=32)
    assert len(told) == 1
    with pytest.raises(TypeError, match=r"validate_batch of the operator returned a list: .*'val_loss'"):
        estimator(WrongJudge, workers=2).evaluate(data())
    # What was trained is not thrown away for it.
    with pytest.warns(RuntimeWarning, match=r"operator\.function is a method"):
        estimator(WrongState, workers=1).fit(data(), batch_size=32)
    with pytest.raises(KeyError, match="the user's own") as raised:
        estimator(Broken, workers=2).fit(data(), batch_size=32)
    assert "at step 1 of the run" in "".join(raised.value.__notes__)
    with pytest.raises(TypeError, match=r"training_operator_cls must be a class of gp.TrainingOperator"):
        estimator(object)
    with pytest.raises(ValueError, match=r"there are 2 models: pass a training_operator_cls"):
        gan(training_operator_cls=None, workers=1).fit({"x": data()["x"]})
    with pytest.raises(ValueError, match=r"audit=True does not see the rows of a train_epoch"):
        estimator(Epochs, workers=1).fit(data(), audit=True)
    with pytest.raises(TypeError, match=r"info must be a dict"):
        estimator(None).fit(data(), info=3)


class Locks(Steps):
    """Returns what cannot travel."""

    def train_batch(self, batch, batch_info):
        return {**super().train_batch(batch, batch_info), "guard": threading.Lock()}


class LocksEpochs(Locks):
    def train_epoch(self, iterator, info):
        return super().train_epoch(iterator, info)


class LocksValidation(Steps):
    def validate_batch(self, batch, batch_info):
        return {**super().validate_batch(batch, batch_info), "guard": [threading.Lock()]}


@pytest.mark.parametrize("operator", [Locks, LocksEpochs, LocksValidation])
def test_what_cannot_be_pickled_is_named_by_its_key(operator):
    est = estimator(operator, workers=2)
    named = r"the operator returned as 'guard'.* is a lock, which cannot be sent"
    with pytest.raises(gp.NotPicklable, match=named):
        est.fit(data(), epochs=2, batch_size=20, validation_data=data())
    # The epoch was trained.
    assert est._at["step_in_epoch"] > 0


def test_every_kind_of_backend_takes_operators():
    own = estimator(Steps, workers=2, backend="torch_distributed")
    own.fit(data(), epochs=2, batch_size=32)
    ours = estimator(Steps, workers=2)
    ours.fit(data(), epochs=2, batch_size=32)
    for (name, value), other in zip(own.state_dict().items(), ours.state_dict().values(), strict=True):
        assert torch.allclose(value, other, atol=1e-6), name


def test_operators_that_never_step_do_not_wait():
    class Looks(gp.TrainingOperator):
        def train_batch(self, batch, batch_info):
            return {"train_loss": 1.0, "num_samples": len(batch["x"])}

    for workers, lanes in itertools.product((1, 2), (2,)):
        own = estimator(Looks, workers=workers, lanes=lanes)
        before = own.digest()
        own.fit(data(), epochs=1, batch_size=32)
        assert own.digest() == before


class Words(Steps):
    def train_batch(self, batch, batch_info):
        told = super().train_batch(batch, batch_info)
        return {**told, "said": f"by rank {self.world_rank}", "nested": {"rank": self.world_rank}}


def test_what_is_no_number_is_of_one_worker():
    own = estimator(Words, workers=2)
    both = own.fit(data(), epochs=1, batch_size=32, reduce_results=False)
    assert [each["said"] for each in both[0]] == ["by rank 0", "by rank 1"]
    assert both[0][1]["nested"] == {"rank": 1}
    record = own.fit(data(), epochs=1, batch_size=32)[-1]
    assert record["said"] == "by rank 0"
    assert record["nested"] == {"rank": 0}


def test_metrics_of_one_evaluation():
    own = estimator(None, workers=2, metrics=[gp.metrics.Accuracy()])
    assert set(own.evaluate(data(), metrics=[gp.metrics.Top5Accuracy()])) == {
        "loss",
        "top5accuracy",
        "num_samples",
    }
    assert set(own.evaluate(data())) == {"loss", "accuracy", "num_samples"}


def test_metrics_that_an_operator_does_not_return_are_warned_about():
    own = estimator(Judge, workers=2, metrics=["accuracy"])
    for call in (lambda: own.evaluate(data()), lambda: own.fit(data(), epochs=2, validation_data=data())):
        with pytest.warns(RuntimeWarning, match="the metrics accuracy are not measured") as warned:
            call()
        assert sum("not measured" in str(each.message) for each in warned) == 1


def test_a_loss_may_come_with_the_weights(tmp_path):
    own = estimator(None, workers=1)
    own.save(tmp_path / "weights.pt")
    doubled = estimator(None, workers=1).load(tmp_path / "weights.pt", loss=twice_the_loss)
    assert doubled.evaluate(data())["loss"] == pytest.approx(2 * own.evaluate(data())["loss"])


def twice_the_loss(output, target):
    return 2 * nn.functional.cross_entropy(output, target)


def test_progress_can_be_hidden(monkeypatch):
    shown = []
    monkeypatch.setattr("grampus._progress._find_screen", lambda: shown.append(1))
    for show in (False, True):
        estimator(None, workers=1).fit(data(), epochs=1, callbacks=[gp.callbacks.Progress(show=show)])
        assert bool(shown) is show


def two_groups(model, config):
    groups = [
        {"params": model.layers[0].parameters(), "lr": 0.0},
        {"params": model.layers[2].parameters(), "lr": 0.05, "weight_decay": 0.1},
    ]
    return torch.optim.SGD(groups, lr=0.1, momentum=0.9)


def test_groups_of_parameters_are_kept(tmp_path):
    own = estimator(None, workers=2, optimizer=two_groups, scheduler=halving)
    before = own.state_dict()
    own.fit(data(), epochs=2, batch_size=32)
    after = own.state_dict()
    assert torch.equal(before["layers.0.weight"], after["layers.0.weight"])
    assert not torch.equal(before["layers.2.weight"], after["layers.2.weight"])
    own.save(tmp_path / "groups")
    later = estimator(None, workers=1, optimizer=two_groups, scheduler=halving).load(tmp_path / "groups")
    later.fit(data(), epochs=1, batch_size=32)
    own.fit(data(), epochs=1, batch_size=32)
    assert later.digest() == own.digest()
    groups = own._state["plain"]["optimizer"]["groups"]
    assert [group["lr"] for group in groups] == [0.0, pytest.approx(0.05 / 8)]
    assert [group["weight_decay"] for group in groups] == [0, 0.1]
