"""`evaluate` and `predict`: each row once, in order, and equal at any number of workers."""

import numpy as np
import pandas as pd
import pytest
import torch
import torchmetrics
from estimators import Rows, Stream, numbers, runtime, scratch, seeing  # noqa: F401 - fixtures
from torch import nn
from torch.utils import data as torch_data
from torch.utils.data import DataLoader, TensorDataset

import grampus as gp

LENGTH = 23


def estimator(model, **settings):
    return gp.Estimator.from_torch(model=model, optimizer="sgd", config={"lr": 0.1}, workers=2, **settings)


# Predictions


def expected():
    return numbers(LENGTH).flatten().tolist()


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (numbers(LENGTH), torch.Tensor),
        ({"x": numbers(LENGTH)}, torch.Tensor),
        ({"x": numbers(LENGTH), "y": numbers(LENGTH)}, torch.Tensor),
        (numbers(LENGTH).numpy(), np.ndarray),
        ({"x": numbers(LENGTH).numpy()}, np.ndarray),
        (TensorDataset(numbers(LENGTH)), torch.Tensor),
        (Rows(LENGTH), torch.Tensor),
        (DataLoader(Rows(LENGTH), batch_size=5), torch.Tensor),
        (DataLoader(Rows(LENGTH), batch_size=5, shuffle=True), torch.Tensor),
        (DataLoader(Rows(LENGTH), batch_size=5, num_workers=2), torch.Tensor),
        (DataLoader(TensorDataset(numbers(LENGTH)), batch_size=5), torch.Tensor),
        (DataLoader(Stream(LENGTH), batch_size=5), torch.Tensor),
        (lambda config: Rows(LENGTH), torch.Tensor),
    ],
    ids=[
        "tensor",
        "x",
        "x and y",
        "array",
        "x array",
        "tensor data set",
        "data set",
        "loader",
        "loader that shuffles",
        "loader with processes",
        "loader of features",
        "stream",
        "creator",
    ],
)
def test_predictions_are_of_the_kind_that_was_given_and_in_order(data, kind, tmp_path):
    est = seeing(tmp_path, workers=3)
    found = est.predict(data, batch_size=None)
    assert isinstance(found, kind)
    assert found.shape == (LENGTH, 1)
    assert found.flatten().tolist() == expected()


def test_predictions_of_a_frame_are_a_column_of_it(tmp_path):
    frame = pd.DataFrame({"a": np.arange(7, dtype=np.float32), "b": list("abcdefg")}, index=range(10, 17))
    found = seeing(tmp_path, workers=2).predict(frame, batch_size=4, feature_cols=["a"])
    assert list(found.columns) == ["a", "b", "prediction"]
    assert list(found.index) == list(frame.index)
    assert found["prediction"].tolist() == frame["a"].tolist()
    assert list(frame.columns) == ["a", "b"]


def test_predictions_come_in_the_order_of_a_sampler(tmp_path):
    chosen = [7, 3, 3, 9, 1, 0, 8]

    class Chosen(torch_data.Sampler):
        def __iter__(self):
            return iter(chosen)

    loader = DataLoader(Rows(10), batch_size=4, sampler=Chosen())
    assert seeing(tmp_path, workers=3).predict(loader).flatten().tolist() == chosen
    batches = DataLoader(Rows(10), batch_sampler=[[7, 3], [3], [9, 1, 0, 8]])
    assert seeing(tmp_path, workers=3).predict(batches).flatten().tolist() == chosen


class Several(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.kind = config["kind"]
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, left, right):
        total, product = (left + right) * self.weight, left * right
        return {"total": total, "product": product} if self.kind is dict else (total, product)


@pytest.mark.parametrize("kind", [tuple, dict])
def test_several_inputs_and_several_outputs(kind):
    left, right = numbers(9), numbers(9).flip(0)
    est = gp.Estimator.from_torch(model=Several, optimizer="sgd", config={"kind": kind}, workers=2)
    for data in (
        {"x": (left, right)},
        {"x": {"left": left, "right": right}},
        (left, right),
        DataLoader(TensorDataset(left, right), batch_size=4),
        # Three parts, of which the last is no input.
        DataLoader(TensorDataset(left, right, left), batch_size=4),
    ):
        found = est.predict(data, batch_size=4 if not isinstance(data, DataLoader) else None)
        assert isinstance(found, kind)
        total, product = found.values() if kind is dict else found
        assert total.equal(left + right)
        assert product.equal(left * right)


def test_several_outputs_for_a_frame_are_several_columns():
    frame = pd.DataFrame({"left": np.arange(5.0), "right": np.arange(5.0)})
    for kind, names in ((tuple, ["0", "1"]), (dict, ["total", "product"])):
        est = gp.Estimator.from_torch(model=Several, optimizer="sgd", config={"kind": kind}, workers=2)
        found = est.predict(frame, feature_cols=["left", "right"])
        assert list(found.columns) == ["left", "right", *(f"prediction_{name}" for name in names)]
        assert found[f"prediction_{names[1]}"].tolist() == [0, 1, 4, 9, 16]


class Moody(nn.Module):
    """Another one in training: half of its output is dropped, and statistics are kept."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.BatchNorm1d(1), nn.Dropout(0.5))

    def forward(self, x):
        return self.layers(x)


def test_the_model_does_not_train_while_it_predicts():
    est = estimator(Moody)
    before = est.digest()
    found = est.predict(numbers(50), batch_size=4)
    assert torch.allclose(found, numbers(50), rtol=1e-4)
    assert est.digest() == before


def test_outputs_that_are_not_one_for_each_row():
    class Total(nn.Linear):
        def forward(self, x):
            return super().forward(x).sum()

    with pytest.raises(ValueError, match="output has 1 row for a batch of 4"):
        estimator(lambda config: Total(1, 1)).predict(numbers(8), batch_size=8)


def test_predictions_of_small_floats_for_arrays():
    """Numpy has no bfloat16."""

    class Small(nn.Linear):
        def forward(self, x):
            return super().forward(x).to(torch.bfloat16)

    found = estimator(lambda config: Small(1, 1)).predict(np.zeros((4, 1), np.float32))
    assert found.dtype == np.float32


# Evaluation


def classes(count=37):
    random = torch.Generator().manual_seed(1)
    return {
        "x": torch.randn(count, 4, generator=random),
        "y": torch.randint(3, (count,), generator=random),
    }


class Shapes:
    """Tells how often it is called, and with what."""

    __name__ = "Shapes"

    def __init__(self, path):
        self.path = path

    def __call__(self, predictions, targets):
        with self.path.open("a") as file:
            file.write(f"{tuple(predictions.shape)} {targets.tolist()}\n")
        return (predictions.argmax(1) == targets).float().mean()


def judge(workers, lanes=None, metrics=None):
    return gp.Estimator.from_torch(
        model=lambda config: nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5)),
        optimizer="sgd",
        loss=nn.CrossEntropyLoss(),
        metrics=metrics,
        workers=workers,
        lanes=lanes,
        seed=2,
        threads_per_lane=1,
    )


def test_an_evaluation_equals_a_plain_one(tmp_path):
    data = classes()
    metrics = [
        gp.metrics.Accuracy(),
        "Top5Accuracy",
        torchmetrics.classification.MulticlassF1Score(num_classes=3),
        Shapes(tmp_path / "calls"),
    ]
    found = {workers: judge(workers, 3, metrics).evaluate(data, batch_size=8) for workers in (1, 2, 3)}
    names = ["loss", "accuracy", "top5accuracy", "multiclassf1score", "shapes", "num_samples"]
    assert list(found[1]) == names
    assert found[1] == found[2] == found[3]

    model = judge(1).get_model()
    with torch.no_grad():
        output = model(data["x"])
    right = (output.argmax(1) == data["y"]).float().mean().item()
    f1 = torchmetrics.functional.classification.multiclass_f1_score(output, data["y"], num_classes=3)
    assert found[1]["loss"] == pytest.approx(nn.functional.cross_entropy(output, data["y"]).item())
    assert found[1]["accuracy"] == pytest.approx(right)
    assert found[1]["shapes"] == pytest.approx(right)
    assert found[1]["multiclassf1score"] == pytest.approx(f1.item())
    assert found[1]["num_samples"] == 37


def test_metrics_do_not_depend_on_the_number_of_lanes(tmp_path):
    metrics = {"accuracy": "accuracy", "own": Shapes(tmp_path / "calls")}
    found = [judge(workers, workers, metrics).evaluate(classes(), batch_size=8) for workers in (1, 2, 3)]
    for name in metrics:
        assert found[0][name] == found[1][name] == found[2][name]
    assert found[0]["loss"] == pytest.approx(found[2]["loss"])


def test_a_function_sees_all_rows_at_once_and_in_order(tmp_path):
    data = classes()
    shuffled = DataLoader(TensorDataset(data["x"], data["y"]), batch_size=8, shuffle=True)
    for workers, rows in ((1, data), (3, data), (2, shuffled)):
        path = tmp_path / f"calls {workers}"
        judge(workers, metrics=[Shapes(path)]).evaluate(rows, batch_size=8)
        assert path.read_text().splitlines() == [f"(37, 3) {data['y'].tolist()}"]


@pytest.mark.parametrize("kind", [tuple, dict])
def test_a_function_sees_all_outputs_of_a_model(kind):
    def right(predictions, targets):
        product = predictions["product"] if kind is dict else predictions[1]
        return (product == targets).float().mean()

    settings = {"loss": lambda output, target: target.mean(), "config": {"kind": kind}, "workers": 2}
    est = gp.Estimator.from_torch(model=Several, optimizer="sgd", metrics=[right], **settings)
    data = {"x": (numbers(9), numbers(9)), "y": numbers(9) ** 2}
    assert est.evaluate(data, batch_size=4)["right"] == 1.0


def test_groups_stay_together():
    """Rows that are groups may be cut anywhere; flat rows where a lane's part of a batch is whole groups."""
    scores = torch.rand(20, 6, generator=torch.Generator().manual_seed(1))
    targets = torch.eye(6)[torch.arange(20) % 6]
    wanted = [gp.metrics.HitRatio(2, neg_num=5), gp.metrics.NDCG(2, neg_num=5)]
    alone = gp.metrics.meter(wanted[1])
    alone.update(scores, targets)
    judge = estimator(lambda config: nn.Identity(), loss=nn.MSELoss(), metrics=wanted, lanes=2)
    rows = judge.evaluate({"x": scores, "y": targets}, batch_size=7)
    flat = {"x": scores.reshape(-1, 1), "y": targets.reshape(-1, 1)}
    assert rows["ndcg"] == judge.evaluate(flat, batch_size=24)["ndcg"] == alone.value()
    with pytest.raises(ValueError, match="16 rows, which are no whole groups of 6: let a row hold"):
        judge.evaluate(flat, batch_size=32)


def test_groups_are_not_measured_while_a_model_trains():
    targets = torch.eye(6)[torch.arange(20) % 6].reshape(-1, 1)
    wanted = [gp.metrics.HitRatio(2, neg_num=5), gp.metrics.RMSE()]
    trained = estimator(lambda config: nn.Linear(1, 1), loss=nn.MSELoss(), metrics=wanted, lanes=2)
    flat = {"x": targets, "y": targets}
    record = trained.fit(flat, batch_size=24, validation_data=flat)[-1]
    assert {"rmse", "val_rmse", "val_hitratio"} <= set(record)
    assert "hitratio" not in record


def test_an_evaluation_changes_nothing(tmp_path):
    est = judge(2)
    est.fit(classes(), batch_size=8)
    before = est.digest()
    est.evaluate(classes(), batch_size=8)
    est.predict(classes())
    assert est.digest() == before


def test_validation_does_not_change_what_is_learnt():
    def digest(**options):
        est = judge(2)
        est.fit(classes(), epochs=2, batch_size=8, **options)
        return est.digest()

    assert digest() == digest(validation_data=classes(11))


def test_what_an_interrupted_task_left_does_not_reach_the_next():
    """A task that is interrupted just as it enters `torch.no_grad` never leaves it."""
    gp.run(torch.set_grad_enabled, False)
    assert all(gp.run(torch.is_grad_enabled))
