"""What Spark DataFrames can do, through a Connect server: `connect_frames.py ADDRESS FOLDER`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
import pyarrow.parquet as pq
from frame_models import answers, mlp, numbers, table
from pyspark.ml.linalg import Vectors
from pyspark.sql import SparkSession

import grampus as gp
from grampus.errors import ClusterError
from grampus.frames import spark_predict
from grampus.frames.scan import files_of


def predictions(spark):
    frame = spark.createDataFrame(table())
    rows = np.stack([table()[name].to_numpy() for name in "abc"], 1)
    estimator = mlp(3)
    # The first goes with the plan, the others as one file of the session.
    for limit in (spark_predict.IN_PLAN, 100, 100):
        spark_predict.IN_PLAN = limit
        found = estimator.predict(frame, feature_cols=[["a", "b", "c"]]).toArrow()
        np.testing.assert_allclose(numbers(found["prediction"]), answers(estimator, rows), atol=1e-5)
    lists = numbers(table()["list"])
    vectors = spark.createDataFrame([(Vectors.dense(each),) for each in lists.tolist()], ["v"])
    found = estimator.predict(vectors, feature_cols="v").toArrow()
    np.testing.assert_allclose(numbers(found["prediction"]), answers(estimator, lists), atol=1e-5)


def files(spark, folder):
    pq.write_table(table(), folder / "0.parquet")
    read = spark.read.parquet(str(folder))
    expected = [str(folder / "0.parquet")]
    assert files_of(read)[0] == expected, files_of(read)
    assert files_of(read.select("a", "list"))[0] == expected
    for other in (
        read.where("id > 3"),
        read.limit(2),
        read.selectExpr("id + 1 as id"),
        read.withColumnRenamed("id", "a"),
        spark.read.schema("id long").parquet(str(folder)),
        spark.read.parquet(str(folder), expected[0]),
        spark.createDataFrame(table()),
    ):
        assert files_of(other)[0] is None, other
    return read


def shards(read):
    made = gp.Shards.from_spark(read).transform_shard(lambda part: part.select(["id", "c"]))
    assert len(made) == made.to_arrow().num_rows == table().num_rows
    groups = made.group_by("c", {"id": "count"})
    assert sum(groups.to_arrow()["count(id)"].to_pylist()) == table().num_rows
    assert made.repartition(3).num_partitions() == 3


session = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
predictions(session)
held = files(session, Path(sys.argv[2]))
shards(held)
session.stop()
try:
    mlp(2).predict(held, feature_cols=[["a", "b"]])
except ClusterError as error:
    assert "is stopped" in str(error), error
    print("all is well")
