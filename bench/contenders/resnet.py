"""ResNet-18 for pictures of 32 x 32, and CIFAR-10 as this benchmark reads it."""

import io
from pathlib import Path

import torch
from torch import nn

MEAN, STD = [0.4914, 0.4822, 0.4465], [0.247, 0.2435, 0.2616]


class Block(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, before, after, stride):
        super().__init__()
        self.way = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, 1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(),
            nn.Conv2d(after, after, 3, 1, 1, bias=False),
            nn.BatchNorm2d(after),
        )
        self.around = nn.Sequential()
        if stride != 1 or before != after:
            self.around = nn.Sequential(
                nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
            )

    def forward(self, x):
        return torch.relu(self.way(x) + self.around(x))


def resnet18(config=None):
    """The network, with the layout that convolutions of a GPU like."""
    del config
    widths = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1)]
    widths += [(128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1)]
    net = nn.Sequential(
        nn.Conv2d(3, 64, 3, 1, 1, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        *[Block(*each) for each in widths],
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(512, 10),
    )
    torch.backends.cudnn.benchmark = True
    return net.to(memory_format=torch.channels_last)


def sgd(net, config=None):
    """The rule of everybody."""
    del config
    return torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)


def files(folder):
    """The training files."""
    return sorted(str(path) for path in Path(folder).glob("train-*.parquet"))


def decoded(folder, times):
    """All pictures as normalised floats, and their labels, so many times over."""
    import numpy as np
    import pyarrow.parquet as parquet
    from PIL import Image

    tables = [parquet.read_table(path, columns=["image", "label"]) for path in files(folder)]
    pictures = [
        np.asarray(Image.open(io.BytesIO(each.as_py()))) for table in tables for each in table["image"]
    ]
    labels = np.concatenate([table["label"].to_numpy() for table in tables]).astype("int64")
    floats = torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).float() / 255
    mean, std = torch.tensor(MEAN).view(3, 1, 1), torch.tensor(STD).view(3, 1, 1)
    floats = (floats - mean) / std
    return floats.repeat(times, 1, 1, 1), torch.from_numpy(labels).repeat(times)
