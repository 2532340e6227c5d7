"""TorchDistributor in Spark's local mode, which starts the ranks of torchrun's contender."""

import sys
from pathlib import Path

from pyspark.ml.torch.distributor import TorchDistributor
from pyspark.sql import SparkSession

import fashion


def main():
    options = fashion.arguments()
    spark = (
        SparkSession.builder.master(f"local[{options.procs}]")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    distributor = TorchDistributor(num_processes=options.procs, local_mode=True, use_gpu=False)
    distributor.run(str(Path(__file__).with_name("train_rank.py")), "ddp", *sys.argv[1:])
    spark.stop()


if __name__ == "__main__":
    main()
