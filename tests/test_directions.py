"""Every metric says which way it becomes better, and all that compares epochs asks it."""

import pytest
import torch
import torchmetrics
from clusters import one_cluster, scratch  # noqa: F401 - a fixture
from sklearn import metrics as judge
from small_models import line, points

import grampus as gp
from grampus import metrics
from grampus._direction import better_way
from grampus.callbacks import EarlyStopping

runtime = one_cluster(2)

LESS = {
    *("MAE", "MSE", "RMSE", "MAPE", "MSPE", "sMAPE", "MDAPE", "sMDAPE", "MSLE"),
    *("BinaryCrossEntropy", "CategoricalCrossEntropy", "SparseCategoricalCrossEntropy"),
    *("KLDivergence", "Poisson"),
}
NEITHER = {"ME", "MPE", "ROC", "PrecisionRecallCurve"}
NEEDED = {
    "MeanAveragePrecision": {"k": 5, "classes": 3},
    "MeanAveragePrecisionObjectDetection": {"classes": 3},
}
KINDS = [kind for kind in metrics.Metric.__subclasses__() if kind.__module__ == metrics.__name__]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_metric_declares_its_direction(kind):
    expected = None if kind.__name__ in NEITHER else kind.__name__ not in LESS
    assert kind(**NEEDED.get(kind.__name__, {})).higher_is_better is expected


@pytest.mark.parametrize("name", ["mae", "mse", "r2", "accuracy", "binarycrossentropy", "f1score", "auc"])
def test_directions_agree_with_predictions_that_become_better(name):
    """The oracle: predictions nearer to the target are better, whatever the metric is called."""
    target = torch.tensor([0.0, 1.0, 1.0, 0.0])
    bad, good = torch.tensor([0.9, 0.2, 0.6, 0.6]), torch.tensor([0.1, 0.9, 0.8, 0.2])
    found = []
    for predictions in (bad, good):
        meter = metrics.meter(metrics.named([name])[name])
        meter.update(predictions, target)
        found.append(meter.value())
    assert (found[1] > found[0]) is metrics.directions([name])[name]


class Wanders(torch.nn.Module):
    """The probability of the right class in each epoch, whatever was trained: the optimizer does nothing."""

    def __init__(self, config=None):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.register_buffer("epoch", torch.zeros(()))

    def forward(self, x):
        if self.training:
            self.epoch += 1
        right = torch.tensor([0.5, 0.8, 0.9, 0.3, 0.2, 0.1])[self.epoch.long() - 1]
        return torch.stack([right, 1 - right]).expand(len(x), 2) + 0 * self.weight


def wandering(**other):
    """One step an epoch."""
    given = {"model": Wanders, "optimizer": "sgd", "config": {"lr": 0.0}, "loss": torch.nn.NLLLoss()}
    return gp.Estimator.from_torch(**{**given, "lanes": 1, "workers": 1, **other})


ROWS = {"x": torch.ones(4, 1), "y": torch.zeros(4, dtype=torch.long)}


def fitted(estimator, **other):
    given = {"epochs": 6, "batch_size": 4, "validation_data": ROWS}
    return estimator.fit(ROWS, **{**given, **other})


def test_the_best_checkpoint_of_a_crossentropy_is_that_of_the_least(tmp_path):
    name = "sparsecategoricalcrossentropy"
    estimator = wandering(metrics=[name])
    history = fitted(estimator, checkpoint=gp.Checkpoint(tmp_path, best=f"val_{name}", keep=1))
    values = [record[f"val_{name}"] for record in history]
    assert values.index(min(values)) == 2
    loaded = wandering(metrics=[name]).load(tmp_path, best=True)
    # The oracle is scikit-learn's log loss of what the loaded model predicts.
    expected = judge.log_loss(ROWS["y"], loaded.predict(ROWS["x"]).double(), labels=[0, 1])
    assert loaded.evaluate(ROWS)[name] == pytest.approx(expected, rel=1e-5)
    assert loaded.evaluate(ROWS)[name] == pytest.approx(min(values))


def test_early_stopping_waits_for_a_crossentropy_to_fall():
    name = "sparsecategoricalcrossentropy"
    stopping = EarlyStopping(monitor=f"val_{name}", patience=2)
    history = fitted(wandering(metrics=[name]), callbacks=[stopping])
    assert len(history) == 5
    assert stopping.best_epoch == 3


def test_names_of_metrics_do_not_decide():
    """A metric of which more is better, under a name with "mse" and "loss" in it."""
    stopping = EarlyStopping("val_lossless_mse", patience=2)
    fitted(wandering(metrics={"lossless_mse": metrics.Accuracy()}), callbacks=[stopping])
    assert (stopping.best_epoch, stopping.best) == (1, 1.0)


def test_torchmetrics_say_it_themselves():
    found = metrics.directions(
        {
            "f1": torchmetrics.F1Score(task="binary"),
            "mse": torchmetrics.MeanSquaredError(),
            "mean": torchmetrics.MeanMetric(),
        }
    )
    assert found == {"f1": True, "mse": False, "mean": None}


def unknown(predictions, targets):
    return float(predictions[0, 0])


@pytest.mark.parametrize(
    "asking",
    [
        lambda folder: {"checkpoint": gp.Checkpoint(folder, best="val_unknown")},
        lambda folder: {"callbacks": [EarlyStopping("val_unknown")]},
    ],
    ids=["Checkpoint", "EarlyStopping"],
)
def test_a_function_of_the_users_own_must_be_told(asking, tmp_path):
    with pytest.raises(ValueError, match=r"whether more or less of 'val_unknown' is better.*mode=\"min\" or"):
        fitted(wandering(metrics=[unknown]), **asking(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_function_that_was_told_is_compared_as_it_says():
    stopping = EarlyStopping("val_unknown", patience=2, mode="max")
    fitted(wandering(metrics=[unknown]), callbacks=[stopping])
    assert stopping.best_epoch == 3

    def told(predictions, targets):
        return -float(predictions[0, 0])

    told.higher_is_better = False
    estimator = wandering(metrics=[told])
    stopping = EarlyStopping("val_told", patience=2)
    fitted(estimator, callbacks=[stopping])
    assert stopping.best_epoch == 3


def test_one_callback_can_serve_estimators_with_other_metrics():
    stopping = EarlyStopping("val_what", patience=2)
    fitted(wandering(metrics={"what": metrics.Accuracy()}), callbacks=[stopping])
    assert stopping.best == 1.0
    fitted(wandering(metrics={"what": metrics.SparseCategoricalCrossEntropy()}), callbacks=[stopping])
    assert stopping.best_epoch == 3


@pytest.mark.parametrize("name", ["mse", "rmse", "poisson"])
def test_the_score_of_an_error_rises_as_the_model_improves(name):
    estimator = line(metrics=[name])
    # The weight is 0 at first, of which the logarithm that Poisson takes is none.
    estimator.fit(points(), epochs=1)
    before = estimator.score(points())
    estimator.fit(points(), epochs=5)
    after = estimator.score(points())
    assert before < after
    assert after == -estimator.evaluate(points())[name]


def test_the_score_is_refused_where_nothing_says_what_is_better():
    with pytest.raises(ValueError, match=r"whether more or less of 'unknown' is better.*higher_is_better"):
        wandering(metrics=[unknown]).score(ROWS)
    with pytest.raises(ValueError, match="'me'"):
        line(metrics=["me"]).score(points())


def rates(history):
    return [round(record["learning_rate"], 6) for record in history]


def test_a_plateau_of_gp_optim_looks_the_way_of_its_metric():
    """Accuracy stays 1.0 and then falls: with "min" a fall would be an improvement."""
    schedule = gp.optim.Plateau("val_accuracy", factor=0.5, patience=0, epsilon=0.0)
    estimator = wandering(metrics=["accuracy"], scheduler=schedule, config={"lr": 1e-30})
    model_rates = [record["learning_rate"] / 1e-30 for record in fitted(estimator)]
    assert [round(rate, 4) for rate in model_rates] == [1.0, 1.0, 0.5, 0.25, 0.125, 0.0625]
    with pytest.raises(ValueError, match=r"more or less of \"val_unknown\" is better"):
        fitted(wandering(metrics=[unknown], scheduler=gp.optim.Plateau("val_unknown")))


def test_a_plateau_inside_another_schedule_is_settled_too():
    schedule = gp.optim.WarmUp(1, gp.optim.Plateau("val_accuracy", factor=0.5, patience=0, epsilon=0.0))
    estimator = wandering(metrics=["accuracy"], scheduler=schedule, config={"lr": 1e-30})
    assert fitted(estimator)[-1]["learning_rate"] < 1e-31


def test_a_plateau_of_native_models_looks_the_way_of_its_metric():
    model = gp.nn.Sequential().add(gp.nn.Linear(1, 1))
    given = {"model": model, "loss": gp.nn.MSE(), "optimizer": gp.optim.SGD(lr=0.01)}
    # R² rises from epoch to epoch: nothing is cut. With "min" each epoch would be worse than the first.
    schedule = gp.optim.Plateau("val_r2", factor=0.5, patience=0)
    estimator = gp.Estimator.from_native(**given, metrics=["r2"], scheduler=schedule, workers=1)
    x = torch.linspace(-1, 1, 16).unsqueeze(1).numpy()
    rows = {"x": x, "y": 3 * x}
    history = estimator.fit(rows, epochs=4, validation_data=rows)
    assert [record["val_r2"] for record in history] == sorted(record["val_r2"] for record in history)
    assert rates(history) == [0.01] * 4


def plateau(mode):
    return lambda optimizer, config: torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode, patience=0)


@pytest.mark.parametrize(
    ("mode", "monitor"), [("min", "val_accuracy"), ("max", "val_loss"), ("max", None), ("max", "val_error")]
)
def test_torchs_plateau_must_not_look_the_wrong_way(mode, monitor):
    measured = {"accuracy": metrics.Accuracy(), "error": metrics.SparseCategoricalCrossEntropy()}
    scheduler = {"scheduler": plateau(mode)}
    if monitor is not None:
        scheduler["monitor"] = monitor
    with pytest.raises(ValueError, match=rf"ReduceLROnPlateau\(mode='{mode}'\).*pass mode="):
        fitted(wandering(metrics=measured, scheduler=scheduler))


def test_torchs_plateau_is_taken_at_its_word_where_nothing_is_known():
    fitted(wandering(metrics=[unknown], scheduler={"scheduler": plateau("max"), "monitor": "val_unknown"}))


def test_a_score_that_falls_or_is_not_measured_ends_no_run():
    until = gp.triggers.MaxScore(0.9) | gp.triggers.MaxEpoch(2)
    with pytest.raises(ValueError, match='less of "sparsecategoricalcrossentropy" is better'):
        fitted(wandering(metrics=["sparsecategoricalcrossentropy"]), epochs=until)
    with pytest.raises(ValueError, match="validation data"):
        fitted(wandering(metrics=["accuracy"]), epochs=until, validation_data=None)
    # The number of rows is no score.
    assert len(fitted(wandering(), epochs=until)) == 2
    assert len(fitted(wandering(metrics=["accuracy"]), epochs=until)) == 1


def test_what_lightning_logs_has_a_direction_where_it_is_a_loss():
    assert [better_way(name, {}) for name in ("valid/loss", "train_loss_epoch", "val_accuracy", "gloss")] == [
        "min",
        "min",
        None,
        None,
    ]
