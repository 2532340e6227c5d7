"""A run on a terminal, in a notebook, and where nobody looks."""

import contextlib
import fcntl
import os
import pickle
import re
import struct
import sys
import termios
from types import SimpleNamespace

import pytest

from grampus import _console
from grampus._logger import Listeners, Logger
from grampus.callbacks import Progress

BEGIN = {
    "kind": "begin",
    "epochs": 3,
    "epoch": 0,
    "steps": 100,
    "samples": 6400,
    "workers": 2,
    "lanes": 4,
    "batch_size": 64,
    "threads": 1,
    "resumed_from": None,
    "metrics": ["accuracy"],
    "run": "runs/here",
}


def steps(step, epoch=0, seconds=None, waited=0.0, loss=0.5):
    return {
        "kind": "steps",
        "epoch": epoch,
        "steps": [[100 * epoch + step, loss, 0.001]],
        "step": step,
        "samples": 64 * step,
        "seconds": step / 10 if seconds is None else seconds,
        "waited": waited,
        "metrics": {"accuracy": 0.75},
    }


def ended(epoch, loss=0.5, val_loss=0.6):
    record = {
        "epoch": epoch + 1,
        "loss": loss,
        "accuracy": 0.75,
        "val_loss": val_loss,
        "val_accuracy": 0.7,
        "samples": 6400,
        "seconds": 10.0,
        "samples_per_second": 640.0,
        "data_wait": 0.02,
        "learning_rate": 0.001,
        "steps": 100,
    }
    return {"kind": "epoch", "epoch": epoch, "record": record}


END = {"kind": "end", "reason": "3 epochs done", "step": 300}


class Screen:
    """A terminal of some width, and what stands on it."""

    def __init__(self, columns, lines=50):
        self.columns = columns
        self.master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        os.set_blocking(self.master, False)
        self.stream = os.fdopen(slave, "w", encoding="utf-8")
        self.raw = ""

    def read(self):
        """All that was written, as it came."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self.raw += os.read(self.master, 65536).decode()
        return self.raw

    def lines(self):
        """What is on the screen, without colours."""
        rows, column = [""], 0
        for piece in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", self.read()):
            if piece == "\r":
                column = 0
            elif piece == "\n":
                rows.append("")
                column = 0
            elif piece == "\x1b[K":
                rows[-1] = rows[-1][:column]
            elif not piece.startswith("\x1b"):
                rows[-1] = rows[-1][:column] + piece + rows[-1][column + len(piece) :]
                column += len(piece)
                assert column < self.columns, f"it would wrap: {rows[-1]!r}"
        return rows

    def close(self):
        self.stream.close()
        os.close(self.master)


@pytest.fixture
def open_screen(monkeypatch):
    """Makes a terminal of some width the standard error and output of this process."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    with contextlib.ExitStack() as stack:

        def make(columns):
            screen = Screen(columns)
            stack.callback(screen.close)
            monkeypatch.setattr(sys, "stderr", screen.stream)
            monkeypatch.setattr(sys, "stdout", screen.stream)
            return screen

        yield make
        monkeypatch.undo()


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        self.now += 1.0
        return self.now


def show(*events, clock=None):
    progress = Progress(clock=clock or Clock())
    for event in events:
        progress.event(event)
    return progress


def worker_prints(text):
    line = SimpleNamespace(rank=1, error=False, text=text)
    _console.show(SimpleNamespace(notes=[], skipped=0, skipped_reports=0, lines=[line]))


def test_the_live_line_says_how_far_the_epoch_is(open_screen):
    screen = open_screen(160)
    progress = show(BEGIN, steps(10), steps(25, waited=0.05))
    bar = "━" * 6 + "─" * 18
    assert screen.lines() == [
        f"Epoch 1/3  {bar}   25%  loss 0.5000  accuracy 0.7500  0:08 left  640/s  data wait 2%  run 0:28 left"
    ]
    progress.close()


@pytest.mark.parametrize("columns", [20, 40, 60, 80, 100, 160, 400])
def test_every_line_fits_the_terminal(open_screen, columns):
    screen = open_screen(columns)
    begin = {**BEGIN, "run": "r"}
    show(begin, steps(10), ended(0), steps(99, epoch=1), ended(1)).close()
    assert screen.lines()[0].startswith("Epoch 1/3")


def test_what_matters_stays_where_there_is_little_room(open_screen):
    for columns, there, gone in [
        (60, "━", "accuracy"),
        (80, "accuracy", "data wait"),
        (100, "data wait", "run 0:"),
    ]:
        screen = open_screen(columns)
        show(BEGIN, steps(25, waited=0.05)).close()
        line = screen.lines()[0]
        assert "loss 0.5000" in line
        assert there in line
        assert gone not in line


NAMES = ("sparsecategoricalcrossentropy", "meanaverageprecisionobjectdetection", "top5accuracy", "f1score")


@pytest.mark.parametrize("columns", [60, 80])
def test_long_names_push_out_neither_the_bar_nor_the_loss(open_screen, columns):
    screen = open_screen(columns)
    told = steps(25, waited=1.0)
    told["metrics"] = dict.fromkeys(NAMES, 0.123456)
    show(BEGIN, told).close()
    line = screen.lines()[0]
    assert "━" in line and "25%" in line and "loss 0.5000" in line
    # Each part is there as a whole, or not at all.
    whole = [*(f"{name} 0.1235" for name in NAMES), "loss 0.5000", "25%"]
    rest = re.sub(r"^Epoch 1/3  [━─]+  ", "", line)
    known = rf"(?:{'|'.join(whole)}|\d:\d\d left|run \d:\d\d left|[\d,]+/s|data wait \d+%)"
    assert re.fullmatch(rf" *{known}(?:  {known})*", rest), rest


def test_long_names_do_not_wrap_the_summary(open_screen):
    screen = open_screen(80)
    told = ended(0)
    told["record"].update({f"val_{name}": 0.987654 for name in NAMES})
    # Lines that wrap fail as they are read.
    show(BEGIN, steps(25), told, END).close()
    assert any("val_meanaverageprecisionobjectdetection  0.9877" in line for line in screen.lines())


def test_much_waiting_for_data_is_told_before_other_things(open_screen):
    screen = open_screen(80)
    show(BEGIN, steps(25, waited=1.0)).close()
    assert "data wait 40%" in screen.lines()[0]


def test_an_epoch_ends_as_one_line(open_screen):
    screen = open_screen(130)
    show(BEGIN, steps(50), ended(0), steps(50, epoch=1), ended(1, loss=0.25)).close()
    rest = "0:10  640 samples/s  data wait 2%  lr 0.001"
    assert screen.lines() == [
        f"Epoch 1/3  loss 0.5000  accuracy 0.7500  val_loss 0.6000  val_accuracy 0.7000  {rest}",
        f"Epoch 2/3  loss 0.2500  accuracy 0.7500  val_loss 0.6000  val_accuracy 0.7000  {rest}",
        "",
    ]


def test_lines_of_workers_stand_above_the_live_line(open_screen):
    screen = open_screen(100)
    progress = show(BEGIN, steps(10))
    worker_prints("hello")
    progress.event({"kind": "note", "text": "a worker was replaced"})
    lines = screen.lines()
    assert lines[:2] == ["[rank 1] hello", "[grampus] a worker was replaced"]
    assert lines[2].startswith("Epoch 1/3")
    assert len(lines) == 3
    progress.close()
    assert _console._live is None
    worker_prints("later")
    assert screen.lines()[3:] == ["[rank 1] later", ""]


def test_it_draws_at_most_ten_times_a_second(open_screen):
    screen = open_screen(80)
    moments = iter([0.0] + [0.01 * number for number in range(1, 101)] + [5.0])
    progress = show(BEGIN, *(steps(step) for step in range(1, 101)), clock=lambda: next(moments))
    assert screen.read().count("Epoch 1/3") in (10, 11)
    progress.event(steps(100, loss=0.125))
    assert "loss 0.1250" in screen.lines()[-1]
    progress.close()


def test_a_run_that_is_cut_off_leaves_a_fresh_line(open_screen):
    screen = open_screen(80)
    show(BEGIN, steps(10)).close()
    lines = screen.lines()
    assert lines[0].startswith("Epoch 1/3")
    assert lines[1:] == [""]


def test_validation_has_a_bar_of_its_own(open_screen):
    screen = open_screen(100)
    validate = {"kind": "validate", "epoch": 0, "done": 2000, "samples": 10000}
    progress = show(BEGIN, steps(100), validate)
    assert re.match(r"Epoch 1/3  ━+─+   20%  validating  loss", screen.lines()[0])
    progress.close()


def test_an_epoch_of_unknown_length_counts_steps(open_screen):
    screen = open_screen(100)
    begin = {**BEGIN, "steps": None, "samples": None, "epochs": None}
    show(begin, steps(1234)).close()
    assert screen.lines()[0] == "Epoch 1  step 1,234  loss 0.5000  accuracy 0.7500  640/s  data wait 0%"


def test_the_summary_says_what_ran_and_where_it_is(open_screen):
    screen = open_screen(80)

    class Elsewhere(Logger):
        @property
        def place(self):
            return "logs/elsewhere"

    clock = Clock()
    listeners = Listeners([Progress(clock=clock), Elsewhere()])
    listeners.event({**BEGIN, "resumed_from": "runs/old"})
    for epoch, val_loss in enumerate([0.6, 0.4, 0.5]):
        listeners.event(ended(epoch, val_loss=val_loss))
    listeners.event({"kind": "checkpoint", "name": "step-300", "path": "runs/here/step-300"})
    clock.now += 3600
    listeners.event(END)
    listeners.close()
    assert screen.lines()[3:] == [
        "",
        "Training ended after 1:00:05: 3 epochs done",
        "  trained       3 epochs, 19,200 samples, up to step 300",
        "  on            2 workers, 4 lanes, 1 thread per lane",
        "  batch size    64",
        "  speed         640 samples/s, 2% waiting for data",
        "  loss          0.5000",
        "  accuracy      0.7500",
        "  val_loss      0.5000  (best 0.4000 in epoch 2)",
        "  val_accuracy  0.7000",
        "  resumed from  runs/old",
        "  run           runs/here",
        "  checkpoint    runs/here/step-300",
        "  Elsewhere     logs/elsewhere",
        "",
    ]
    assert listeners.history["val_loss"] == [0.6, 0.4, 0.5]


def test_a_run_that_ends_inside_its_first_epoch_has_a_summary_too(open_screen):
    screen = open_screen(80)
    show(BEGIN, steps(10), {"kind": "end", "reason": "10 steps done", "step": 10}).close()
    lines = screen.lines()
    assert "  trained     0 epochs, 640 samples, up to step 10" in lines
    assert "  loss        0.5000" in lines
    assert not any(line.startswith("Epoch") for line in lines)


def test_colours_only_where_they_are_wanted(open_screen, monkeypatch):
    screen = open_screen(80)
    show(BEGIN, steps(10)).close()
    assert "\x1b[1mEpoch" in screen.read()
    monkeypatch.setenv("NO_COLOR", "1")
    screen = open_screen(80)
    show(BEGIN, steps(10), ended(0), END).close()
    assert set(re.findall(r"\x1b\[[0-9;]*[A-Za-z]", screen.read())) == {"\x1b[K"}


def test_a_dumb_terminal_gets_plain_lines(open_screen, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    screen = open_screen(80)
    show(BEGIN, steps(10), steps(20), ended(0), END).close()
    assert "\x1b" not in screen.read()
    assert screen.lines()[0].startswith("Epoch 1/3  loss 0.5000")
    assert screen.lines()[2].startswith("Training ended after")


def test_it_is_silent_where_nobody_looks(capfd):
    show(BEGIN, steps(10), {"kind": "note", "text": "a note"}, ended(0), END).close()
    assert capfd.readouterr() == ("", "")


def test_unknown_kinds_and_keys_are_no_errors(open_screen):
    screen = open_screen(80)
    show({"kind": "begin"}, {"kind": "weather"}, {**steps(5), "sky": "blue"}).close()
    assert screen.lines()[0].startswith("Epoch 1  step 5")


def test_it_can_be_sent_and_used_again(open_screen):
    progress = pickle.loads(pickle.dumps(Progress()))
    for _ in range(2):
        screen = open_screen(80)
        for event in (BEGIN, steps(10), ended(0), END):
            progress.event(event)
        progress.close()
        assert "  trained       1 epoch, 6,400 samples, up to step 300" in screen.lines()
    pickle.dumps(progress)


def test_a_terminal_that_goes_away_does_not_end_the_run(open_screen):
    screen = open_screen(80)
    progress = show(BEGIN, steps(10))
    screen.stream.close()
    for event in (steps(20), ended(0), END):
        progress.event(event)
    progress.close()


def test_only_loggers_listen():
    loggers = [Progress()]
    listeners = Listeners(loggers)
    loggers.clear()
    assert len(listeners._loggers) == 1
    with pytest.raises(TypeError, match="is no logger: derive its class"):
        Listeners(["progress"])


def test_all_are_closed_also_where_one_fails():
    closed = []

    class Closing(Logger):
        def __init__(self, error=None):
            self.error = error

        def close(self):
            closed.append(self.error)
            if self.error:
                raise self.error

    listeners = Listeners([Closing(), Closing(ValueError("disk full")), Closing()])
    with pytest.raises(ValueError, match="disk full"):
        listeners.close()
    assert len(closed) == 3
