"""Train a small network on Fashion-MNIST, on two workers.

Run it with `make demo`, or with `python examples/fashion_mnist.py` where grampus is installed with torch and
matplotlib. Network, optimizer and the batch of 4 are those of a BigDL tutorial; with its learning rate, two
epochs of such small steps, 30,000 in all, get about 87 % of the test pictures right. `make demo` takes eight
times the batch and eight times the learning rate, which leads the same way in an eighth of the steps.
"""

import argparse
import gzip
import http.client
import time
import urllib.request
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - as everybody calls it
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import grampus as gp

DEBIAN = Path("/usr/share/datasets/fashion-mnist")  # apt-get install dataset-fashion-mnist
DOWNLOADED = Path("data/fashion-mnist")
# What every gzip file begins with.
GZIP = b"\x1f\x8b"
SOURCE = "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion"
# Far fewer pictures have to be seen more often: after 15 epochs about 98 % of the test digits are right.
DIGITS_TIMES = 5
FILES = [f"{part}-{what}-ubyte.gz" for part in ("train", "t10k") for what in ("images-idx3", "labels-idx1")]


class Net(nn.Module):
    """The tutorial's network."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 4 * 4, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x):
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        x = x.view(-1, 16 * 4 * 4)
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.fc3(x)


class NoisyNet(Net):
    """The same with batch norm and dropout, whose weights are also equal at any number of workers."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Sequential(self.conv1, nn.BatchNorm2d(6))
        self.conv2 = nn.Sequential(self.conv2, nn.BatchNorm2d(16))
        self.fc1 = nn.Sequential(nn.Dropout(0.2), self.fc1)


NETS = {"plain": Net, "noisy": NoisyNet}


def model_creator(config):
    return NETS[config["net"]]()


def optimizer_creator(model, config):
    return torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=config["momentum"])


def train_data_creator(config, batch_size):
    return DataLoader(read(config, "train"), batch_size=batch_size, shuffle=True)


def test_data_creator(config):
    return DataLoader(read(config, "t10k"), batch_size=1000)


def read(config, part):
    """The pictures and labels of a part, as a data set."""
    if config["folder"] is None:
        images, labels = read_digits(part)
    else:
        images = read_idx(Path(config["folder"]) / f"{part}-images-idx3-ubyte.gz")
        labels = read_idx(Path(config["folder"]) / f"{part}-labels-idx1-ubyte.gz")
    images, labels = images[: config["rows"]], labels[: config["rows"]]
    pixels = torch.tensor(images, dtype=torch.float32).unsqueeze(1) / 127.5 - 1
    return TensorDataset(pixels, torch.tensor(labels, dtype=torch.int64))


def read_idx(path):
    """An array from a file of MNIST's kind: two zeros, type, number of axes, their lengths, the bytes."""
    with gzip.open(path) as file:
        content = file.read()
    if content[:3] != b"\0\0\x08":
        raise ValueError(f"{path} is no IDX file of bytes")
    axes = content[3]
    shape = np.frombuffer(content, ">u4", axes, 4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape)


def read_digits(part):
    """Scikit-learn's digits, made as large as the pictures of Fashion-MNIST; every fifth is for the test."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    large = F.interpolate(torch.tensor(digits.images / 16 * 255).unsqueeze(1), (28, 28), mode="bilinear")
    test = np.arange(len(digits.target)) % 5 == 0
    chosen = test if part == "t10k" else ~test
    return large.squeeze(1).numpy()[chosen], digits.target[chosen]


def find_data(asked):
    """The folder with the files of Fashion-MNIST, or `None` where it cannot be had."""
    for folder in [Path(asked)] if asked else [DEBIAN, DOWNLOADED]:
        if all((folder / name).exists() for name in FILES):
            return str(folder)
    if asked:
        raise SystemExit(f"{asked} does not hold Fashion-MNIST: it needs {', '.join(FILES)}")
    try:
        for name in FILES:
            download(name)
    except (OSError, http.client.HTTPException) as error:
        print(f"Fashion-MNIST is not here and cannot be downloaded ({error}).")
        print(f"Scikit-learn's 1,797 digits take its place, for {DIGITS_TIMES} times as many epochs.")
        return None
    return str(DOWNLOADED)


def download(name):
    with urllib.request.urlopen(f"{SOURCE}/{name}", timeout=5) as answer:
        content = answer.read()
    # Some networks answer every address with a page of their own.
    if not content.startswith(GZIP):
        raise OSError(f"{SOURCE}/{name} is not a gzip file")
    DOWNLOADED.mkdir(parents=True, exist_ok=True)
    unfinished = DOWNLOADED / f"{name}.part"
    unfinished.write_bytes(content)
    unfinished.rename(DOWNLOADED / name)


def arguments():
    parser = argparse.ArgumentParser(description="Train on Fashion-MNIST, on several workers.")
    parser.add_argument("--data", metavar="DIR", help="folder with the four files of Fashion-MNIST")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cluster", choices=["local", "spark", "ray"], default="local")
    parser.add_argument("--master", help="of Spark or Ray, such as spark://host:7077 or host:6379")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=4, help="over all workers together")
    parser.add_argument("--lr", type=float, default=0.001, help="learning rate")
    parser.add_argument("--lanes", type=int, help="parts of a batch; by default the number of workers")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--net", choices=NETS, default="plain", help="noisy: with dropout and batch norm")
    parser.add_argument("--rows", type=int, help="take only the first rows of the data")
    parser.add_argument(
        "--out", metavar="DIR", default="grampus_runs/fashion_mnist", help="folder of the run"
    )
    return parser.parse_args()


def main():
    args = arguments()
    began = time.perf_counter()
    gp.init(args.workers, args.cluster, master=args.master)
    folder = find_data(args.data)
    settings = {"lr": args.lr, "momentum": 0.9, "net": args.net, "rows": args.rows}
    estimator = gp.Estimator.from_torch(
        model=model_creator,
        optimizer=optimizer_creator,
        loss=nn.CrossEntropyLoss(),
        metrics=[gp.metrics.Accuracy()],
        config={**settings, "folder": folder},
        model_dir=args.out,
        seed=args.seed,
        lanes=args.lanes,
    )
    history = estimator.fit(
        train_data_creator,
        epochs=args.epochs if folder else args.epochs * DIGITS_TIMES,
        batch_size=args.batch_size,
        validation_data=test_data_creator,
    )
    found = estimator.evaluate(test_data_creator, batch_size=None)
    gp.stop()
    print(history)
    for rank, worker in enumerate(history.workers):
        print(f"rank {rank}: process {worker['pid']} trained {worker['rows']:,} rows")
    curves = Path(args.out) / "curves.png"
    history.plot(curves)
    print(f"curves: {curves}")
    print(f"accuracy: {found['accuracy']:.2%} of {found['num_samples']:,} test pictures")
    print(f"weights: {estimator.digest()}")
    print(f"{time.perf_counter() - began:.0f} s in all")


if __name__ == "__main__":
    main()
