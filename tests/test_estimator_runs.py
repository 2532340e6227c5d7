"""What happens around training: callbacks, logs, triggers, histories, and what people see of it."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch
from clusters import one_cluster, scratch  # noqa: F401 - a fixture
from processes import PATIENCE, finish, start
from small_models import classifier, line, points, rows, weight
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from test_progress import Screen

from grampus.callbacks import Callback, CSVLog, EarlyStopping, JSONLog, Logger, TensorBoard
from grampus.triggers import EverySteps, MaxEpoch, MaxScore, MaxSteps, MinLoss

runtime = one_cluster(workers=2)


# Callbacks


class Seen(Callback):
    """Keeps what it sees."""

    def __init__(self):
        self.seen = []
        self.pids = set()

    def _see(self, hook, run):
        record = None if run.record is None else run.record["epoch"]
        self.seen.append((hook, run.epoch, run.step, record))
        self.pids.add(os.getpid())

    def on_run_begin(self, run):
        self._see("run begins", run)

    def on_run_end(self, run):
        self._see("run ends", run)

    def on_epoch_begin(self, run):
        self._see("epoch begins", run)

    def on_epoch_end(self, run):
        self._see("epoch ends", run)

    def on_step_begin(self, run):
        self._see("step begins", run)

    def on_step_end(self, run):
        self._see("step ends", run)


def test_callbacks_are_called_in_order_on_the_first_worker():
    seen = Seen()
    given = [seen]
    history = line().fit(points(), epochs=2, batch_size=8, callbacks=given)
    assert given == [seen]
    assert seen.seen == [
        ("run begins", 0, 0, None),
        ("epoch begins", 0, 0, None),
        ("step begins", 0, 0, None),
        ("step ends", 0, 1, None),
        ("step begins", 0, 1, None),
        ("step ends", 0, 2, None),
        ("epoch ends", 1, 2, 1),
        ("epoch begins", 1, 2, None),
        ("step begins", 1, 2, None),
        ("step ends", 1, 3, None),
        ("step begins", 1, 3, None),
        ("step ends", 1, 4, None),
        ("epoch ends", 2, 4, 2),
        ("run ends", 2, 4, None),
    ]
    assert seen.pids == {history.workers[0]["pid"]}


class Losses(Callback):
    def __init__(self):
        self.losses = []

    def on_step_end(self, run):
        self.losses.append((run.loss, run.optimizer.param_groups[0]["lr"], run.config["lr"]))
        self.weight = next(run.model.parameters()).item()


def test_callbacks_see_losses_and_the_model():
    losses = Losses()
    estimator = line(config={"lr": 0.25})
    for _ in range(2):
        # The same objects serve again.
        losses.losses.clear()
        estimator.fit(points(), batch_size=8, callbacks=[losses])
        assert losses.weight == weight(estimator)
    assert losses.losses == [(0.5625, 0.25, 0.25), (0.140625, 0.25, 0.25)]


class Stops(Callback):
    def __init__(self, step=None, epoch=None):
        self.step, self.epoch = step, epoch

    def on_step_end(self, run):
        if run.step == self.step:
            run.stop("it is enough")

    def on_epoch_end(self, run):
        if run.epoch == self.epoch:
            run.stop("it is late")


def test_a_callback_ends_the_run_on_all_workers_at_one_step():
    estimator = classifier()
    history = estimator.fit(rows(), epochs=4, batch_size=16, callbacks=[Stops(step=6)])
    assert (history.reason, history["steps"]) == ("it is enough", [4, 2])
    assert [worker["rows"] for worker in history.workers] == [48, 48]
    limited = classifier()
    limited.fit(rows(), epochs=4, batch_size=16, max_steps=6)
    assert estimator.digest() == limited.digest()
    history = classifier().fit(rows(), epochs=4, batch_size=16, callbacks=[Stops(epoch=2)])
    assert (history.reason, len(history)) == ("it is late", 2)


def test_the_last_step_of_an_epoch_ends_it_too():
    """Whoever stops there has trained a whole epoch, and gets its record."""
    for other in ({"max_steps": 4}, {"callbacks": [Stops(step=4)]}):
        history = classifier().fit(rows(), epochs=4, batch_size=16, validation_data=rows(8), **other)
        assert (len(history), history[0]["steps"]) == (1, 4)
        assert "val_loss" in history[0]


class StopsEarly(Callback):
    def on_step_begin(self, run):
        if run.step == 5:
            run.stop("it is too warm")


def test_a_callback_may_ask_for_the_end_before_a_step():
    history = classifier().fit(rows(), epochs=4, batch_size=16, callbacks=[StopsEarly()])
    assert (history.reason, sum(worker["rows"] for worker in history.workers)) == ("it is too warm", 96)


class Logs(Callback):
    def on_epoch_end(self, run):
        run.log("twice", 2 * run.record["loss"])


def test_a_callback_adds_to_the_record():
    history = line().fit(points(), epochs=2, callbacks=[Logs(), CSVLog("log.csv")])
    assert history["twice"] == [2 * loss for loss in history["loss"]]
    assert [float(row["twice"]) for row in read_csv("log.csv")] == history["twice"]


def test_early_stopping_ends_the_run():
    stopping = EarlyStopping("val_loss", patience=2)
    history = line(config={"lr": 1.5}).fit(points(), epochs=9, validation_data=points(), callbacks=[stopping])
    assert len(history) == 3
    assert history.reason.startswith("val_loss is not better than")
    assert stopping.best_epoch == 1
    assert stopping.best == history["val_loss"][0]


@pytest.mark.parametrize(
    "hook", ["run_begin", "epoch_begin", "step_begin", "step_end", "epoch_end", "run_end"]
)
def test_what_a_callback_raises_is_raised_by_fit(hook):
    class Fails(Callback):
        pass

    def fail(self, run):
        raise LookupError(f"in {hook}")

    setattr(Fails, f"on_{hook}", fail)
    estimator = line()
    with pytest.raises(LookupError, match=f"in {hook}"):
        estimator.fit(points(), callbacks=[Fails()])
    # The workers are well.
    estimator.fit(points())


def test_only_callbacks_are_taken_for_callbacks():
    with pytest.raises(TypeError, match=r"is no callback: derive its class from grampus.callbacks.Callback"):
        line().fit(points(), callbacks=[print])


# Logs


def read_csv(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def curves(folder):
    read = EventAccumulator(str(folder)).Reload()
    return {tag: [point.step for point in read.Scalars(tag)] for tag in read.Tags()["scalars"]}


def test_every_run_has_a_folder_with_curves():
    for number in (1, 2):
        history = classifier().fit(rows(), epochs=2, batch_size=16, validation_data=rows(8, 1))
        found = sorted(Path("grampus_runs").iterdir())
        assert len(found) == number
    read = curves(found[-1] / "tensorboard")
    assert read["train/loss"] == read["train/learning_rate"] == list(range(1, 9))
    assert read["validation/accuracy"] == read["train/accuracy"] == [4, 8]
    last = EventAccumulator(str(found[-1] / "tensorboard")).Reload().Scalars("validation/loss")[-1]
    assert last.value == pytest.approx(history["val_loss"][-1])


def test_model_dir_is_the_folder_of_the_run(tmp_path):
    line(model_dir=tmp_path / "mine").fit(points())
    assert curves(tmp_path / "mine" / "tensorboard")["train/loss"] == [1]
    assert not Path("grampus_runs").exists()
    line(model_dir=tmp_path / "mine").fit(points(), callbacks=[TensorBoard(tmp_path / "there")])
    assert curves(tmp_path / "there")["train/loss"] == [1]


def test_a_run_that_goes_on_logs_no_epoch_twice(tmp_path):
    class Fails(Callback):
        def on_step_end(self, run):
            if run.step == 7:
                raise InterruptedError

    logs = [CSVLog("log.csv"), JSONLog("log.jsonl")]
    saving = {"checkpoint": EverySteps(3), "batch_size": 16, "epochs": 3}
    with pytest.raises(InterruptedError):
        classifier(model_dir="model").fit(rows(), callbacks=[*logs, Fails()], **saving)
    history = classifier(model_dir="model").fit(rows(), callbacks=logs, resume=True, **saving)
    assert [int(row["epoch"]) for row in read_csv("log.csv")] == [1, 2, 3]
    assert [float(row["loss"]) for row in read_csv("log.csv")] == history["loss"]
    lines = [json.loads(text) for text in Path("log.jsonl").read_text().splitlines()]
    assert lines == list(history)
    read = curves(tmp_path / "model" / "tensorboard")
    assert read["train/loss"] == list(range(1, 13))
    assert read["train/accuracy"] == [4, 8, 12]


def test_a_logger_of_ones_own_hears_of_the_run_in_the_driver():
    class Mine(Logger):
        def __init__(self):
            self.events = []

        def event(self, event):
            self.events.append((os.getpid(), event))

    mine = Mine()
    classifier().fit(
        rows(), epochs=2, batch_size=16, validation_data=rows(8), callbacks=[mine], checkpoint="runs"
    )
    assert {pid for pid, _ in mine.events} == {os.getpid()}
    kinds = [event["kind"] for _, event in mine.events]
    assert (kinds[0], kinds[-1]) == ("begin", "end")
    assert [kinds.count(kind) for kind in ("epoch", "checkpoint", "validate")] == [2, 2, 2]
    begin = mine.events[0][1]
    expected = {
        "epochs": 2,
        "epoch": 0,
        "steps": 4,
        "samples": 64,
        "workers": 2,
        "lanes": 4,
        "batch_size": 16,
    }
    assert {name: begin[name] for name in expected} == expected
    told = [step for _, event in mine.events if event["kind"] == "steps" for step, _, _ in event["steps"]]
    assert told == list(range(1, 9))


def test_a_logger_that_fails_is_heard():
    class Fails(Logger):
        def event(self, event):
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        line().fit(points(), callbacks=[Fails()])
    line().fit(points())


# Triggers and limits


@pytest.mark.parametrize(
    ("epochs", "steps", "says"),
    [
        (MaxEpoch(2), 8, "2 epochs done"),
        (MaxSteps(6), 6, "6 steps done"),
        (MinLoss(4.0), 3, "the loss 3.68"),
        (MaxSteps(6) & MaxEpoch(1), 6, "6 steps done and 1 epoch done"),
        (MaxSteps(6) | MaxEpoch(1), 4, "1 epoch done"),
        (MaxScore(-1.0), 8, "the score -0.25"),
        (3, 12, "3 epochs done"),
    ],
)
def test_triggers_end_a_run(epochs, steps, says):
    def score(output, target):
        return -((output - target) ** 2).mean().item()

    estimator = line(metrics=[score])
    history = estimator.fit(points(8), epochs=epochs, batch_size=2, validation_data=points(4))
    assert history.reason.startswith(says)
    assert estimator._at["step"] == steps
    assert weight(estimator) == pytest.approx(3 - 3 * 0.8**steps, rel=1e-5)


def test_max_steps_ends_a_run_within_an_epoch_and_after_some():
    estimator = line()
    assert estimator.fit(points(8), batch_size=2, max_steps=3)["steps"] == [3]
    assert weight(estimator) == pytest.approx(3 - 3 * 0.8**3)
    # Larger than all epochs together: it changes nothing.
    estimator = line()
    assert estimator.fit(points(8), batch_size=2, epochs=2, max_steps=30).reason == "2 epochs done"
    estimator = line()
    assert estimator.fit(points(8), batch_size=2, epochs=3, max_steps=6)["steps"] == [4, 2]
    for wrong in (0, -1, 1.5, True):
        with pytest.raises((ValueError, TypeError), match="max_steps must be a whole number"):
            estimator.fit(points(8), max_steps=wrong)
        with pytest.raises((ValueError, TypeError), match="epochs must be a whole number"):
            estimator.fit(points(8), epochs=wrong)


def test_a_fit_after_one_that_ended_within_an_epoch_begins_an_epoch():
    """Other data may be passed, and none of its rows is left out."""
    estimator = classifier()
    estimator.fit(rows(), epochs=2, batch_size=16, max_steps=6)
    history = estimator.fit(rows(40, 1), batch_size=10)
    assert [(record["samples"], record["steps"]) for record in history] == [(40, 4)]
    assert sum(worker["rows"] for worker in history.workers) == 40


def test_a_fit_after_a_fit_trains_further():
    whole, parts = classifier(), classifier()
    whole.fit(rows(), epochs=3, batch_size=16)
    for _ in range(3):
        history = parts.fit(rows(), batch_size=16)
    assert parts.digest() == whole.digest()
    assert history["epoch"] == [3]


# Histories


def test_the_history_says_what_an_epoch_took():
    history = classifier().fit(rows(), epochs=2, batch_size=16, validation_data=rows(20, 1))
    for number, record in enumerate(history, 1):
        assert list(record) == [
            "epoch",
            "loss",
            "accuracy",
            "val_loss",
            "val_accuracy",
            "learning_rate",
            "samples",
            "val_num_samples",
            "steps",
            "seconds",
            "samples_per_second",
            "data_wait",
        ]
        assert (record["epoch"], record["samples"], record["steps"]) == (number, 64, 4)
        assert record["samples_per_second"] == pytest.approx(64 / record["seconds"])
        assert 0 <= record["data_wait"] <= 1
    assert [worker["rows"] for worker in history.workers] == [64, 64]
    assert len({worker["pid"] for worker in history.workers} | {os.getpid()}) == 3
    shown = str(history).splitlines()
    assert shown[-2:] == ["each epoch: 64 samples, 4 steps, 20 samples to validate", "2 epochs done"]
    history.plot("curves.png")
    assert Path("curves.png").read_bytes().startswith(b"\x89PNG")


class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, row):
        time.sleep(0.02)
        return torch.ones(1), 3 * torch.ones(1)


def slow_model(config):
    class Sleeps(torch.nn.Linear):
        def forward(self, x):
            time.sleep(0.1)
            return super().forward(x)

    return Sleeps(1, 1)


def test_the_time_that_is_waited_for_data_is_told():
    waited = line().fit(Slow(), batch_size=8)["data_wait"][0]
    assert waited > 0.7
    waited = line(model=slow_model).fit(points(), batch_size=8)["data_wait"][0]
    assert waited < 0.3


# What people see


SHOWN = """
    import sys, time, torch, grampus as gp

    class Talks(torch.nn.Linear):
        def forward(self, x):
            time.sleep(0.05)
            if gp.rank() == 1 and self.training:
                print("a word from the model")
            return super().forward(x)

    x = torch.ones(32, 1)
    estimator = gp.Estimator.from_torch(
        model=lambda config: Talks(1, 1), optimizer="sgd", loss=torch.nn.MSELoss(), workers=2, seed=1
    )
    estimator.fit({"x": x, "y": x}, epochs=2, batch_size=8, validation_data={"x": x, "y": x},
                  checkpoint="runs")
    estimator.shutdown()
"""


def test_a_terminal_shows_how_far_it_is_and_what_came_out(tmp_path):
    screen = Screen(200)
    command = [sys.executable, "-c", textwrap.dedent(SHOWN)]
    environment = {**os.environ, "TERM": "xterm-256color"}
    streams = {"stdin": screen.stream, "stdout": screen.stream, "stderr": screen.stream}
    driver = subprocess.Popen(command, env=environment, **streams)
    try:
        assert driver.wait(3 * PATIENCE) == 0, screen.read()
        lines = [line for line in screen.lines() if line]
    finally:
        driver.kill()
        driver.wait(PATIENCE)
        screen.close()
    assert lines.count("[rank 1] a word from the model") == 8
    epochs = [line for line in lines if line.startswith("Epoch")]
    assert [line.split()[1] for line in epochs] == ["1/2", "2/2"]
    assert all("val_loss" in line and "samples/s" in line for line in epochs)
    (headline,) = [line for line in lines if line.startswith("Training ended after")]
    assert headline.endswith(": 2 epochs done")
    below = "\n".join(lines[lines.index(headline) :])
    for part in ("2 epochs, 64 samples", "2 workers, 2 lanes", "val_loss", "step-00000008", "tensorboard"):
        assert part in below
    assert "━" in screen.raw, "no bar was drawn"


def test_nothing_is_shown_where_nobody_looks():
    code, out, errors = finish(start(SHOWN), 3 * PATIENCE)
    assert code == 0
    assert set(out.splitlines()) == {"[rank 1] a word from the model"}
    # A start that takes long is said anywhere.
    assert errors in ("", "starting 2 workers …\n")
