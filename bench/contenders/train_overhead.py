"""CPU seconds of `fit` on one worker and of the loop by hand, in turns; prints JSON."""

import json

import fashion
import grampus as gp
from train_grampus import estimator
from tree import cpu_seconds


def plain_block(images, labels):
    fashion.train(fashion.LeNet(), images, labels, epochs=1)


def grampus_block(ours, images, labels):
    ours.fit({"x": images, "y": labels}, epochs=1, batch_size=fashion.BATCH)


def cpu_of(block):
    before = cpu_seconds()
    block()
    return cpu_seconds() - before


def main():
    # One round is not counted: whatever happens once happens there.
    options = fashion.arguments("rounds")
    images, labels = fashion.load(options)
    gp.init(workers=1)
    ours = estimator()
    blocks = {
        "by hand": lambda: plain_block(images, labels),
        "grampus": lambda: grampus_block(ours, images, labels),
    }
    results = {name: [] for name in blocks}
    for number in range(int(options.rounds) + 1):
        for name, block in blocks.items():
            seconds = cpu_of(block)
            if number > 0:
                results[name].append(seconds)
    gp.stop()
    print(json.dumps(results))


if __name__ == "__main__":
    main()
