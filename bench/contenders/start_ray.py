"""From a Ray that runs to the first step of two workers, with `grampus` or with Ray `train`."""

import os
import sys
import tempfile
import time
from pathlib import Path

import ray
from torch import nn

import mlp
from outside import say
from ray_session import session


def grampus(path):
    return mlp.first_step_of_grampus("ray", path)


def loop(config):
    from ray.train.torch import prepare_model

    model = prepare_model(mlp.network())
    inputs, targets = mlp.few_rows()
    nn.CrossEntropyLoss()(model(inputs), targets).backward()
    mlp.Stamped(model.parameters(), config["path"]).step()


def train(path):
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    began = time.time()
    TorchTrainer(
        loop,
        train_loop_config={"path": path},
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(num_workers=mlp.WORKERS, use_gpu=False),
        run_config=RunConfig(storage_path=os.environ["RAY_TMPDIR"]),
    ).fit()
    return began


def main():
    session()
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "stepped")
        began = {"grampus": grampus, "train": train}[sys.argv[1]](path)
        ended = time.time()
        say(seconds=float(Path(path).read_text()) - began, returned=ended - began)
    ray.shutdown()


if __name__ == "__main__":
    main()
