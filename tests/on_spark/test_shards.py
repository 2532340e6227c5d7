"""Shards beside Spark: those of this machine on its executors, and those of a DataFrame as plans of Spark."""

from pathlib import Path

import frame_models
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.ml.feature import MinMaxScaler as SparkMinMaxScaler
from pyspark.ml.feature import VectorAssembler
from pyspark.ml.functions import vector_to_array

import grampus as gp
from grampus._spark_versions import from_arrow
from grampus.errors import DataError, NoColumn
from grampus.shards import MinMaxScaler, StandardScaler, StringIndexer, segments

pytestmark = [pytest.mark.usefixtures("models"), pytest.mark.timeout(120)]


@pytest.fixture
def apart(spark, monkeypatch):
    """Workers on Spark that see neither the memory of this process nor its folder."""
    monkeypatch.setattr(segments, "machine", lambda: "the driver's")
    yield gp.init(2, "spark", session=spark)
    gp.stop()


# Of this machine


def test_files_of_the_driver_are_read_for_its_executors(apart):
    for number in range(3):
        np.savez(f"{number}.npz", x=np.arange(2) + number)
    here = str(Path.cwd())
    found = gp.read_npz("*.npz").transform_shard(lambda part: (part["x"] * 2, str(Path.cwd())))
    parts = found.collect()
    assert [part.tolist() for part, _ in parts] == [[0, 2], [2, 4], [4, 6]]
    assert here not in {folder for _, folder in parts}
    assert [part["x"].tolist() for part in gp.read_npz("0.npz")] == [[0, 1]]
    gp.Shards.partition({"x": np.arange(4)}, 2).save("kept")
    kept = gp.Shards.load("kept").transform_shard(lambda part: part["x"].sum())
    assert kept.collect() == [1, 5]


def test_tables_of_the_driver_pass_through_functions(apart):
    pd.DataFrame({"x": range(6), "t": list("abacad")}).to_csv("rows.csv", index=False)
    shards = gp.read_csv("rows.csv", num_shards=2)
    doubled = shards.transform_shard(lambda part: part.set_column(0, "x", pa.array(part["x"].to_numpy() * 2)))
    assert doubled.to_arrow()["x"].to_pylist() == [0, 2, 4, 6, 8, 10]
    assert StringIndexer("t").fit_transform(shards).to_arrow()["t"].to_pylist() == [
        1,
        2,
        1,
        3,
        1,
        4,
    ]
    shared = gp.SharedValue(np.arange(3))
    assert shards.transform_shard(lambda part: shared.value.sum()).collect() == [3, 3]


# Of a DataFrame


@pytest.fixture
def brought(spark, monkeypatch):
    """How many rows came to the driver with each call that brings some."""
    sizes = []
    kind = type(spark.range(1))

    def counted(function):
        def call(*args, **kwargs):
            found = function(*args, **kwargs)
            sizes.append(len(found))
            return found

        return call

    for name in ("collect", "toArrow", "toPandas", "_collect_as_arrow"):
        if hasattr(kind, name):
            monkeypatch.setattr(kind, name, counted(getattr(kind, name)))
    return sizes


def test_figures_of_scalers_are_those_of_spark_and_no_column_comes_here(spark, brought):
    given = frame_models.table().select(["id", "a", "c"])
    frame = from_arrow(spark, given).withColumnRenamed("a", "a.b c")
    shards = gp.Shards.from_spark(frame)
    made = MinMaxScaler(-1.0, 3.0, inputCol=["a.b c", "c"], outputCol=["x", "c"]).fit_transform(shards)
    made = StandardScaler(withMean=True, inputCol="a.b c", outputCol="a.b c").fit_transform(made)
    assert made.columns == ["id", "a.b c", "c", "x"]
    assert max(brought, default=0) <= 1
    found = made.to_spark_df().orderBy("id").toPandas()
    vectors = VectorAssembler(inputCols=["a", "c"], outputCol="v").transform(from_arrow(spark, given))
    scaler = SparkMinMaxScaler(min=-1.0, max=3.0, inputCol="v", outputCol="w").fit(vectors)
    oracle = scaler.transform(vectors).select("id", vector_to_array("w").alias("w"))
    oracle = np.stack(oracle.orderBy("id").toPandas()["w"])
    np.testing.assert_allclose(found[["x", "c"]], oracle, atol=1e-9)
    values = given["a"].to_pandas()
    np.testing.assert_allclose(found["a.b c"], (values - values.mean()) / values.std(), atol=1e-9)


def test_scalers_leave_nulls_and_one_value_as_shards_of_this_machine_do(spark):
    given = pa.table({"a": [1.0, None, 4.0], "b": [7, 7, 7], "t": ["x", "y", "z"]})
    there, here = gp.Shards.from_spark(from_arrow(spark, given)), gp.Shards.from_arrow(given, 1)
    for scaler in (
        MinMaxScaler(inputCol=["a", "b"]),
        StandardScaler(inputCol=["a", "b"]),
    ):
        found, expected = (scaler.fit_transform(shards).to_pandas() for shards in (there, here))
        pd.testing.assert_frame_equal(found, expected)
    with pytest.raises(DataError, match='column "t" holds string: only numbers can be scaled'):
        MinMaxScaler(inputCol="t").fit(there)
    with pytest.raises(NoColumn, match='there is no column "d"'):
        StandardScaler(inputCol="d").fit(there)


def test_texts_are_numbered_by_a_plan(spark, brought):
    given = frame_models.table().select(["id", "city"]).append_column("key.1", frame_models.table()["c"])
    shards = gp.Shards.from_spark(from_arrow(spark, given).repartition(3))
    indexer = StringIndexer("city").fit(shards)
    made = indexer.transform(shards)
    made = StringIndexer("key.1").fit_transform(made)
    # The different values, with how often there are such.
    assert max(brought) <= 10
    found = made.to_pandas().sort_values("id")
    for name in ("city", "key.1"):
        values = given[name].to_pandas()
        counts = values.value_counts()
        order = sorted(counts.index, key=lambda value: (-counts[value], value))
        assert found[name].tolist() == [order.index(value) + 1 for value in values]
    unknown = gp.Shards.from_spark(spark.createDataFrame([("Rome",), ("Bern",), (None,)], "city string"))
    numbers = indexer.transform(unknown).to_arrow()["city"].to_pylist()
    assert numbers[0] > 0 and numbers[1:] == [0, 0]


@pytest.mark.parametrize(
    "options",
    [{}, {"sort_for_array": True}, {"keep_most_frequent": True}, {"freq_limit": 2}],
    ids=["lists", "sorted", "smallest", "frequent"],
)
def test_parts_of_texts_are_numbered_as_here(spark, options):
    given = pa.table({"t": ["x|y", "x", None, "z|x|y", "x|"]})
    there, here = (
        gp.Shards.from_spark(from_arrow(spark, given).coalesce(1)),
        gp.Shards.from_arrow(given, 1),
    )
    made, (index,) = StringIndexer.category_encode(
        there, "t", order_by_freq=True, do_split=True, sep="|", **options
    )
    expected, (other,) = StringIndexer.category_encode(
        here, "t", order_by_freq=True, do_split=True, sep="|", **options
    )
    assert index.to_dict().keys() == other.to_dict().keys()
    assert index.to_dict()["x"] == 1
    limit = options.pop("freq_limit", None)
    encoded = StringIndexer.encode_string(there, "t", other, do_split=True, sep="|", **options)
    assert encoded.to_arrow()["t"].to_pylist() == expected.to_arrow()["t"].to_pylist()
    assert limit is None or set(index.to_dict()) == {"x", "y"}
    assert made.columns == ["t"]


def test_a_loop_brings_one_partition_after_the_other(spark, brought):
    frame = spark.range(0, 30, 1, 3).selectExpr("id", "if(id >= 20, raise_error('too soon'), id) AS x")
    parts = iter(gp.Shards.from_spark(frame))
    assert [next(parts)["id"].to_pylist() for _ in range(2)] == [list(range(10)), list(range(10, 20))]
    assert not brought
    with pytest.raises(Exception, match="too soon"):
        next(parts)
    shards = gp.Shards.from_spark(frame.where("id > 4"))
    assert shards.first()["id"].to_pylist() == [5, 6, 7, 8, 9]
    assert [part.num_rows for part in shards.take(2)] == [5, 10]
    nobody = gp.Shards.from_spark(frame.where("id < 0"))
    assert [part.num_rows for part in nobody.collect()] == [0] == [nobody.first().num_rows]
    assert nobody.columns == nobody.first().column_names
