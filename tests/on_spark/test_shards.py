"""Shards beside Spark: those of this machine on its executors, and those of a DataFrame as plans of Spark."""

import os
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
from grampus.shards import segments
from grampus.shards.scalers import MinMaxScaler, StandardScaler, StringIndexer

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module", autouse=True)
def models(spark):
    """Tasks have the module of the models."""
    spark.sparkContext.addPyFile(frame_models.__file__)


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
    assert StringIndexer("t").fit_transform(shards).to_arrow()["t"].to_pylist() == [1, 2, 1, 3, 1, 4]
    shared = gp.SharedValue(np.arange(3))
    assert shards.transform_shard(lambda part: shared.value.sum()).collect() == [3, 3]
