"""Labels that are no class, and losses that are no number: errors name the row in the data, or none."""

import functools

import pyarrow
import pyarrow.parquet
import pytest
import torch
from estimators import numbers, runtime, scratch  # noqa: F401 - fixtures
from torch import nn

import grampus as gp


def estimator(model, **settings):
    return gp.Estimator.from_torch(
        model=model, **{"optimizer": "sgd", "loss": nn.MSELoss(), "workers": 2, **settings}
    )


class Shouting(nn.Module):
    """Three classes."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 3)

    def forward(self, x):
        return self.layer(x)


def labels(odd, count=11):
    y = torch.arange(count) % 3
    y[8] = odd
    return y


@pytest.mark.parametrize("odd", [7, -1])
@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(), nn.functional.cross_entropy, nn.NLLLoss()])
def test_a_label_out_of_range_names_row_label_and_classes(odd, loss):
    est = estimator(Shouting, loss=loss, config={"lr": 0.1})
    data = {"x": numbers(11), "y": labels(odd)}
    words = rf"row 8 has the label {odd}, and the model's output has 3 classes: labels must be from 0 to 2"
    for call in (est.fit, est.evaluate):
        with pytest.raises(IndexError, match=words):
            call(data, batch_size=4)


def test_a_label_out_of_range_in_a_picture_and_in_a_step_of_ones_own():
    class Pixels(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Conv2d(1, 3, 1)

        def forward(self, x):
            return self.layer(x)

    targets = torch.zeros(6, 2, 2, dtype=torch.int64)
    targets[4, 1, 0] = 5
    data = {"x": torch.zeros(6, 1, 2, 2), "y": targets}
    with pytest.raises(IndexError, match="row 4 has the label 5, and the model's output has 3 classes"):
        estimator(Pixels, loss=nn.CrossEntropyLoss(), config={"lr": 0.1}).fit(data)

    class Own(gp.TrainingOperator):
        def train_batch(self, batch, batch_info):
            loss = nn.functional.cross_entropy(self.model(batch["x"]), batch["y"])
            return {"train_loss": loss.item(), "num_samples": len(batch["y"])}

    est = estimator(Pixels, loss=nn.CrossEntropyLoss(), config={"lr": 0.1}, training_operator_cls=Own)
    with pytest.raises(IndexError, match="row 4 has the label 5"):
        est.fit(data)


def test_labels_that_a_loss_ignores_are_not_named():
    y = labels(7)
    y[:8] = -100
    est = estimator(Shouting, loss=nn.CrossEntropyLoss(), config={"lr": 0.1})
    with pytest.raises(IndexError, match="row 8 has the label 7"):
        est.evaluate({"x": numbers(11), "y": y}, batch_size=11)


@pytest.mark.parametrize(
    "loss",
    [
        functools.partial(nn.functional.cross_entropy, ignore_index=255),
        lambda output, target: nn.functional.cross_entropy(output, target, ignore_index=255),
    ],
)
def test_labels_that_a_function_ignores_are_not_named(loss):
    y = labels(7)
    y[:8] = 255
    with pytest.raises(IndexError, match="Target 7 is out of bounds: row 8 has the label 7"):
        estimator(Shouting, loss=loss, config={"lr": 0.1}).evaluate({"x": numbers(11), "y": y}, batch_size=11)


def test_a_margin_loss_that_names_no_label():
    est = estimator(Shouting, loss=nn.MultiMarginLoss(), config={"lr": 0.1})
    with pytest.raises(RuntimeError, match="target out of range: row 8 has the label -1"):
        est.fit({"x": numbers(11), "y": labels(-1)}, batch_size=4)


@pytest.mark.parametrize(
    "loss",
    [
        lambda output, target: ((output - target) ** 2).mean(),
        lambda output, target: output[:, target.max()].mean(),
        lambda output, target: nn.functional.cross_entropy(output, target.int()),
    ],
    ids=["shapes", "index", "type"],
)
def test_errors_about_something_else_name_no_label(loss):
    est = estimator(Shouting, loss=loss, config={"lr": 0.1})
    with pytest.raises((RuntimeError, IndexError)) as caught:
        est.evaluate({"x": numbers(11), "y": labels(9)}, batch_size=11)
    assert "has the label" not in str(caught.value)


def test_an_input_is_not_taken_for_the_label_of_a_step_of_ones_own():
    class Own(gp.TrainingOperator):
        def train_batch(self, batch, batch_info):
            x, y = batch["x"], batch["y"]
            return {"train_loss": nn.functional.cross_entropy(self.model(x.float()), y + 1).item()}

    est = estimator(Shouting, loss=nn.CrossEntropyLoss(), config={"lr": 0.1}, training_operator_cls=Own)
    with pytest.raises(IndexError, match="Target 8 is out of bounds") as caught:
        est.fit({"x": torch.arange(11).unsqueeze(1), "y": torch.tensor([0] * 10 + [7])}, batch_size=11)
    assert "row" not in str(caught.value)


def table(count=12):
    """Row 2 has no feature, and row 7 the label 9."""
    return pyarrow.table(
        {
            "x": [None if row == 2 else float(row) for row in range(count)],
            "y": [9 if row == 7 else 0 for row in range(count)],
        }
    )


def skipping(folder):
    return gp.Shards.from_arrow(table(), 2).skip_bad_rows()


def streamed(folder):
    pyarrow.parquet.write_table(table().slice(0, 5), folder / "a.parquet")
    pyarrow.parquet.write_table(table().slice(5), folder / "b.parquet")
    return gp.read_parquet(folder).stream().skip_bad_rows()


@pytest.mark.parametrize("framework", ["torch", "native"])
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("data", [skipping, streamed])
def test_the_row_of_a_label_is_that_of_the_table(data, seed, framework, tmp_path):
    columns = {"feature_cols": [["x"]], "label_cols": "y", "batch_size": 6}
    words = "row 7 has the label 9"
    if framework == "torch":
        est = estimator(Shouting, loss=nn.CrossEntropyLoss(), config={"lr": 0.1}, seed=seed)
    else:
        model = gp.nn.Sequential().add(gp.nn.Linear(1, 3))
        est = gp.Estimator.from_native(
            model=model, optimizer=gp.optim.SGD(lr=0.1), loss=gp.nn.CrossEntropy(), workers=2, seed=seed
        )
        words = "row 7 of the data"
    shards = data(tmp_path)
    for call in (est.fit, est.evaluate):
        with pytest.raises((IndexError, ValueError)) as caught:
            call(shards, **columns)
        assert words in "".join([str(caught.value), *getattr(caught.value, "__notes__", [])])


class OfProcesses(torch.utils.data.IterableDataset):
    """Shares itself out: row 7 is the fourth of the second process."""

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        rows = range(12) if info is None else range(info.id, 12, info.num_workers)
        yield from ((torch.tensor([float(row)]), torch.tensor(9 if row == 7 else 0)) for row in rows)


def test_no_row_is_named_where_its_number_is_not_known():
    est = estimator(Shouting, loss=nn.CrossEntropyLoss(), config={"lr": 0.1})
    loaders = [torch.utils.data.DataLoader(OfProcesses(), 4, num_workers=count) for count in (1, 2)]
    with pytest.raises(IndexError, match="row 7 has the label 9"):
        est.fit(loaders[0])
    with pytest.raises(IndexError, match="Target 9 is out of bounds: a row of the batch has the label 9"):
        est.fit(loaders[1])


def test_the_rows_of_a_loss_that_is_no_number_are_those_of_the_table(tmp_path):
    y = [float("nan") if row == 7 else 0.0 for row in range(12)]
    pyarrow.parquet.write_table(pyarrow.table({"x": [0.0] * 12, "y": y}), tmp_path / "nan.parquet")
    shards = gp.read_parquet(tmp_path).stream()
    est = estimator(lambda config: nn.Linear(1, 1), workers=1, seed=1)
    with pytest.raises(FloatingPointError, match="rows 7; look"):
        est.fit(
            shards,
            feature_cols=[["x"]],
            label_cols=[["y"]],
            batch_size=1,
            callbacks=[gp.callbacks.StopOnNaN()],
        )
