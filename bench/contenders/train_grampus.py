"""The same training with Grampus' Estimator."""

import torch
from torch import nn

import fashion
import grampus as gp


def model(config):  # noqa: ARG001 - the Estimator hands it
    """Return the network that everybody begins with."""
    torch.manual_seed(fashion.SEED)
    return fashion.LeNet()


def estimator():
    return gp.Estimator.from_torch(
        model=model,
        optimizer=lambda model, config: fashion.optimizer(model),  # noqa: ARG005 - the Estimator hands both
        loss=nn.CrossEntropyLoss(),
        threads_per_lane=1,
    )


def main():
    options = fashion.arguments()
    images, labels = fashion.load(options)
    gp.init(workers=options.procs)
    batch = fashion.BATCH * options.procs
    history = estimator().fit({"x": images, "y": labels}, epochs=options.epochs, batch_size=batch)
    gp.stop()
    rates = [epoch["samples_per_second"] for epoch in history]
    fashion.report(fashion.steady_rate([(1, 1 / rate) for rate in rates]), history[-1]["loss"])


if __name__ == "__main__":
    main()
