"""DataFrames as users have them: names of all kinds, outputs by name, streams, and what is not taken."""

import warnings

import numpy as np
import pyarrow as pa
import pytest
import torch
from frame_models import answers, mlp, named, numbers, table
from pyspark.ml.linalg import Vectors

import grampus as gp
from grampus._spark_versions import from_arrow, to_arrow
from grampus.errors import DataError

pytestmark = [
    pytest.mark.usefixtures("models"),
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore:the rows of this frame"),
]


@pytest.fixture
def cluster(spark):
    yield gp.init(2, "spark", session=spark, preload=["torch"])
    gp.stop()


def rows_of(*names):
    given = table()
    return np.stack([given[name].to_numpy() for name in names], 1)


# Names


def test_names_with_dots_and_spaces(frame, cluster):
    odd = frame.selectExpr("id as `the.id`", "a as `a.x`", "b as `b y`", "c as `c``z`")
    columns = {"feature_cols": [["a.x", "b y"]], "label_cols": [["c`z"]]}
    plain = {"feature_cols": [["a", "b"]], "label_cols": [["c"]]}

    def trained(data, **settings):
        estimator = mlp(2, 1, loss=torch.nn.MSELoss())
        estimator.fit(data, batch_size=50, **settings)
        return estimator

    found = trained(odd, order_by="the.id", **columns)
    assert found.digest() == trained(frame, order_by=["id"], **plain).digest()
    assert found.evaluate(odd, **columns)["num_samples"] == table().num_rows
    made = found.predict(odd, feature_cols=[["a.x", "b y"]], output_cols="p.1 `q`")
    assert made.columns == ["the.id", "a.x", "b y", "c`z", "p.1 `q`"]
    made = made.orderBy("`the.id`").toPandas()
    np.testing.assert_allclose(np.stack(made["p.1 `q`"]), answers(found, rows_of("a", "b")), atol=1e-5)


def test_shards_with_such_names(spark):
    given = pa.table({"the.id": [2, 1, 2], "a b": ["x", None, "z"]})
    shards = gp.Shards.from_spark(from_arrow(spark, given).coalesce(1))
    made = shards.transform_shard(lambda part: part.append_column("n.1", part["the.id"]))
    assert made.to_arrow().to_pydict() == {**given.to_pydict(), "n.1": [2, 1, 2]}
    assert [part.column_names for part in made] == [["the.id", "a b", "n.1"]]
    assert len(shards.select(["the.id"]).deduplicate()) == 2


# Outputs


def test_outputs_get_the_names_that_are_given(frame):
    found = named().predict(frame, feature_cols=["a", "b"], output_cols=["the.sum", "grid of 2"])
    assert found.columns[-2:] == ["the.sum", "grid of 2"]
    a, b = rows_of("a", "b").astype("f4").T
    made = found.orderBy("id").toPandas()
    np.testing.assert_allclose(made["the.sum"], 3 * (a + b), rtol=1e-5)
    grids = np.array([[list(row) for row in grid] for grid in made["grid of 2"]])
    np.testing.assert_allclose(grids, np.stack([a, b, a, b], 1).reshape(-1, 2, 2), rtol=1e-5)


def test_names_that_do_not_fit_are_refused_at_the_call(frame):
    with pytest.raises(DataError, match="output_cols= names 1 column, and the model has 2 outputs"):
        named().predict(frame, feature_cols=["a", "b"], output_cols="sum")


# Columns that are not named


def test_sparse_vectors_stay_sparse(spark):
    """As rows of 200,000 numbers, they would take 240 MB; the oracle is a sum over what is not zero."""
    random = np.random.default_rng(0)
    rows, width, filled = 300, 200_000, 5
    places = [np.sort(random.choice(width, filled, replace=False)) for _ in range(rows)]
    values = random.normal(size=(rows, filled))
    frame = spark.createDataFrame(
        [
            (row, Vectors.sparse(width, places[row].tolist(), values[row].tolist()), float(values[row].sum()))
            for row in range(rows)
        ],
        ["id", "features", "label"],
    )
    gp.init(2, "spark", session=spark, preload=["torch"])
    estimator = gp.Estimator.from_torch(
        model=torch.nn.Sequential(torch.nn.Linear(width, 1), torch.nn.Flatten(0)),
        optimizer="sgd",
        loss=torch.nn.MSELoss,
        config={"lr": 0.1},
    )
    named = {"feature_cols": "features", "label_cols": "label"}
    history = estimator.fit(frame, epochs=2, batch_size=20, order_by="id", **named)
    # A place and a number for each of the five, a label, and a few bytes for the row.
    assert history.copied_bytes < rows * 100
    assert history[-1]["loss"] < history[0]["loss"]
    made = to_arrow(estimator.predict(frame, feature_cols="features").orderBy("id"))
    layer = estimator.get_model()[0]
    weight = layer.weight.detach().numpy()[0]
    expected = [weight[places[row]] @ values[row] + layer.bias.item() for row in range(rows)]
    np.testing.assert_allclose(numbers(made["prediction"]), expected, atol=1e-5)
    gp.stop()


@pytest.mark.parametrize("kind", ["vectors", "lists"])
def test_columns_of_native_models_need_no_names(spark, frame, cluster, tmp_path, kind):
    lists = frame.selectExpr("array(a, cast(b AS double)) AS features", "array(a + b, a - b) AS label")
    if kind == "vectors":
        from pyspark.ml.functions import array_to_vector

        lists = lists.select(*(array_to_vector(name).alias(name) for name in lists.columns))
    lists.write.parquet(str(tmp_path / "data.parquet"))
    df = spark.read.parquet(str(tmp_path / "data.parquet"))
    model = gp.nn.Sequential().add(gp.nn.Linear(2, 2))
    est = gp.Estimator.from_native(model=model, loss=gp.nn.MSE(), optimizer=gp.optim.Adam(lr=0.05))
    est.fit(df, 1, batch_size=4)
    history = est.fit(df, 4, batch_size=4)
    assert len(history) == 4
    assert est.evaluate(df)["loss"] < 0.05
    made = est.predict(df).toPandas()
    given, wanted = (np.stack([np.asarray(row) for row in made[name]]) for name in ("features", "label"))
    np.testing.assert_allclose(wanted, given @ [[1, 1], [1, -1]], atol=1e-5)
    np.testing.assert_allclose(np.stack(made["prediction"]), wanted, atol=0.7)


# Streams


def test_a_stream_is_predicted(spark, tmp_path):
    given = table()
    frame = from_arrow(spark, given)
    frame.repartition(3).write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(frame.schema).parquet(str(tmp_path / "in"))
    estimator = mlp(3)
    found = estimator.predict(stream, feature_cols=gp.columns.Pad("list", 3), output_cols="p")
    assert found.isStreaming
    query = (
        found.writeStream.format("parquet")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "at"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(60)
    finally:
        query.stop()
    made = spark.read.parquet(str(tmp_path / "out")).orderBy("id").toPandas()
    assert made["id"].tolist() == list(range(given.num_rows))
    np.testing.assert_allclose(np.stack(made["p"]), answers(estimator, numbers(given["list"])), atol=1e-5)


def test_a_stream_is_not_trained_on(spark, cluster):
    stream = spark.readStream.format("rate").load().selectExpr("cast(value as double) as a", "array(1d) as l")
    estimator = mlp(1, 1, loss=torch.nn.MSELoss())
    with pytest.raises(DataError, match=r"this DataFrame is a stream, .* writeStream\.foreachBatch"):
        estimator.fit(stream, feature_cols=[["a"]], label_cols=[["a"]])
    with pytest.raises(DataError, match=r'the length of column "l" is not in the schema.*gp\.columns\.Pad'):
        estimator.predict(stream, feature_cols="l")


# What is not taken


def test_labels_that_were_forgotten(frame, cluster):
    with pytest.raises(ValueError, match=r"the loss MSELoss needs a target, .* with label_cols="):
        mlp(2, loss=torch.nn.MSELoss()).fit(frame, feature_cols=[["a", "b"]])


@pytest.mark.parametrize("kind", ["rdd", "mapped"])
def test_an_rdd(frame, cluster, kind):
    rdd = frame.rdd if kind == "rdd" else frame.rdd.map(tuple)
    columns = {"feature_cols": [["a", "b"]]}
    for use in (
        lambda: mlp(2, loss=torch.nn.MSELoss()).fit(rdd, label_cols="c", **columns),
        lambda: mlp(2).predict(rdd, **columns),
        lambda: gp.Shards.from_spark(rdd),
    ):
        with pytest.raises(DataError, match="an RDD has no columns: make a DataFrame of it"):
            use()


# pandas on Spark


@pytest.fixture
def on_spark(frame):
    """A frame of pyspark.pandas, with an index of its own; not with every version of pandas there is one."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pyspark.pandas  # noqa: F401 - the method below needs it
    except ImportError as error:
        pytest.skip(f"pyspark.pandas does not load beside this pandas: {error}")
    return frame.pandas_api(index_col="id")


@pytest.mark.filterwarnings("ignore")
def test_frames_of_pandas_on_spark(on_spark, frame, cluster):
    estimator = mlp(2, 1, loss=torch.nn.MSELoss())
    columns = {"feature_cols": [["a", "b"]], "label_cols": [["c"]]}
    estimator.fit(on_spark, batch_size=50, order_by="a", **columns)
    other = mlp(2, 1, loss=torch.nn.MSELoss())
    other.fit(frame, batch_size=50, order_by="a", **columns)
    assert estimator.digest() == other.digest()
    made = estimator.predict(on_spark, feature_cols=[["a", "b"]])
    assert type(made) is type(on_spark) and made.index.name == "id"
    found = made.to_pandas().sort_index()
    np.testing.assert_allclose(
        np.stack(found["prediction"]), answers(estimator, rows_of("a", "b")), atol=1e-5
    )
    assert gp.Shards.from_spark(on_spark).columns == ["a", "b", "c", "city", "list"]
