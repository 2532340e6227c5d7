"""Columns that predictions become: their names, and outputs of any shape."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from estimators import runtime, scratch  # noqa: F401 - fixtures
from torch import nn

import grampus as gp
from grampus.errors import DataError
from grampus.shards.feeding import extended

ROWS = 7


class Several(nn.Module):
    """A sum for each row, and a cube of 2 x 3 x 2 numbers, which is it times 0 to 11."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, a, b):
        total = (a + b) * self.weight
        return {"sum": total, "cube": (total[:, None] * torch.arange(12.0)).reshape(-1, 2, 3, 2)}


class Counting(nn.Module):
    """Notes each batch that it answers."""

    def __init__(self, config):
        super().__init__()
        self.notes, self.layer = config["notes"], nn.Linear(1, 1)

    def forward(self, a):
        with open(self.notes, "a") as file:
            file.write(".")
        return self.layer(a[:, None])


def estimator(model=Several, **config):
    return gp.Estimator.from_torch(model=model, optimizer="sgd", config={"lr": 0.1, **config}, workers=2)


FRAME = pd.DataFrame({"a": np.arange(ROWS, dtype="f4"), "b": np.ones(ROWS, "f4")})
SUMS = (np.arange(ROWS) + 1.0).tolist()
CUBES = (np.arange(1, ROWS + 1)[:, None] * np.arange(12.0)).reshape(-1, 2, 3, 2).tolist()


def kinds():
    pq.write_table(pa.table(FRAME), "rows.parquet")
    return {
        "pandas": FRAME,
        "table": pa.table(FRAME),
        "polars": pl.from_pandas(FRAME),
        "path": "rows.parquet",
        "shards": gp.Shards.from_arrow(pa.table(FRAME), 3),
    }


def as_frame(found):
    if isinstance(found, gp.Shards):
        found = found.to_arrow()
    return pd.DataFrame(found.to_pydict()) if isinstance(found, pa.Table) else found


@pytest.mark.parametrize("kind", ["pandas", "table", "polars", "path", "shards"])
@pytest.mark.parametrize("names", [None, ["s", "the cube.1"]], ids=["default", "named"])
def test_outputs_are_columns_with_the_names_that_are_given(kind, names):
    found = as_frame(estimator().predict(kinds()[kind], feature_cols=["a", "b"], output_cols=names))
    names = names or ["prediction_sum", "prediction_cube"]
    assert list(found.columns) == ["a", "b", *names]
    assert list(found[names[0]]) == SUMS
    np.testing.assert_allclose(np.array([np.array(cube) for cube in found[names[1]]]), CUBES)


def test_outputs_of_several_axes_are_lists_in_lists():
    found = estimator().predict(pa.table(FRAME), feature_cols=["a", "b"])
    assert found.schema.field("prediction_cube").type == pa.list_(pa.list_(pa.list_(pa.float32())))
    assert found["prediction_cube"].to_pylist() == CUBES


def test_results_in_files_have_these_names(tmp_path):
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table(FRAME), path)
    estimator().predict(path, feature_cols=["a", "b"], out="out.parquet", output_cols=["sum", "cube"])
    found = pq.read_table("out.parquet")
    assert found.column_names == ["a", "b", "sum", "cube"]
    assert found["cube"].to_pylist() == CUBES


def test_a_column_of_one_name_takes_the_place_of_the_old_one():
    found = estimator(nn.Linear(2, 1)).predict(FRAME, feature_cols=[["a", "b"]], output_cols="a")
    assert list(found.columns) == ["a", "b"]
    assert np.stack(found["a"]).shape == (ROWS, 1)


@pytest.mark.parametrize(
    ("names", "kind", "says"),
    [
        (["x", "x"], ValueError, 'output_cols= names "x" twice'),
        ([1], TypeError, "output_cols= takes names of columns"),
        (
            "one",
            DataError,
            r"names 1 column, and the model has 2 outputs \(prediction_sum, prediction_cube\)",
        ),
    ],
)
def test_names_that_are_wrong(names, kind, says):
    with pytest.raises(kind, match=says):
        estimator().predict(FRAME, feature_cols=["a", "b"], output_cols=names)


def test_names_that_do_not_fit_are_refused_at_the_first_batch(tmp_path):
    notes = tmp_path / "notes"
    found = estimator(Counting, notes=str(notes))
    many = pd.DataFrame({"a": np.zeros(400, "f4")})
    with pytest.raises(DataError, match="names 2 columns, and the model has 1 output"):
        found.predict(many, feature_cols="a", batch_size=4, output_cols=["b", "c"])
    assert len(notes.read_text()) < 20


def test_names_of_columns_where_there_are_none():
    with pytest.raises(ValueError, match="output_cols= would have no effect: this data has no columns"):
        estimator(nn.Linear(1, 1)).predict(np.ones((3, 1), "f4"), output_cols="y")


def test_more_numbers_than_a_column_holds():
    """Lists of Arrow count with 32 bits; the array takes no memory, as all its numbers are one."""
    wide = np.broadcast_to(np.float32(1), (2200, 1_000_000))
    rows = pa.table({"a": range(2200)})
    with pytest.raises(DataError, match=r"2200 rows of 1000000 numbers each .* holds 2147483647 numbers"):
        extended(rows, "table", {"prediction": wide})
