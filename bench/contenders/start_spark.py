"""From a session of Spark to the first step of two workers, with `grampus` or with `distributor`."""

import sys
import tempfile
import time
from pathlib import Path

from torch import nn

import mlp
from outside import say
from spark_session import session, stop


def grampus(path):
    import grampus as gp

    began = time.time()
    gp.init(mlp.WORKERS, "spark")
    estimator = gp.Estimator.from_torch(
        model=lambda _: mlp.network(),
        optimizer=lambda model, _: mlp.Stamped(model.parameters(), path),
        loss=nn.CrossEntropyLoss(),
        threads_per_lane=1,
    )
    inputs, targets = mlp.few_rows()
    estimator.fit({"x": inputs, "y": targets}, batch_size=len(targets))
    return began


def distributor(path):
    from pyspark.ml.torch.distributor import TorchDistributor

    began = time.time()
    TorchDistributor(num_processes=mlp.WORKERS, local_mode=False, use_gpu=False).run(mlp.one_step, path)
    return began


def main():
    spark = session("local-cluster[2,1,1024]", **{"spark.scheduler.minRegisteredResourcesRatio": "1.0"})
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "stepped")
        began = {"grampus": grampus, "distributor": distributor}[sys.argv[1]](path)
        ended = time.time()
        say(seconds=float(Path(path).read_text()) - began, returned=ended - began)
    stop(spark)


if __name__ == "__main__":
    main()
