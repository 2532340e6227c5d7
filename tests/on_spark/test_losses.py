"""What is lost on Spark while a model trains on a DataFrame: the weights stay what they would have been."""

import contextlib
import os
import signal
import subprocess
import sys

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deadly_runs import COLUMNS, ROWS, Deadly, Slow, arrays, estimator, native, native_here, on_local_workers
from processes import wait_until

import grampus as gp
from grampus.errors import ClusterError, DataError
from on_spark.test_workers import tasks

# Above a worker: its supervisor, the task's Python process, the daemon that forked that, the executor.
TASK, EXECUTOR = 2, 4
pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.filterwarnings("ignore:the run goes on", "ignore:the rows of this frame"),
]


@pytest.fixture(scope="module")
def spark(wide_spark):
    """A slot is free for rows that are read again."""
    return wide_spark


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
    # Both workers may be in the executor that is lost.
    named.setdefault("checkpoint", gp.Checkpoint("saved", every=gp.triggers.EverySteps(2)))
    history = est.fit(data, epochs=6, batch_size=12, audit=True, **named)
    assert history["samples"] == [ROWS] * 6
    return est, history


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The weights of a run on local workers, with the rows in memory."""
    return on_local_workers(
        tmp_path_factory.mktemp("run"), lambda: trained(arrays(), Deadly("."))[0].digest()
    )


def audited():
    """What the ledger of the run proves."""
    command = [sys.executable, "-m", "grampus", "audit", "run"]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


@pytest.mark.spark35
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


class Presses(gp.callbacks.Logger):
    """Ctrl-C, once the first steps are done."""

    pressed = False

    def event(self, event):
        if event["kind"] == "steps" and not self.pressed:
            self.pressed = True
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.spark35
def test_ctrl_c_keeps_the_weights_although_pyspark_takes_it(spark, tmp_path, path):
    """A session cancels all jobs at Ctrl-C, and so would end the workers in the middle of a step."""
    handler = signal.getsignal(signal.SIGINT)
    assert handler.__module__.startswith("pyspark.")
    gp.init(2, "spark", session=spark, preload=["torch"])
    frame = spark.read.parquet(path)

    def fit(**named):
        est = estimator(Slow(tmp_path), workers=None, lanes=2, threads_per_lane=1)
        try:
            est.fit(frame, batch_size=12, **COLUMNS, **named)
        except KeyboardInterrupt as interrupt:
            assert "the estimator keeps the weights of that step" in str(interrupt)
        return est

    est = fit(epochs=1000, callbacks=[Presses()])
    assert est.digest() == fit(epochs=1000, max_steps=est._at["step"]).digest()
    assert signal.getsignal(signal.SIGINT) is handler
    assert wait_until(lambda: tasks(spark) == [], 10)


def test_rows_that_were_lost_are_read_again_through_spark(spark, tmp_path, path, undisturbed):
    gp.init(2, "spark", session=spark, preload=["torch"])
    frame = spark.read.parquet(path).repartition(3)
    est, _ = trained(frame, Deadly(tmp_path, rows=[40], levels=EXECUTOR), order_by="id", **COLUMNS)
    assert (tmp_path / "40").exists()
    assert est.digest() == undisturbed


class KillsExecutors(Deadly):
    """A loss that ends all executors of an application, and so all who hold rows."""

    def __init__(self, folder, application):
        super().__init__(folder, rows=[40])
        self.application = application

    def _end(self):
        words = [(process, process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
        executors = [process for process, words in words if "--app-id" in words and self.application in words]
        # At once: this process goes with one of them.
        for process in executors:
            process.kill()


def test_rows_that_are_others_when_they_are_read_again_are_told(spark, tmp_path, path):
    def noisy(batches):
        for batch in batches:
            yield batch.assign(x0=np.random.default_rng().random(len(batch)))

    gp.init(2, "spark", session=spark, preload=["torch"])
    frame = spark.read.parquet(path).repartition(4, "id")
    frame = frame.mapInPandas(noisy, frame.schema)
    with pytest.raises(DataError, match=r"were not the same when they were read again.*not deterministic"):
        trained(frame, KillsExecutors(tmp_path, spark.sparkContext.applicationId), **COLUMNS)
    assert wait_until(lambda: tasks(spark) == [], 10)


def test_no_slot_for_a_replacement_is_named_and_the_run_goes_on_later(
    spark, standalone, tmp_path, undisturbed
):
    """One Worker, and so one of two slots with two cores, goes; later it is back."""

    class LosesWorker(gp.callbacks.Logger):
        def event(self, event):
            if event["kind"] == "steps" and standalone.workers[3].poll() is None:
                executors = psutil.Process(standalone.workers[3].pid).children()
                standalone.workers[3].kill()
                standalone.workers[3].wait(10)
                for process in executors:
                    # It may have noticed that its Worker is gone.
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.kill()

    checkpoint = gp.Checkpoint(tmp_path / "saved", every=gp.triggers.EverySteps(4))
    gp.init(2, "spark", session=spark, cores_per_worker=2, preload=["torch"], start_timeout=15)
    words = (
        r"only 1 of 2 members are in after 15.0 s(?s:.*)tasks of Spark that do not begin wait for a free slot"
    )
    try:
        with pytest.raises(ClusterError, match=words):
            trained(arrays(), Slow("."), min_workers=2, checkpoint=checkpoint, callbacks=[LosesWorker()])
    finally:
        standalone.start_worker(3)
        standalone.wait_for_workers()
    est, _ = trained(arrays(), Slow("."), checkpoint=checkpoint, resume=True)
    assert est.digest() == undisturbed


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


@pytest.fixture(scope="module")
def native_undisturbed(tmp_path_factory):
    return native_here(tmp_path_factory.mktemp("native"))


def test_native_models_train_and_answer_as_on_local_workers(spark, path, native_undisturbed):
    gp.init(2, "spark", session=spark)
    digest, answers = native_undisturbed
    frame = spark.read.parquet(path)
    features, label = [["x0", "x1", "x2"]], "y"
    est = native(frame.filter("id >= 0"), feature_cols=features, label_cols=label, order_by="id")
    assert est.digest() == digest
    made = est.predict(frame, feature_cols=features).orderBy("id").toPandas()
    np.testing.assert_allclose(np.stack(made["prediction"]), answers, atol=1e-5)
