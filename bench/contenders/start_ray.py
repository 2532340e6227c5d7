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
    import grampus as gp

    began = time.time()
    gp.init(mlp.WORKERS, "ray")
    estimator = gp.Estimator.from_torch(
        model=lambda _: mlp.network(),
        optimizer=lambda model, _: mlp.Stamped(model.parameters(), path),
        loss=nn.CrossEntropyLoss(),
        threads_per_lane=1,
    )
    inputs, targets = mlp.few_rows()
    estimator.fit({"x": inputs, "y": targets}, batch_size=len(targets))
    return began


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
