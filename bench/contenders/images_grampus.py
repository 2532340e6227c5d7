"""JPEG in Parquet to shuffled, normalised batches with Grampus."""

import torch  # noqa: F401 - everybody's imports are done before the clock starts

import grampus as gp
from grampus.images import Normalize
from measured import arguments, report

OPTIONS = arguments()
MEAN, STD = [0.4914, 0.4822, 0.4465], [0.247, 0.2435, 0.2616]


def read():
    pictures = gp.read_images(OPTIONS.path, image_col="image", label_col="label")
    batches = pictures.to_torch(
        OPTIONS.batch, shuffle=True, seed=1, threads=max(OPTIONS.procs, 1), images=[Normalize(MEAN, STD)]
    )
    return sum(len(labels) for _, labels in batches)


report(read)
