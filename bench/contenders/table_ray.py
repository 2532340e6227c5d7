"""A table to shuffled batches with Ray Data."""

import ray
import torch

from measured import arguments, report

OPTIONS = arguments()


def read():
    dataset = ray.data.read_parquet(OPTIONS.path)
    columns = [name for name in dataset.schema().names if name != "label"]
    rows = 0
    batches = dataset.iter_torch_batches(
        batch_size=OPTIONS.batch, local_shuffle_buffer_size=100_000, local_shuffle_seed=1
    )
    for batch in batches:
        features = torch.stack([batch[name].float() for name in columns], dim=1)
        rows += len(features)
    return rows


ray.init(num_cpus=2, log_to_driver=False)
report(read)
ray.shutdown()
