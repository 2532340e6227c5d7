"""A DataFrame of Spark that Petastorm writes and reads again, trained on for one epoch with DDP."""

import tempfile
from itertools import islice

import mlp
from outside import report
from spark_session import session, stop, table

OPTIONS = mlp.arguments("through")
CACHE = tempfile.TemporaryDirectory()
SPARK = session(**{"petastorm.spark.converter.parentCacheDirUrl": f"file://{CACHE.name}"})
FRAME = table(SPARK, OPTIONS.data, "arrays", OPTIONS.through)


def rank(converter, steps):
    import os

    from petastorm.pytorch import BatchedDataLoader

    place = {"cur_shard": int(os.environ["RANK"]), "shard_count": mlp.WORKERS}
    # As its documentation says: batches in place of rows, and equally many steps, whatever the shards hold.
    with converter.make_torch_dataloader(
        batch_size=mlp.BATCH // mlp.WORKERS,
        num_epochs=None,
        workers_count=2,
        data_loader_fn=BatchedDataLoader,
        **place,
    ) as loader:
        batches = ((batch["features"], batch["label"]) for batch in loader)
        return mlp.train(islice(batches, steps))


def fit():
    from petastorm.spark import make_spark_converter
    from pyspark.ml.torch.distributor import TorchDistributor

    converter = make_spark_converter(FRAME)
    distributor = TorchDistributor(num_processes=mlp.WORKERS, local_mode=False, use_gpu=False)
    distributor.run(rank, converter, -(-OPTIONS.rows // mlp.BATCH))


report(fit, OPTIONS.watch)
stop(SPARK)
CACHE.cleanup()
