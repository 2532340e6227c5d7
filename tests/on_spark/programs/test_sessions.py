"""Sessions of Spark that Grampus starts for a program."""

import textwrap

import pytest
from processes import finish, start

from on_spark.standalone import QUIET, TWO_EXECUTORS

pytestmark = pytest.mark.timeout(120)

PROGRAM = """
import grampus as gp
from pyspark.sql import SparkSession

cluster = gp.init(
    1, "spark", master="local[3]", memory="600m", conf={"spark.app.name": "orcas"}
)
context = SparkSession.getActiveSession().sparkContext
context.setLogLevel("OFF")
print(context.master, context.appName, context.getConf().get("spark.executor.memory"))
gp.stop()
SparkSession.getActiveSession().stop()
"""


def test_a_session_has_what_was_asked_for():
    code, out, err = finish(start(PROGRAM), 100)
    assert code == 0, err
    assert out.split() == ["local[3]", "orcas", "600m"]


def started(standalone, text, **settings):
    """A program that gets a session of two executors on the standalone cluster."""
    # A session begins before its executors are there, unless it is told to wait.
    ratio = {"spark.scheduler.minRegisteredResourcesRatio": "0.0"}
    conf = {**QUIET, **TWO_EXECUTORS, **ratio, **settings}
    head = f"import grampus as gp\nmaster, conf = {standalone.master!r}, {conf!r}\n"
    return finish(start(head + textwrap.dedent(text)), 100)


@pytest.mark.spark35
def test_executors_of_a_new_session_are_waited_for_and_counted(standalone):
    text = """
        cluster = gp.init(cluster="spark", master=master, conf=conf)
        print(cluster.workers, gp.run(gp.rank))
    """
    code, out, err = started(standalone, text)
    assert code == 0, err
    assert out.split("\n")[0] == "2 [0, 1]"


def test_executors_that_do_not_come_are_named_with_what_else_runs(standalone, spark):
    """The memory that they want is on no machine; another application is there."""
    text = """
        import time
        from pyspark.sql import SparkSession
        from grampus.errors import ClusterError
        began = time.monotonic()
        try:
            gp.init(cluster="spark", master=master, memory="100g", conf=conf, start_timeout=6)
        except ClusterError as error:
            print(error)
        SparkSession.getActiveSession().stop()
    """
    del spark  # It runs.
    code, out, err = started(standalone, text, **{"spark.executor.memory": "100g"})
    assert code == 0, err
    known = "no executor of this session has registered, the Master also runs the application"
    assert f"no executor of Spark came within 6 s (start_timeout): {known}" in out
    assert f"[grampus] waiting for executors of Spark, for up to 6 s (start_timeout): {known}" in err
    assert "'tests'" in out
