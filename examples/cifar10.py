"""Train ResNet-18 on CIFAR-10: JPEG in Parquet, decoded and augmented in Rust, on all workers.

    python examples/cifar10.py --data FOLDER

FOLDER holds `train*.parquet` and `test*.parquet` with a column `image` (bytes of JPEG or PNG files) and a
column `label`; Hugging Face's copy of CIFAR-10 has that form (`--image-column img.bytes`). On a worker with a
GPU the same program trains there: pass `--precision bf16`. Without `--data` it draws small pictures itself,
to show how it goes. One sees a line for each epoch, and how many of the test pictures it gets right.
"""

import argparse
import io
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn

import grampus as gp

CLASSES = 10
MEAN, STD = [0.4914, 0.4822, 0.4465], [0.247, 0.2435, 0.2616]


class Block(nn.Module):
    """Two convolutions, and a way around them."""

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


def model_creator(config):
    """ResNet-18 for pictures of 32 x 32; `width` is 64 in the paper."""
    width, blocks, before = config["width"], [], config["width"]
    for stage in range(4):
        for stride in (1 if stage == 0 else 2, 1):
            blocks.append(Block(before, width << stage, stride))
            before = width << stage
    net = nn.Sequential(
        nn.Conv2d(3, width, 3, 1, 1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        *blocks,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(before, CLASSES),
    )
    # The layout that convolutions like best, on GPUs above all.
    return net.to(memory_format=torch.channels_last)


def optimizer_creator(model, config):
    return torch.optim.SGD(
        model.parameters(), lr=config["lr"], momentum=0.9, weight_decay=5e-4, nesterov=True
    )


def scheduler_creator(optimizer, config):
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, config["lr"], total_steps=config["steps"])


def draw_pictures(folder, rows):
    """Pictures of ten colours with some noise, as JPEG in Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as parquet
    from PIL import Image

    generator = np.random.default_rng(0)
    colours = generator.integers(0, 255, (CLASSES, 3))
    for part, count in (("train", rows), ("test", rows // 4)):
        labels = generator.integers(0, CLASSES, count)
        images = []
        for label in labels:
            noise = generator.normal(0, 40, (32, 32, 3))
            file = io.BytesIO()
            Image.fromarray(np.clip(colours[label] + noise, 0, 255).astype("uint8")).save(file, "JPEG")
            images.append(file.getvalue())
        table = pa.table({"image": images, "label": labels})
        parquet.write_table(table, Path(folder) / f"{part}.parquet", row_group_size=max(1, count // 4))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="folder of Parquet files; without it, pictures are drawn")
    parser.add_argument("--image-column", default="image")
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, help="over all workers; 128 (32 for drawn pictures)")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--width", type=int, help="64 is ResNet-18 (8 for drawn pictures)")
    parser.add_argument("--rows", type=int, default=512, help="pictures to draw")
    parser.add_argument("--precision", choices=["bf16", "fp16"])
    return parser.parse_args()


def train(args, folder):
    """Train on the pictures of a folder; print what comes out."""
    train, test = (gp.read_parquet(f"{folder}/{part}*.parquet") for part in ("train", "test"))
    normalize = [gp.images.Normalize(MEAN, STD)]
    augment = [gp.images.RandomCrop(32, padding=4), gp.images.RandomFlip(), *normalize]
    batch_size = args.batch_size or (128 if args.data else 32)
    estimator = gp.Estimator.from_torch(
        model=model_creator,
        optimizer=optimizer_creator,
        scheduler=scheduler_creator,
        scheduler_step_freq="batch",
        loss=nn.CrossEntropyLoss(),
        metrics=[gp.metrics.Accuracy()],
        config={
            "width": args.width or (64 if args.data else 8),
            "lr": args.lr,
            "steps": args.epochs * -(-len(train) // batch_size),
        },
        workers=args.workers,
        precision=args.precision,
    )
    history = estimator.fit(
        train,
        epochs=args.epochs,
        batch_size=batch_size,
        feature_cols=gp.columns.Image(args.image_column, augment),
        label_cols="label",
    )
    found = estimator.evaluate(
        test,
        batch_size=1000,
        feature_cols=gp.columns.Image(args.image_column, normalize),
        label_cols="label",
    )
    print(history)
    print(f"accuracy: {found['accuracy']:.2%} of {found['num_samples']:,} test pictures")
    estimator.shutdown()


def main():
    args = arguments()
    with tempfile.TemporaryDirectory() as drawn:
        if args.data is None:
            draw_pictures(drawn, args.rows)
        train(args, args.data or drawn)


if __name__ == "__main__":
    main()
