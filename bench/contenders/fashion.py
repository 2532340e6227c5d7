"""What bench/train.py trains: LeNet on Fashion-MNIST, the same rows for everybody, and the loop by hand."""

import argparse
import json
import time
from contextlib import nullcontext

import torch
from torch import nn
from torch.nn import functional

from by_hand import train_on
from idx import read_idx

BATCH = 64  # of one worker
SEED = 2017


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 4 * 4, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x):
        x = self.pool(functional.relu(self.conv1(x)))
        x = self.pool(functional.relu(self.conv2(x)))
        x = functional.relu(self.fc1(x.flatten(1)))
        return self.fc3(functional.relu(self.fc2(x)))


def optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)


def arguments(*positional):
    parser = argparse.ArgumentParser()
    for name in positional:
        parser.add_argument(name)
    parser.add_argument("--data", required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--procs", type=int, required=True)
    parser.add_argument("--epochs", type=int, required=True)
    return parser.parse_args()


def load(options):
    """Return images and labels; a process that trains has one thread from here on."""
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    images = torch.from_numpy(read_idx(options.data, "train-images-idx3-ubyte")[: options.rows].copy())
    labels = torch.from_numpy(read_idx(options.data, "train-labels-idx1-ubyte")[: options.rows].copy())
    return images.unsqueeze(1).float().div_(255).sub_(0.5).div_(0.5), labels.long()


def batches(images, labels, epoch, rank=0, world=1):
    """Yield a rank's share of one epoch, in an order that all ranks know."""
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(SEED + epoch))
    for chosen in order[rank::world].split(BATCH):
        yield images[chosen], labels[chosen]


def train(model, images, labels, epochs, rank=0, world=1, before_epoch=nullcontext):
    """Train as one does by hand; return rows, seconds and mean loss of each epoch."""
    rule, loss_of, done = optimizer(model), nn.CrossEntropyLoss(), []
    for epoch in range(epochs):
        before_epoch()
        began = time.perf_counter()
        rows, total = train_on(model, rule, loss_of, batches(images, labels, epoch, rank, world))
        done.append((rows, time.perf_counter() - began, total / rows))
    return done


def steady_rate(epochs):
    """Return rows a second without the first epoch, in which much happens once."""
    counted = epochs[1:] or epochs
    return sum(epoch[0] for epoch in counted) / sum(epoch[1] for epoch in counted)


def summed_rate(epochs):
    """Return the sum of all ranks' rates, each by its own clock."""
    rate = torch.tensor(steady_rate(epochs), dtype=torch.float64)
    torch.distributed.all_reduce(rate)
    return rate.item()


def report(rate, loss):
    print(json.dumps({"samples_per_second": rate, "loss": loss}), flush=True)
