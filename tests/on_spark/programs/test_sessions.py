"""Sessions of Spark that Grampus starts for a program."""

import pytest
from processes import finish, start

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
