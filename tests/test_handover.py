"""A second worker is lost before the run has taken its first step again: nothing of the run is."""

import os
import signal
from pathlib import Path

import pytest
import torch
from clusters import one_cluster, scratch  # noqa: F401 - a fixture
from small_models import line, weight

import grampus as gp

runtime = one_cluster(workers=2, heartbeat_timeout=10, start_timeout=200)


def kill_once(mark, where=""):
    """Kill this process, if none has been killed for the same reason."""
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return
    mark.write_text(where)
    os.kill(os.getpid(), signal.SIGKILL)


class Deadly(torch.utils.data.Dataset):
    """Kills a worker in the midst of the first epoch, or as it reads its first row."""

    def __init__(self, folder, at_once):
        self.folder, self.at_once = folder, at_once

    def __len__(self):
        return 64

    def __getitem__(self, row):
        if self.at_once:
            kill_once(self.folder / "second", "read")
        if row == 40:
            kill_once(self.folder / "first")
        return torch.ones(1), 3 * torch.ones(1)


def data(config):
    """Is made after the state was handed over: the survivor is killed here, or when it reads a row of it."""
    folder = Path(config["folder"])
    survives = (folder / "first").exists() and (folder / str(os.getpid())).exists()
    if survives and config["moment"] == "made":
        kill_once(folder / "second", "made")
    (folder / str(os.getpid())).touch()
    return Deadly(folder, survives and config["moment"] == "read")


@pytest.mark.filterwarnings("ignore:the run goes on")
@pytest.mark.parametrize("moment", ["made", "read"])
@pytest.mark.parametrize("optimizer", ["sgd", gp.optim.SGD(lr=0.1)], ids=["torch", "sharded"])
def test_the_survivor_is_lost_too(tmp_path, optimizer, moment):
    def trained(folder):
        folder.mkdir(exist_ok=True)
        est = line(optimizer=optimizer, config={"lr": 0.1, "folder": str(folder), "moment": moment})
        history = est.fit(data, epochs=2, batch_size=4)
        return est, history

    calm = tmp_path / "calm"
    calm.mkdir()
    for mark in ("first", "second"):
        (calm / mark).touch()
    wanted, _ = trained(calm)
    est, history = trained(tmp_path / "deadly")
    assert (tmp_path / "deadly" / "second").read_text() == moment
    assert len(history) == 2
    assert weight(est) == weight(wanted)
