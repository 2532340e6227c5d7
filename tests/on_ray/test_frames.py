"""Ray Datasets in, Ray Datasets out: predictions, shards, and which files stand behind a data set."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch
from frame_models import answers, mlp, named, numbers, price_learner, prices, table

import grampus as gp
from grampus.errors import ClusterError, NoColumn
from grampus.frames.ray_blocks import batches, materialized
from grampus.frames.scan import files_of

# The first task of a Ray that has just started may take most of a minute on a busy machine.
pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def data(ray):
    """Two blocks."""
    given = table()
    return ray.data.from_arrow([given.slice(0, 80), given.slice(80)])


def whole(dataset):
    """All rows as one table, in order: blocks come as tasks end, unless Ray is asked for more."""
    import ray

    return pa.concat_tables(ray.get(materialized(dataset).to_arrow_refs()))


# Predictions


def test_rows_keep_their_columns_and_get_what_the_model_says(data):
    estimator = mlp(3)
    found = estimator.predict(data, feature_cols=[["a", "b", "c"]])
    assert type(found).__name__ == "Dataset"
    made, given = whole(found), table()
    assert made.column_names == [*given.column_names, "prediction"]
    assert made.drop_columns(["prediction"]).to_pylist() == given.to_pylist()
    rows = np.stack([given[name].to_numpy() for name in "abc"], 1)
    np.testing.assert_allclose(numbers(made["prediction"]), answers(estimator, rows), atol=1e-5)


def test_each_output_is_a_column(data):
    made = whole(named().predict(data, feature_cols=["a", "b"])).to_pylist()[5]
    a, b = np.float32(made["a"]), made["b"]
    assert made["prediction_sum"] == pytest.approx(3 * (a + b), abs=1e-5)
    assert np.allclose(made["prediction_grid"], [[a, b], [a, b]])


def test_tensors_are_lists_within_lists(ray):
    images = np.random.default_rng(0).standard_normal((6, 2, 3)).astype("f4")
    estimator = gp.Estimator.from_torch(model=torch.nn.Flatten(), optimizer="sgd", config={"lr": 0.1})
    made = whole(estimator.predict(ray.data.from_numpy(images), feature_cols="data"))
    assert np.array_equal(numbers(made["prediction"]), images.reshape(6, 6))


def test_lists_of_decimals(ray):
    values = np.arange(12).reshape(6, 2) / 4
    lists = pa.array([[Decimal(str(each)) for each in row] for row in values], pa.list_(pa.decimal128(9, 3)))
    estimator = mlp(2)
    made = whole(estimator.predict(ray.data.from_arrow(pa.table({"d": lists})), feature_cols="d"))
    np.testing.assert_allclose(numbers(made["prediction"]), answers(estimator, values), atol=1e-5)


@pytest.mark.timeout(120)
def test_labels_of_one_column_are_learnt_and_an_old_prediction_is_replaced(ray):
    gp.init(2, "ray", preload=["torch"])
    data = ray.data.from_arrow(prices())
    made = whole(price_learner(data).predict(data, feature_cols=[["km", "hour"]]))
    assert made.column_names == prices().column_names
    np.testing.assert_allclose(numbers(made["prediction"])[:, 0], made["price"], atol=1e-3)


def test_pandas_and_ray_agree(data):
    estimator = mlp(3)
    with estimator:
        local = estimator.predict(table().to_pandas(), feature_cols=[["a", "b", "c"]])["prediction"]
    found = whole(estimator.predict(data, feature_cols=[["a", "b", "c"]]))["prediction"]
    np.testing.assert_allclose(numbers(found), np.stack(local.to_list()), atol=1e-5)


class Comparisons(torch.nn.Module):
    """A row of a million booleans, of which as many are true as the input says."""

    WIDTH = 1_000_000

    def forward(self, inputs):
        return torch.arange(self.WIDTH) < inputs[:, :1]


@pytest.mark.timeout(180)
def test_a_block_with_more_than_two_to_the_31_answers(ray):
    """More than the offsets of one list of Arrow can count; Ray stores them as bits."""
    counts = np.arange(2200)
    estimator = gp.Estimator.from_torch(model=Comparisons(), optimizer=None, workers=1)
    data = ray.data.from_arrow(pa.table({"x": counts.astype("f4"), "id": counts}))
    made = estimator.predict(data, feature_cols=[["x"]], batch_size=100)
    seen = []
    for part in made.iter_batches(batch_format="pyarrow", batch_size=None, prefetch_batches=0):
        lists = part["prediction"].combine_chunks()
        assert set(pc.list_value_length(lists).to_pylist()) == {Comparisons.WIDTH}
        true = [pc.sum(row.values).as_py() for row in lists]
        assert true == part["id"].to_pylist()
        seen += true
    assert sorted(seen) == counts.tolist()


def test_lists_of_a_block_that_no_one_list_could_hold():
    """Two chunks of a table, such as a join leaves behind."""
    half = pa.ListArray.from_arrays(
        pa.array(np.arange(1101, dtype="i4") * 1_000_000), pa.array(np.zeros(1_100_000_000, bool))
    )
    found = batches(pa.table({"x": pa.chunked_array([half, half])}))
    assert [batch.num_rows for batch in found] == [1100, 1100]
    joined = pa.table({"x": pa.chunked_array([half.slice(0, 2), half.slice(1098)])})
    assert [batch.num_rows for batch in batches(joined)] == [4]


# Files


def test_files_behind_a_data_set(ray, tmp_path):
    from ray.data.expressions import col

    data, given = ray.data, table(20)
    for number in (1, 0):
        pq.write_table(given.slice(number * 10, 10), tmp_path / f"{number}.parquet")
    files = [str(tmp_path / "0.parquet"), str(tmp_path / "1.parquet")]
    read = data.read_parquet(str(tmp_path))
    assert files_of(read) == (files, "a plain scan of 2 files")
    assert files_of(read.select_columns(["b", "list"]))[0] == files
    assert files_of(data.read_parquet(files[1], columns=["a"]))[0] == files[1:]
    for other, why in [
        (read.limit(3), "the plan has a step Limit"),
        (read.filter(expr=col("id") > 3), "the plan has a step Filter"),
        (read.rename_columns({"id": "x"}), "a column is computed"),
        (data.from_arrow(given), "the plan has a step FromArrow"),
    ]:
        assert files_of(other) == (None, why)


# Wrong use


def test_a_column_that_is_not_there(data):
    with pytest.raises(NoColumn, match='there is no column "lists": do you mean "list"'):
        mlp(3).predict(data, feature_cols="lists")


def test_a_null_in_a_feature(ray):
    holed = ray.data.from_arrow(pa.table({"a": [1.0, None], "b": [1.0, 2.0]}))
    with pytest.raises(Exception, match='row 1 of a block, column "a" is null'):
        mlp(2).predict(holed, feature_cols=[["a", "b"]]).materialize()


def test_a_column_that_no_model_takes(data):
    with pytest.raises(Exception, match='column "city" holds text'):
        mlp(1).predict(data, feature_cols="city").materialize()


def test_ray_that_is_not_running(ray, data, monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(ClusterError, match=r"Ray is not running in this process: call ray.init\(\)"):
        mlp(3).predict(data, feature_cols="list")


# Shards


def test_functions_run_in_tasks_of_ray(data):
    shards = gp.Shards.from_ray(data)
    made = shards.transform_shard(
        lambda part, by: part.set_column(0, "id", pa.array(part["id"].to_numpy() * by)), 2
    )
    assert made.columns == table().column_names
    assert [part.num_rows for part in made] == [80, 120]
    assert made.to_arrow()["id"].to_pylist() == list(range(0, 400, 2))
    assert len(made) == 200
    assert made.repartition(4).num_partitions() == 4


def test_blocks_are_read_in_place(data):
    """What looks at all rows runs here, on the memory of the object store."""
    shards = gp.Shards.from_ray(data).select(["c", "a"])
    sums = shards.group_by("c", {"a": "sum"}).to_pandas().set_index("c")["sum(a)"]
    expected = table().to_pandas().groupby("c")["a"].sum()
    assert sums.sort_index().to_dict() == pytest.approx(expected.to_dict())
    assert shards.sort_values("a").to_arrow()["a"].to_pylist() == sorted(table()["a"].to_pylist())


def test_shards_are_predicted_where_they_are(data):
    estimator = mlp(3)
    found = estimator.predict(gp.Shards.from_ray(data), feature_cols="list")
    assert isinstance(found, gp.Shards)
    np.testing.assert_allclose(
        numbers(whole(found.to_ray())["prediction"]), answers(estimator, numbers(table()["list"])), atol=1e-5
    )


def test_local_shards_go_to_ray():
    found = gp.Shards.from_arrow(table(), 3).to_ray()
    assert found.num_blocks() == 3
    assert whole(found).to_pylist() == table().to_pylist()
