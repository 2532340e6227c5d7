"""The models of `gp.models`, on rows made up on the spot: no other framework is needed.

    python examples/native.py --model lenet

`lenet` and `resnet18` learn which part of a picture is bright, `mlp` which of two numbers is larger, and
`text` which of four words stands in a text.
"""

import argparse

import numpy as np

import grampus as gp


def pictures(rows, channels, side):
    """Noise, with a bright part in one of four corners: the class."""
    draws = np.random.default_rng(0)
    images = draws.normal(0, 0.3, (rows, channels, side, side)).astype("f4")
    classes, half = draws.integers(0, 4, rows), side // 2
    for image, corner in zip(images, classes, strict=True):
        down, right = divmod(int(corner), 2)
        image[:, down * half : (down + 1) * half, right * half : (right + 1) * half] += 1
    return {"x": images, "y": classes}


def numbers(rows):
    draws = np.random.default_rng(0).standard_normal((rows, 2)).astype("f4")
    return {"x": draws, "y": (draws[:, 0] < draws[:, 1]).astype("i8")}


def texts(rows, length=12, words=50):
    """Words from 5 on, and one of four others: the class."""
    draws = np.random.default_rng(0)
    lines, classes = draws.integers(5, words, (rows, length)), draws.integers(0, 4, rows)
    lines[np.arange(rows), draws.integers(0, length, rows)] = classes + 1
    return {"x": lines.astype("f4"), "y": classes}


def chosen(name, rows):
    """A model and rows that fit."""
    if name == "lenet":
        return gp.models.lenet(4), pictures(rows, 1, 28)
    if name == "resnet18":
        return gp.models.resnet18(4), pictures(rows, 3, 32)
    if name == "mlp":
        return gp.models.mlp(2, 32, 32, 2), numbers(rows)
    return gp.models.text_classifier(50, 4, 16, 32), texts(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=("lenet", "mlp", "resnet18", "text"), default="lenet")
    parser.add_argument("--rows", type=int, default=600)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    model, data = chosen(options.model, options.rows)
    estimator = gp.Estimator.from_native(
        model=model,
        loss=gp.nn.CrossEntropy(),
        optimizer=gp.optim.Adam(0.005),
        metrics=[gp.metrics.Accuracy()],
        workers=options.workers,
    )
    with estimator:
        print(estimator.fit(data, epochs=options.epochs, batch_size=options.batch_size))
        measured = estimator.evaluate(data)
    print(f"accuracy: {measured['accuracy']:.3f} on {measured['num_samples']} rows")


if __name__ == "__main__":
    main()
