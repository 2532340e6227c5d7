"""Workers that are slower than the others: named, relieved or replaced; the weights stay the same."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from clusters import one_cluster, scratch  # noqa: F401 - a fixture
from torch import nn

import grampus as gp

runtime = one_cluster(workers=2)
# Enough steps of some milliseconds for a slow worker to be noticed, and for some to come after.
ROWS = 640


class Net(nn.Module):
    """All that depends on lanes, and a worker that is slow with each of them if it is the one."""

    def __init__(self, slow=None, seconds=0.03):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 1))
        self.slow, self.seconds = slow, seconds

    def forward(self, x):
        if self.slow == os.getpid():
            time.sleep(self.seconds)
        return self.layers(x)


class Tells(gp.callbacks.Logger):
    """Keeps what is told of slow workers."""

    def __init__(self):
        self.slow = []

    def event(self, event):
        if event["kind"] == "slow":
            self.slow.append(event)


def trained(slow=None, lanes=4, steps=120, workers=None, **settings):
    est = gp.Estimator.from_torch(
        model=lambda config: Net(slow),
        optimizer=lambda model, config: torch.optim.AdamW(model.parameters(), lr=0.01),
        loss=nn.MSELoss(),
        seed=7,
        lanes=lanes,
        workers=workers,
    )
    x = torch.randn(ROWS, 3, generator=torch.Generator().manual_seed(0))
    tells = Tells()
    history = est.fit(
        {"x": x, "y": x.sum(1, keepdim=True)},
        epochs=9,
        batch_size=8,
        max_steps=steps,
        callbacks=[tells],
        **settings,
    )
    return est.digest(), tells.slow, history


@pytest.fixture(scope="module")
def undisturbed(runtime, tmp_path_factory):
    before = Path.cwd()
    os.chdir(tmp_path_factory.mktemp("run"))
    digest, slow, _ = trained()
    os.chdir(before)
    # Nobody is slow: nobody is named.
    assert not slow
    return digest


def test_a_slow_worker_is_named_once():
    pid = gp.run(os.getpid)[1]
    text = (
        rf"rank 1 on \S+ \(pid {pid}\) takes \d+\.\d times as long as the others, most of it in forward; all"
    )
    with pytest.warns(RuntimeWarning, match=text) as warned:
        _, slow, _ = trained(pid, lanes=2)
    assert len([each for each in warned if re.match("rank 1", str(each.message))]) == 1
    assert [(each["rank"], each["pid"], each["phase"]) for each in slow] == [(1, pid, "forward")]
    assert slow[0]["factor"] > 3
    assert slow[0]["host"]


@pytest.mark.filterwarnings("ignore:the run goes on")
def test_a_slow_worker_gives_lanes_away(undisturbed):
    pids = gp.run(os.getpid)
    with pytest.warns(RuntimeWarning, match="some of its 2 lanes go to others"):
        digest, _, history = trained(pids[0], slow_worker="shed", audit=True)
    assert digest == undisturbed
    assert gp.run(os.getpid) == pids
    rows = {worker["pid"]: worker["rows"] for worker in history.workers}
    # Since it regrouped, one lane in four.
    assert rows[pids[0]] < rows[pids[1]]
    # Each row once an epoch, though lanes went from one worker to another.
    (run,) = Path("grampus_runs").iterdir()
    found = subprocess.run(
        [sys.executable, "-m", "grampus", "audit", str(run)], capture_output=True, text=True
    )
    assert found.returncode == 0, found.stdout
    assert "in 2 attempts" in found.stdout


@pytest.mark.filterwarnings("ignore:the run goes on")
def test_a_slow_worker_is_replaced(undisturbed):
    pids = gp.run(os.getpid)
    with pytest.warns(RuntimeWarning, match="another takes its place"):
        # A preemption is no failure; as many are allowed.
        digest, slow, _ = trained(pids[0], slow_worker="evict", max_failures=1)
    assert digest == undisturbed
    assert len(slow) == 1
    after = gp.run(os.getpid)
    assert pids[0] not in after
    assert pids[1] in after
    assert not Path(f"/proc/{pids[0]}").exists()


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"slow_worker": "evict", "workers": 1}, "slow_worker='evict' has no effect: .* this run has one"),
        ({"slow_worker": "shed", "workers": 1}, "slow_worker='shed' has no effect: .* this run has one"),
        ({"slow_worker": "shed", "lanes": 2}, "slow_worker='shed' has no effect: .* pass more lanes="),
    ],
)
def test_a_policy_without_effect_is_warned_about(settings, text):
    with pytest.warns(RuntimeWarning, match=text):
        trained(steps=2, **settings)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "settings",
    [{"slow_worker": "warn", "workers": 1}, {"slow_worker": "evict", "lanes": 2}, {"slow_worker": "shed"}],
)
def test_a_policy_with_effect_is_not_warned_about(settings):
    trained(steps=2, **settings)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"slow_worker": "fire"}, "slow_worker must be 'warn', 'shed' or 'evict', it is 'fire'"),
        ({"slow_worker": None}, "slow_worker must be"),
    ],
)
def test_a_policy_that_is_none_is_refused(settings, text):
    with pytest.raises(ValueError, match=text):
        trained(**settings)
