"""A second worker is lost while the survivors hand over their state: nothing of the run is."""

import os
import signal
from pathlib import Path

import pytest
import torch
from clusters import one_cluster, scratch  # noqa: F401 - a fixture
from small_models import line, weight

import grampus as gp

runtime = one_cluster(workers=2, heartbeat_timeout=10, start_timeout=200)


def kill_once(mark):
    """Kill this process, if none has been killed for the same reason."""
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


class Deadly(torch.utils.data.Dataset):
    """Kills a worker in the midst of the first epoch."""

    def __init__(self, folder):
        self.folder = folder

    def __len__(self):
        return 64

    def __getitem__(self, row):
        if row == 40:
            kill_once(self.folder / "first")
        return torch.ones(1), 3 * torch.ones(1)


def data(config):
    """Is made after the state was handed over, and before the first step: the survivor is killed here."""
    folder = Path(config["folder"])
    if (folder / "first").exists() and (folder / str(os.getpid())).exists():
        kill_once(folder / "second")
    (folder / str(os.getpid())).touch()
    return Deadly(folder)


@pytest.mark.filterwarnings("ignore:the run goes on")
@pytest.mark.parametrize("optimizer", ["sgd", gp.optim.SGD(lr=0.1)], ids=["torch", "sharded"])
def test_the_survivor_is_lost_too(tmp_path, optimizer):
    def trained(folder):
        folder.mkdir(exist_ok=True)
        est = line(optimizer=optimizer, config={"lr": 0.1, "folder": str(folder)})
        history = est.fit(data, epochs=2, batch_size=4)
        return est, history

    calm = tmp_path / "calm"
    calm.mkdir()
    for mark in ("first", "second"):
        (calm / mark).touch()
    wanted, _ = trained(calm)
    est, history = trained(tmp_path / "deadly")
    assert (tmp_path / "deadly" / "second").exists()
    assert len(history) == 2
    assert weight(est) == weight(wanted)
