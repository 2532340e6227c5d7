"""Models of Grampus's own engine, ready to train with `gp.Estimator.from_native`.

>>> import grampus as gp
>>> print(gp.models.mlp(784, 512, 256, 10).summary([784]).splitlines()[-1].strip())
535,818
"""

from __future__ import annotations

import itertools

from grampus import nn
from grampus._arguments import suggest

__all__ = ["lenet", "mlp", "resnet18", "text_classifier"]


def lenet(classes: int = 10) -> nn.Sequential:
    """LeNet-5 for pictures of `1 x 28 x 28`."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(256, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, classes),
    )


def mlp(*sizes: int, dropout: float = 0.0) -> nn.Sequential:
    """Linear layers of these sizes, from what comes in to what goes out, with ReLU between them."""
    if len(sizes) < 2:
        raise ValueError(f"mlp needs at least two sizes, what comes in and what goes out, not {list(sizes)}")
    model = nn.Sequential()
    for number, (before, size) in enumerate(itertools.pairwise(sizes)):
        if number:
            model.add(nn.ReLU())
            if dropout:
                model.add(nn.Dropout(dropout))
        model.add(nn.Linear(before, size))
    return model


def resnet18(classes: int = 10) -> nn.Model:
    """ResNet-18 for pictures of `3 x 32 x 32`: its first convolution is 3 x 3, and no pool follows it."""
    x = nn.Input()
    last = nn.Conv2d(3, 64, 3, padding=1, bias=False)(x, name="conv1")
    last = nn.ReLU()(nn.BatchNorm2d(64)(last, name="bn1"))
    before = 64
    for number, size in enumerate((64, 128, 256, 512), 1):
        for place in range(2):
            stride = 2 if place == 0 and number > 1 else 1
            last = _block(f"layer{number}.{place}", last, before, size, stride)
            before = size
    return nn.Model(x, nn.Linear(512, classes)(nn.GlobalAvgPool()(last), name="fc"))


def _block(name: str, x: nn.Node, before: int, size: int, stride: int) -> nn.Node:
    """Two convolutions beside a way round them; names are torchvision's."""
    inner = nn.Conv2d(before, size, 3, stride, 1, bias=False)(x, name=f"{name}.conv1")
    inner = nn.ReLU()(nn.BatchNorm2d(size)(inner, name=f"{name}.bn1"))
    inner = nn.Conv2d(size, size, 3, 1, 1, bias=False)(inner, name=f"{name}.conv2")
    inner = nn.BatchNorm2d(size)(inner, name=f"{name}.bn2")
    if stride != 1 or before != size:
        x = nn.Conv2d(before, size, 1, stride, bias=False)(x, name=f"{name}.downsample.0")
        x = nn.BatchNorm2d(size)(x, name=f"{name}.downsample.1")
    return nn.ReLU()(nn.Add()(inner, x))


def text_classifier(words: int, classes: int, size: int = 64, hidden: int = 128) -> nn.Sequential:
    """A vector for each word, a memory along them, and a score for each class."""
    return nn.Sequential(
        nn.Embedding(words, size, padding_idx=0), nn.LSTM(size, hidden), nn.Linear(hidden, classes)
    )


suggest(globals())
