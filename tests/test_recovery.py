"""Workers are killed and stopped; what comes out is what would have come out without."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from clusters import one_cluster, scratch  # noqa: F401 - a fixture
from deadly_runs import ROWS, Deadly, KillsAll, Net, Slow, arrays, estimator, of_every_kind
from torch import nn

import grampus as gp
from grampus._training.recovery import Losses, Stuck
from grampus.errors import CheckpointError

runtime = one_cluster(workers=3, heartbeat_timeout=1.5)


def trained(tmp_path, rows=(), data=None, **settings):
    """The digest and the history of a run that loses a worker at each of these rows."""
    est = estimator(Deadly(tmp_path, rows, settings.pop("how", signal.SIGKILL)))
    history = est.fit(arrays() if data is None else data, epochs=3, batch_size=12, **settings)
    return est.digest(), history


@pytest.fixture
def undisturbed(tmp_path):
    return trained(tmp_path)


@pytest.mark.filterwarnings("ignore:the run goes on")
@pytest.mark.parametrize("rows", [(0,), (50,), (17, 60, 61, 95)])
def test_a_killed_worker_changes_nothing(tmp_path, undisturbed, rows):
    before = gp.run(os.getpid)
    digest, history = trained(tmp_path, rows)
    assert digest == undisturbed[0]
    assert history["loss"] == undisturbed[1]["loss"]
    assert history["samples"] == [ROWS] * 3
    # Those that were not killed are the same processes as before.
    left = set(before) & set(gp.run(os.getpid))
    assert len(left) >= 3 - len(rows)


@pytest.mark.filterwarnings("ignore:the run goes on")
def test_data_of_every_kind_goes_on(tmp_path):
    for number, (source, named) in enumerate(of_every_kind(tmp_path)):
        folder = tmp_path / str(number)
        folder.mkdir()
        wanted = trained(folder, (), source, **named)[0]
        assert trained(folder, (30, 31), source, **named)[0] == wanted


def test_the_user_is_told(tmp_path):
    where = r"the run goes on from step \d+ on 3 workers: rank \d had come furthest, 2 of 3"
    with pytest.warns(
        RuntimeWarning, match=rf"{where}.*; before that, rank \d on .* \(pid \d+\) was killed by"
    ):
        trained(tmp_path, (40,))


@pytest.mark.filterwarnings("ignore:the run goes on")
def test_metrics_of_training_rows_outlive_their_worker(tmp_path):
    def measured(rows):
        est = estimator(Deadly(tmp_path, rows), metrics=[gp.metrics.MSE(), gp.metrics.MAE()])
        return est.fit(arrays(), epochs=2, batch_size=12)

    calm, lossy = measured(()), measured((17, 40, 41, 90))
    assert all((tmp_path / str(row)).exists() for row in (17, 40, 41, 90))
    for name in ("mse", "mae", "loss"):
        assert lossy[name] == calm[name], name


class MSE(gp.metrics.MSE):
    """Kills its worker when a row is measured, once: the sum of the step is there, and nothing is applied."""

    def __init__(self, folder, row):
        self.folder, self.row = str(folder), row
        super().__init__()

    def state(self):
        return DeadlyState(super().state(), Deadly(self.folder), self.row)


class DeadlyState:
    def __init__(self, state, deadly, row):
        self.state, self.deadly, self.row = state, deadly, row

    def update(self, predictions, targets):
        # The memory of a tensor, and in the end the tensor itself and its shape.
        if (targets[3][:, 1] == self.row).any() and self.deadly._first(self.row):
            os.kill(os.getpid(), signal.SIGKILL)
        self.state.update(predictions, targets)

    def __getattr__(self, name):
        return getattr(self.state, name)


@pytest.mark.filterwarnings("ignore:the run goes on")
@pytest.mark.parametrize("row", [40, 41, 42])
def test_a_worker_that_is_killed_while_it_measures_changes_nothing(tmp_path, row):
    def measured(row):
        est = estimator(Deadly(tmp_path), metrics={"mse": MSE(tmp_path, row)})
        history = est.fit(arrays(), epochs=2, batch_size=12)
        return est.digest(), history["mse"]

    wanted = measured(-1)
    assert measured(row) == wanted
    assert (tmp_path / str(row)).exists()


@pytest.mark.filterwarnings("ignore:the run goes on")
def test_a_stopped_worker_is_given_up_and_replaced(tmp_path, undisturbed):
    assert trained(tmp_path, (40,), how=signal.SIGSTOP)[0] == undisturbed[0]


@pytest.mark.filterwarnings("ignore:the run goes on")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGUSR1])
def test_a_worker_that_is_told_to_go_finishes_its_step(tmp_path, undisturbed, how):
    before = gp.run(os.getpid)
    # Not counted as a failure.
    digest, history = trained(tmp_path, (10, 40), how=how, max_failures=0)
    assert digest == undisturbed[0]
    assert history["samples"] == [ROWS] * 3
    after = gp.run(os.getpid)
    assert 1 <= len(set(before) & set(after)) <= 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in set(before) - set(after))


DRIVER = """
import sys, time, torch
sys.path.insert(0, {tests!r})
import grampus as gp
from deadly_runs import Slow, arrays, estimator
gp.init(workers=3)
est = estimator(Slow({folder!r}))
class Tells(gp.callbacks.Logger):
    def event(self, event):
        if event["kind"] == "steps":
            print("step", event["step"], flush=True)
place = gp.Checkpoint({saved!r}, every=gp.triggers.EverySteps(1000))
est.fit(arrays(), epochs=3, batch_size=12, checkpoint=place, resume={resume}, callbacks=[Tells()])
print("digest", est.digest(), flush=True)
"""


def test_a_driver_that_is_told_to_end_saves_the_run_and_the_next_one_goes_on(tmp_path, undisturbed):
    def start(resume):
        settings = {"tests": str(Path(__file__).parent), "folder": str(tmp_path), "resume": resume}
        text = DRIVER.format(saved=str(tmp_path / "saved"), **settings)
        return subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True, cwd=tmp_path)

    driver = start(False)
    line = next(line for line in driver.stdout if line.startswith("step"))
    driver.send_signal(signal.SIGTERM)
    rest = driver.stdout.read()
    assert driver.wait(timeout=20) == 143
    assert "digest" not in rest
    steps = [int(path.name.removeprefix("step-")) for path in (tmp_path / "saved").glob("step-*")]
    assert len(steps) == 1, f"saved at {steps}, heard of {line}"
    assert 0 < steps[0] < 24
    again = start(True)
    assert f"digest {undisturbed[0]}" in again.communicate(timeout=40)[0]


class Counts(gp.callbacks.Callback):
    """Keeps count, and ends its worker as an epoch ends."""

    def __init__(self, folder, deadly):
        self.folder, self.deadly, self.epochs = str(folder), deadly, []

    def on_epoch_end(self, run):
        self.epochs.append(run.epoch)
        run.log("counted", len(self.epochs))
        if self.deadly and run.epoch == 2 and Deadly(self.folder)._first("callback"):
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.filterwarnings("ignore:the run goes on")
def test_callbacks_go_on_on_another_worker(tmp_path, undisturbed):
    calm, deadly = Counts(tmp_path, False), Counts(tmp_path, True)
    _, wanted = trained(tmp_path, callbacks=[calm], validation_data=arrays())
    digest, history = trained(tmp_path, (40,), callbacks=[deadly], validation_data=arrays())
    assert digest == undisturbed[0]
    assert calm.epochs == deadly.epochs == [1, 2, 3]
    for name in ("loss", "val_loss", "counted", "learning_rate"):
        assert history[name] == wanted[name]


class Begins(gp.callbacks.Callback):
    """Has attributes only from the beginning of the run and of the epoch on."""

    def on_run_begin(self, run):
        self.runs = [run.step]

    def on_epoch_begin(self, run):
        self.began = run.epoch

    def on_epoch_end(self, run):
        self.runs.append((self.began, run.epoch))


class Locked(gp.callbacks.Callback):
    """Holds what cannot travel once the run has begun."""

    def on_run_begin(self, run):
        self.file = open(os.devnull)  # noqa: SIM115 - it is what is tested


class KillsFirst(Deadly):
    """Ends the first worker at its third step, twice."""

    steps = 0

    def forward(self, output, target):
        self.steps += 1
        if gp.rank() == 0 and self.steps == 3 and (self._first("one") or self._first("two")):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(output, target)


@pytest.mark.filterwarnings("ignore:the run goes on")
def test_what_callbacks_got_at_the_beginning_goes_on(tmp_path, undisturbed):
    begins = Begins()
    est = estimator(KillsFirst(tmp_path))
    est.fit(arrays(), epochs=3, batch_size=12, callbacks=[begins])
    assert {path.name for path in tmp_path.iterdir()} >= {"one", "two"}
    assert begins.runs == [0, (0, 1), (1, 2), (2, 3)]
    assert est.digest() == undisturbed[0]


def test_metrics_too_large_to_be_shared_are_said_to_be_lost(tmp_path):
    data = arrays()
    data["y"][:, 1] = data["y"][:, 0]
    est = estimator(
        KillsFirst(tmp_path),
        model=lambda config: nn.Sequential(Net(), nn.Sigmoid()),
        metrics=[gp.metrics.AUC(threshold_num=100_000)],
    )
    with pytest.warns(RuntimeWarning, match=r"leave out what lanes 0 had counted before"):
        est.fit(data, epochs=1, batch_size=12)


def test_callbacks_that_cannot_travel_are_said_to_begin_anew(tmp_path):
    est = estimator(Deadly(tmp_path, (40,)))
    with pytest.warns(RuntimeWarning, match="callbacks begin anew, since their attributes cannot be pickled"):
        est.fit(arrays(), epochs=1, batch_size=12, callbacks=[Locked()])


class DiesLast(gp.callbacks.Callback):
    """Ends its worker when all is done."""

    def __init__(self, folder):
        self.folder = str(folder)

    def on_run_end(self, run):
        if Deadly(self.folder)._first("end"):
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.filterwarnings("ignore:the run goes on")
def test_a_worker_lost_at_the_very_end(tmp_path, undisturbed):
    digest, history = trained(tmp_path, callbacks=[DiesLast(tmp_path)])
    assert digest == undisturbed[0]
    assert history["loss"] == undisturbed[1]["loss"]


class DiesAtTheEndOfTheEpoch(DiesLast):
    """Ends its worker when the epoch is over, and its end is not."""

    on_run_end = gp.callbacks.Callback.on_run_end

    def on_epoch_end(self, run):
        super().on_run_end(run)


@pytest.mark.filterwarnings("ignore:the run goes on")
def test_a_worker_lost_at_the_end_of_the_epoch_that_is_the_last(tmp_path):
    def run(folder, *callbacks):
        est = estimator(Deadly(tmp_path))
        place = tmp_path / folder
        history = est.fit(
            arrays(), batch_size=12, epochs=9, max_steps=8, callbacks=callbacks, checkpoint=place
        )
        return est.digest(), history["loss"], place

    calm, deadly = run("calm"), run("deadly", DiesAtTheEndOfTheEpoch(tmp_path))
    assert (tmp_path / "end").exists()
    assert deadly[:2] == calm[:2]
    assert len(deadly[1]) == 1
    at = [estimator(Deadly(tmp_path)).load(place)._at["epoch"] for *_, place in (calm, deadly)]
    assert at == [1, 1]


@pytest.mark.filterwarnings("ignore:the run goes on")
def test_checkpoints_go_on_too(tmp_path, undisturbed):
    every = gp.Checkpoint(tmp_path / "saved", every=gp.triggers.EverySteps(5))
    digest, _ = trained(tmp_path, (10, 70), checkpoint=every)
    assert digest == undisturbed[0]
    again = estimator(Deadly(tmp_path)).load(tmp_path / "saved")
    assert again.digest() == digest


class DiesGoingOn(Net):
    """On each worker that makes it: whoever is about to heal the others dies, once."""

    def __init__(self, folder):
        super().__init__()
        from grampus._training import kept

        spread = kept._spread

        def deadly(mine, group, source):
            kept._spread = spread
            if group.rank == source and Deadly(folder)._first("spread"):
                os.kill(os.getpid(), signal.SIGKILL)
            return spread(mine, group, source)

        if "GRAMPUS_WORKER" in os.environ and not Path(folder, "spread").exists():
            kept._spread = deadly


@pytest.mark.filterwarnings("ignore:the run goes on")
def test_a_loss_while_the_run_goes_on_costs_no_more_than_one(tmp_path, undisturbed):
    """There is no checkpoint: what the last of three has is all that there is."""
    est = estimator(Deadly(tmp_path, (40,)), model=lambda config: DiesGoingOn(tmp_path))
    est.fit(arrays(), epochs=3, batch_size=12)
    assert (tmp_path / "spread").exists()
    assert est.digest() == undisturbed[0]


def threads():
    """The names of the threads of this process."""
    found = []
    for name in Path("/proc/self/task").glob("*/comm"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            found.append(name.read_text().strip())
    return found


class FillsTheDisk(gp.callbacks.Callback):
    """Makes checkpoints impossible from the second epoch on, and possible again for the last."""

    def __init__(self, saved, gives_back):
        self.saved, self.gives_back = str(saved), gives_back

    def on_epoch_begin(self, run):
        if run.epoch == 1:
            self._wait(lambda: any(Path(self.saved).glob("step-*/manifest.json")))
            Path(self.saved).rename(f"{self.saved}-1")
            Path(self.saved).touch()

    def on_epoch_end(self, run):
        if run.epoch == 3 and self.gives_back:
            self._wait()
            Path(self.saved).unlink()
            Path(self.saved).mkdir()

    @staticmethod
    def _wait(begun=lambda: True):
        """What is being written should be whole, or have failed; a thread that begins has no name yet."""
        until = time.monotonic() + 20
        while not begun() or "grampus-ckpt" in threads():
            assert time.monotonic() < until


@pytest.mark.parametrize("gives_back", [True, False])
def test_a_checkpoint_that_cannot_be_written_does_not_end_the_run(tmp_path, undisturbed, gives_back):
    fills = FillsTheDisk(tmp_path / "saved", gives_back)
    with pytest.warns(
        RuntimeWarning, match="a checkpoint could not be written, and the run goes on: .*saved: File exists"
    ):
        digest, _ = trained(tmp_path, checkpoint=tmp_path / "saved", callbacks=[fills])
    assert digest == undisturbed[0]
    if gives_back:
        assert estimator(Deadly(tmp_path)).load(tmp_path / "saved").digest() == digest
    strict = gp.Checkpoint(tmp_path / "other", on_error="raise")
    with pytest.raises(CheckpointError, match="other: File exists"):
        trained(tmp_path, checkpoint=strict, callbacks=[FillsTheDisk(tmp_path / "other", False)])
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError):
        trained(tmp_path, checkpoint=tmp_path / "file" / "inside")


def test_rows_that_always_kill_are_named(tmp_path):
    est = estimator(Deadly(tmp_path, (40,), always=True))
    with pytest.warns(RuntimeWarning), pytest.raises(gp.WorkerDied) as caught:
        est.fit(arrays(), epochs=3, batch_size=12, max_failures=None)
    assert "was begun 3 times, and each time a worker was lost" in str(caught.value.__notes__)


def test_no_more_losses_than_allowed(tmp_path):
    est = estimator(Deadly(tmp_path, (40,)))
    with pytest.raises(gp.WorkerDied) as caught:
        est.fit(arrays(), epochs=3, batch_size=12, max_failures=0)
    assert "1 worker lost, and 0 are made good: raise max_failures" in str(caught.value.__notes__)
    for name in ("max_failures", "max_preemptions"):
        with pytest.raises(ValueError, match=f"{name} must be a whole number of at least 0"):
            est.fit(arrays(), **{name: -1})


@pytest.mark.filterwarnings("ignore:the run goes on")
def test_no_more_preemptions_than_allowed(tmp_path, undisturbed):
    settings = {"rows": (10, 70), "how": signal.SIGTERM, "max_failures": 0}
    for folder in ("two", "one"):
        (tmp_path / folder).mkdir()
    assert trained(tmp_path / "two", max_preemptions=2, **settings)[0] == undisturbed[0]
    with pytest.raises(gp.errors.Preempted, match="2 workers told to go, and 1 made good: raise max_preempt"):
        trained(tmp_path / "one", max_preemptions=1, **settings)


class Chance(Deadly):
    """A loss that is never the same."""

    def forward(self, output, target):
        return super().forward(output, target) + os.urandom(1)[0] / 256 + os.urandom(1)[0]


@pytest.mark.filterwarnings("ignore:the run goes on")
def test_a_step_that_is_not_deterministic_is_noticed_when_it_is_repeated(tmp_path):
    words = r"not deterministic: step \d+ was done again .* lane \d was [\d.]+ before and is [\d.]+ now"
    with pytest.warns(RuntimeWarning, match=words):
        estimator(Chance(tmp_path, (40,))).fit(arrays(), epochs=1, batch_size=12)
    with pytest.raises(gp.errors.NotReproducible, match="audit=True claims that it is"):
        estimator(Chance(tmp_path, (50,))).fit(arrays(), epochs=1, batch_size=12, audit=True)


@pytest.mark.filterwarnings("ignore:the run goes on")
@pytest.mark.parametrize("saved", [True, False])
def test_when_all_are_lost_the_last_checkpoint_is_taken(tmp_path, undisturbed, saved):
    kills = KillsAll(gp.run(os.getpid), tmp_path / "saved" if saved else None)
    settings = {"epochs": 3, "batch_size": 12, "callbacks": [kills]}
    est = estimator(Slow(tmp_path))
    if saved:
        every = gp.triggers.EverySteps(1)
        est.fit(arrays(), checkpoint=gp.Checkpoint(tmp_path / "saved", every=every), **settings)
        assert not kills.pids
        assert est.digest() == undisturbed[0]
    else:
        with pytest.raises(gp.WorkerDied) as caught:
            est.fit(arrays(), **settings)
        assert "no worker is left that has the run, and it was not saved" in str(caught.value.__notes__)


@pytest.mark.filterwarnings("ignore:the run goes on")
def test_a_worker_that_is_lost_before_anything_was_trained_costs_nothing(tmp_path, undisturbed):
    def make(config):
        if "GRAMPUS_WORKER" in os.environ and Deadly(tmp_path)._first("made"):
            os.kill(os.getpid(), signal.SIGKILL)
        return Net()

    est = estimator(Deadly(tmp_path), model=make)
    est.fit(arrays(), epochs=3, batch_size=12)
    assert (tmp_path / "made").exists()
    assert est.digest() == undisturbed[0]


def test_workers_that_come_and_go_are_no_sign_of_a_run_that_is_stuck():
    losses = Losses(most=None)
    for lost in (False, True, False, True):
        if lost:
            losses.lose(gp.WorkerDied("rank 1 was killed", 1, "here", 17, 137))
        losses.went_on(7)
    losses.lose(gp.WorkerDied("rank 1 was killed", 1, "here", 17, 137))
    with pytest.raises(Stuck, match="step 8 was begun 3 times"):
        losses.went_on(7)


class KillsOnce(nn.Module):
    """A model that ends its worker at a row, once."""

    def __init__(self, folder):
        super().__init__()
        self.folder = str(folder)
        self.layer = nn.Linear(3, 1)

    def forward(self, x):
        if (x[:, 0] == 7).any() and Deadly(self.folder)._first("answer"):
            for parts in Path(self.folder).parent.glob(".*.parts"):
                # As the writer of a file would leave it.
                (parts / ".writing-half").write_text("half")
            os.kill(os.getpid(), signal.SIGKILL)
        return self.layer(x)


def test_answers_are_given_again(tmp_path):
    x = torch.randn(50, 3)
    x[33, 0] = 7

    def answering(folder):
        folder.mkdir()
        return gp.Estimator.from_torch(
            model=lambda config: KillsOnce(folder), optimizer=None, loss=nn.MSELoss(), workers=3, seed=1
        )

    (tmp_path / "never").mkdir()
    data = {"x": x, "y": torch.zeros(50, 1)}
    calm = answering(tmp_path / "calm")
    (tmp_path / "calm" / "answer").touch()
    assert answering(tmp_path / "a").evaluate(data) == calm.evaluate(data)
    assert torch.equal(answering(tmp_path / "b").predict(x), calm.predict(x))
    frame = pa.table({f"x{at}": x[:, at].numpy() for at in range(3)})
    pq.write_table(frame, tmp_path / "in.parquet", row_group_size=9)
    columns = {"feature_cols": [["x0", "x1", "x2"]]}
    for name, est in (("c", answering(tmp_path / "c")), ("d", calm)):
        est.predict(tmp_path / "in.parquet", out=tmp_path / f"{name}.parquet", **columns)
    assert pq.read_table(tmp_path / "c.parquet").equals(pq.read_table(tmp_path / "d.parquet"))
    answering(tmp_path / "e").predict(tmp_path / "in.parquet", out=tmp_path / "parts", **columns)
    assert sorted(path.name for path in (tmp_path / "parts").iterdir()) == ["part-00000.parquet"]
