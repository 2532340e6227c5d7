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


BUSY = """
import threading
import time
from pathlib import Path

import torch
from pyspark.sql import SparkSession

import grampus as gp

folder = Path({folder!r})


def hold(batches):
    for batch in batches:
        (folder / f"held-{{batch['id'][0]}}").touch()
        end = time.monotonic() + 100
        while not (folder / "release").exists() and time.monotonic() < end:
            time.sleep(0.05)
        yield batch


def refused(what, call):
    try:
        call()
    except gp.errors.ClusterError as error:
        print(what, error)


session, other = (SparkSession.builder.remote({address!r}).create() for _ in range(2))
gp.init(2, "spark", session=session, start_timeout=4)
frame = session.range(20).selectExpr("float(id) as x", "float(2 * id) as y")
held = other.range(0, 2, 1, 2)
thread = threading.Thread(target=lambda: held.mapInPandas(hold, "id long").collect())
thread.start()
end = time.monotonic() + 60
while len(list(folder.glob("held-*"))) < 2 and time.monotonic() < end:
    time.sleep(0.05)
est = gp.Estimator.from_torch(
    model=torch.nn.Linear(1, 1), optimizer="sgd", loss=torch.nn.MSELoss, config={{"lr": 0.001}}
)
refused("reading:", lambda: est.fit(frame, epochs=1, feature_cols=[["x"]], label_cols=[["y"]]))
refused("starting:", lambda: gp.run(gp.rank))
(folder / "release").touch()
thread.join()
gp.stop()
gp.init(2, "spark", session=session)
print("runs:", gp.run(gp.world_size))
gp.stop()
other.stop()
session.stop()
"""


@pytest.mark.timeout(200)
def test_a_busy_server(connect, tmp_path):
    """Who holds the slots is not known to a client; that they are held is."""
    code, out, err = finish(start(BUSY.format(address=connect, folder=str(tmp_path))), 190)
    assert code == 0, err
    reading, *starting, runs = out.splitlines()
    unknown = "what holds the slots is not known here, Spark's page shows it"
    assert f"had no task within 4 s (start_timeout): {unknown}" in reading
    assert "after 4.0 s" in "".join(starting)
    assert f"wait for a free slot: {unknown}" in "".join(starting)
    assert "waits for a free slot of Spark, for up to 4 s (start_timeout)" in err
    assert runs == "runs: [2, 2]"
