"""Spark DataFrames through a Connect server: the same as on a classic session."""

import subprocess
import sys
from pathlib import Path

import pytest
from processes import finish, start

FRAMES = Path(__file__).parent / "connect_frames.py"


@pytest.mark.timeout(150)
def test_all_that_frames_can_do(connect, tmp_path):
    """In a process of its own: a process has sessions of one kind."""
    command = [sys.executable, FRAMES, connect, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=140, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == "all is well"


UNREACHED = """
import sys
import grampus as gp
from pyspark.sql import SparkSession

session = SparkSession.builder.remote({address!r}).getOrCreate()
try:
    # Kept for documentation: nobody has this address.
    gp.init(2, "spark", session=session, address="192.0.2.1")
except gp.errors.ClusterError as error:
    print("refused at init:", error)
gp.init(2, "spark", session=session)
print("runs:", gp.run(gp.world_size))
gp.stop()
session.stop()
"""


@pytest.mark.timeout(150)
def test_a_driver_that_executors_cannot_reach_is_refused_at_init(connect):
    """One that they reach runs."""
    code, out, err = finish(start(UNREACHED.format(address=connect)), 140)
    assert code == 0, err
    refused, runs = out.splitlines()
    assert "refused at init" in refused
    assert "cannot reach the driver at 192.0.2.1:" in refused
    assert "grampus.init(address=…)" in refused
    assert runs == "runs: [2, 2]"
