"""Sessions of Spark and Ray for tests: on this machine alone, and gone at the end."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

# What executors and Ray's processes import: Grampus as the tests do, and modules of tests.
PYTHON_PATH = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])


@contextlib.contextmanager
def _environment(**settings):
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def spark_session(connect=False, **conf):
    """A session of two cores, on Connect with a server of its own; the JVM goes with it."""
    from pyspark.sql import SparkSession

    folder = tempfile.mkdtemp(prefix="gp-spark-")
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        # A few rows: compiling costs more than it saves.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.local.dir": folder,
        **conf,
    }
    with _environment(
        PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1", PYTHONPATH=PYTHON_PATH, TMPDIR=folder
    ):
        builder = (
            SparkSession.builder.remote("local[2]") if connect else SparkSession.builder.master("local[2]")
        )
        for name, value in settings.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        try:
            yield session
        finally:
            session.stop()
            end_gateway()
            shutil.rmtree(folder, ignore_errors=True)


def end_gateway():
    """End the JVM in which sessions of this process were."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(20)
        SparkContext._gateway = SparkContext._jvm = None


@contextlib.contextmanager
def ray_cluster(**settings):
    """A Ray of two cores, with a token of its own."""
    folder = tempfile.mkdtemp(prefix="gp-ray-", dir="/tmp")
    token = Path(folder, "token")
    token.write_text(secrets.token_hex(32))
    with _environment(
        RAY_AUTH_MODE="token",
        RAY_AUTH_TOKEN_PATH=str(token),
        RAY_USAGE_STATS_ENABLED="0",
        RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S="0",
        RAY_DATA_DISABLE_PROGRESS_BARS="1",
        PYTHONPATH=PYTHON_PATH,
    ):
        # It reads its environment when it is imported.
        import ray

        given = {"num_cpus": 2, "object_store_memory": 150 << 20, **settings}
        ray.init(address="local", include_dashboard=False, log_to_driver=False, _temp_dir=folder, **given)
        try:
            yield ray
        finally:
            ray.shutdown()
            shutil.rmtree(folder, ignore_errors=True)
