"""Slots that something else holds: Grampus says so within seconds, and waits as long as it was told."""

import threading
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deadly_runs import COLUMNS, ROWS, Deadly, arrays, estimator
from processes import wait_until

import grampus as gp
from grampus.errors import ClusterError
from on_spark.test_workers import tasks

pytestmark = [pytest.mark.timeout(150), pytest.mark.filterwarnings("ignore:the run goes on")]


class Noticed:
    """What is printed, and after how many seconds a word came."""

    def __init__(self, capsys):
        self._capsys, self.text, self._began = capsys, "", time.monotonic()

    def after(self, words, seconds):
        def is_there():
            self.text += self._capsys.readouterr().err
            return words in self.text

        assert wait_until(is_there, seconds), self.text
        return time.monotonic() - self._began


@pytest.fixture
def busy(spark, tmp_path):
    """Both slots are held by another job of the session, until its file is there."""
    release = tmp_path / "release"

    def hold(_):
        # Executors do not have the modules of tests.
        import time

        end = time.monotonic() + 100
        while not release.exists() and time.monotonic() < end:
            time.sleep(0.05)
        yield 1

    def run():
        spark.sparkContext.parallelize(range(2), 2).mapPartitions(hold).collect()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert wait_until(lambda: tasks(spark) == [2], 60)
        yield release.touch
    finally:
        release.touch()
        thread.join()


@pytest.fixture
def frame(spark, tmp_path):
    data = arrays()
    columns = {f"x{at}": data["x"][:, at].numpy() for at in range(3)}
    pq.write_table(
        pa.table(columns | {"y": data["y"][:, 0].numpy(), "id": np.arange(ROWS)}), tmp_path / "t.parquet"
    )
    return spark.read.parquet(str(tmp_path / "t.parquet"))


def in_thread(function):
    """Call it in a thread, and return that, and a list for what it returns or raises."""
    results = []

    def call():
        try:
            results.append(function())
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    return thread, results


HELD = "of 2 slots, this session runs 2 tasks of 'collect at"


@pytest.mark.spark35
def test_reading_says_who_holds_the_slots_and_then_goes_on(spark, busy, frame, tmp_path, capsys):
    gp.init(2, "spark", session=spark, preload=["torch"], start_timeout=100)
    est = estimator(Deadly(tmp_path), workers=None, lanes=2, threads_per_lane=1)
    noticed = Noticed(capsys)
    thread, results = in_thread(lambda: est.fit(frame, epochs=1, batch_size=12, **COLUMNS))
    words = "the job that reads the rows waits for a free slot, for up to 100 s (start_timeout): " + HELD
    took = noticed.after(words, 20)
    print(f"said after {took:.1f} s")
    assert "give this session more slots (spark.cores.max" in noticed.text
    busy()
    thread.join(100)
    assert results[0]["samples"] == [ROWS]


def test_reading_and_workers_that_get_no_slot_are_given_up_in_time(spark, busy, frame, tmp_path):
    gp.init(2, "spark", session=spark, preload=["torch"], start_timeout=4)
    est = estimator(Deadly(tmp_path), workers=None, lanes=2, threads_per_lane=1)
    with pytest.raises(ClusterError, match=r"the job that reads the rows had no task within 4 s .*" + HELD):
        est.fit(frame, epochs=1, batch_size=12, **COLUMNS)
    with pytest.raises(ClusterError, match=r"after 4.0 s(?s:.*)do not begin wait for a free slot: " + HELD):
        gp.run(gp.rank)
    # Nothing is left that would begin when the slots are free.
    assert tasks(spark) == [2]


def test_workers_say_within_seconds_who_holds_the_slots(spark, busy, capsys):
    gp.init(2, "spark", session=spark, preload=[], start_timeout=100)
    noticed = Noticed(capsys)
    thread, results = in_thread(lambda: gp.run(gp.rank))
    noticed.after(
        "2 workers wait for Spark: tasks of Spark that do not begin wait for a free slot: " + HELD, 20
    )
    assert "it is given up after 100 s (start_timeout)" in noticed.text
    busy()
    thread.join(100)
    assert results == [[0, 1]]


def test_a_slow_start_is_not_called_a_missing_slot(spark, tmp_path, monkeypatch):
    (tmp_path / "imports_slowly.py").write_text("import time; time.sleep(30)")
    monkeypatch.syspath_prepend(tmp_path)
    gp.init(2, "spark", session=spark, preload=["imports_slowly"], start_timeout=8)
    with pytest.raises(ClusterError, match="all tasks of Spark have begun, so no slot is missing") as raised:
        gp.run(gp.rank)
    assert "free slot" not in str(raised.value)
