"""Predictions of a Dataset of Ray, with `grampus` or with map_batches: a `function`, or a `pool` of actors.

First once, with all that Ray's workers import, then again with workers that are there.
"""

import sys
import time

import numpy as np
import ray
import torch
from torch import nn

import mlp
from outside import say
from ray_session import session

TIMES = 3


def answers(model, batch):
    with torch.inference_mode():
        # As Ray's documentation has it: batches of numpy, and the answer as one more column.
        rows = torch.from_numpy(np.stack([batch[name] for name in mlp.FEATURES], axis=1, dtype=np.float32))
        return {**batch, "prediction": model(rows).numpy()}


class Answering:
    def __init__(self, weights):
        self.model = mlp.network().eval()
        self.model.load_state_dict(weights)

    def __call__(self, batch):
        return answers(self.model, batch)


def grampus(dataset):
    import grampus as gp

    gp.init(mlp.WORKERS, "ray")
    estimator = gp.Estimator.from_torch(
        model=mlp.network(), optimizer="sgd", loss=nn.CrossEntropyLoss(), threads_per_lane=1
    )
    return estimator.predict(dataset, feature_cols=[mlp.FEATURES])


def pool(dataset):
    weights = mlp.network().state_dict()
    return dataset.map_batches(
        Answering, fn_constructor_args=(weights,), concurrency=mlp.WORKERS, batch_size=8192
    )


def function(dataset):
    model = mlp.network().eval()

    def answer(batch):
        torch.set_num_threads(1)
        return answers(model, batch)

    return dataset.map_batches(answer, batch_size=8192)


def main():
    way, data = sys.argv[1:]
    session()
    ray.data.DataContext.get_current().enable_progress_bars = False
    dataset = ray.data.read_parquet(f"{data}/columns").materialize()
    seconds = []
    for _ in range(1 + TIMES):
        began = time.perf_counter()
        made = {"grampus": grampus, "pool": pool, "function": function}[way](dataset).materialize()
        seconds.append(time.perf_counter() - began)
        del made
    say(first=seconds[0], seconds=sorted(seconds[1:])[TIMES // 2], blocks=dataset.num_blocks())
    ray.shutdown()


if __name__ == "__main__":
    main()
