"""Who reads the rows of a frame, on how many hosts, and what executors hold of a model, and how long."""

import gc
import re
import warnings

import numpy as np
import pytest
import torch
from frame_models import Heavy, answers, mlp, numbers, table
from object_store import serving
from processes import wait_until
from py4j.protocol import Py4JError

import grampus as gp
from grampus._spark_versions import from_arrow
from grampus.errors import DataError
from grampus.frames import scan, supply

pytestmark = [pytest.mark.usefixtures("models"), pytest.mark.timeout(120)]
COLUMNS = {"feature_cols": [["a", "b"]], "label_cols": [["c"]]}


@pytest.fixture
def scanned(spark, tmp_path):
    """A plain scan of one Parquet file."""
    from_arrow(spark, table()).coalesce(1).write.parquet(str(tmp_path / "rows"))
    return spark.read.parquet(str(tmp_path / "rows"))


@pytest.fixture
def cluster(spark):
    yield gp.init(2, "spark", session=spark, preload=["torch"])
    gp.stop()


def trained(frame):
    """An estimator, and what was warned of."""
    estimator = mlp(2, 1, loss=torch.nn.MSELoss())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator.fit(frame, batch_size=50, **COLUMNS)
    return estimator.digest(), [str(each.message) for each in caught]


def test_files_that_executors_may_not_open_are_read_by_spark(scanned, cluster, monkeypatch):
    expected, said = trained(scanned)
    assert not [text for text in said if "rows of this frame" in text]

    def refused(*_):
        # As executors say it that have no keys to the bucket.
        raise DataError("s3://bucket/a.parquet: Generic S3 error: 403: check the bucket, AWS_ENDPOINT_URL")

    monkeypatch.setattr(supply, "of_files", refused)
    found, said = trained(scanned)
    assert found == expected
    [text] = [text for text in said if "rows of this frame" in text]
    assert re.match(r"the rows of this frame are read by Spark itself \(s3://bucket/a.parquet: .* 403", text)


def test_files_that_this_process_may_not_open_are_read_by_spark(monkeypatch, tmp_path):
    pytest.importorskip("moto", reason="the environment of Spark 3.5 has no object store")
    with serving(monkeypatch, tmp_path / "log"):
        found, why = scan.decided(scan.Scan(["s3a://other/rows"], ["s3a://other/rows/0.parquet"], {}))
    assert found is None
    assert why.startswith("the files cannot be read as one table: s3://other/rows/0.parquet: ")


def test_other_errors_of_files_stay_errors(scanned, cluster, monkeypatch):
    def broken(*_):
        raise DataError('row 3 of s3://bucket/a.parquet, column "a" is null')

    monkeypatch.setattr(supply, "of_files", broken)
    with pytest.raises(DataError, match='column "a" is null'):
        trained(scanned)


def test_a_cluster_that_shows_no_plans(scanned, cluster, monkeypatch):
    def refuse(_):
        raise Py4JError(
            "Method public queryExecution() is not whitelisted on class org.apache.spark.sql.Dataset"
        )

    monkeypatch.setattr(scan, "_class", refuse)
    assert scan.files_of(scanned) == (None, "this cluster does not show how its frames are made")
    _, said = trained(scanned)
    assert [text for text in said if "this cluster does not show" in text]


def test_workers_of_each_host(spark):
    gp.init(2, "spark", session=spark)
    assert gp.Estimator.from_torch(
        model=torch.nn.Linear(1, 1), optimizer="sgd", config={"lr": 0.1}, workers_per_node=1
    )._cluster()[1] == 2  # fmt: skip
    two = gp.Estimator.from_torch(
        model=torch.nn.Linear(1, 1), optimizer="sgd", config={"lr": 0.1}, workers_per_node=2
    )
    with pytest.raises(ValueError, match="workers=4 were asked for, the cluster has 2"):
        two.predict(np.zeros((4, 1), "f4"))
    gp.stop()


def test_hosts_are_those_of_executors(wide_spark):
    cluster = gp.init(4, "spark", session=wide_spark)
    assert (cluster.workers, cluster.hosts) == (4, 2)
    gp.stop()


def held(spark):
    """Bytes of memory that Spark stores things in, as its driver is told by all executors."""
    known = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().values().toSeq()
    sizes = [known.apply(place) for place in range(known.size())]
    return sum(each._1() - each._2() for each in sizes)


def test_executors_let_go_of_models(spark):
    frame = from_arrow(spark, table(2)).coalesce(1)
    size, before = 11_200_000, held(spark)
    estimator = gp.Estimator.from_torch(model=Heavy, optimizer="sgd", config={"lr": 0.1})
    # Weights that are only drawn from a seed are not sent.
    estimator.load_state_dict(Heavy().state_dict())
    for _ in range(3):
        lazy = estimator.predict(frame, feature_cols="list")
        lazy.collect()
    # In the driver and on two executors at most: calls share what was sent.
    assert wait_until(lambda: held(spark) - before > 1.5 * size, 10)
    assert held(spark) - before < 3.5 * size
    gp.stop()
    # What was predicted lazily can still be asked for, also from processes that did not have the model.
    made = np.stack(lazy.orderBy("id").toPandas()["prediction"])
    np.testing.assert_allclose(made, answers(estimator, numbers(table(2)["list"])), atol=1e-5)
    del lazy

    def is_gone():
        gc.collect()
        spark.sparkContext._jvm.System.gc()
        return held(spark) - before < 0.5 * size

    assert wait_until(is_gone, 30)
