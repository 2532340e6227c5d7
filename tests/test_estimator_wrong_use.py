"""What wrong use of an estimator gets: an error that says where and what to do, and workers that go on."""

import re
import traceback
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from estimators import Rows, numbers, runtime, scratch  # noqa: F401 - fixtures
from torch import nn
from torch.utils.data import DataLoader

import grampus as gp

DATA = {"x": numbers(8), "y": numbers(8)}


def estimator(**settings):
    given = {
        "model": lambda config: nn.Linear(1, 1),
        "optimizer": "sgd",
        "loss": nn.MSELoss(),
        "config": {"lr": 0.01},
        "workers": 2,
        **settings,
    }
    return gp.Estimator.from_torch(**given)


@pytest.fixture(autouse=True)
def workers_go_on(runtime, scratch):  # noqa: F811 - fixtures
    """Whatever went wrong, the next fit on the same workers is as any other."""
    before = gp.run(gp.rank)
    yield
    assert gp.run(gp.rank) == before
    assert estimator(workers=3).fit(DATA, batch_size=4)[-1]["samples"] == 8


def refused(error, words, call):
    """The call is refused, in words of this kind."""
    with pytest.raises(error) as caught:
        call()
    text = str(caught.value.args[0])
    assert re.search(words, text, re.DOTALL), text
    assert text[0] == text[0].lower() or text.startswith("Grampus"), text
    assert not text.endswith("."), text
    return caught.value


# Models and what belongs to them


def needs_three(one, two, three):
    raise AssertionError("never called")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"model": needs_three}, r"model creator needs_three needs 3 arguments: write it as f\(config\)"),
        ({"optimizer": needs_three}, r"optimizer creator needs_three needs 3 .*f\(model, config\)"),
        ({"loss": needs_three}, r"loss needs_three needs 3 .*f\(output, target\) or f\(config\)"),
        ({"scheduler": needs_three}, r"scheduler creator needs_three needs 3 .*f\(optimizer, config\)"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_creators_that_need_three_arguments(settings, words):
    refused(TypeError, words, lambda: estimator(**settings).fit(DATA))


def test_a_creator_of_data_that_needs_three_arguments():
    words = r"data creator needs_three needs 3 arguments: .*f\(config\) or f\(config, batch_size\)"
    refused(TypeError, words, lambda: estimator().fit(needs_three))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"model": 3}, r"model is a int: pass a module, its class, or a function f\(config\)"),
        ({"model": lambda config: "net"}, "model creator returned a str, not a torch.nn.Module"),
        ({"optimizer": 0.1}, r"optimizer is a float: pass a torch optimizer, .*'adam'"),
        ({"optimizer": lambda model, config: None}, "optimizer creator returned a NoneType"),
        ({"loss": "mse"}, "loss is a str: pass a module"),
        ({"loss": lambda config: 3}, "loss creator returned a int"),
        (
            {"scheduler": "cosine"},
            r"scheduler is a str: pass a torch scheduler, one of gp.optim, or a function f\(optimizer",
        ),
        ({"scheduler": lambda optimizer, config: 3}, "scheduler creator returned a int"),
    ],
    ids=[
        "model",
        "made model",
        "optimizer",
        "made optimizer",
        "loss",
        "made loss",
        "scheduler",
        "made scheduler",
    ],
)
def test_what_is_something_else(settings, words):
    refused(TypeError, words, lambda: estimator(**settings).fit(DATA))


def test_an_optimizer_without_a_name():
    refused(
        ValueError,
        r"no optimizer 'sgdd': use one of .*adam.*sgd",
        lambda: estimator(optimizer="sgdd").fit(DATA),
    )


def test_a_class_of_optimizers_is_as_good_as_its_name():
    assert estimator(optimizer=torch.optim.AdamW).fit(DATA)[-1]["learning_rate"] == 0.01


def test_an_optimizer_of_another_model():
    other = nn.Linear(1, 1)
    est = estimator(model=nn.Linear(1, 1), optimizer=torch.optim.SGD(other.parameters(), 0.1))
    refused(ValueError, "2 of the optimizer's 2 parameters are not the model's", lambda: est.fit(DATA))
    # A creator makes its model on every worker, so an optimizer made here cannot be that model's.
    est = estimator(optimizer=torch.optim.SGD(other.parameters(), 0.1))
    refused(ValueError, "built for another model; build it from this one's", lambda: est.fit(DATA))


def test_a_scheduler_of_another_optimizer():
    model = nn.Linear(1, 1)
    mine, other = (torch.optim.SGD(model.parameters(), 0.1) for _ in range(2))
    scheduler = torch.optim.lr_scheduler.ConstantLR(other)
    est = estimator(model=model, optimizer=mine, scheduler=scheduler)
    refused(ValueError, "scheduler was built for another optimizer: build it", lambda: est.fit(DATA))


def test_a_model_without_anything_to_train():
    refused(
        ValueError,
        "no parameter that can be trained",
        lambda: estimator(model=lambda config: nn.Linear(1, 1).requires_grad_(False)).fit(DATA),
    )


@pytest.mark.parametrize("metric", ["accurracy", 3, "loss"])
def test_what_is_no_metric(metric):
    metrics = {"loss": "mae"} if metric == "loss" else [metric]
    words = {
        "accurracy": "no metric 'accurracy': choose one of accuracy",
        3: "3 is no metric: give",
        "loss": "a metric is called 'loss', .*another name",
    }
    refused(
        TypeError if metric == 3 else ValueError, words[metric], lambda: estimator(metrics=metrics).fit(DATA)
    )


@pytest.mark.parametrize("suffix", ["safetensors", "pt", "folder"])
def test_what_was_saved_of_another_model(suffix, tmp_path):
    class Deep(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(1, 4), nn.Linear(4, 1)

        def forward(self, x):
            return self.second(self.first(x))

    path = tmp_path / f"saved.{suffix}"
    deep = estimator(model=Deep)
    deep.fit(DATA)
    deep.save(path)
    words = "weights are of another model; it lacks: bias, weight; it has besides: first.bias, first.weight"
    refused(ValueError, words, lambda: estimator().load(path))
    wide = estimator(model=lambda config: nn.Linear(1, 2))
    wide.fit({"x": numbers(4), "y": torch.zeros(4, 2)})
    wide.save(path)
    refused(
        ValueError,
        r"another model; shapes differ: bias \(2,\) for \(1,\), weight \(2, 1\) for \(1, 1\)",
        lambda: estimator().load(path),
    )


def test_going_on_from_a_checkpoint_of_another_model(tmp_path):
    estimator(model=lambda config: nn.Linear(1, 1, bias=False)).fit(DATA, checkpoint=tmp_path / "run")
    refused(
        ValueError,
        "another model; it lacks: bias",
        lambda: estimator().fit(DATA, epochs=2, checkpoint=tmp_path / "run", resume=True),
    )


def test_going_on_from_nowhere():
    refused(
        ValueError,
        "resume=True needs a place.*checkpoint= or model_dir=",
        lambda: estimator().fit(DATA, resume=True),
    )
    with pytest.warns(RuntimeWarning, match="no checkpoint in nowhere, which resume= names: the run starts"):
        estimator().fit(DATA, resume="nowhere")


# Losses


def test_a_loss_that_is_not_one_number():
    words = r"the loss is a tensor of shape \(4, 1\), not a tensor of one number: reduce it"
    refused(ValueError, words, lambda: estimator(loss=nn.MSELoss(reduction="none")).fit(DATA, batch_size=8))
    words = "the loss is a float, not a tensor of one number"
    refused(ValueError, words, lambda: estimator(loss=lambda output, target: 1.5).fit(DATA))


def test_no_loss_at_all():
    refused(
        ValueError,
        "no loss was given, and the model's output, a Tensor, has none",
        lambda: estimator(loss=None).fit(DATA),
    )


def far(output, target):
    return (output - target).abs().mean()


def broken(output, target=None):
    raise TypeError("of its own")


def test_a_loss_that_needs_a_target():
    words = "the loss MSELoss needs a target, and the batch has none: name its column with label_cols="
    refused(ValueError, words, lambda: estimator().fit({"x": numbers(8)}))
    words = "the loss .*far needs a target"
    refused(ValueError, words, lambda: estimator(loss=far).fit({"x": numbers(8)}))
    # One that needs none, and fails for a reason of its own.
    with pytest.raises(TypeError, match="of its own"):
        estimator(loss=broken).fit({"x": numbers(8)})


class HasHole(Rows):
    """One of its rows is no number."""

    def __getitem__(self, row):
        return torch.tensor([float("nan") if row == 9 else float(row)]), torch.zeros(1)


def test_a_loss_that_is_no_number_is_warned_of():
    words = "the loss is nan at epoch 1, step 2, lane 0: rows 8, 9, 10, 11"
    with pytest.warns(RuntimeWarning, match=words) as told:
        estimator().fit(DataLoader(HasHole(16), batch_size=8))
    # Where the user has called it.
    assert {warning.filename for warning in told} == {__file__}


def test_a_loss_that_stays_no_number_is_warned_of_once_an_epoch():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator(workers=1).fit(DataLoader(HasHole(64), batch_size=8), epochs=2)
    words = [str(warning.message) for warning in caught if "the loss is nan" in str(warning.message)]
    assert [re.search(r"epoch \d, step \d", text)[0] for text in words] == [
        "epoch 1, step 2",
        "epoch 2, step 1",
    ]


def test_a_loss_that_is_no_number_can_end_the_run():
    refused(
        FloatingPointError,
        "the loss is nan at epoch 1, step 2, lane 0: rows 8, 9, 10, 11; look at these rows",
        lambda: estimator().fit(DataLoader(HasHole(16), batch_size=8), callbacks=[gp.callbacks.StopOnNaN()]),
    )
    # A run in which every loss is a number ends as it would without.
    stopping = gp.callbacks.EarlyStopping("loss", patience=3)
    history = estimator().fit(DATA, epochs=2, callbacks=[gp.callbacks.StopOnNaN(), stopping])
    assert len(history) == 2


def test_labels_of_the_wrong_type():
    est = estimator(model=lambda config: nn.Linear(1, 3), loss=nn.CrossEntropyLoss())
    with pytest.raises(RuntimeError) as caught:
        est.fit({"x": numbers(8), "y": torch.zeros(8, dtype=torch.int32)}, batch_size=8)
    printed = "".join(traceback.format_exception(caught.value))
    assert "but got Int" in str(caught.value)
    assert re.search(r"grampus: in lane \d, a batch of 4 rows \(float32 \[4, 1\], int32 \[4\]\)", printed)
    assert "cross_entropy" in printed


# Errors of the user's own


class OwnError(Exception):
    def __init__(self, text, number):
        super().__init__(text)
        self.number = number


class FailsOnOne(nn.Linear):
    """Fails where the last row is."""

    def forward(self, x):
        if (x == 7).any():
            self.fail()
        return super().forward(x)

    def fail(self):
        raise OwnError("row seven", 7)


@pytest.mark.parametrize("call", ["fit", "evaluate", "predict"])
def test_an_exception_of_one_worker(call):
    est = estimator(model=lambda config: FailsOnOne(1, 1), workers=3)
    with pytest.raises(OwnError) as caught:
        getattr(est, call)(DataLoader(Rows(8), batch_size=8))
    assert caught.value.number == 7
    printed = "".join(traceback.format_exception(caught.value))
    assert "in fail\n" in printed
    assert "grampus: in lane 2, a batch of 2 rows" in printed
    assert isinstance(caught.value.__cause__, gp.WorkerTraceback)
    assert caught.value.__cause__.rank == 2


def test_an_exception_of_a_creator_or_a_data_set():
    def failing(config):
        raise OwnError("no model today", 1)

    class Broken(Rows):
        def __getitem__(self, row):
            raise ArithmeticError(f"row {row}")

    with pytest.raises(OwnError, match="no model today"):
        estimator(model=failing).fit(DATA)
    for processes in (0, 2):
        with pytest.raises(ArithmeticError, match="row"):
            estimator().fit(DataLoader(Broken(8), batch_size=4, num_workers=processes))


class FailsLate(Rows):
    def __getitem__(self, row):
        if row == 200:
            raise ArithmeticError("row 200")
        return super().__getitem__(row)


@pytest.mark.timeout(180)
def test_an_exception_while_processes_of_a_loader_read():
    """They end with the run; the end of this file finds nothing that they left."""
    est = estimator(model=lambda config: FailsOnOne(1, 1))
    for call in (est.fit, est.evaluate, est.predict):
        with pytest.raises(OwnError):
            call(DataLoader(Rows(300), batch_size=6, num_workers=2))
    with pytest.raises(ArithmeticError, match="row 200"):
        estimator(config={"lr": 0.0}).fit(DataLoader(FailsLate(300), batch_size=6, num_workers=2))
    history = estimator().fit(DataLoader(Rows(300), batch_size=6, num_workers=2), max_steps=3)
    assert history.reason == "max_steps=3 steps done"


# Data


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        ({"x": numbers(5), "y": numbers(4)}, ValueError, r"number of rows: x \(5, 1\), y \(4, 1\)"),
        ({"x": (numbers(5), numbers(4))}, ValueError, r"number of rows: x\[0\] \(5, 1\), x\[1\] \(4, 1\)"),
        ({"x": numbers(5), "y": torch.tensor(3)}, ValueError, r"number of rows: x \(5, 1\), y \(\)"),
        ({}, ValueError, "number of rows: there are none"),
        ({"x": np.array([1, "two", None], object)}, TypeError, "x is an array of object, .*numbers first"),
        ({"x": np.array(["a", "b"])}, TypeError, "x is an array of <U1"),
        ({"x": np.array(["2026-01-01"], "datetime64[D]")}, TypeError, "x is an array of datetime64"),
        ({"x": None, "y": numbers(4)}, TypeError, "x is an array of object"),
        ({"left": numbers(4), "y": numbers(4)}, TypeError, r"keys \['left', 'y'\].*feature_cols"),
        (3, TypeError, "a int is no data: pass arrays"),
        (None, TypeError, "a NoneType is no data"),
        (iter([1, 2]), TypeError, "is no data: pass arrays"),
        (lambda config: 3, TypeError, "a int is no data"),
        (
            pd.DataFrame({"a": [1.0]}),
            ValueError,
            "data frame needs feature_cols, and for training label_cols",
        ),
        (DataLoader(Rows(4), batch_size=None), ValueError, "batch_size=None over a map-style data set"),
    ],
    ids=[
        "lengths",
        "lengths within",
        "a number",
        "nothing",
        "objects",
        "texts",
        "dates",
        "no x",
        "odd keys",
        "an int",
        "none",
        "an iterator",
        "a creator of an int",
        "a frame",
        "a loader of rows",
    ],
)
def test_data_that_makes_no_sense(data, error, words):
    if type(data).__name__ == "list_iterator":
        data = lambda config: iter([1, 2])  # noqa: E731 - an iterator does not travel
    refused(error, words, lambda: estimator().fit(data))


def test_columns_that_are_not_there():
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [1.0, 2.0], "c": ["x", "y"]})
    est = estimator()
    for call in (est.fit, est.evaluate):
        words = "label_cols names 'z', which is not there: there are 'a', 'b', 'c'"
        refused(KeyError, words, lambda: call(frame, feature_cols=["a"], label_cols=["z"]))  # noqa: B023
        refused(KeyError, "feature_cols names 'z'", lambda: call(frame, feature_cols="z", label_cols="b"))  # noqa: B023
    refused(
        TypeError,
        "column 'c' is an array of (object|str)",
        lambda: est.fit(frame, feature_cols="c", label_cols="b"),
    )
    refused(KeyError, "feature_cols names 'z'", lambda: est.predict(frame, feature_cols=["z"]))


# Numbers and options


@pytest.mark.parametrize("name", ["batch_size", "epochs", "max_steps"])
@pytest.mark.parametrize(
    ("value", "error"),
    [(0, ValueError), (-1, ValueError), (2.5, TypeError), ("8", TypeError), (True, ValueError)],
)
def test_numbers_that_make_no_sense(name, value, error):
    words = f"{name} must be a whole number.*, it is {value!r}"
    refused(error, words, lambda: estimator().fit(DATA, **{name: value}))


def test_more_workers_than_the_cluster_has():
    words = r"workers=4 were asked for, the cluster has 3: call `resize\(4\)` of the cluster"
    refused(ValueError, words, lambda: estimator(workers=4).fit(DATA))


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"config": [1]}, TypeError, "config must be a dict, it is a list"),
        ({"backend": "mpi"}, ValueError, "no backend 'mpi': use 'grampus'"),
        ({"workers": 0}, ValueError, "workers must be a whole number of at least 1, it is 0"),
        ({"lanes": 1.5}, TypeError, "lanes must be a whole number"),
        ({"threads_per_lane": -1}, ValueError, "threads_per_lane must be"),
        ({"scheduler_step_freq": "step"}, ValueError, "must be 'batch', 'epoch' or 'manual', it is 'step'"),
        ({"seed": "one"}, TypeError, "seed must be a whole number, it is 'one'"),
        ({"seed": -1}, ValueError, "seed must be a whole number from 0"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_settings_that_make_no_sense(settings, error, words):
    refused(error, words, lambda: estimator(**settings))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: estimator(scheduler_creator=print), "no scheduler_creator=: pass it as scheduler="),
        (lambda: estimator(use_tqdm=True), r"no use_tqdm=: .*Progress\(show=False\)"),
        (lambda: estimator().fit(DATA, checkpoint_trigger=1), "no checkpoint_trigger=: .* checkpoint="),
        (lambda: estimator().fit(DATA, validation_methods=[]), "no validation_methods=: .* metrics="),
        (lambda: estimator().evaluate(DATA, validation_methods=[]), "no validation_methods=: .* metrics="),
    ],
)
def test_names_that_parameters_had_elsewhere(call, words):
    refused(TypeError, words, call)


def test_gradients_cannot_be_clipped_to_a_text():
    refused(TypeError, "clip_norm must be a number", lambda: estimator().set_l2_norm_gradient_clipping("1"))
    refused(TypeError, "max must be a number", lambda: estimator().set_constant_gradient_clipping(0, None))


def test_what_only_a_validation_measures():
    def plateau(optimizer, config):
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
        return {"scheduler": scheduler, "monitor": "val_accuracy"}

    words = "no 'val_accuracy' for the scheduler to look at: .*; pass validation_data="
    refused(ValueError, words, lambda: estimator(scheduler=plateau).fit(DATA))
    words = "'val_loss', which is not measured; there are: loss; pass validation_data="
    with pytest.raises(ValueError, match=words):
        estimator().fit(DATA, callbacks=[gp.callbacks.EarlyStopping()])


def test_callbacks_that_are_none():
    words = "is no callback: derive its class from grampus.callbacks.Callback or Logger"
    refused(TypeError, words, lambda: estimator().fit(DATA, callbacks=[print]))
    refused(
        TypeError,
        "callbacks must be a list, .*EarlyStopping",
        lambda: estimator().fit(DATA, callbacks=gp.callbacks.EarlyStopping("loss")),
    )


def test_a_checkpoint_that_is_none():
    refused(TypeError, "checkpoint is a int: pass a folder", lambda: estimator().fit(DATA, checkpoint=3))
    refused(
        ValueError,
        "no place for checkpoints",
        lambda: estimator().fit(DATA, checkpoint=gp.triggers.EveryEpoch()),
    )
    place = gp.Checkpoint("run", on_driver_loss=True)
    refused(
        ValueError,
        "on_driver_loss of Checkpoint needs backend='grampus'",
        lambda: estimator(backend="torch_distributed").fit(DATA, checkpoint=place),
    )


def test_a_model_that_cannot_travel():
    import threading

    lock = threading.Lock()
    with pytest.raises(gp.NotPicklable, match="lock"):
        estimator(model=lambda config: lock and nn.Linear(1, 1)).fit(DATA)


def test_nothing_is_said_where_all_is_well():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimator().fit(DATA, batch_size=4, validation_data=DATA)


@pytest.mark.parametrize(
    "wrong", [{"max_failures": -1}, {"max_steps": 0}, {"batch_size": 0}, {"epochs": "two"}]
)
def test_what_was_asked_for_wrongly_leaves_no_folder(wrong, tmp_path):
    with pytest.raises((TypeError, ValueError)):
        estimator().fit(DATA, **wrong)
    assert not (tmp_path / "grampus_runs").exists()
