"""Sessions of Spark that are warm, the same for every contender, on this machine alone."""

import os
import sys
from pathlib import Path

from outside import end_orphans, keep_orphans

CONF = {
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Half of the table is one partition: nobody has to move rows before they can be trained on.
    "spark.sql.files.maxPartitionBytes": "10g",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}


def environment():
    """Python of the executors is this one, and finds what lies beside the contender."""
    keep_orphans()
    here = str(Path(__file__).parent)
    path = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))
    os.environ.update(SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable, PYTHONPATH=path)
    os.environ.update(PYSPARK_DRIVER_PYTHON=sys.executable)


def session(master="local[2]", **settings):
    """Return a session that has run a query."""
    from pyspark.sql import SparkSession

    environment()
    builder = SparkSession.builder.master(master)
    for name, value in {**CONF, **settings}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    return warmed(spark)


def warmed(spark):
    spark.sparkContext.setLogLevel("ERROR")
    spark.range(1000).selectExpr("sum(id)").collect()
    return spark


def table(spark, data, kind, through):
    """Return the table of a kind, counted once; `through` Spark it is no plain scan of files."""
    frame = spark.read.parquet(f"{data}/{kind}")
    if through:
        frame = frame.filter("label >= 0")
    frame.count()
    return frame


def stop(spark):
    """End the session and its JVM: the next contender is to have the machine."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    spark.stop()
    gateway.shutdown()
    # It ends when nobody can write to it any more.
    gateway.proc.stdin.close()
    gateway.proc.wait(60)
    end_orphans()
