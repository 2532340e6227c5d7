"""ResNet-18 on a GPU: by hand and with Grampus, rows on the GPU or JPEG in Parquet, in turns; prints JSON."""

import argparse
import json
import time

import torch
from torch import nn

import grampus as gp
from resnet import MEAN, STD, decoded, files, resnet18, sgd

PARSER = argparse.ArgumentParser()
PARSER.add_argument("--images", required=True)
PARSER.add_argument("--rounds", type=int, default=5)
PARSER.add_argument("--epochs", type=int, default=3)
PARSER.add_argument("--times", type=int, default=3)
PARSER.add_argument("--batch", type=int, default=512)
PARSER.add_argument("--width", type=int, default=64)
PARSER.add_argument("--ours", action="store_true", help="without the loop by hand; needs no GPU")


def by_hand(images, labels, options):
    """The loop as one writes it: bfloat16, no wait for any loss; seconds of the epochs after the first."""
    net, loss_of = resnet18({"width": options.width}).cuda(), nn.CrossEntropyLoss()
    rule = sgd(net)
    rows = len(labels)
    for epoch in range(options.epochs + 1):
        if epoch == 1:
            torch.cuda.synchronize()
            began = time.perf_counter()
        order = torch.randperm(rows, device="cuda")
        total = torch.zeros((), device="cuda")
        for start in range(0, rows, options.batch):
            chosen = order[start : start + options.batch]
            with torch.autocast("cuda", torch.bfloat16):
                loss = loss_of(net(images[chosen]), labels[chosen])
            rule.zero_grad()
            loss.backward()
            rule.step()
            total += loss.detach() * len(chosen)
        # Everybody wants to know it.
        mean = total.item() / rows
    torch.cuda.synchronize()
    return rows * options.epochs / (time.perf_counter() - began), mean


def with_grampus(data, options, **columns):
    """The same by an Estimator."""
    # Not every CPU on which `ours` runs computes convolutions in bfloat16.
    precision = None if options.ours else "bf16"
    ours = gp.Estimator.from_torch(
        model=resnet18,
        optimizer=sgd,
        loss=nn.CrossEntropyLoss(),
        config={"width": options.width},
        precision=precision,
        workers=1,
    )
    history = ours.fit(data, epochs=options.epochs + 1, batch_size=options.batch, **columns)
    later = list(history)[1:]
    rate = sum(each["samples"] for each in later) / sum(each["seconds"] for each in later)
    return rate, later[-1]["loss"], sum(each["data_wait"] for each in later) / len(later)


def main():
    options = PARSER.parse_args()
    images, labels = decoded(options.images, options.times)
    steps = [gp.images.RandomCrop(32, padding=4), gp.images.RandomFlip(), gp.images.Normalize(MEAN, STD)]
    columns = {"feature_cols": gp.columns.Image("image", steps), "label_cols": "label"}
    jpeg = gp.read_parquet(files(options.images) * options.times)
    contenders = {
        "grampus, resident": lambda: with_grampus({"x": images, "y": labels}, options),
        "grampus, jpeg": lambda: with_grampus(jpeg, options, **columns),
    }
    if not options.ours:
        resident = images.cuda(), labels.cuda()
        contenders = {"by hand, resident": lambda: by_hand(*resident, options), **contenders}
    found = {name: [] for name in contenders}
    gp.init(workers=1)
    # One round is not counted.
    for number in range(options.rounds + 1):
        for name, contender in contenders.items():
            figures = contender()
            if number:
                found[name].append(figures)
    gp.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
