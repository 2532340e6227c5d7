"""Steps that never end: who is to blame is said, with the stacks of all, and nothing is left behind."""

import ctypes
import os
import signal
import time
from pathlib import Path

import pytest
import torch
from clusters import one_cluster, scratch  # noqa: F401 - a fixture
from torch import nn

import grampus as gp

runtime = one_cluster(workers=2)


class Rows(torch.utils.data.Dataset):
    """Rows, of which one may take for ever."""

    def __init__(self, stuck=None):
        self.stuck = stuck

    def __len__(self):
        return 64

    def __getitem__(self, row):
        if row == self.stuck:
            time.sleep(600)
        return torch.full((1,), float(row)), torch.zeros(1)


class Net(nn.Linear):
    """A model that may hang, in Python or in C that holds the interpreter lock."""

    def __init__(self, hang=None):
        super().__init__(1, 1)
        self.hang = hang

    def forward(self, x):
        if (x == 40.0).any():
            if self.hang == "python":
                time.sleep(600)
            if self.hang == "c":
                ctypes.PyDLL(None).sleep(600)
        return super().forward(x / 64)


def fit(hang=None, stuck=None, **settings):
    est = gp.Estimator.from_torch(
        model=Net(hang),
        optimizer=lambda model, config: torch.optim.SGD(model.parameters(), lr=0.01),
        loss=nn.MSELoss(),
        seed=3,
        model_dir="run",
    )
    loader = torch.utils.data.DataLoader(Rows(stuck), batch_size=16)
    return est.fit(loader, batch_size=16, step_timeout=1.5, **settings)


# Rows 32 to 47 are those of the third step; the second worker has the last eight of them.
FRAMES = {"data": r"test_hangs.py:\d+ in __getitem__", "forward": r"test_hangs.py:\d+ in forward"}


@pytest.mark.parametrize(
    ("phase", "how"), [("data", {"stuck": 41}), ("forward", {"hang": "python"}), ("forward", {"hang": "c"})]
)
def test_the_worker_that_hangs_is_named(phase, how):
    began = time.monotonic()
    with pytest.raises(gp.errors.StepTimeout) as caught:
        fit(**how)
    assert isinstance(caught.value, TimeoutError)
    caught.match(
        rf"no step was finished for \d\.\d s: rank 1 on \S+ \(pid \d+\) has been in {phase} for \d\.\d s "
        rf"at epoch 1, step 3, row 32 \({FRAMES[phase]}\); rank 0 waits for it\. stacks of all ranks: "
        r"\S+/run/hang\.txt; raise step_timeout"
    )
    # The deadline, an answer, and the time to end what does not listen.
    assert time.monotonic() - began < 8
    report = Path("run/hang.txt").read_text()
    assert "rank 0 on" in report
    assert "has been in sync, waiting in all_reduce for others" in report
    assert report.count("most recent call first") >= 2
    # Before forward, workers agree on what the batch weighs; after it, they sum gradients.
    assert {"data": "in agree", "forward": "in finish"}[phase] in report
    # The workers, or others in their place, go on.
    assert len(gp.run(os.getpid)) == 2


class Judge(nn.MSELoss):
    """Takes its time where the model is only measured."""

    def forward(self, output, target):
        if not output.requires_grad:
            time.sleep(0.3)
        return super().forward(output, target)


def test_validation_that_goes_on_is_no_hang():
    est = gp.Estimator.from_torch(
        model=Net(), optimizer=lambda m, c: torch.optim.SGD(m.parameters(), lr=0.01), loss=Judge(), seed=3
    )
    # Eight batches a worker, of 0.3 s each.
    history = est.fit(Rows(), batch_size=8, validation_data=Rows(), step_timeout=1.0)
    assert history["val_num_samples"] == [64]


def test_all_ranks_may_wait_for_each_other():
    class Waits(gp.callbacks.Callback):
        def on_step_end(self, run):
            if run.step == 2:
                gp.collective.world().recv(torch.zeros(1), 1)

    text = (
        r"all ranks wait in collective calls; rank 0 on .* in callbacks, waiting in send or recv for others"
    )
    with pytest.raises(gp.errors.StepTimeout, match=text):
        fit(callbacks=[Waits()])


@pytest.mark.parametrize("wrong", [0, -1, True, "soon", None, float("nan")])
def test_what_is_no_time_is_refused(wrong):
    est = gp.Estimator.from_torch(model=Net(), optimizer="sgd", loss=nn.MSELoss(), config={"lr": 0.1})
    with pytest.raises((TypeError, ValueError), match="step_timeout must be"):
        est.fit(Rows(), step_timeout=wrong)


# The last one: its workers have lost the signal.
def test_a_signal_that_is_taken_leaves_no_stacks():
    from grampus._stacks import SIGNAL

    class Takes(Net):
        def forward(self, x):
            signal.signal(SIGNAL, signal.SIG_DFL)
            return super().forward(x)

    est = gp.Estimator.from_torch(
        model=Takes("python"),
        optimizer=lambda m, c: torch.optim.SGD(m.parameters(), lr=0.01),
        loss=nn.MSELoss(),
        model_dir="run",
    )
    with pytest.raises(gp.errors.StepTimeout, match="rank 1"):
        est.fit(Rows(), batch_size=16, step_timeout=1.0)
    assert "no stacks: its signal is taken by other code" in Path("run/hang.txt").read_text()
