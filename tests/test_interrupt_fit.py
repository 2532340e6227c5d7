"""Ctrl-C in `fit` keeps the weights of the last committed step, and says so in one line."""

import os
import signal
import time

import pytest
import torch
from clusters import one_cluster, scratch  # noqa: F401 - a fixture
from processes import finish, read_line, start
from small_models import classifier, rows

import grampus as gp
from grampus.callbacks import Callback, Logger

runtime = one_cluster(workers=2, start_timeout=200)


@pytest.fixture(autouse=True)
def usual_handler():
    """Tests of an engine in this process may have left its handler behind."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


# A machine that is busy with other things.
PATIENCE = 120
# 64 rows in batches of 16.
STEPS = 4


class Slow(Callback):
    """Steps that take their time."""

    def __init__(self, seconds=0.01):
        self.seconds = seconds

    def on_step_end(self, run):
        time.sleep(self.seconds)


class Interrupts(Logger):
    """Presses Ctrl-C when the driver hears of something for the first time."""

    def __init__(self, kind="steps"):
        self.kind, self.pressed = kind, False

    def event(self, event):
        if event["kind"] == self.kind and not self.pressed:
            self.pressed = True
            os.kill(os.getpid(), signal.SIGINT)


def interrupted(est, *callbacks, **settings):
    """What `fit` says when it is interrupted."""
    with pytest.raises(KeyboardInterrupt) as caught:
        est.fit(rows(), epochs=1000, batch_size=16, callbacks=callbacks, **settings)
    # A subclass would end a program with another exit code.
    assert type(caught.value) is KeyboardInterrupt
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return caught.value


@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_keeps_the_weights_of_the_last_step(workers):
    before = gp.run(os.getpid)
    est = classifier(workers=workers)
    text = str(interrupted(est, Slow(), Interrupts()))
    steps = est._at["step"]
    assert text.startswith(
        f"interrupted at epoch {-(-steps // STEPS)}, step {steps}: the estimator keeps the weights"
    )
    # After the last step of an epoch its record may be missing.
    assert (steps - 1) // STEPS <= len(est.history) <= steps // STEPS
    whole = classifier(workers=workers)
    whole.fit(rows(), epochs=1000, batch_size=16, max_steps=steps)
    assert est.digest() == whole.digest()
    # Both go on alike, with the same workers.
    for each in (est, whole):
        each.fit(rows(), epochs=1, batch_size=16)
    assert est.digest() == whole.digest()
    assert gp.run(os.getpid) == before


def test_a_notebook_shows_one_line():
    error = interrupted(classifier(), Slow(), Interrupts())
    assert error._render_traceback_() == [str(error)]


def test_a_run_with_checkpoints_is_saved_and_goes_on_there(tmp_path):
    est = classifier()
    text = str(interrupted(est, Slow(), Interrupts(), checkpoint=tmp_path / "run"))
    assert f"resume=True goes on from there ({tmp_path / 'run'})" in text
    steps = est._at["step"]
    assert (tmp_path / "run" / f"step-{steps:08d}").is_dir()
    again, whole = classifier(), classifier()
    again.fit(
        rows(), epochs=1000, max_steps=steps + 3, batch_size=16, checkpoint=tmp_path / "run", resume=True
    )
    whole.fit(rows(), epochs=1000, max_steps=steps + 3, batch_size=16)
    assert again.digest() == whole.digest()


class Validates(torch.nn.Linear):
    """Validation takes minutes."""

    def forward(self, x):
        if not self.training:
            time.sleep(600)
        return super().forward(x)


def test_ctrl_c_while_validation_takes_long():
    est = classifier(model=lambda config: Validates(4, 3))
    text = str(interrupted(est, Interrupts("validate"), validation_data=rows()))
    assert text.startswith("interrupted at epoch 1, step 4: the estimator keeps the weights"), text
    whole = classifier(model=lambda config: Validates(4, 3))
    whole.fit(rows(), epochs=1, batch_size=16)
    assert est.digest() == whole.digest()


def test_a_program_with_a_handler_of_its_own_keeps_them_too():
    def raises(number, frame):
        raise KeyboardInterrupt("by the program")

    signal.signal(signal.SIGINT, raises)
    try:
        est = classifier()
        with pytest.raises(KeyboardInterrupt, match="interrupted at epoch"):
            est.fit(rows(), epochs=1000, batch_size=16, callbacks=[Slow(), Interrupts()])
        assert est._at["step"] > 0
        assert signal.getsignal(signal.SIGINT) is raises
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.timeout(3 * PATIENCE)
def test_a_script_that_does_not_catch_it_ends_with_one_line(tmp_path):
    driver = start(
        """
        import torch
        import grampus as gp

        class Says(gp.callbacks.Logger):
            def event(self, event):
                if event["kind"] == "steps":
                    print("ready", flush=True)

        x = torch.ones(64, 1)
        gp.Estimator.from_torch(
            model=torch.nn.Linear(1, 1), optimizer="sgd", loss=torch.nn.MSELoss(), config={"lr": 0.1}
        ).fit({"x": x, "y": x}, epochs=100_000, batch_size=16, callbacks=[Says()])
        """,
        cwd=tmp_path,
    )
    assert read_line(driver, PATIENCE) == "ready"
    driver.send_signal(signal.SIGINT)
    code, _, err = finish(driver, PATIENCE)
    assert code == -signal.SIGINT
    said = [line for line in err.splitlines() if not line.startswith("starting")]
    assert len(said) == 1, err
    assert said[0].startswith("interrupted at epoch ")
