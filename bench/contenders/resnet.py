"""ResNet-18 for pictures of 32 x 32, and CIFAR-10 as this benchmark reads it."""

import sys
from pathlib import Path

import torch

import grampus as gp

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples"))
from cifar10 import MEAN, STD, model_creator


def resnet18(config):
    """The network of the example; cuDNN tries what is fastest, as everybody lets it."""
    torch.backends.cudnn.benchmark = True
    return model_creator(config)


def sgd(net, config=None):
    """The rule of everybody."""
    del config
    return torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)


def files(folder):
    """The training files."""
    return sorted(str(path) for path in Path(folder).glob("train*.parquet"))


def decoded(folder, times):
    """All pictures as normalised floats, and their labels, so many times over."""
    pictures = gp.read_images(files(folder), image_col="image", label_col="label")
    batches = list(pictures.to_torch(1000, shuffle=False, images=[gp.images.Normalize(MEAN, STD)]))
    images = torch.cat([images for images, _ in batches])
    labels = torch.cat([labels for _, labels in batches]).long()
    return images.repeat(times, 1, 1, 1), labels.repeat(times)
