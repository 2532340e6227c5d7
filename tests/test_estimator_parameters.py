"""What each parameter of an Estimator does, and what else it can be asked for."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from clusters import one_cluster, scratch  # noqa: F401 - a fixture
from processes import PATIENCE, finish, start
from sklearn.base import clone
from sklearn.model_selection import KFold
from small_models import Net, classifier, line, points, rows, weight

import grampus as gp
from grampus import metrics, session
from grampus.callbacks import Callback

runtime = one_cluster(workers=2)


def test_the_model_may_be_an_object_a_class_or_a_function():
    for seed in (3, 4):
        found = [
            classifier(model=model, seed=seed).digest()
            for model in (Net, lambda config: Net(config), lambda: Net())
        ]
        assert len(set(found)) == 1
    assert classifier(model=Net, seed=3).digest() != classifier(model=Net, seed=4).digest()
    module = Net()
    estimator = classifier(model=module, optimizer="sgd")
    before = {name: value.clone() for name, value in module.state_dict().items()}
    assert {name: value.tolist() for name, value in estimator.state_dict().items()} == {
        name: value.tolist() for name, value in before.items()
    }


def test_the_optimizer_may_be_an_object_a_function_or_a_name():
    module = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(module.weight)
    made = {
        "object": {"model": module, "optimizer": torch.optim.SGD(module.parameters(), lr=0.25)},
        "function": {"config": {"lr": 0.25}},
        "name": {"optimizer": "SGD", "config": {"lr": 0.25, "unknown": 1}},
    }
    for given in made.values():
        estimator = line(**given)
        estimator.fit(points(), batch_size=16)
        assert weight(estimator) == pytest.approx(1.5)
    with pytest.raises(ValueError, match=r"there is no optimizer 'best': use one of .*adam"):
        line(optimizer="best").fit(points())


def test_settings_of_a_named_optimizer_come_from_config():
    plain, heavy = (line(optimizer="sgd", config={"lr": 0.1, "momentum": m}) for m in (0.0, 0.9))
    for estimator in (plain, heavy):
        estimator.fit(points(), batch_size=8)
    assert weight(plain) == pytest.approx(3 - 3 * 0.8**2)
    assert weight(heavy) == pytest.approx(0.6 + 0.48 + 0.9 * 0.6)


def twice_the_square(output, target):
    return 2 * ((output - target) ** 2).mean()


class Output:
    def __init__(self, loss):
        self.loss = loss


class LossOfItsOwn(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, x, y):
        return Output(((self.weight * x - y) ** 2).mean())


@pytest.mark.parametrize(
    ("loss", "value"),
    [
        (torch.nn.MSELoss(), 9.0),
        (torch.nn.MSELoss, 9.0),
        (twice_the_square, 18.0),
        (lambda config: torch.nn.L1Loss(), 3.0),
        (lambda config: twice_the_square, 18.0),
    ],
    ids=["object", "class", "function", "creator", "creator of a function"],
)
def test_the_loss_may_be_written_in_many_ways(loss, value):
    assert line(loss=loss).fit(points(), batch_size=16)["loss"] == [value]


def test_the_loss_may_be_the_models_own():
    estimator = line(model=LossOfItsOwn, loss=None)
    data = {"x": {"x": points()["x"], "y": points()["y"]}}
    assert estimator.fit(data, batch_size=16)["loss"] == [9.0]
    with pytest.raises(ValueError, match="no loss was given, and the model's output, a Tensor, has none"):
        line(loss=None).fit(points())


def halving(optimizer, config):
    return torch.optim.lr_scheduler.StepLR(optimizer, 1, config.get("gamma", 0.5))


def test_the_scheduler_steps_each_epoch_or_each_batch():
    fits = {"epochs": 2, "batch_size": 8}
    assert line().fit(points(), **fits)["learning_rate"] == [0.1, 0.1]
    for often, rates in (("epoch", [0.1, 0.05]), ("batch", [0.025, 0.00625])):
        estimator = line(scheduler=halving, scheduler_step_freq=often)
        assert estimator.fit(points(), **fits)["learning_rate"] == pytest.approx(rates)
    expected = 3.0
    for rate in (0.1, 0.1, 0.05, 0.05):
        expected *= 1 - 2 * rate
    estimator = line(scheduler=halving)
    estimator.fit(points(), **fits)
    assert weight(estimator) == pytest.approx(3 - expected)
    with pytest.raises(
        ValueError, match="scheduler_step_freq must be 'batch', 'epoch' or 'manual', it is 'often'"
    ):
        line(scheduler_step_freq="often")


def test_the_scheduler_may_be_an_object():
    module = torch.nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    estimator = line(model=module, optimizer=optimizer, scheduler=halving(optimizer, {}))
    assert estimator.fit(points(), epochs=2)["learning_rate"] == [0.1, 0.05]
    other = torch.optim.SGD(module.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="the scheduler was built for another optimizer"):
        line(model=module, optimizer=optimizer, scheduler=halving(other, {})).fit(points())


def test_a_plateau_is_seen_on_the_validation_data():
    def plateau(optimizer, config):
        return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)

    # The training data gets better all the time, the validation data does not.
    other = {"x": torch.ones(4, 1), "y": -3 * torch.ones(4, 1)}
    history = line(scheduler=plateau).fit(points(), epochs=3, validation_data=other)
    assert history["learning_rate"] == [0.1, 0.1, 0.05]
    assert line(scheduler=plateau).fit(points(), epochs=3)["learning_rate"] == [0.1, 0.1, 0.1]


def test_config_reaches_all_creators():
    def data(config, batch_size):
        return points(config["rows"] * batch_size)

    class Scaled(torch.nn.Linear):
        def __init__(self, config):
            super().__init__(1, 1, bias=False)
            torch.nn.init.constant_(self.weight, config["weight"])

    def optimizer(model, config):
        return torch.optim.SGD(model.parameters(), lr=config["lr"])

    def loss(config):
        return lambda output, target: config["scale"] * ((output - target) ** 2).mean()

    config = {"rows": 2, "weight": 1.0, "lr": 0.25, "scale": 2.0, "gamma": 0.1}
    estimator = line(model=Scaled, optimizer=optimizer, loss=loss, scheduler=halving, config=config)
    history = estimator.fit(data, epochs=2, batch_size=8)
    assert history["samples"] == [16, 16]
    assert history["loss"] == [4.0, 0.0]
    assert history["learning_rate"] == pytest.approx([0.25, 0.025])
    with pytest.raises(TypeError, match="config must be a dict, it is a list"):
        line(config=[1])


def test_metrics_are_measured():
    history = classifier(metrics=None).fit(rows(), validation_data=rows(8))
    assert "val_accuracy" not in history[0] and "accuracy" not in history[0]
    wanted = [metrics.Accuracy(), metrics.Top5Accuracy()]
    found = classifier(metrics=wanted, model=lambda config: Net5()).evaluate(rows(8))
    assert {"loss", "accuracy", "num_samples"} < found.keys()


class Net5(torch.nn.Linear):
    def __init__(self):
        super().__init__(4, 6)


def test_workers_says_how_many_train():
    history = line(workers=1).fit(points())
    assert len(history.workers) == 1
    assert len(line().fit(points()).workers) == 2
    with pytest.raises(ValueError, match=r"workers=5 were asked for, the cluster has 2: call `resize\(5\)`"):
        line(workers=5, lanes=5).fit(points())
    for wrong in (0, -1, 1.5):
        with pytest.raises((ValueError, TypeError), match="workers must be a whole number"):
            line(workers=wrong)


def test_seed_and_lanes_decide_the_bits():
    def digest(**other):
        estimator = classifier(**other)
        estimator.fit(rows(), batch_size=16)
        return estimator.digest()

    assert digest() == digest()
    assert len({digest(), digest(seed=4), digest(lanes=2)}) == 3


def test_threads_per_lane_are_what_torch_uses():
    class Threads(Callback):
        def on_step_end(self, run):
            self.threads = torch.get_num_threads()

    threads = Threads()
    for count in (1, 2):
        line(threads_per_lane=count).fit(points(), callbacks=[threads])
        assert threads.threads == count


# Clipping


def test_gradients_are_clipped_to_a_range():
    estimator = line()
    estimator.set_constant_gradient_clipping(-1.0, 2.0)
    estimator.fit(points(), batch_size=16)
    assert weight(estimator) == pytest.approx(0.1)
    estimator.clear_gradient_clipping()
    estimator.fit(points(), batch_size=16)
    assert weight(estimator) == pytest.approx(0.1 + 0.2 * 2.9)
    # The upper bound, too.
    estimator = line()
    estimator.set_constant_gradient_clipping(-9.0, -7.0)
    estimator.fit(points(), batch_size=16)
    assert weight(estimator) == pytest.approx(0.7)
    with pytest.raises(ValueError, match=r"range from 2.0 to 1.0: min must be below max"):
        estimator.set_constant_gradient_clipping(2.0, 1.0)


def zeros(config):
    module = torch.nn.Linear(2, 1)
    for parameter in module.parameters():
        torch.nn.init.zeros_(parameter)
    return module


def test_gradients_are_clipped_by_the_norm_over_all_parameters():
    data = {"x": torch.ones(8, 2), "y": torch.ones(8, 1)}
    estimator = line(model=zeros, config={"lr": 1.0})
    # Numbers of numpy are numbers.
    estimator.set_l2_norm_gradient_clipping(np.float32(0.5))
    estimator.fit(data, batch_size=8)
    moved = torch.cat([value.flatten() for value in estimator.state_dict().values()])
    assert moved.norm().item() == pytest.approx(0.5, rel=1e-4)
    assert moved.tolist() == pytest.approx([0.5 / 3**0.5] * 3, rel=1e-4)
    estimator = line(model=zeros, config={"lr": 1.0})
    estimator.set_l2_norm_gradient_clipping(100.0)
    estimator.fit(data, batch_size=8)
    assert list(estimator.state_dict()["bias"]) == pytest.approx([2.0])
    with pytest.raises(ValueError, match="clip_norm must be above 0"):
        estimator.set_l2_norm_gradient_clipping(0)


# What scikit-learn asks for


def test_parameters_are_read_and_set():
    estimator = classifier(config={"lr": 0.5})
    params = estimator.get_params()
    assert (params["config"], params["lanes"], params["framework"]) == ({"lr": 0.5}, 4, "torch")
    assert gp.Estimator(**params).get_params() == params
    assert estimator.set_params(config={"lr": 0.25}, lanes=2) is estimator
    assert estimator.get_params()["config"] == {"lr": 0.25}
    with pytest.raises(ValueError, match="there is no parameter 'depth': there are backend, config"):
        estimator.set_params(depth=3)
    with pytest.raises(ValueError, match="lanes must be a whole number"):
        estimator.set_params(lanes=0)
    assert estimator.get_params()["lanes"] == 2


def test_what_is_set_is_obeyed():
    estimator = line()
    estimator.set_params(config={"lr": 0.25})
    estimator.fit(points(), batch_size=16)
    assert weight(estimator) == pytest.approx(1.5)


def test_the_score_is_the_first_metric_or_the_negative_loss():
    estimator = classifier()
    assert estimator.score(rows(20, 1)) == estimator.evaluate(rows(20, 1))["accuracy"]
    assert line().score(points()) == -9.0


def test_scikit_learn_clones_an_estimator():
    estimator = classifier()
    estimator.fit(rows(), batch_size=16)
    untrained = clone(estimator)
    assert untrained.digest() == classifier().digest() != estimator.digest()
    untrained.fit(rows(), batch_size=16)
    assert untrained.digest() == estimator.digest()
    # A module and its optimizer stay together.
    module = Net()
    parts = {"model": module, "optimizer": torch.optim.SGD(module.parameters(), lr=0.1), "scheduler": None}
    clone(classifier(**parts)).fit(rows(), batch_size=16)


def test_folds_are_trained_apart():
    data = rows(60)
    scores = []
    for train, held_out in KFold(2).split(data["x"]):
        estimator = clone(classifier())
        estimator.fit({name: value[train] for name, value in data.items()}, batch_size=16)
        scores.append(estimator.score({name: value[held_out] for name, value in data.items()}))
    assert len(scores) == 2 and all(0 <= score <= 1 for score in scores)


# The model, and the workers


def test_the_model_comes_out_ready_and_by_itself():
    estimator = classifier()
    estimator.fit(rows(), batch_size=16)
    model = estimator.get_model()
    assert not model.training
    x = rows(8, 1)["x"]
    assert torch.allclose(model(x), estimator.predict(x))
    with torch.no_grad():
        for value in model.state_dict().values():
            value.zero_()
    assert not torch.allclose(model(x), estimator.predict(x))
    assert estimator.state_dict().keys() == Net().state_dict().keys()


def test_the_digest_tells_weights_apart():
    estimator = classifier()
    before = estimator.digest()
    assert before == classifier(metrics=None).digest()
    assert len(before) == 64
    estimator.fit(rows(), batch_size=16)
    assert estimator.digest() != before


def test_it_says_what_it_is():
    estimator = classifier()
    assert repr(estimator) == "<grampus.Estimator of Net (torch)>"
    estimator.fit(rows(), epochs=2)
    assert repr(estimator) == "<grampus.Estimator of Net (torch), 2 epochs trained>"


def test_shutdown_leaves_what_others_have_started():
    with line() as estimator:
        estimator.fit(points())
    estimator.shutdown()
    assert session._session.own().is_running()
    # It can be used again, and what was trained is there.
    assert estimator.fit(points())["epoch"] == [2]


STARTS = """
    import torch, grampus as gp
    from grampus import session

    x = torch.ones(8, 1)
    with gp.Estimator.from_torch(
        model=torch.nn.Linear(1, 1), optimizer="sgd", loss=torch.nn.MSELoss(), workers=1
    ) as estimator:
        estimator.fit({"x": x, "y": x})
        assert session._session.own().is_running()
    assert session._session.own() is None
    estimator.shutdown()
    assert estimator.predict(x).shape == (8, 1)
    estimator.shutdown()
    print("done")
"""

FORCED = """
    import torch, grampus as gp
    from grampus import session

    gp.init(workers=1)
    x = torch.ones(8, 1)
    estimator = gp.Estimator.from_torch(model=torch.nn.Linear(1, 1), optimizer="sgd", loss=torch.nn.MSELoss())
    estimator.evaluate({"x": x, "y": x})
    estimator.shutdown()
    assert session._session.own().is_running()
    estimator.shutdown(force=True)
    assert session._session.own() is None
    print("done")
"""


def test_shutdown_ends_what_the_estimator_has_started():
    assert finish(start(STARTS), 3 * PATIENCE)[:2] == (0, "done\n")


def test_shutdown_by_force_ends_all():
    assert finish(start(FORCED), 3 * PATIENCE)[:2] == (0, "done\n")
