"""What wrong use gets on Spark: an error that says what to do, and no job left behind."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from deadly_runs import COLUMNS, Deadly, estimator
from processes import wait_until
from pyspark.ml.linalg import Vectors
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

import grampus as gp
from grampus.errors import ClusterError, DataError, NoColumn
from on_spark.test_workers import tasks

pytestmark = [pytest.mark.timeout(120), pytest.mark.filterwarnings("ignore:the rows of this frame")]

FEATURES = {"feature_cols": "x", "label_cols": "y"}


@pytest.fixture
def cluster(spark):
    yield gp.init(2, "spark", session=spark, preload=["torch"], start_timeout=30)
    assert wait_until(lambda: tasks(spark) == [], 10)


@pytest.fixture
def other_python(spark):
    """Has tasks run by another interpreter."""
    name = "spark.sql.execution.pyspark.python"

    def use(path):
        spark.conf.set(name, str(path))

    yield use
    spark.conf.unset(name)


def test_executors_without_the_package(cluster, other_python, tmp_path):
    """An interpreter that has all packages of this one but those that are installed by a link."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "v"], check=True, timeout=60)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = tmp_path / "v" / "lib" / version / "site-packages"
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    other_python(tmp_path / "v" / "bin" / "python")
    with pytest.raises(ClusterError, match=r"the executors have no grampus: install it .* --archives"):
        gp.run(lambda: 1)


def test_executors_with_another_python(cluster, other_python):
    # Installed beside this one, as version managers do it.
    beside = Path(sys.base_prefix).parent.glob("3.*/bin/python3")
    own = Path(sys.base_prefix)
    found = sorted(path for path in beside if own not in path.parents)
    if not found:
        pytest.skip("there is no other Python on this machine")
    other_python(found[0])
    with pytest.raises(ClusterError, match=r"the executors run another Python: set PYSPARK_PYTHON"):
        gp.run(lambda: 1)


def test_a_driver_that_executors_cannot_reach(spark):
    # Kept for documentation: nobody has this address.
    gp.init(2, "spark", session=spark, address="192.0.2.1", start_timeout=30)
    words = r"cannot reach the driver: .*192\.0\.2\.1.*: name an address .* spark\.driver\.host"
    with pytest.raises(ClusterError, match=words):
        gp.run(lambda: 1)
    assert wait_until(lambda: tasks(spark) == [], 10)


@pytest.fixture
def est(cluster):
    return estimator(Deadly("."), workers=None)


def rows(spark, *values, kind="x double, y long, id long"):
    return spark.createDataFrame([(value, 0, 0) for value in values], kind)


def test_a_null_in_a_feature(spark, est):
    frame = rows(spark, 1.0, 2.0, None).coalesce(1)
    with pytest.raises(DataError, match='partition 0, row 2, column "x" is null'):
        est.fit(frame, **FEATURES)


def test_types_that_no_model_takes(spark, est):
    frame = rows(spark, "a", kind="x string, y long, id long")
    with pytest.raises(
        DataError, match=r'column "x" holds string, and a model takes numbers: use gp.columns.OneHot'
    ):
        est.fit(frame, **FEATURES)
    frame = rows(spark, 1.0).withColumn("x", F.current_timestamp())
    with pytest.raises(DataError, match='column "x" holds timestamp'):
        est.fit(frame, **FEATURES)


def test_a_column_that_is_not_there(spark, est):
    with pytest.raises(NoColumn, match="x0"):
        est.fit(rows(spark, 1.0), **COLUMNS)


def test_no_rows(spark, est):
    with pytest.raises(DataError, match="there are no rows"):
        est.fit(rows(spark, 1.0).filter("x > 5"), **FEATURES)


def test_vectors_of_different_lengths(spark, est):
    frame = spark.createDataFrame([(Vectors.dense(1, 2), 0), (Vectors.dense(1, 2, 3), 0)], ["x", "y"])
    with pytest.raises(DataError, match=r"one length"):
        est.fit(frame.coalesce(1), **FEATURES)


def test_an_error_in_the_lineage_of_a_frame_is_that_of_spark(spark, est):
    frame = rows(spark, 1.0).withColumn("x", F.expr("1.0 / raise_error('this is the cause')").cast("double"))
    with pytest.raises(Exception, match="this is the cause"):
        est.fit(frame, **FEATURES)
