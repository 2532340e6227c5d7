"""One Spark for all tests here, and a session of it for those of a file."""

from __future__ import annotations

import os
import shutil

import frame_models
import pyspark
import pytest
from leftovers import beside_an_engine
from needs import lacking

from grampus._spark_versions import from_arrow
from on_spark.standalone import TWO_EXECUTORS, Standalone, classic, end_gateway, environment


@pytest.fixture(autouse=True)
def runtime(monkeypatch, tmp_path):
    """What a test leaves behind is looked for among processes of Grampus: Spark's stay."""
    with beside_an_engine(monkeypatch, tmp_path) as folder:
        yield folder


@pytest.fixture(scope="package", autouse=True)
def java():
    """Spark needs one."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        lacking("JAVA", "there is no Java for Spark: apt-get install openjdk-17-jre-headless")


@pytest.fixture(scope="package")
def standalone(java, tmp_path_factory):
    """A Master, and two Workers with three cores each: two for sessions here, one for the Connect server."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment().items():
            patch.setenv(name, value)
        cluster = Standalone(tmp_path_factory.mktemp("spark"), cores=3)
        yield cluster
        end_gateway()
        cluster.close()


@pytest.fixture(scope="package")
def connect(standalone):
    """The address of a Connect server, with two executors of one core each."""
    if pyspark.__version__ < "4":
        pytest.skip("Spark 3.5 brings no Connect server, and Grampus refuses its sessions")
    return standalone.connect_server()


@pytest.fixture(scope="module")
def spark(standalone):
    """A session with two executors of one core each, on hosts of their own."""
    # A task that fails is not tried again, which would only take time.
    session = classic(standalone.master, {**TWO_EXECUTORS, "spark.task.maxFailures": "1"})
    yield session
    session.stop()


@pytest.fixture(scope="module")
def models(spark):
    """Tasks of the session have the module of the models."""
    spark.sparkContext.addPyFile(frame_models.__file__)


@pytest.fixture
def frame(spark):
    """The table of the models as a DataFrame."""
    return from_arrow(spark, frame_models.table())


@pytest.fixture(scope="module")
def wide_spark(standalone):
    """A session with two executors of two cores: a slot is free for rows that are read again."""
    settings = {**TWO_EXECUTORS, "spark.executor.cores": "2", "spark.cores.max": "4"}
    session = classic(standalone.master, settings)
    yield session
    session.stop()
