"""Workers in tasks of Spark."""

import os
import socket
import threading

import pytest
from deadly_runs import ROWS, Deadly, arrays, estimator
from processes import wait_until

import grampus as gp
from grampus.errors import ClusterError

pytestmark = [pytest.mark.timeout(120), pytest.mark.filterwarnings("ignore:the run goes on")]


def tasks(spark):
    """How many tasks each stage has that runs now."""
    tracker = spark.sparkContext.statusTracker()
    return [tracker.getStageInfo(stage).numActiveTasks for stage in tracker.getActiveStageIds()]


@pytest.mark.spark35
def test_functions_run_in_tasks(spark):
    cluster = gp.init(2, "spark", session=spark)
    ranks = gp.run(lambda: (gp.rank(), gp.world_size(), os.getppid()))
    assert [(rank, size) for rank, size, _ in ranks] == [(0, 2), (1, 2)]
    # Each under a supervisor of its own.
    assert len({parent for _, _, parent in ranks}) == 2
    assert repr(cluster) == "<grampus.Cluster of 2 workers on spark>"


def wait_for(folder):
    (folder / str(gp.rank())).touch()
    return wait_until((folder / "seen").exists)


def test_slots_are_held_only_while_something_runs(spark, tmp_path):
    gp.init(2, "spark", session=spark)
    running = []

    def look():
        wait_until(lambda: all((tmp_path / rank).exists() for rank in "01"))
        # What a session knows of its tasks comes a moment later.
        wait_until(lambda: tasks(spark) == [1, 1], 5)
        running.extend(tasks(spark))
        (tmp_path / "seen").touch()

    watcher = threading.Thread(target=look)
    watcher.start()
    assert gp.run(wait_for, tmp_path) == [True, True]
    watcher.join()
    assert running == [1, 1]
    assert wait_until(lambda: tasks(spark) == [], 5)
    # Both slots are free for Spark itself.
    assert spark.range(100).repartition(2).count() == 100


def test_an_error_of_the_user_is_raised_here_and_frees_the_slots(spark):
    gp.init(2, "spark", session=spark)
    with pytest.raises(ZeroDivisionError) as raised:
        gp.run(lambda: 1 // gp.rank())
    assert "rank 0" in str(raised.value.__cause__)
    assert wait_until(lambda: tasks(spark) == [], 5)
    assert gp.run(lambda: "again") == ["again", "again"]


def test_a_lost_worker_changes_nothing(spark, tmp_path):
    def trained(loss):
        est = estimator(loss, workers=None, lanes=2, threads_per_lane=1)
        history = est.fit(arrays(), epochs=6, batch_size=12, audit=True)
        assert history["samples"] == [ROWS] * 6
        return est.digest()

    gp.init(2, "spark", session=spark, preload=["torch"])
    undisturbed = trained(Deadly(tmp_path))
    assert trained(Deadly(tmp_path, rows=[40])) == undisturbed
    assert (tmp_path / "40").exists()
    assert wait_until(lambda: tasks(spark) == [], 10)


def test_too_few_slots_are_named_before_anything_starts_within_the_time_for_a_start(spark):
    gp.init(5, "spark", session=spark, start_timeout=1.0)
    with pytest.raises(
        ClusterError, match=r"5 workers were asked for, and this Spark has 2 slots .*spark.cores.max"
    ):
        gp.run(lambda: 1)


def test_a_driver_that_executors_cannot_reach_is_named(spark):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ClusterError, match=r"cannot start.*use"):
            gp.init(2, "spark", session=spark, address="127.0.0.1", port=port)
            gp.run(lambda: 1)


def test_other_settings_of_a_session_that_runs_are_refused(spark):
    with pytest.raises(ClusterError, match="memory, conf cannot be changed in a Spark session that runs"):
        gp.init(2, "spark", session=spark, memory="4g", conf={"a": "b"})
