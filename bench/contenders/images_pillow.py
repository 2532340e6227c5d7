"""JPEG in Parquet to shuffled, normalised batches: a DataLoader whose data set decodes with Pillow."""

import io
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from measured import arguments, report

OPTIONS = arguments()
MEAN = torch.tensor([0.4914, 0.4822, 0.4465]).view(3, 1, 1)
STD = torch.tensor([0.247, 0.2435, 0.2616]).view(3, 1, 1)


class Pictures(Dataset):
    def __init__(self, table):
        self.images = table["image"].to_pylist()
        self.labels = table["label"].to_pylist()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, row):
        picture = np.asarray(Image.open(io.BytesIO(self.images[row])).convert("RGB"))
        pixels = torch.from_numpy(picture.copy()).permute(2, 0, 1).contiguous().float().div_(255)
        return pixels.sub_(MEAN).div_(STD), self.labels[row]


def read():
    torch.set_num_threads(1)
    path = Path(OPTIONS.path)
    files = sorted(path.parent.glob(path.name))
    pictures = Pictures(pq.read_table(files, columns=["image", "label"]))
    loader = DataLoader(pictures, batch_size=OPTIONS.batch, shuffle=True, num_workers=OPTIONS.procs)
    return sum(len(labels) for _, labels in loader)


report(read)
