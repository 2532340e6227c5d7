"""Runs that are cut off and go on, to the bit as if nothing had happened."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from clusters import one_cluster, scratch  # noqa: F401 - a fixture
from processes import end, finish, marked, start, wait_until
from small_models import classifier, measured, rows

import grampus as gp
from grampus.callbacks import Callback
from grampus.errors import CheckpointError
from grampus.triggers import EverySteps, MaxSteps, MinLoss

TRAINING = {"epochs": 3, "batch_size": 16}


runtime = one_cluster(workers=3)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing interrupts, and one more after it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("whole"))
        estimator = classifier()
        history = estimator.fit(rows(), validation_data=rows(20, 1), **TRAINING)
        digest = estimator.digest()
        estimator.fit(rows())
        return digest, measured(history), estimator.digest()


@pytest.fixture
def trained():
    estimator = classifier()
    estimator.fit(rows(), **TRAINING)
    return estimator


def fit(estimator, **other):
    return estimator.fit(rows(), validation_data=rows(20, 1), **{**TRAINING, **other})


def names(folder="runs"):
    return sorted(entry.name for entry in Path(folder).iterdir())


class Failing(Callback):
    """Raises an error after a step."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, run):
        if run.step == self.step:
            raise RuntimeError("the machine is needed elsewhere")


@pytest.mark.parametrize(("step", "before", "after"), [(1, 1, 3), (6, 3, 1), (7, 2, 3), (11, 2, 1)])
def test_a_run_that_was_cut_off_goes_on_to_the_same_bits(whole, step, before, after):
    fit(classifier(workers=before), checkpoint="runs", max_steps=step)
    # The number of lanes is that of the run, whatever the number of workers is now.
    estimator = classifier(workers=after, lanes=None)
    history = fit(estimator, checkpoint="runs", resume=True)
    assert (estimator.digest(), measured(history)) == whole[:2]
    # All that the optimizer and the scheduler know is there, too.
    estimator.fit(rows())
    assert estimator.digest() == whole[2]


def test_a_run_that_failed_goes_on_from_its_last_checkpoint(whole):
    saving = gp.Checkpoint("runs", every=EverySteps(3))
    with pytest.raises(RuntimeError, match="the machine is needed elsewhere"):
        fit(classifier(workers=2), checkpoint=saving, callbacks=[Failing(8)])
    assert names() == ["step-00000003", "step-00000006"]
    estimator = classifier(workers=3)
    history = fit(estimator, checkpoint=saving, resume=True)
    assert (estimator.digest(), measured(history)) == whole[:2]


def test_patience_counts_the_epochs_before_the_cut():
    """Of a loss that falls, where more is better, the first epoch is the best."""

    def run(**options):
        stopping = gp.callbacks.EarlyStopping("loss", patience=3, mode="max")
        history = fit(classifier(), epochs=9, checkpoint="runs", callbacks=[stopping], **options)
        return stopping.best_epoch, history.reason, len(history)

    assert run(max_steps=8)[0] == 1
    best, reason, epochs = run(resume=True)
    assert (best, epochs) == (1, 4)
    assert "not better than" in reason


def test_a_run_is_cut_off_again_and_again(whole):
    for step in (2, 4, 5, 9):
        fit(classifier(workers=1 + step % 3), checkpoint="runs", max_steps=step, resume=True)
    estimator = classifier()
    history = fit(estimator, checkpoint="runs", resume=True)
    assert (estimator.digest(), measured(history)) == whole[:2]


def test_a_checkpoint_may_lie_elsewhere_and_be_named(whole):
    fit(classifier(workers=2), checkpoint="old", max_steps=6)
    estimator = classifier()
    fit(estimator, checkpoint="new", resume="old")
    assert estimator.digest() == whole[0]
    assert "step-00000012" in names("new")
    assert "step-00000012" not in names("old")


def test_without_a_checkpoint_a_run_starts(whole):
    estimator = classifier()
    assert measured(fit(estimator, checkpoint="runs", resume=True)) == whole[1]
    with pytest.raises(ValueError, match="resume=True needs a place"):
        fit(classifier(), resume=True)


def test_a_finished_run_is_not_trained_again(whole):
    fit(classifier(), checkpoint="runs")
    for _ in range(2):
        estimator = classifier(workers=2)
        history = fit(estimator, checkpoint="runs", resume=True)
        assert (estimator.digest(), measured(history)) == whole[:2]
        assert history.workers == [{"pid": worker["pid"], "rows": 0} for worker in history.workers]
    # More epochs are more work.
    history = fit(estimator, checkpoint="runs", resume=True, epochs=4)
    assert history["epoch"] == [1, 2, 3, 4]


@pytest.mark.parametrize("every", [EverySteps(5), EverySteps(1), MinLoss(-1.0)])
def test_the_end_of_a_run_is_saved_whatever_the_trigger_says(whole, every):
    fit(classifier(), checkpoint=gp.Checkpoint("runs", every=every))
    assert max(names()) == "step-00000012"
    estimator = classifier()
    history = fit(estimator, checkpoint="runs", resume=True)
    assert (estimator.digest(), measured(history)) == whole[:2]
    assert history.workers[0]["rows"] == 0


def test_triggers_that_end_a_run_count_over_its_pieces(whole):
    fit(classifier(), checkpoint="runs", epochs=MaxSteps(6))
    estimator = classifier(workers=2)
    history = fit(estimator, checkpoint="runs", epochs=MaxSteps(12), resume=True)
    assert history.reason == "12 steps done"
    assert (estimator.digest(), measured(history)) == whole[:2]


def test_max_steps_counts_over_the_pieces_of_a_run(whole):
    fit(classifier(), checkpoint="runs", max_steps=7)
    history = fit(classifier(), checkpoint="runs", max_steps=7, resume=True)
    assert history.reason == "max_steps=7 steps done"
    assert history.workers[0]["rows"] == 0


def test_a_second_fit_goes_on_like_the_first(whole):
    estimator = classifier()
    fit(estimator)
    estimator.fit(rows(), checkpoint="runs", max_steps=1)
    again = classifier(workers=2)
    again.fit(rows(), checkpoint="runs", resume=True)
    assert again.digest() == whole[2]


@pytest.mark.parametrize(
    ("other", "data", "batch_size", "says"),
    [
        ({"lanes": 2}, 64, 16, "lanes=2 was asked for and the run was saved with lanes=4"),
        ({"seed": 4}, 64, 16, "seed=4 was asked for and the run was saved with seed=3"),
        ({"threads_per_lane": 2}, 64, 16, "threads_per_lane=2 was asked for"),
        ({}, 64, 8, "with batch_size=16, and goes on with 8"),
        ({}, 60, 16, "with samples=64, and goes on with 60"),
    ],
)
def test_a_run_does_not_go_on_as_another(other, data, batch_size, says):
    fit(classifier(), checkpoint="runs", max_steps=6)
    with pytest.raises(ValueError, match=says):
        classifier(**other).fit(rows(data), epochs=3, batch_size=batch_size, checkpoint="runs", resume=True)


def test_a_run_that_goes_on_with_other_data_is_said_to_be_another():
    fit(classifier(), checkpoint="runs", epochs=1)
    with pytest.warns(
        RuntimeWarning, match="saved with samples=64, and goes on with 60: from here on it is an"
    ):
        classifier().fit(rows(60), epochs=2, batch_size=16, checkpoint="runs", resume=True)


def test_a_run_does_not_go_on_with_another_model():
    fit(classifier(), checkpoint="runs", max_steps=6)
    wide = classifier(config={"width": 9})
    with pytest.raises(
        ValueError, match=r"of another model; shapes differ: layers.0.bias \(8,\) for \(9,\)"
    ) as caught:
        fit(wide, checkpoint="runs", resume=True)
    assert "was to go on from step-00000006" in str(caught.value.__notes__)


def _flip(checkpoint):
    body = bytearray((checkpoint / "model.safetensors").read_bytes())
    body[-1] ^= 1
    (checkpoint / "model.safetensors").write_bytes(body)


def _of_newer_version(checkpoint):
    text = (checkpoint / "manifest.json").read_text()
    (checkpoint / "manifest.json").write_text(text.replace('"format": 1', '"format": 2'))


def _without_manifest(checkpoint):
    (checkpoint / "manifest.json").unlink()


@pytest.mark.parametrize("spoil", [_flip, _of_newer_version, _without_manifest])
@pytest.mark.parametrize("place", [True, "runs"])
def test_a_run_whose_only_checkpoint_is_spoilt_does_not_start_anew_beside_it(spoil, place):
    classifier().fit(rows(), checkpoint="runs", **{**TRAINING, "epochs": 1})
    [checkpoint] = Path("runs").glob("step-*")
    spoil(checkpoint)
    est = classifier()
    with pytest.raises(CheckpointError, match=f"{checkpoint}.*to start anew, move them away"):
        est.fit(rows(), checkpoint="runs", resume=place, **TRAINING)
    assert list(Path("runs").glob("step-*")) == [checkpoint]
    # As it says.
    checkpoint.rename("away")
    assert len(est.fit(rows(), checkpoint="runs", resume=True, **TRAINING)) == 3


def test_a_damaged_checkpoint_is_passed_over(whole, tmp_path):
    fit(classifier(), checkpoint=gp.Checkpoint("runs", every=EverySteps(2)), max_steps=8)
    damaged = tmp_path / "runs" / "step-00000008" / "model.safetensors"
    body = bytearray(damaged.read_bytes())
    body[-1] ^= 1
    damaged.write_bytes(body)
    (tmp_path / "runs" / "step-00000006" / "manifest.json").unlink()
    with pytest.warns(RuntimeWarning, match="a newer checkpoint was passed over: .*step-00000008"):
        classifier().load("runs")
    estimator = classifier()
    with pytest.warns(RuntimeWarning, match="a newer checkpoint was passed over") as told:
        history = fit(estimator, checkpoint="runs", resume=True)
    assert ["step-00000008" in str(told[0].message), "step-00000006" in str(told[1].message)] == [True, True]
    assert (estimator.digest(), measured(history)) == whole[:2]


def test_a_run_that_starts_anew_is_not_mixed_with_an_older_one(trained):
    """A resume would take the later steps of the older one for its own."""
    fit(classifier(seed=4), checkpoint="runs")
    with pytest.raises(CheckpointError, match="holds checkpoints of another run, up to step-00000012: go on"):
        fit(classifier(), checkpoint="runs", epochs=1)
    # It may be trained further.
    trained.fit(rows(), batch_size=16, checkpoint="runs")
    assert classifier().load("runs").digest() == trained.digest()
    with pytest.raises(CheckpointError, match="up to step-00000016"):
        classifier(seed=4).load("runs/step-00000012").save("runs")


def test_a_trigger_that_has_ended_a_run_ends_it_again():
    target = MinLoss(1.05)
    first = classifier()
    history = fit(first, checkpoint="runs", epochs=target)
    again = classifier()
    resumed = fit(again, checkpoint="runs", epochs=target, resume=True)
    assert (again.digest(), resumed.reason) == (first.digest(), history.reason)
    assert resumed.workers[0]["rows"] == 0
    # What ended the first run does not end a new one before it began.
    assert again.fit(rows(), epochs=MinLoss(1.05)).workers[0]["rows"] > 0


class Stream(torch.utils.data.IterableDataset):
    def __init__(self, shares):
        self.shares = shares
        self.rows = list(zip(*rows().values(), strict=True))

    def __iter__(self):
        if not self.shares:
            # Rows that change by chance: the chance must be the same again.
            return ((x + 0.01 * torch.randn(4), y) for x, y in self.rows)
        mine = gp.lane()
        return iter(self.rows[mine.index :: mine.count])


@pytest.mark.parametrize("shares", [False, True])
def test_iterable_data_goes_on_too(shares):
    whole = classifier()
    history = whole.fit(Stream(shares), epochs=2, batch_size=16)
    classifier(workers=2).fit(Stream(shares), epochs=2, batch_size=16, checkpoint="runs", max_steps=6)
    again = classifier(workers=1)
    resumed = again.fit(Stream(shares), epochs=2, batch_size=16, checkpoint="runs", resume=True)
    assert again.digest() == whole.digest()
    assert measured(resumed) == measured(history)


def test_loaders_with_processes_and_chance_go_on_too():
    class Noisy(torch.utils.data.Dataset):
        def __len__(self):
            return 48

        def __getitem__(self, row):
            x = torch.full((4,), row / 48) + torch.randn(4)
            return x + random.random() + np.random.rand(), row % 3

    def loader(processes):
        return torch.utils.data.DataLoader(Noisy(), batch_size=16, shuffle=True, num_workers=processes)

    whole = classifier()
    whole.fit(loader(0), epochs=2, batch_size=None)
    classifier(workers=2).fit(loader(1), epochs=2, batch_size=None, checkpoint="runs", max_steps=4)
    again = classifier(workers=3)
    again.fit(loader(0), epochs=2, batch_size=None, checkpoint="runs", resume=True)
    assert again.digest() == whole.digest()


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "rmsprop", "adagrad", "nadam"])
def test_every_optimizer_goes_on(name):
    config = {"lr": 0.01, "momentum": 0.9} if name == "sgd" else {"lr": 0.01, "amsgrad": True}
    given = {"optimizer": name, "config": config, "scheduler": None}
    whole = classifier(**given)
    fit(whole)
    fit(classifier(**given), checkpoint="runs", max_steps=5)
    again = classifier(**given)
    fit(again, checkpoint="runs", resume=True)
    assert again.digest() == whole.digest()


def one_cycle(optimizer, config):
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=20)


def several(optimizer, config):
    schedulers = torch.optim.lr_scheduler
    first = schedulers.LinearLR(optimizer, 0.1, total_iters=4)
    return schedulers.SequentialLR(optimizer, [first, schedulers.CosineAnnealingLR(optimizer, 10)], [4])


def plateau(optimizer, config):
    return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=10.0)


def by_function(optimizer, config):
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step)


@pytest.mark.parametrize(
    ("scheduler", "often"),
    [
        (one_cycle, "batch"),
        (several, "batch"),
        (by_function, "batch"),
        (by_function, "epoch"),
        (plateau, "epoch"),
    ],
)
def test_every_scheduler_goes_on(scheduler, often):
    given = {"scheduler": scheduler, "scheduler_step_freq": often}
    whole = classifier(**given)
    history = fit(whole)
    assert len(set(history["learning_rate"])) > 1
    fit(classifier(**given), checkpoint="runs", max_steps=6)
    again = classifier(**given)
    assert measured(fit(again, checkpoint="runs", resume=True)) == measured(history)
    assert again.digest() == whole.digest()


DRIVER = """
    import sys, time
    sys.path[:0] = [sys.argv[1]]
    import grampus as gp
    from small_models import classifier, rows

    class Slow(gp.callbacks.Callback):
        def on_step_end(self, run):
            time.sleep(0.03)

    workers, slow = int(sys.argv[2]), sys.argv[3] == "slow"
    gp.init(workers=workers)
    estimator = classifier(lanes=4)
    saving = gp.Checkpoint("runs", every=gp.triggers.EverySteps(2), keep=3)
    estimator.fit(
        rows(), epochs=12, batch_size=16, checkpoint=saving, resume=True, callbacks=[Slow()] if slow else None
    )
    print(estimator.digest(), flush=True)
"""


@pytest.mark.timeout(180)
def test_a_job_killed_again_and_again_ends_with_the_same_bits(tmp_path, monkeypatch):
    mark = f"job-{os.getpid()}-{time.monotonic_ns()}"
    monkeypatch.setenv("GRAMPUS_TEST_JOB", mark)
    tests = Path(__file__).parent
    chance = random.Random(os.getpid())
    runs = tmp_path / "runs"

    def saved():
        return max((entry.name for entry in runs.glob("step-*")), default="")

    for number, workers in enumerate((2, 3, 1)):
        before = saved()
        driver = start(DRIVER, tests, workers, "slow")
        assert wait_until(lambda: saved() > before or driver.poll() is not None, 60)  # noqa: B023
        assert driver.poll() is None, driver.stderr.read()
        time.sleep(chance.random() * 0.25)
        for pid in marked(mark):
            end(pid)
        finish(driver)
        assert saved() < "step-00000048", f"round {number} was not cut off"
    assert wait_until(lambda: not marked(mark))
    code, out, errors = finish(start(DRIVER, tests, 2, "fast"), 60)
    assert code == 0, errors
    whole = classifier()
    whole.fit(rows(), epochs=12, batch_size=16)
    assert out.split()[-1] == whole.digest()
