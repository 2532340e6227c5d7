"""Workers are lost, and code of the user fails, while the weights of a failed run come home."""

import os
import signal
from pathlib import Path

import pytest
import torch
from clusters import one_cluster, scratch  # noqa: F401 - a fixture
from small_models import line, points, weight
from test_handover import kill_once
from test_kept_weights import STEPS, alone

import grampus as gp
from grampus.callbacks import Callback

runtime = one_cluster(workers=2, heartbeat_timeout=10, start_timeout=200)
pytestmark = pytest.mark.timeout(120)


class Fuse:
    """Kills the first process that takes up the callbacks' attributes: where the run is handed over."""

    def __init__(self, mark):
        self.mark = mark

    def __setstate__(self, state):
        vars(self).update(state)
        kill_once(Path(self.mark))


class Fails(Callback):
    def __init__(self, mark=None):
        self.mark, self.fuse = mark, None

    def on_run_begin(self, run):
        self.fuse = None if self.mark is None else Fuse(self.mark)

    def on_epoch_end(self, run):
        if run.epoch == 2:
            raise RuntimeError("the callback is broken")


def test_a_worker_that_is_lost_while_it_hands_over(tmp_path):
    mark = tmp_path / "killed"
    est = line(workers=2)
    with pytest.raises(RuntimeError, match="the callback is broken") as caught:
        est.fit(points(), epochs=3, batch_size=4, callbacks=[Fails(str(mark))])
    assert mark.exists()
    assert "keeps the weights of epoch 2, step 8" in caught.value.__notes__[-1]
    assert weight(est) == pytest.approx(alone(2 * STEPS))


def fails_once_armed(armed):
    if Path(armed).exists():
        raise RuntimeError("the hook is broken")


class Deadly(torch.utils.data.Dataset):
    """Kills a worker, and arms what fails in the one that takes its place."""

    def __init__(self, folder):
        self.folder = folder

    def __len__(self):
        return 64

    def __getitem__(self, row):
        if row == 40 and not (self.folder / "armed").exists():
            (self.folder / "armed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.ones(1), 3 * torch.ones(1)


@pytest.mark.parametrize("optimizer", ["sgd", gp.optim.SGD(lr=0.1)], ids=["torch", "sharded"])
def test_code_that_fails_on_a_new_worker_does_not_replace_the_error(tmp_path, optimizer):
    armed = str(tmp_path / "armed")
    given = {"initialization_hook": lambda: fails_once_armed(armed), "config": {"lr": 0.1}}
    est = line(workers=2, optimizer=optimizer, **given)
    with pytest.raises(gp.WorkerDied) as caught:
        est.fit(Deadly(tmp_path), epochs=2, batch_size=4, max_failures=0)
    if optimizer == "sgd":
        # The hook is not needed for this.
        assert "the estimator keeps the weights of epoch 1" in caught.value.__notes__[-1]
        assert weight(est) == pytest.approx(alone(est._at["step"]))
