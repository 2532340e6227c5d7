"""Train, lose a worker in the middle of an epoch, and go on to the very weights of a run without accidents.

First by itself, as a run does; then from a checkpoint, as if all had been lost.

Run it with `python examples/resume.py` where grampus is installed with torch and scikit-learn.
"""

import argparse
import os
import signal
import tempfile
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn

import grampus as gp

argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
digits = load_digits()
data = {"x": torch.tensor(digits.data / 16, dtype=torch.float32), "y": torch.tensor(digits.target)}


class Accident(gp.callbacks.Callback):
    """Kills the first worker, as a machine that runs out of memory would."""

    def on_step_end(self, run):
        if run.step == 45:
            os.kill(os.getpid(), signal.SIGKILL)


def make_model(config):
    hidden = config["hidden"]
    return nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Dropout(0.2), nn.Linear(hidden, 10))


def train(workers, **options):
    estimator = gp.Estimator.from_torch(
        model=make_model,
        optimizer="adam",
        loss=nn.CrossEntropyLoss(),
        config={"lr": 0.01, "hidden": 32},
        workers=workers,
        lanes=2,
        seed=7,
    )
    estimator.fit(data, epochs=3, batch_size=64, **options)  # 29 steps an epoch
    return estimator.digest()


with tempfile.TemporaryDirectory() as folder:
    gp.init(workers=2)
    whole = train(workers=2)
    print(f"without an accident:  {whole}")

    # A warning says that the run goes on, on another process and from the step that was done last.
    healed = train(workers=2, callbacks=[Accident()])
    print(f"with a lost worker:   {healed}")

    checkpoint = gp.Checkpoint(folder, every=gp.triggers.EverySteps(10), keep=2)
    try:
        train(workers=2, checkpoint=checkpoint, callbacks=[Accident()], max_failures=0)
    except gp.WorkerDied as error:
        print(f"an accident: {str(error).splitlines()[0]}")
    print(f"what is left: {', '.join(sorted(path.name for path in Path(folder).glob('step-*')))}")

    # On one worker this time: it drives both lanes.
    resumed = train(workers=1, checkpoint=checkpoint, resume=True)
    print(f"after the accident:   {resumed}")
    gp.stop()

assert whole == healed == resumed
print("the weights are equal to the last bit")
