"""CPU seconds of `fit` on workers that keep all that a loss needs, and on such that do not; prints JSON.

LeNet has batch norm here, and its accuracy is measured while it trains: all that has to be kept.
"""

import json

import torch
from torch import nn

import fashion
import grampus as gp
from grampus._training import metering, repeated
from grampus.frameworks import _torch_gradients
from grampus.frameworks import torch as framework
from tree import cpu_seconds

KEPT = {
    (metering.Tally, "offer"): lambda *_: None,
    (repeated.Repeated, "add"): lambda *_: None,
    (_torch_gradients.LaneBuffers, "_commit"): lambda *_: None,
    (framework, "wants_to_stop"): lambda: False,
}
AS_SHIPPED = {(owner, name): getattr(owner, name) for owner, name in KEPT}


class Normed(fashion.LeNet):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Sequential(self.conv1, nn.BatchNorm2d(6))
        self.conv2 = nn.Sequential(self.conv2, nn.BatchNorm2d(16))


def model(config):
    """Return the network, on a worker that keeps what a loss needs, or does not."""
    for (owner, name), shipped in AS_SHIPPED.items():
        setattr(owner, name, shipped if config["safe"] else KEPT[owner, name])
    torch.manual_seed(fashion.SEED)
    return Normed()


def estimator(safe):
    return gp.Estimator.from_torch(
        model=model,
        optimizer=lambda model, config: fashion.optimizer(model),  # noqa: ARG005 - the Estimator hands both
        loss=nn.CrossEntropyLoss(),
        metrics=["accuracy"],
        config={"safe": safe},
        threads_per_lane=1,
    )


def main():
    options = fashion.arguments("rounds")
    images, labels = fashion.load(options)
    gp.init(workers=options.procs)
    contenders = {"unsafe": estimator(False), "safe": estimator(True)}
    results = {name: [] for name in contenders}
    for number in range(int(options.rounds) + 1):
        for name, contender in contenders.items():
            before = cpu_seconds()
            contender.fit({"x": images, "y": labels}, epochs=1, batch_size=fashion.BATCH * options.procs)
            # One round is not counted: whatever happens once happens there.
            if number > 0:
                results[name].append(cpu_seconds() - before)
    gp.stop()
    print(json.dumps(results))


if __name__ == "__main__":
    main()
