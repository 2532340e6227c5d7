"""Loggers in the driver, and callbacks beside the model."""

import csv
import json
import math
import pickle
import resource
import time
from types import SimpleNamespace

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from grampus import _logger, _native
from grampus.callbacks import Callback, CSVLog, EarlyStopping, JSONLog, Logger, Progress, TensorBoard


def begin(epoch=0, run=None):
    return {"kind": "begin", "epoch": epoch, "epochs": 5, "run": run, "resumed_from": None}


def steps(*numbers, loss=0.5):
    return {"kind": "steps", "epoch": 0, "steps": [[number, loss / number, 0.001] for number in numbers]}


def epoch(number, **values):
    record = {"epoch": number, "loss": 0.5, "accuracy": 0.75, "samples": 640, "seconds": 1.5, **values}
    return {"kind": "epoch", "epoch": number - 1, "record": record}


def log(logger, *events):
    for event in events:
        logger.event(event)
    logger.close()


def curves(folder):
    """What TensorBoard reads from a folder: steps and values by tag."""
    read = EventAccumulator(str(folder)).Reload()
    return {
        tag: [(point.step, round(point.value, 6)) for point in read.Scalars(tag)]
        for tag in read.Tags()["scalars"]
    }


def test_tensorboard_reads_the_curves(tmp_path):
    logger = TensorBoard(tmp_path)
    values = {"val_loss": 0.6, "val_accuracy": 0.7, "samples_per_second": 430.0, "data_wait": 0.25}
    log(logger, begin(), steps(1, 2), steps(4), epoch(1, **values))
    assert curves(tmp_path) == {
        "train/loss": [(1, 0.5), (2, 0.25), (4, 0.125)],
        "train/learning_rate": [(1, 0.001), (2, 0.001), (4, 0.001)],
        "train/accuracy": [(4, 0.75)],
        "validation/loss": [(4, 0.6)],
        "validation/accuracy": [(4, 0.7)],
        "samples_per_second": [(4, 430.0)],
        "data_wait": [(4, 0.25)],
    }
    point = EventAccumulator(str(tmp_path)).Reload().Scalars("train/loss")[0]
    assert abs(point.wall_time - time.time()) < 60


def test_tensorboard_shows_a_run_that_goes_on(tmp_path):
    logger = TensorBoard(tmp_path)
    logger.event(begin())
    logger.event(steps(1))
    assert curves(tmp_path)["train/loss"] == [(1, 0.5)]
    logger.close()


def test_tensorboard_writes_every_nth_step(tmp_path):
    log(TensorBoard(log_dir=tmp_path, every=2), begin(), steps(1, 2, 3, 4))
    assert [step for step, _ in curves(tmp_path)["train/loss"]] == [2, 4]


def test_tensorboard_writes_into_the_folder_of_the_run(tmp_path):
    logger = TensorBoard()
    log(logger, begin(run=str(tmp_path)), steps(1))
    assert logger.place == str(tmp_path / "tensorboard")
    assert "train/loss" in curves(tmp_path / "tensorboard")
    with pytest.raises(ValueError, match="TensorBoard has no folder: pass log_dir"):
        TensorBoard().event(begin())


def test_steps_that_a_resumed_run_repeats_are_drawn_once(tmp_path):
    log(TensorBoard(tmp_path), begin(), steps(1, 2, 3, 4))
    log(TensorBoard(tmp_path), begin(), steps(3, 4, 5, loss=9.0))
    assert curves(tmp_path)["train/loss"] == [(1, 0.5), (2, 0.25), (3, 3.0), (4, 2.25), (5, 1.8)]


def test_a_loss_that_is_no_number_is_a_point(tmp_path):
    log(TensorBoard(tmp_path), begin(), steps(1, loss=float("nan")), epoch(1, val_loss=float("inf")))
    assert math.isnan(curves(tmp_path)["train/loss"][0][1])
    assert math.isinf(curves(tmp_path)["validation/loss"][0][1])


def test_the_event_writer_says_what_is_wrong(tmp_path):
    writer = _native.EventWriter(tmp_path, 1.0)
    writer.close()
    writer.close()
    with pytest.raises(_native.GrampusError, match="is closed"):
        writer.scalar("a", 1.0, 1, 1.0)
    (tmp_path / "file").touch()
    with pytest.raises(_native.GrampusError, match=r"cannot write the TensorBoard events .*file"):
        _native.EventWriter(str(tmp_path / "file"), 1.0)


def read_csv(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def read_json(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(("kind", "read"), [(CSVLog, read_csv), (JSONLog, read_json)])
def test_a_file_has_a_line_for_each_epoch_and_none_twice(tmp_path, kind, read):
    path = tmp_path / "new folder" / "log"
    log(kind(path), begin(), epoch(1), epoch(2), epoch(3))
    assert [int(row["epoch"]) for row in read(path)] == [1, 2, 3]
    assert float(read(path)[0]["accuracy"]) == 0.75
    # It goes on after epoch 2: the third is trained again.
    log(kind(path), begin(epoch=2), epoch(3, loss=0.25), epoch(4))
    assert [int(row["epoch"]) for row in read(path)] == [1, 2, 3, 4]
    assert float(read(path)[2]["loss"]) == 0.25
    # It starts anew.
    log(kind(path), begin(), epoch(1, loss=0.125))
    assert [float(row["loss"]) for row in read(path)] == [0.125]
    assert [entry.name for entry in path.parent.iterdir()] == ["log"]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (CSVLog, "my only copy\n"),
        (CSVLog, "epoch,loss\none,2\n"),
        (CSVLog, '{"epoch": 2}\n'),
        (JSONLog, "my only copy\n"),
        (JSONLog, '"epoch"\n'),
        (JSONLog, '{"loss": 2}\n'),
        (JSONLog, "epoch,loss\n1,2\n"),
    ],
)
def test_a_file_of_something_else_is_not_overwritten(tmp_path, kind, text):
    path = tmp_path / "notes"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"notes is no (CSV|JSON)Log of epochs: move it away"):
        kind(path).event(begin())
    assert path.read_text() == text


def test_a_csv_file_gets_columns_that_come_later(tmp_path):
    path = tmp_path / "log.csv"
    log(CSVLog(path), begin(), epoch(1), epoch(2, val_loss=0.6, note="a, b"), epoch(3))
    rows = read_csv(path)
    assert [row["val_loss"] for row in rows] == ["", "0.6", ""]
    assert rows[1]["note"] == "a, b"


def test_a_json_file_is_strict_json(tmp_path):
    path = tmp_path / "log.jsonl"
    log(JSONLog(path), begin(), epoch(1, loss=float("nan"), parts=[1.0, float("inf")], odd={"a": -math.inf}))
    assert "NaN" not in path.read_text()
    assert read_json(path)[0]["loss"] is None
    assert read_json(path)[0]["parts"] == [1.0, None]
    assert read_json(path)[0]["odd"] == {"a": None}


@pytest.mark.parametrize("make", [TensorBoard, CSVLog, JSONLog])
def test_loggers_can_be_sent_and_used_again(tmp_path, make):
    logger = pickle.loads(pickle.dumps(make(tmp_path / "log")))
    for _ in range(2):
        log(logger, begin(), {"kind": "weather"}, steps(1, 2), epoch(1), {"kind": "end", "reason": "done"})
    assert logger.place == str(tmp_path / "log")
    pickle.dumps(logger)


def test_a_logger_of_ones_own_needs_only_event():
    class Mine(Logger):
        def event(self, event):
            self.kind = event["kind"]

    logger = Mine()
    log(logger, begin())
    assert logger.kind == "begin"
    assert logger.place is None


class Broken(Logger):
    """Hears of some kinds of events, and fails at others."""

    def __init__(self, *fails_at, may_fail=True):
        self.fails_at, self.may_fail, self.heard = fails_at, may_fail, []

    # Two of them that are equal are still two.
    __hash__ = None

    def event(self, event):
        self.heard.append(event["kind"])
        if event["kind"] in self.fails_at:
            raise OSError("disk full")

    def close(self):
        if "close" in self.fails_at:
            raise OSError("disk full")


def test_a_logger_that_may_fail_is_left_alone_for_a_minute(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(_logger.time, "monotonic", lambda: now[0])
    broken, whole = Broken("steps", "close"), Broken()
    listeners = _logger.Listeners([broken, whole])
    listeners.event(begin())
    with pytest.warns(RuntimeWarning, match="Broken fails, and the run goes on: disk full") as warned:
        for _ in range(4):
            listeners.event(steps(1))
            now[0] += 31.0
        listeners.event({"kind": "end", "reason": "done", "step": 4})
        listeners.close()
    assert broken.heard == ["begin", "steps", "steps", "end"]
    assert whole.heard == ["begin", *["steps"] * 4, "end"]
    assert len(warned) == 1


def test_what_fails_as_a_run_begins_is_raised():
    with pytest.raises(OSError, match="disk full"):
        _logger.Listeners([Broken("begin")]).event(begin())
    listeners = _logger.Listeners([Broken("steps", may_fail=False)])
    listeners.event(begin())
    with pytest.raises(OSError, match="disk full"):
        listeners.event(steps(1))


@pytest.mark.parametrize("make", [CSVLog, JSONLog])
def test_a_line_that_could_not_be_written_leaves_the_others(tmp_path, make):
    logger = make(tmp_path / "log")
    logger.event(begin())
    logger.event(epoch(1))
    before = (tmp_path / "log").read_bytes()
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Like a disk on which half of the line finds room.
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 10, most))
    try:
        with pytest.raises(OSError, match="File too large"):
            logger.event(epoch(2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    assert [path.name for path in tmp_path.iterdir()] == ["log"]
    assert (tmp_path / "log").read_bytes() == before
    logger.event(epoch(3))
    log(make(tmp_path / "log"), begin(epoch=3), epoch(4))
    kept = (tmp_path / "log").read_text()
    assert [number in kept for number in ('"epoch": 3', "\n3,")].count(True) == 1
    assert kept.startswith(before.decode())


@pytest.mark.parametrize("kind", [TensorBoard, CSVLog, JSONLog, Progress])
def test_a_full_disk_and_a_closed_terminal_do_not_end_a_run(kind):
    assert kind.may_fail and not Logger.may_fail


class Run:
    """As much of a run as a callback sees of it."""

    def __init__(self):
        self.epoch = 0
        self.records = []
        self.reason = None

    def stop(self, reason):
        self.reason = reason

    def train(self, callback, values, name="val_loss"):
        """Train an epoch for each value; return how many there were."""
        callback.on_run_begin(self)
        for value in values:
            if self.reason is not None:
                break
            self.epoch += 1
            self.record = {"epoch": self.epoch, "loss": 1.0}
            if value is not None:
                self.record[name] = value
            callback.on_epoch_end(self)
        return self.epoch


@pytest.mark.parametrize(
    ("options", "values", "epochs"),
    [
        ({}, [5, 4, 3, 2, 1], 5),
        ({}, [1, 2, 3, 4, 5], 4),
        ({"patience": 1}, [1, 2, 3, 4, 5], 2),
        ({"patience": 2}, [3, 4, 2, 4, 4, 4], 5),
        ({"patience": 1, "min_delta": 0.5}, [3, 2.4, 2.0, 1.0], 3),
        ({"patience": 1, "mode": "max"}, [1, 2, 3, 2], 4),
        ({"patience": 1, "start": 2}, [1, 2, 3, 2.5, 4], 5),
        ({"patience": 1}, [2, float("nan"), 1], 2),
        ({"patience": 1}, [float("nan"), 2, 1, 0.5], 4),
        ({"patience": 1}, [2, None, 1, None, 3, 0], 5),
    ],
)
def test_early_stopping_ends_a_run_that_gets_no_better(options, values, epochs):
    assert Run().train(EarlyStopping(**options), values) == epochs


def test_early_stopping_says_why_and_keeps_the_best():
    run, stopping = Run(), EarlyStopping(patience=2)
    run.train(stopping, [0.5, 0.25, 0.5, 0.5])
    assert run.reason == "val_loss is not better than 0.2500 of epoch 2 for 2 epochs"
    assert (stopping.best, stopping.best_epoch) == (0.25, 2)
    assert Run().train(stopping, [9, 8, 7]) == 3, "a second run starts anew"


@pytest.mark.parametrize(
    ("name", "mode"),
    [("val_loss", "min"), ("error_rate", "min"), ("MAE", "min"), ("val_rmse", "min"), ("f1", "max")],
)
def test_early_stopping_knows_which_way_is_better(name, mode):
    stopping = EarlyStopping(name, patience=1)
    stopping.settle({"error_rate": False, "MAE": False, "rmse": False, "f1": True})
    assert Run().train(stopping, [1, 2, 3], name) == (2 if mode == "min" else 3)


def test_early_stopping_names_what_can_be_watched():
    with pytest.raises(ValueError, match="watches 'val_loss', which is not measured; there are: loss"):
        Run().train(EarlyStopping(), [None])


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"mode": "least"}, ValueError, 'mode of EarlyStopping must be "auto", "min" or "max"'),
        ({"patience": -1}, ValueError, "patience of EarlyStopping must be at least 0"),
        ({"patience": 1.5}, TypeError, "patience of EarlyStopping must be a whole number"),
        ({"start": -1}, ValueError, "start of EarlyStopping must be at least 0"),
        ({"min_delta": -1.0}, ValueError, "min_delta of EarlyStopping must be at least 0"),
    ],
)
def test_early_stopping_refuses_what_makes_no_sense(options, error, says):
    with pytest.raises(error, match=says):
        EarlyStopping(**options)


def test_every_hook_of_a_callback_may_be_left_out():
    callback = pickle.loads(pickle.dumps(Callback()))
    run = SimpleNamespace()
    for moment in ("run", "epoch", "step"):
        getattr(callback, f"on_{moment}_begin")(run)
        getattr(callback, f"on_{moment}_end")(run)
    assert pickle.loads(pickle.dumps(EarlyStopping("f1", start=2))).start == 2


def test_tensorboard_refuses_no_steps():
    with pytest.raises(ValueError, match="every of TensorBoard must be at least 1, it is 0"):
        TensorBoard("folder", every=0)
