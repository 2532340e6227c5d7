"""Ctrl-C while a run is saved: the save is waited for, a second Ctrl-C ends it, and nothing is lost."""

import os
import signal
import threading
import time

import pytest
from clusters import scratch  # noqa: F401 - a fixture
from object_store import Slow, point_at
from small_models import line, points

import grampus as gp
from grampus._training import oversight
from grampus.callbacks import Callback, Logger
from grampus.triggers import EverySteps

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def store(monkeypatch, tmp_path):
    # Torch leaves a cache in the temporary folder; that of the runtime must stay empty.
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    with Slow(seconds=0.6) as server:
        point_at(monkeypatch, server.url)
        # Workers know the store from their environment, so they start after it.
        gp.init(workers=2)
        try:
            yield server
        finally:
            gp.stop()


@pytest.fixture(autouse=True)
def usual_handler():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Steady(Callback):
    """Steps that take a moment."""

    def on_step_end(self, run):
        time.sleep(0.02)


class Presses(Logger):
    """Ctrl-C when the driver hears of a kind of event, and after those of the given seconds."""

    def __init__(self, kind, *again):
        self.kind, self.pressed = kind, None
        self.timers = [threading.Timer(each, os.kill, (os.getpid(), signal.SIGINT)) for each in again]

    def event(self, event):
        if event["kind"] == self.kind and self.pressed is None:
            self.pressed = time.monotonic()
            os.kill(os.getpid(), signal.SIGINT)
            for timer in self.timers:
                timer.start()

    def close(self):
        # Too late for this run: the next one must not hear of it.
        for timer in self.timers:
            timer.cancel()


def interrupted(est, presses, every=1_000_000):
    """What `fit` says."""
    saved = gp.Checkpoint("s3://bucket/run", every=EverySteps(every))
    with pytest.raises(KeyboardInterrupt) as caught:
        est.fit(points(), epochs=1000, batch_size=4, checkpoint=saved, callbacks=[Steady(), presses])
    assert type(caught.value) is KeyboardInterrupt
    return caught.value


def digest_after(steps):
    whole = line(workers=1)
    whole.fit(points(), epochs=1000, batch_size=4, max_steps=steps)
    return whole.digest()


@pytest.mark.parametrize(("workers", "every"), [(1, 1_000_000), (2, 1_000_000), (1, 4)])
def test_a_save_that_takes_longer_than_the_driver_waits_for_a_step(store, workers, every, monkeypatch):
    monkeypatch.setattr(oversight, "_PATIENCE", 0.5)
    est = line(workers=workers)
    text = str(interrupted(est, Presses("steps"), every))
    assert "resume=True goes on from there (s3://bucket/run)" in text, text
    steps = est._at["step"]
    assert est.digest() == digest_after(steps)
    assert any(key.startswith(f"run/step-{steps:08d}/") for key in store.objects)


@pytest.mark.parametrize("sharded", [False, True])
def test_a_second_ctrl_c_ends_the_save_and_keeps_the_weights(store, sharded):
    store.seconds = 60
    est = line(workers=2, optimizer=gp.optim.SGD(lr=0.1)) if sharded else line(workers=1)
    presses = Presses("steps", 2.0)
    text = str(interrupted(est, presses))
    assert time.monotonic() - presses.pressed < 20
    assert "the estimator keeps the weights" in text and "resume=True" not in text, text
    assert est.digest() == digest_after(est._at["step"])


def test_a_save_that_fails_is_told_beside_the_interruption(store):
    store.refuses = True
    est = line(workers=2)
    with pytest.warns(RuntimeWarning, match="interrupted and could not be saved"):
        error = interrupted(est, Presses("steps"))
    assert str(error).startswith("interrupted at epoch"), error
    assert "the run could not be saved" in error.__notes__[-1]
    assert est.digest() == digest_after(est._at["step"])
