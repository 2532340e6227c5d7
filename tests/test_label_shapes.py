"""A list of columns of their own is a matrix, from every source; a loss never broadcasts labels."""

import functools

import numpy as np
import pandas
import pyarrow
import pyarrow.parquet
import pytest
import torch
from clusters import one_cluster, scratch  # noqa: F401 - a fixture
from torch import nn
from torch.nn import functional

import grampus as gp

runtime = one_cluster(workers=2)

ROWS = 48
COLUMNS = {
    "km": np.linspace(-1, 1, ROWS),
    "hour": np.cos(np.arange(ROWS)),
    "count": np.arange(ROWS) % 3,
}
COLUMNS["price"] = 2.5 + 3 * COLUMNS["km"] - COLUMNS["hour"]


def frame():
    return pandas.DataFrame(COLUMNS)


def single():
    """Arrays of a dict are what the user made them."""
    return {name: values.astype(np.float32) for name, values in COLUMNS.items()}


def parquet():
    pyarrow.parquet.write_table(pyarrow.table(COLUMNS), "rides.parquet")
    return "rides.parquet"


def csv():
    frame().to_csv("rides.csv", index=False)
    return "rides.csv"


def shards():
    return gp.Shards.from_pandas(frame(), 3)


def hugging_face():
    datasets = pytest.importorskip("datasets")
    return datasets.Dataset.from_dict(single())


SOURCES = {
    "pandas": frame,
    "dict": single,
    "lists": lambda: {name: values.tolist() for name, values in COLUMNS.items()},
    "arrow": lambda: pyarrow.table(COLUMNS),
    "parquet": parquet,
    "csv": csv,
    "shards": shards,
    "hugging face": hugging_face,
}


def sgd(model, config):
    return torch.optim.SGD(model.parameters(), lr=0.3)


def estimator(loss=None, model=None, **options):
    return gp.Estimator.from_torch(
        model=model or (lambda config: nn.Linear(2, 1)),
        optimizer=sgd,
        loss=loss or nn.MSELoss(),
        workers=2,
        seed=1,
        **options,
    )


@pytest.mark.parametrize("source", SOURCES)
def test_labels_of_one_column_are_learnt_from_every_source(source):
    made = estimator(metrics=[gp.metrics.MAE()])
    columns = {"feature_cols": [["km", "hour"]], "label_cols": [["price"]]}
    made.fit(SOURCES[source](), epochs=60, batch_size=16, **columns)
    found = made.evaluate(SOURCES[source](), batch_size=16, **columns)
    assert found["loss"] < 1e-6
    assert found["mae"] < 1e-2


class Shapes(nn.Module):
    """Says what it is given."""

    def __init__(self, config):
        super().__init__()
        self.linear = nn.Linear(1, 1)

    def forward(self, *inputs):
        told = [f"{tuple(each.shape[1:])} {each.dtype}".replace("torch.", "") for each in inputs]
        raise RuntimeError(" and ".join(told))


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("km", r"\(\) float32"),
        (["km"], r"\(\) float32"),
        ([["km"]], r"\(1,\) float32"),
        ([["km", "count"]], r"\(2,\) float32"),
        (["km", ["hour"]], r"\(\) float32 and \(1,\) float32"),
    ],
)
def test_what_a_model_gets_has_one_shape_and_type_from_every_source(source, columns, said):
    made = estimator(model=Shapes)
    with pytest.raises(RuntimeError, match=f"^{said}"):
        made.fit(SOURCES[source](), epochs=1, batch_size=16, feature_cols=columns, label_cols="price")
    with pytest.raises(RuntimeError, match=f"^{said}"):
        made.predict(SOURCES[source](), feature_cols=columns)


def test_columns_of_a_frame_become_what_those_of_other_tables_do():
    data = frame().astype({"km": "float64", "hour": "float16", "count": "int32"})
    data["byte"], data["truth"] = data["count"].astype("uint8"), data["count"] > 1
    names = ["km", "hour", "count", "byte", "truth"]
    said = []
    for source in (data, gp.Shards.from_pandas(data, 2)):
        with pytest.raises(RuntimeError, match="float32") as error:
            estimator(model=Shapes).fit(source, feature_cols=names, label_cols="price")
        said.append(str(error.value).partition("\n")[0])
    assert said[0] == said[1] == "() float32 and () float32 and () int64 and () uint8 and () bool"


@pytest.mark.parametrize("columns", ["km", ["km", "hour"], [["km"]], [["hour", "km"]]])
@pytest.mark.parametrize("kind", ["float32", "float64", "Float64", "Int64", "boolean", "float64[pyarrow]"])
def test_a_null_in_a_column_of_a_frame_is_an_error_that_names_it(kind, columns):
    data = frame()
    data["km"] = pandas.Series([1, None] + [0] * (ROWS - 2), dtype=kind)
    made = estimator(model=Shapes)
    for call in (made.fit, made.evaluate):
        with pytest.raises(gp.DataError, match=r"row 1, column .km. is null, and a model needs a value"):
            call(data, feature_cols=columns, label_cols="price")
        with pytest.raises(gp.DataError, match=r"row 1, column .km. is null, and a model needs a value"):
            call(data, feature_cols="hour", label_cols="km")
    with pytest.raises(gp.DataError, match=r"row 1, column .km. is null"):
        made.predict(data, feature_cols=columns)


def test_a_null_in_a_column_of_a_frame_is_an_error_of_native_models():
    data = frame()
    data.loc[2, "km"] = None
    made = gp.Estimator.from_native(
        model=gp.nn.Sequential(gp.nn.Linear(2, 1)),
        optimizer=gp.optim.SGD(lr=0.3),
        loss=gp.nn.MSE(),
        workers=2,
    )
    with pytest.raises(gp.DataError, match=r"row 2, column .km. is null"):
        made.fit(data, feature_cols=["km", "hour"], label_cols="price")


def test_nan_in_arrays_of_ones_own_is_a_number():
    data = single()
    data["km"][1] = np.nan
    found = estimator(model=nn.Flatten(0)).predict(data, feature_cols="km")
    assert np.isnan(np.asarray(found)).tolist() == [row == 1 for row in range(ROWS)]


def test_values_that_a_model_cannot_have_are_refused_not_bent():
    data = frame()
    data["km"] = np.array([1] * (ROWS - 1) + [2**63 + 5], np.uint64)
    made = estimator(model=Shapes)
    with pytest.raises(gp.DataError, match=f"row {ROWS - 1}, column 'km': its value does not fit into int64"):
        made.fit(data, feature_cols="km", label_cols="price")
    data["km"] = np.array([1] * (ROWS - 1) + [2**63 - 1], np.uint64)
    with pytest.raises(RuntimeError, match=r"^\(\) int64"):
        made.fit(data, feature_cols="km", label_cols="price", batch_size=16)
    data["km"] = [1 + 2j] * ROWS
    with pytest.raises(gp.DataError, match="column 'km' holds complex numbers"):
        made.fit(data, feature_cols="km", label_cols="price")


@pytest.mark.parametrize("stream", [False, True])
def test_to_torch_keeps_a_matrix_of_one_column(stream):
    shards = gp.read_parquet(parquet())
    shards = shards.stream() if stream else shards
    x, y = next(iter(shards.to_torch(8, feature_cols=[["km"]], label_cols=[["price"]])))
    assert (x.shape, y.shape) == ((8, 1), (8, 1))
    x, y = next(iter(shards.to_torch(8, feature_cols="km", label_cols=["price"])))
    assert (x.shape, y.shape) == ((8,), (8,))


# Losses and metrics never broadcast

ELEMENT_WISE = [
    nn.MSELoss(),
    nn.L1Loss(),
    nn.SmoothL1Loss(reduction="sum"),
    nn.HuberLoss(),
    nn.BCEWithLogitsLoss(),
    nn.PoissonNLLLoss(),
    nn.KLDivLoss(reduction="batchmean"),
    nn.SoftMarginLoss(),
    nn.HingeEmbeddingLoss(),
    nn.MultiLabelSoftMarginLoss(),
    functional.mse_loss,
    functools.partial(functional.l1_loss, reduction="sum"),
]


@pytest.mark.parametrize("loss", ELEMENT_WISE)
def test_shapes_that_differ_are_refused_before_the_first_step(loss):
    made = estimator(loss=loss)
    with pytest.raises(ValueError, match=r"output is \(8, 1\) where the labels are \(8,\)") as error:
        made.fit(frame(), epochs=1, batch_size=16, feature_cols=[["km", "hour"]], label_cols="price")
    assert "write label_cols=[['name']]" in str(error.value)
    with pytest.raises(ValueError, match=r"output is \(8, 1\) where the labels are \(8,\)"):
        made.evaluate(frame(), batch_size=16, feature_cols=[["km", "hour"]], label_cols="price")


def test_what_to_write_depends_on_the_shapes():
    flat = nn.Sequential(nn.Linear(2, 1), nn.Flatten(0))
    with pytest.raises(
        ValueError, match=r"output is \(8,\) where the labels are \(8, 1\): write label_cols='name'"
    ):
        estimator(model=flat).fit(
            frame(), batch_size=16, feature_cols=[["km", "hour"]], label_cols=[["price"]]
        )
    with pytest.raises(ValueError, match="as many numbers as the labels have"):
        estimator(model=nn.Linear(2, 3)).fit(
            frame(), batch_size=16, feature_cols=[["km", "hour"]], label_cols=[["price"]]
        )


def test_a_batch_of_one_row_may_have_lost_its_axis():
    class Squeezed(nn.Module):
        def __init__(self, config):
            super().__init__()
            self.linear = nn.Linear(2, 1)

        def forward(self, x):
            return self.linear(x).squeeze()

    data = frame().iloc[:17]
    history = estimator(model=Squeezed).fit(
        data, batch_size=8, feature_cols=[["km", "hour"]], label_cols="price"
    )
    assert history["samples"][0] == 17


def test_classes_need_no_equal_shapes():
    made = estimator(loss=nn.CrossEntropyLoss(), model=nn.Linear(2, 3))
    made.fit(frame(), batch_size=16, feature_cols=[["km", "hour"]], label_cols="count")


@pytest.mark.parametrize("metric", [gp.metrics.MAE, gp.metrics.MSE, gp.metrics.RMSE, gp.metrics.R2])
def test_metrics_compare_row_by_row(metric):
    """Never each row with all others; the oracle is numpy."""
    output, target = torch.randn(9, 1), torch.randn(9)
    found = []
    for pair in (
        (output, target),
        (output[:, 0], target),
        (output, target[:, None]),
        (output[:, 0], target[:, None]),
    ):
        meter = gp.metrics.meter(metric())
        meter.update(*pair)
        found.append(meter.value())
    off = (output[:, 0] - target).double().numpy()
    spread = ((target - target.mean()) ** 2).sum().double().item()
    expected = {
        "MAE": np.abs(off).mean(),
        "MSE": (off**2).mean(),
        "RMSE": (off**2).mean() ** 0.5,
        "R2": 1 - (off**2).sum() / spread,
    }[metric.__name__]
    assert found == [pytest.approx(expected, rel=1e-6)] * 4


# Native models


@pytest.mark.parametrize("labels", ["price", ["price"], [["price"]]])
@pytest.mark.parametrize("source", ["pandas", "dict", "parquet"])
def test_native_models_take_a_column_and_a_matrix_of_one(source, labels):
    made = gp.Estimator.from_native(
        model=gp.nn.Sequential(gp.nn.Linear(2, 1)),
        optimizer=gp.optim.SGD(lr=0.3),
        loss=gp.nn.MSE(),
        workers=2,
    )
    columns = {"feature_cols": [["km", "hour"]], "label_cols": labels}
    made.fit(SOURCES[source](), epochs=60, batch_size=16, **columns)
    assert made.evaluate(SOURCES[source](), **columns)["loss"] < 1e-6


def test_native_losses_refuse_shapes_that_only_have_as_many_numbers():
    made = gp.Estimator.from_native(
        model=gp.nn.Sequential(gp.nn.Linear(4, 6), gp.nn.Reshape([2, 3])),
        optimizer=gp.optim.SGD(lr=0.1),
        loss=gp.nn.MSE(),
        workers=2,
    )
    with pytest.raises(ValueError, match="2 x 3 came out, and targets of 3 x 2 came"):
        made.fit({"x": np.ones((8, 4)), "y": np.ones((8, 3, 2))}, batch_size=8)


@pytest.mark.parametrize("lanes", [1, 2, 3])
def test_native_losses_skip_a_batch_of_which_no_label_counts(lanes):
    x = np.random.default_rng(0).normal(size=(24, 3))
    y = np.arange(24) % 3
    # Of the second batch none counts, of the third only those of the last lane.
    made = gp.Estimator.from_native(
        model=gp.nn.Sequential(gp.nn.Linear(3, 3)),
        optimizer=gp.optim.SGD(lr=0.1),
        loss=gp.nn.CrossEntropy(ignore_index=-1),
        workers=1,
        lanes=lanes,
        seed=2,
    )
    from grampus import _native

    order = _native.Order(2, 0, 24)
    y[np.frombuffer(order.rows(8, 22), np.int64)] = -1
    with pytest.warns(RuntimeWarning, match="no row of the batch at step 2 counts"):
        history = made.fit({"x": x, "y": y}, epochs=1, batch_size=8)
    assert history["steps"][0] == 3
    assert np.isfinite(history["loss"]).all()
    assert all(np.isfinite(value).all() for value in made.get_model().state_dict().values())
