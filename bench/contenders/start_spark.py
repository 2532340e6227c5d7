"""From a session of Spark to the first step of two workers, and once more in the same session.

With `grampus` or with `distributor`.
"""

import sys
import tempfile
import time
from pathlib import Path

import mlp
from outside import say
from spark_session import session, stop


def grampus(path):
    return mlp.first_step_of_grampus("spark", path)


def distributor(path):
    from pyspark.ml.torch.distributor import TorchDistributor

    began = time.time()
    TorchDistributor(num_processes=mlp.WORKERS, local_mode=False, use_gpu=False).run(mlp.one_step, path)
    return began


def main():
    spark = session("local-cluster[2,1,1024]", **{"spark.scheduler.minRegisteredResourcesRatio": "1.0"})
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "stepped")
        run = {"grampus": grampus, "distributor": distributor}[sys.argv[1]]
        began = run(path)
        ended, stepped = time.time(), float(Path(path).read_text())
        again = run(path)
        say(
            seconds=stepped - began,
            returned=ended - began,
            again=float(Path(path).read_text()) - again,
        )
    stop(spark)


if __name__ == "__main__":
    main()
