"""The same with torchvision's own decoder, which is C from end to end."""

from pathlib import Path

import pyarrow.parquet as pq
import torch
from torch.utils.data import DataLoader, Dataset
from torchvision.io import ImageReadMode, decode_jpeg
from torchvision.transforms.v2.functional import normalize

from measured import arguments, report

OPTIONS = arguments()
MEAN, STD = [0.4914, 0.4822, 0.4465], [0.247, 0.2435, 0.2616]


class Pictures(Dataset):
    def __init__(self, table):
        self.images = [
            torch.frombuffer(bytearray(each), dtype=torch.uint8) for each in table["image"].to_pylist()
        ]
        self.labels = torch.tensor(table["label"].to_pylist())

    def __len__(self):
        return len(self.labels)

    def __getitems__(self, rows):
        pictures = torch.stack(decode_jpeg([self.images[row] for row in rows], mode=ImageReadMode.RGB))
        return normalize(pictures.float().div_(255), MEAN, STD), self.labels[rows]


def read():
    torch.set_num_threads(1)
    path = Path(OPTIONS.path)
    files = sorted(path.parent.glob(path.name))
    pictures = Pictures(pq.read_table(files, columns=["image", "label"]))
    loader = DataLoader(
        pictures,
        batch_size=OPTIONS.batch,
        shuffle=True,
        num_workers=OPTIONS.procs,
        collate_fn=lambda batch: batch,
    )
    return sum(len(labels) for _, labels in loader)


report(read)
