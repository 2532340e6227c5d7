"""A DataFrame of Spark, trained on for one epoch with TorchDistributor, which hands each rank a partition.

The features are one column of arrays, made before: its loader takes rows one by one, and so has two values of
a row to look at in place of 36.
"""

import mlp
from outside import report
from spark_session import session, stop, table

OPTIONS = mlp.arguments("through")
SPARK = session()
FRAME = table(SPARK, OPTIONS.data, "arrays", OPTIONS.through)


def rank(rows):
    from pyspark.ml.torch.distributor import _get_spark_partition_data_loader

    return mlp.train(_get_spark_partition_data_loader(rows // mlp.WORKERS, mlp.BATCH // mlp.WORKERS, 1, 4))


def fit():
    from pyspark.ml.torch.distributor import TorchDistributor

    distributor = TorchDistributor(num_processes=mlp.WORKERS, local_mode=False, use_gpu=False)
    distributor._train_on_dataframe(rank, FRAME, OPTIONS.rows)


report(fit, OPTIONS.watch)
stop(SPARK)
