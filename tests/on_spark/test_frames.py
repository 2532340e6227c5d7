"""Spark DataFrames in, Spark DataFrames out: predictions, shards, and which files stand behind a frame."""

import os
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from frame_models import Noted, answers, mlp, named, numbers, price_learner, prices, table
from PIL import Image
from pyspark.errors import PythonException
from pyspark.ml.linalg import Vectors
from pyspark.sql import functions

import grampus as gp
from grampus._spark_versions import from_arrow, to_arrow
from grampus.errors import ClusterError, DataError, NoColumn
from grampus.frames.scan import files_of

pytestmark = pytest.mark.usefixtures("models")


# Predictions


@pytest.mark.spark35
def test_rows_keep_their_columns_and_get_what_the_model_says(frame):
    estimator = mlp(3)
    found = estimator.predict(frame, feature_cols=[["a", "b", "c"]])
    assert found.columns == [*frame.columns, "prediction"]
    assert found.schema["prediction"].dataType.simpleString() == "array<float>"
    made, given = to_arrow(found), table()
    assert made.drop_columns(["prediction"]).to_pylist() == given.to_pylist()
    rows = np.stack([given[name].to_numpy() for name in "abc"], 1)
    np.testing.assert_allclose(numbers(made["prediction"]), answers(estimator, rows), atol=1e-5)


def test_nothing_runs_at_the_call(frame, spark):
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup
    spark.sparkContext.setJobGroup("predict", "")
    found = mlp(3).predict(frame, feature_cols=[["a", "b", "c"]])
    assert not jobs("predict")
    assert found.count() == table().num_rows
    assert jobs("predict")


@pytest.mark.spark35
def test_each_output_is_a_column_and_the_model_runs_once(frame):
    found = named().predict(frame, feature_cols=["a", "b"])
    kinds = {name: found.schema[name].dataType.simpleString() for name in found.columns[-2:]}
    assert kinds == {"prediction_sum": "float", "prediction_grid": "array<array<float>>"}
    assert found._jdf.queryExecution().executedPlan().toString().count("answer(") == 1
    made = to_arrow(found).to_pylist()[5]
    a, b = np.float32(made["a"]), made["b"]
    assert made["prediction_sum"] == pytest.approx(3 * (a + b), abs=1e-5)
    assert np.allclose(made["prediction_grid"], [[a, b], [a, b]])


CITIES = ["Lima", "Oslo", "Rome"]


def columns_of_every_kind(spark, frame):
    """Frames, what is read of them, and what the model then gets."""
    given = table()
    lists, texts = numbers(given["list"]), given["city"].to_pylist()
    # Dense and sparse ones beside each other.
    vectors = [
        (row, Vectors.dense(each) if row % 2 else Vectors.sparse(3, range(3), each))
        for row, each in enumerate(lists.tolist())
    ]
    structs = np.column_stack([given["a"], given["c"], lists])
    return {
        "list": (frame, "list", lists),
        "vector": (spark.createDataFrame(vectors, ["id", "v"]), "v", lists),
        "struct": (frame.selectExpr("id", "struct(a, c, list) as s"), "s", structs),
        "text": (
            frame,
            gp.columns.OneHot("city", CITIES),
            np.array([[t == c for c in CITIES] for t in texts]),
        ),
        "padded": (frame, gp.columns.Pad("list", 5), np.pad(lists, ((0, 0), (0, 2)))),
        "decimal": (
            frame.withColumn("d", functions.expr("cast(c as decimal(9, 2))")),
            [["d", "c"]],
            np.stack([given["c"]] * 2, 1),
        ),
        "decimals": (
            frame.selectExpr("id", "transform(list, x -> cast(x as decimal(12, 8))) as d"),
            "d",
            lists,
        ),
    }


@pytest.mark.parametrize("kind", ["list", "vector", "struct", "text", "padded", "decimal", "decimals"])
def test_columns_of_every_kind(spark, frame, kind):
    frame, columns, expected = columns_of_every_kind(spark, frame)[kind]
    estimator = mlp(expected.shape[1])
    made = to_arrow(estimator.predict(frame, feature_cols=columns).orderBy("id"))
    np.testing.assert_allclose(numbers(made["prediction"]), answers(estimator, expected), atol=1e-5)


@pytest.mark.timeout(120)
@pytest.mark.filterwarnings("ignore:the rows of this frame")
def test_labels_of_one_column_are_learnt_and_an_old_prediction_is_replaced(spark):
    frame = from_arrow(spark, prices())
    gp.init(2, "spark", session=spark, preload=["torch"])
    found = price_learner(frame).predict(frame, feature_cols=[["km", "hour"]])
    assert found.columns == frame.columns
    made = to_arrow(found)
    np.testing.assert_allclose(numbers(made["prediction"])[:, 0], made["price"], atol=1e-3)


def test_images(spark, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (4, 6, 6, 3), dtype="u1")
    for row, one in enumerate(pixels):
        Image.fromarray(one).save(tmp_path / f"{row}.png")
    frame = spark.read.format("binaryFile").load(str(tmp_path / "*.png")).orderBy("path")
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(108, 1))
    estimator = gp.Estimator.from_torch(model=model, optimizer="sgd", config={"lr": 0.1})
    steps = [gp.images.Normalize(mean=[0.0] * 3, std=[1.0] * 3)]
    found = estimator.predict(frame.select("content"), feature_cols=gp.columns.Image("content", steps))
    expected = answers(estimator, pixels.transpose(0, 3, 1, 2) / 255)
    np.testing.assert_allclose(numbers(to_arrow(found)["prediction"]), expected, atol=1e-4)


def test_the_model_is_that_of_the_call(frame, tmp_path):
    estimator, other = mlp(2), mlp(2, seed=2)
    before = estimator.predict(frame, feature_cols=[["a", "b"]])
    other.save(tmp_path / "other.safetensors")
    estimator.load(tmp_path / "other.safetensors")
    rows = np.stack([table()["a"], table()["b"]], 1)
    np.testing.assert_allclose(numbers(to_arrow(before)["prediction"]), answers(mlp(2), rows), atol=1e-5)
    after = to_arrow(estimator.predict(frame, feature_cols=[["a", "b"]]))["prediction"]
    np.testing.assert_allclose(numbers(after), answers(other, rows), atol=1e-5)


def test_a_process_loads_a_model_once(frame, tmp_path):
    config = {"lr": 0.1, "notes": str(tmp_path / "notes")}
    estimator = gp.Estimator.from_torch(model=Noted, optimizer="sgd", config=config)
    for _ in range(2):
        estimator.predict(frame.repartition(6), feature_cols="a").collect()
    made = Counter((tmp_path / "notes").read_text().split())
    # The driver makes it for a moment, to learn what it answers.
    assert made.pop(str(os.getpid())) == 2
    assert set(made.values()) == {1}


def test_predictions_go_on_in_sql_and_to_files(frame, tmp_path):
    found = mlp(2).predict(frame, feature_cols=[["a", "b"]]).withColumnRenamed("prediction", "p")
    found.createOrReplaceTempView("predicted")
    kept = frame.sparkSession.sql("select id, p[0] as first from predicted where p[0] > 0")
    kept.write.parquet(str(tmp_path / "kept"))
    read = pq.read_table(tmp_path / "kept")
    expected = answers(mlp(2), np.stack([table()["a"], table()["b"]], 1))[:, 0]
    assert sorted(read["id"].to_pylist()) == np.flatnonzero(expected > 0).tolist()


@pytest.mark.spark35
def test_names_that_sql_would_take_apart(spark):
    frame = from_arrow(spark, pa.table({"a.b": [1.0, 2.0], "c`d": [3.0, 4.0]}))
    assert mlp(2).predict(frame, feature_cols=[["a.b", "c`d"]]).count() == 2


def test_pandas_and_spark_agree(frame):
    given = table().to_pandas()
    estimator = mlp(3)
    with estimator:
        local = estimator.predict(given, feature_cols=[["a", "b", "c"]])["prediction"]
    found = to_arrow(estimator.predict(frame, feature_cols=[["a", "b", "c"]]))["prediction"]
    np.testing.assert_allclose(numbers(found), np.stack(local.to_list()), atol=1e-5)


# Files


def test_files_behind_a_frame(spark, tmp_path):
    given = table(20)
    folder = tmp_path / "some rows"
    folder.mkdir()
    for number in (1, 0):
        pq.write_table(given.slice(number * 10, 10), folder / f"{number}.parquet")
    files = [str(folder / "0.parquet"), str(folder / "1.parquet")]
    read = spark.read.parquet(str(folder))
    assert files_of(read) == (files, "a plain scan of 2 files")
    assert files_of(read.select("b", "list"))[0] == files
    assert files_of(spark.read.parquet(*files[::-1]))[0] == files
    changed = spark.read.schema("id long, a float").parquet(str(folder))
    read.write.partitionBy("c").parquet(str(tmp_path / "folders"))
    folders = spark.read.parquet(str(tmp_path / "folders"))
    for other, why in [
        (read.where("id > 3"), "the plan has a step Filter"),
        (read.limit(3), "the plan has a step GlobalLimit"),
        (read.orderBy("id"), "the plan has a step Sort"),
        (read.selectExpr("id + 1 as id"), "a column is computed"),
        (read.union(read), "the plan has a step Union"),
        (spark.read.parquet(str(folder), files[0]), "is read more than once"),
        (from_arrow(spark, given), "the plan has a step"),
        (changed, 'column "a" is float in the frame and Float64 in the files'),
        (folders, 'column "c" is taken from the names of folders'),
        (spark.read.option("mergeSchema", "true").parquet(str(folder)), "the option mergeschema"),
    ]:
        found, said = files_of(other)
        assert found is None
        assert why in said
    assert len(files_of(folders.select("a"))[0]) == len(folders.inputFiles())
    spark.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    assert files_of(read) == (
        None,
        "Spark may leave out rows: spark.sql.files.ignoreCorruptFiles is true",
    )
    spark.conf.unset("spark.sql.files.ignoreCorruptFiles")


# Shards


@pytest.fixture
def shards(frame):
    return gp.Shards.from_spark(frame)


def test_functions_run_in_tasks_of_spark(shards):
    def doubled(part, by):
        made = part.to_pandas()[["id", "city"]]
        return made.assign(pid=os.getpid(), id=made["id"] * by)

    made = shards.repartition(3).transform_shard(doubled, 2)
    assert made.columns == ["id", "city", "pid"]
    found = made.sort_values("id").to_arrow()
    assert found["id"].to_pylist() == list(range(0, 400, 2))
    assert os.getpid() not in found["pid"].to_pylist()
    assert made.num_partitions() == 3
    with pytest.raises(DataError, match="returns a table or a frame, this one returned"):
        shards.transform_shard(lambda part: {"x": part["a"].to_numpy()})


def same_rows(on_spark, here):
    """Whether both have the same rows, in any order."""
    one, two = on_spark.to_arrow().to_pylist(), here.to_arrow().to_pylist()
    assert sorted(map(repr, one)) == sorted(map(repr, two))


@pytest.mark.parametrize(
    "operation",
    [
        lambda shards, other: shards.select(["b", "id"]),
        lambda shards, other: shards[["city"]].deduplicate(),
        lambda shards, other: shards.group_by("city", {"c": ["min", "max", "count", "sumDistinct"]}),
        lambda shards, other: shards.group_by(["city"], {"c": ["avg", "first"]}, join=True).select(
            ["id", "avg(c)"]
        ),
        lambda shards, other: shards.group_by("city", {"c": "sum"}, join=True).group_by(
            "city", {"c": ["max", "sum"]}, join=True
        ),
        lambda shards, other: shards.group_by(agg="count", join=True).group_by([], "count", join=True),
        lambda shards, other: shards.group_by(agg="count"),
        lambda shards, other: shards.merge(other, how="outer"),
        lambda shards, other: shards.select(["id", "city"]).merge(other, how="left", on="id"),
        lambda shards, other: shards.drop_missing_columns().select(["id"]),
    ],
    ids=[
        "select",
        "deduplicate",
        "groups",
        "joined groups",
        "joined twice",
        "joined counts",
        "count",
        "outer",
        "left",
        "missing",
    ],
)
def test_operations_give_what_they_give_here(spark, shards, operation):
    other = pa.table({"id": [3, 500, None], "city": ["Rome", "Rome", None], "more": [1, 2, 3]})
    there = operation(shards, gp.Shards.from_spark(from_arrow(spark, other)))
    here = operation(gp.Shards.from_arrow(table(), 2), gp.Shards.from_arrow(other, 1))
    assert there.columns == here.columns
    same_rows(there, here)


def test_rows_are_sorted_with_what_is_missing_last(spark):
    given = pa.table({"x": [2.0, None, float("nan"), 1.0, 3.0], "y": [1, 2, 3, 4, 5]})
    shards = gp.Shards.from_spark(from_arrow(spark, given))
    assert shards.sort_values("x").to_arrow()["y"].to_pylist()[:3] == [4, 1, 5]
    assert shards.sort_values("x", ascending=False).to_arrow()["y"].to_pylist()[:3] == [5, 1, 4]


def test_figures(shards):
    here = gp.Shards.from_arrow(table(), 2)
    assert len(shards) == len(here)
    assert (shards.max_values("a"), shards.min_values("city")) == (here.max_values("a"), "Lima")
    np.testing.assert_allclose(shards.describe(["a", "c"]), here.describe(["a", "c"]))
    assert shards.null_counts().equals(here.null_counts())
    assert sorted(shards["city"].unique()) == sorted(set(CITIES))
    assert shards.head(2).num_rows == 2


def test_partitions_come_here_when_they_are_asked_for(shards):
    by_city = shards.partition_by("city", 4)
    parts = by_city.collect()
    assert sum(part.num_rows for part in parts) == 200
    held = [{*part["city"].to_pylist()} for part in parts]
    assert sum(map(len, held)) == 3
    assert by_city.take(4)[0].num_rows == parts[0].num_rows


def test_shards_are_predicted_where_they_are(shards):
    estimator = mlp(3)
    found = estimator.predict(shards, feature_cols="list")
    assert isinstance(found, gp.Shards)
    made = to_arrow(found.to_spark_df())["prediction"]
    np.testing.assert_allclose(numbers(made), answers(estimator, numbers(table()["list"])), atol=1e-5)


def test_shards_are_trained_on_as_their_frame_is(frame, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def trained(data):
        estimator = mlp(3, loss=torch.nn.CrossEntropyLoss())
        estimator.fit(data, batch_size=50, feature_cols="list", label_cols="even", order_by="id")
        return estimator.digest()

    frame = frame.withColumn("even", functions.expr("id % 2"))
    assert trained(gp.Shards.from_spark(frame)) == trained(frame)
    holed = frame.withColumn("list", functions.expr("if(c = 3, null, list)"))
    with pytest.raises(DataError, match='column "list" is null'):
        trained(gp.Shards.from_spark(holed))
    trained(gp.Shards.from_spark(holed).skip_bad_rows())
    gp.stop()


@pytest.mark.spark35
def test_local_shards_go_to_spark(spark):
    assert to_arrow(gp.Shards.from_arrow(table(), 3).to_spark_df()).equals(table())


@pytest.mark.parametrize(
    ("use", "says"),
    [
        (lambda shards: shards.split(), "split needs shards that are tuples"),
        (lambda shards: shards.zip(shards), "merge by a column"),
        (lambda shards: shards.to_torch(8, feature_cols="a"), "bring the rows to this machine first"),
        (lambda shards: shards.sample(0.5, weights="a"), "with weights is not done on Spark"),
        (lambda shards: shards.merge(gp.Shards.from_arrow(table(), 1)), "should be shards on Spark too"),
        (lambda shards: shards["cyti"], 'there is no column "cyti"'),
    ],
)
def test_what_is_not_done_on_spark(shards, use, says):
    with pytest.raises(DataError, match=says):
        use(shards)


# Wrong use


@pytest.mark.parametrize(
    ("expression", "kind", "says"),
    [
        ("cast('2026-01-01' as date)", DataError, 'column "wrong" holds date'),
        ("map('a', 1)", DataError, 'column "wrong" holds map<string,int>'),
        ("'text'", DataError, r'column "wrong" holds string.*OneHot\("wrong", …\)'),
        ("cast('text' as binary)", DataError, r'column "wrong" holds binary.*Image\("wrong", …\)'),
        ("struct('text' as t)", DataError, 'column "wrong.t" holds string'),
    ],
)
def test_a_column_that_no_model_takes(frame, expression, kind, says):
    with pytest.raises(kind, match=says):
        mlp(1).predict(frame.withColumn("wrong", functions.expr(expression)), feature_cols="wrong")


def test_a_column_that_is_not_there(frame):
    with pytest.raises(NoColumn, match='there is no column "lists": do you mean "list"'):
        mlp(3).predict(frame, feature_cols="lists")


@pytest.mark.parametrize("column", ["a", "list"])
def test_a_null_in_a_feature(frame, column):
    holed = frame.coalesce(1).withColumn(
        column, functions.when(functions.col("id") != 150, functions.col(column))
    )
    width, others = (3, []) if column == "list" else (2, ["b"])
    found = mlp(width).predict(holed, feature_cols=[[column, *others]])
    with pytest.raises(PythonException, match=rf'partition 0, row 150, column "{column}" is null'):
        to_arrow(found)


def test_a_null_in_the_first_row(frame):
    holed = frame.coalesce(1).withColumn(
        "list", functions.when(functions.col("id") > 0, functions.col("list"))
    )
    with pytest.raises(DataError, match='in the first row, column "list" is null'):
        mlp(3).predict(holed, feature_cols="list")


def test_an_empty_frame(frame):
    nobody = frame.where("id < 0")
    # The length of a list is not in the schema.
    with pytest.raises(DataError, match="the DataFrame is empty"):
        mlp(3).predict(nobody, feature_cols="list")
    assert mlp(2).predict(nobody, feature_cols=[["a", "b"]]).count() == 0


def test_results_are_written_by_spark(frame, tmp_path):
    with pytest.raises(ValueError, match="let the engine write"):
        mlp(1).predict(frame, feature_cols=[["a", "b"]], out=tmp_path / "out.parquet")


def test_an_error_of_the_model_comes_at_the_call(frame):
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        mlp(4).predict(frame, feature_cols=[["a", "b"]])


def test_a_stopped_session(spark, frame):
    """The last test: nothing follows on this session."""
    spark.stop()
    with pytest.raises(ClusterError, match="the Spark session of this DataFrame is stopped"):
        mlp(2).predict(frame, feature_cols=[["a", "b"]])
