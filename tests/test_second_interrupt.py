"""Ctrl-C twice, or while rows are slow or a step is applied: workers still have what was trained."""

import os
import signal
import threading
import time

import pytest
import torch
from clusters import one_cluster, scratch  # noqa: F401 - a fixture
from small_models import line, points, weight
from test_kept_weights import alone

from grampus._training import oversight, rescue, worker
from grampus.callbacks import Callback, Logger

runtime = one_cluster(workers=2, start_timeout=200)
pytestmark = pytest.mark.timeout(120)


@pytest.fixture(autouse=True)
def usual_handler():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for timer in timers:
        timer.cancel()
        timer.join()
    timers.clear()
    signal.signal(signal.SIGINT, before)


# Those that press Ctrl-C later.
timers = []


def press():
    os.kill(os.getpid(), signal.SIGINT)


class Presses(Logger):
    """Ctrl-C so many seconds after the first event of a kind from a step on."""

    def __init__(self, kind, *seconds, step=0):
        self.kind, self.step, self.seconds, self.pressed = kind, step, seconds, None

    def event(self, event):
        if event["kind"] != self.kind or self.pressed is not None:
            return
        if self.kind != "steps" or max(event["steps"], default=[0])[0] >= self.step:
            self.pressed = time.monotonic()
            for seconds in self.seconds:
                timers.append(threading.Timer(seconds, press))
                timers[-1].start()


class Sleeps(Callback):
    """A step that takes minutes, after some that take a moment."""

    def __init__(self, step):
        self.step = step

    def on_step_begin(self, run):
        # Each of them is told of: those are that take a tenth of a second.
        time.sleep(600 if run.step == self.step else 0.12)


def interrupted(est, data, *callbacks, **settings):
    with pytest.raises(KeyboardInterrupt) as caught:
        est.fit(data, epochs=1000, batch_size=4, callbacks=callbacks, **settings)
    assert type(caught.value) is KeyboardInterrupt
    return str(caught.value)


@pytest.mark.parametrize("workers", [1, 2])
def test_two_presses_in_a_row_keep_the_weights(workers):
    """The step under way takes minutes."""
    est, presses = line(workers=workers), Presses("steps", 0.0, 0.2, step=6)
    text = interrupted(est, points(), Sleeps(6), presses)
    assert text.startswith("interrupted at epoch 2, step 6: the estimator keeps the weights"), text
    assert time.monotonic() - presses.pressed < 20
    assert weight(est) == pytest.approx(alone(6))


def test_two_presses_before_a_step_was_done_end_at_once():
    est, presses = line(workers=2), Presses("begin", 0.0, 0.2)
    interrupted(est, points(), Sleeps(0), presses)
    assert time.monotonic() - presses.pressed < 20
    assert est._at["step"] == 0


def slow_hand_over(job):
    """In place of the real one, which is over in a moment."""
    time.sleep(2)
    return worker_hand_over(job)


worker_hand_over = worker.hand_over


def hangs(job):
    time.sleep(600)


def test_a_press_while_the_weights_come_home_ends_nothing(monkeypatch):
    monkeypatch.setattr(rescue.worker, "hand_over", slow_hand_over)
    est = line(workers=2)
    text = interrupted(est, points(), Sleeps(-1), Presses("steps", 0.0, 1.0, step=6))
    assert "the estimator keeps the weights" in text, text
    assert weight(est) == pytest.approx(alone(est._at["step"]))


def test_a_third_press_gives_up(monkeypatch):
    monkeypatch.setattr(rescue.worker, "hand_over", hangs)
    est, presses = line(workers=2), Presses("steps", 0.0, 0.5, 1.5, step=6)
    text = interrupted(est, points(), Sleeps(6), presses)
    assert time.monotonic() - presses.pressed < 20
    assert text.startswith("interrupted: nothing of this run is left"), text


class Fails(Callback):
    def on_step_end(self, run):
        if run.step == 6:
            raise RuntimeError("the callback is broken")
        time.sleep(0.06)


def test_workers_that_hang_do_not_hold_an_error_back(monkeypatch):
    monkeypatch.setattr(rescue.worker, "hand_over", hangs)
    monkeypatch.setattr(rescue, "_WITHIN", 1.0)
    began = time.monotonic()
    with pytest.raises(RuntimeError, match="the callback is broken") as caught:
        line(workers=2).fit(points(), epochs=3, batch_size=4, callbacks=[Fails()])
    assert time.monotonic() - began < 20
    assert "nothing of this run is left" in caught.value.__notes__[-1]


class SlowRows(torch.utils.data.Dataset):
    """Rows that take minutes from one on."""

    def __init__(self, slow):
        self.slow = slow

    def __len__(self):
        return 16

    def __getitem__(self, row):
        if row >= self.slow:
            time.sleep(600)
        return torch.ones(1), 3 * torch.ones(1)


def loader(config):
    return torch.utils.data.DataLoader(SlowRows(config["slow"]), batch_size=4, num_workers=2)


@pytest.mark.parametrize("moment", [0.0, 0.02, 0.5], ids=["first", "starting", "reading"])
@pytest.mark.parametrize("workers", [1, 2])
def test_processes_of_a_loader_that_are_slow_in_validation(workers, moment):
    est = line(workers=workers, config={"slow": 0})
    text = interrupted(est, points(), Presses("validate", moment), validation_data=loader)
    assert text.startswith("interrupted at epoch 1, step 4: the estimator keeps the weights"), text
    assert weight(est) == pytest.approx(alone(4))


@pytest.mark.parametrize("workers", [1, 2])
def test_processes_of_a_loader_that_are_slow_in_training(workers, monkeypatch):
    monkeypatch.setattr(oversight, "_PATIENCE", 0.5)
    est = line(workers=workers, config={"slow": 12})
    text = interrupted(est, loader, Sleeps(-1), Presses("steps", 0.0, step=1))
    assert text.startswith("interrupted at epoch 1, step "), text
    assert weight(est) == pytest.approx(alone(est._at["step"]))


class Heavy(torch.optim.SGD):
    """Applying a step is most of it."""

    def step(self, closure=None):
        for _ in range(4):
            time.sleep(0.05)
        super().step()


@pytest.mark.parametrize("workers", [1, 2])
def test_an_interrupt_while_a_step_is_applied_waits_for_its_end(workers):
    def raises(number, frame):
        raise KeyboardInterrupt("by the program")

    signal.signal(signal.SIGINT, raises)
    est = line(workers=workers, optimizer=lambda model, config: Heavy(model.parameters(), lr=0.1))
    text = interrupted(est, points(), Presses("steps", 0.1, step=2))
    assert "the estimator keeps the weights of that step (" in text, text
    assert weight(est) == pytest.approx(alone(est._at["step"]))
