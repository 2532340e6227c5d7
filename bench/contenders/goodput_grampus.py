"""The training of bench/goodput.py with Grampus' Estimator."""

from torch import nn

import fashion
import grampus as gp
from train_grampus import model
from victims import Progress, sign_in


class Tells(gp.callbacks.Logger):
    """Notes how many rows have been trained."""

    def __init__(self, folder, rows):
        self.progress, self.rows = Progress(folder), rows

    def event(self, event):
        if event["kind"] == "steps":
            self.progress.set(event["epoch"] * self.rows + event["samples"])


def main():
    options = fashion.arguments("folder")
    images, labels = fashion.load(options)
    gp.init(workers=options.procs)

    def victim(config):
        sign_in(config["folder"])
        return model(config)

    estimator = gp.Estimator.from_torch(
        model=victim,
        optimizer=lambda model, config: fashion.optimizer(model),  # noqa: ARG005 - the Estimator hands both
        loss=nn.CrossEntropyLoss(),
        config={"folder": options.folder},
        threads_per_lane=1,
    )
    batch = fashion.BATCH * options.procs
    tells = Tells(options.folder, len(labels))
    estimator.fit(
        {"x": images, "y": labels},
        epochs=options.epochs,
        batch_size=batch,
        callbacks=[tells],
        max_failures=None,
    )


if __name__ == "__main__":
    main()
