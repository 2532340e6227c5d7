"""What is lost on Spark while a model trains on a DataFrame: the weights stay what they would have been."""

import subprocess
import sys

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deadly_runs import COLUMNS, ROWS, Deadly, Slow, arrays, estimator
from processes import wait_until
from standalone import TWO_EXECUTORS, classic
from test_spark_workers import EXECUTOR, TASK, tasks

import grampus as gp
from grampus.errors import DataError

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.filterwarnings("ignore:the run goes on", "ignore:the rows of this frame"),
]


@pytest.fixture(scope="module")
def spark(standalone):
    """A session with two executors of two cores: a slot is free for rows that are read again."""
    session = classic(
        standalone.master, {**TWO_EXECUTORS, "spark.executor.cores": "2", "spark.cores.max": "4"}
    )
    yield session
    session.stop()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    data = arrays()
    columns = {f"x{at}": data["x"][:, at].numpy() for at in range(3)}
    table = pa.table(columns | {"y": data["y"][:, 0].numpy(), "id": np.arange(ROWS)})
    path = tmp_path_factory.mktemp("table") / "t.parquet"
    pq.write_table(table, path, row_group_size=20)
    return str(path)


def trained(data, loss, **named):
    est = estimator(loss, workers=None, lanes=2, threads_per_lane=1, model_dir="run")
    history = est.fit(data, epochs=6, batch_size=12, audit=True, **named)
    assert history["samples"] == [ROWS] * 6
    return est, history


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The weights of a run on local workers, with the rows in memory."""
    with gp.Cluster.local(2, preload=["torch"], threads=1) as cluster, pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("run"))
        patch.setattr(gp.session, "_session", gp.session._Session())
        gp.init(cluster=cluster)
        return trained(arrays(), Deadly("."))[0].digest()


def audited():
    """What the ledger of the run proves."""
    command = [sys.executable, "-m", "grampus", "audit", "run"]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


@pytest.mark.parametrize("levels", [TASK, EXECUTOR], ids=["python", "executor"])
def test_a_loss_changes_nothing(spark, tmp_path, path, undisturbed, levels):
    gp.init(2, "spark", session=spark, preload=["torch"])
    frame = spark.read.parquet(path)
    est, history = trained(frame, Deadly(tmp_path, rows=[40], levels=levels), **COLUMNS)
    assert (tmp_path / "40").exists()
    assert est.digest() == undisturbed
    assert "each row once per epoch, none lost, none doubled: 6 epochs" in audited()
    # Rows of an executor that is gone were read, and so copied, once more.
    once = ROWS * (3 * 4 + 2 * 8)
    assert history.copied_bytes == once if levels == TASK else history.copied_bytes > once
    assert wait_until(lambda: tasks(spark) == [], 10)


def test_rows_that_were_lost_are_read_again_through_spark(spark, tmp_path, path, undisturbed):
    gp.init(2, "spark", session=spark, preload=["torch"])
    frame = spark.read.parquet(path).repartition(3)
    est, _ = trained(frame, Deadly(tmp_path, rows=[40], levels=EXECUTOR), order_by="id", **COLUMNS)
    assert (tmp_path / "40").exists()
    assert est.digest() == undisturbed


class KillsExecutors(Deadly):
    """A loss that ends all executors, and so all who hold rows."""

    def _end(self):
        for process in psutil.process_iter(["cmdline"]):
            if any("CoarseGrainedExecutorBackend" in word for word in process.info["cmdline"] or ()):
                process.kill()


def test_rows_that_are_others_when_they_are_read_again_are_told(spark, tmp_path, path):
    def noisy(batches):
        for batch in batches:
            yield batch.assign(x0=np.random.default_rng().random(len(batch)))

    gp.init(2, "spark", session=spark, preload=["torch"])
    frame = spark.read.parquet(path).repartition(4, "id")
    frame = frame.mapInPandas(noisy, frame.schema)
    with pytest.raises(DataError, match=r"were not the same when they were read again.*not deterministic"):
        trained(frame, KillsExecutors(tmp_path, rows=[40]), **COLUMNS)
    assert wait_until(lambda: tasks(spark) == [], 10)


def test_an_executor_that_is_taken_away(spark, tmp_path, path, undisturbed):
    """As dynamic allocation does it: it is not replaced."""
    context = spark.sparkContext._jsc.sc()
    gp.init(2, "spark", session=spark, preload=["torch"])

    class TakesAway(gp.callbacks.Logger):
        done = False

        def event(self, event):
            if event["kind"] == "steps" and not self.done:
                self.done = True
                # The other one may be gone since the test before.
                assert any(context.killExecutor(str(number)) for number in range(9, -1, -1))

    est, _ = trained(spark.read.parquet(path), Slow(tmp_path), callbacks=[TakesAway()], **COLUMNS)
    assert est.digest() == undisturbed
    assert wait_until(lambda: tasks(spark) == [], 10)
