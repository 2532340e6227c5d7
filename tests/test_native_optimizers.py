"""Optimizers of native models: divided among workers, with groups, and schedules that look at a metric."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest

import grampus as gp

pytestmark = pytest.mark.timeout(120)
ROWS = 60


@pytest.fixture(autouse=True)
def place(monkeypatch, tmp_path):
    """Runs go elsewhere."""
    monkeypatch.chdir(tmp_path)


def rows():
    random = np.random.default_rng(0)
    return {"x": random.standard_normal((ROWS, 3)).astype("f4"), "y": random.integers(0, 4, ROWS)}


def estimator(optimizer, workers, **other):
    nn = gp.nn
    model = nn.Sequential(nn.Linear(3, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))
    settings = {
        "loss": nn.CrossEntropy(),
        "optimizer": optimizer,
        "seed": 5,
        "lanes": 3,
        "threads_per_lane": 1,
    }
    return gp.Estimator.from_native(model=model, workers=workers, **settings, **other)


def trained(*given, epochs=4, **other):
    one = estimator(*given, **other)
    history = one.fit(rows(), epochs=epochs, batch_size=15)
    return one, history


@pytest.mark.parametrize(
    "optimizer", [gp.optim.Adam(0.01), gp.optim.SGD(0.1, momentum=0.9), gp.optim.LAMB(0.01)]
)
def test_a_memory_that_is_divided_changes_nothing(optimizer, tmp_path):
    gp.init(3)
    whole, _ = trained(optimizer, 1)
    for workers in (2, 3):
        divided = estimator(optimizer, workers, sharded=True)
        divided.fit(rows(), epochs=2, batch_size=15, checkpoint=str(tmp_path / f"runs-{workers}"))
        # On from what was saved, with another number of workers.
        goes_on = estimator(optimizer, 5 - workers, sharded=True)
        place = str(tmp_path / f"runs-{workers}")
        goes_on.fit(rows(), epochs=4, batch_size=15, checkpoint=place, resume=True)
        assert goes_on.digest() == whole.digest()


class Dies(gp.callbacks.Callback):
    """Kills the first worker in a step, once."""

    def __init__(self, step, mark):
        self.step, self.mark = step, str(mark)

    def on_step_end(self, run):
        if run.step == self.step and not Path(self.mark).exists():
            Path(self.mark).touch()
            os.kill(os.getpid(), signal.SIGKILL)


def test_a_memory_that_is_divided_is_healed(tmp_path):
    gp.init(3)
    whole, _ = trained(gp.optim.Adam(0.01), 1, epochs=6)
    divided = estimator(gp.optim.Adam(0.01), 3, sharded=True)
    dies = [Dies(step, tmp_path / f"died-{step}") for step in (3, 4, 11)]
    history = divided.fit(rows(), epochs=6, batch_size=15, callbacks=dies)
    assert all((tmp_path / f"died-{step}").exists() for step in (3, 4, 11))
    assert history["epoch"] == [1, 2, 3, 4, 5, 6]
    assert divided.digest() == whole.digest()


def test_layers_may_have_a_rate_of_their_own():
    frozen = gp.optim.Group(["0", "1.weight"], lr_factor=0.0)
    one = estimator(gp.optim.SGD(0.1), 2, groups=[frozen])
    before = one.state_dict()
    one.fit(rows(), epochs=1, batch_size=15)
    after = one.state_dict()
    changed = {name for name in after if not np.array_equal(before[name], after[name])}
    assert not changed & {"0.weight", "0.bias", "1.weight"}
    assert {"1.bias", "3.weight", "3.bias"} <= changed
    with pytest.raises(ValueError, match="there is no parameter of fc: there are 0"):
        trained(gp.optim.SGD(0.1), 1, groups=[gp.optim.Group("fc")])


def test_a_plateau_cuts_the_rate_and_is_saved(tmp_path):
    # No loss is ever better by so much.
    plateau = gp.optim.Plateau(patience=0, epsilon=1e9, factor=0.5)
    _, history = trained(gp.optim.SGD(0.1), 2, epochs=5, scheduler=plateau)
    assert history["learning_rate"] == [0.1, 0.1, 0.05, 0.025, 0.0125]
    saved = str(tmp_path / "runs")
    estimator(gp.optim.SGD(0.1), 2, scheduler=plateau).fit(rows(), epochs=3, batch_size=15, checkpoint=saved)
    goes_on = estimator(gp.optim.SGD(0.1), 2, scheduler=plateau)
    again = goes_on.fit(rows(), epochs=5, batch_size=15, checkpoint=saved, resume=True)
    assert again["learning_rate"] == history["learning_rate"]
    with pytest.raises(
        ValueError, match=r"there is no \"val_f1\" for the schedule to look at: an epoch has .*loss"
    ):
        trained(gp.optim.SGD(0.1), 1, scheduler=gp.optim.Plateau("val_f1", mode="max"))


def test_schedules_come_one_after_the_other():
    stages = gp.optim.Stages(4, [(gp.optim.Increase(0.01), 4), (gp.optim.Step(2, 0.5), 100)])
    _, history = trained(gp.optim.SGD(0.1), 1, epochs=3, scheduler=stages)
    # That of the step after each epoch.
    assert np.allclose(history["learning_rate"], [0.14, 0.035, 0.00875])
