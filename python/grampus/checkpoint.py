"""When and where a run is saved."""

from __future__ import annotations

import os

from grampus._arguments import suggest
from grampus._direction import Directions, check_mode, settled
from grampus.triggers import Trigger


class Checkpoint:
    """Saves a run while it goes on: pass it to `fit` as `checkpoint`, or among the callbacks.

    Args:
        path: a folder or `s3://bucket/prefix`; by default the Estimator's `model_dir`. Each checkpoint is a
            folder in it, such as `step-00000120`.
        every: a trigger, or "EveryEpoch", which is the default. The end of a run is saved in any case.
        keep: how many of the newest stay; by default all.
        best: name of a value in the epochs' records; epochs are saved as they end, and the checkpoint with
            the best value stays, too: `estimator.load(path, best=True)`.
        mode: `"min"` where less of it is better, `"max"` where more is; `"auto"` asks the metric. Values of
            which nothing says that, such as those of your own functions, need `"min"` or `"max"`.
        on_error: what a checkpoint that cannot be written does, for example on a full disk: `"warn"` lets the
            run go on and try again the next time, `"raise"` ends it. The first one always ends it.
        on_driver_loss: when the driver is killed, let the workers finish their step, save the run and end,
            within 10 seconds; otherwise they end at once, and what came after the last checkpoint is lost.

    >>> import grampus as gp
    >>> gp.Checkpoint("runs/mnist", every=gp.triggers.EverySteps(500), keep=3, best="val_accuracy")
    Checkpoint('runs/mnist', every=EverySteps(500), keep=3, best='val_accuracy', mode='auto', on_error='warn')
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        every: Trigger | str | None = None,
        keep: int | None = None,
        best: str | None = None,
        mode: str = "auto",
        on_error: str = "warn",
        on_driver_loss: bool = False,
    ) -> None:
        if keep is not None and (isinstance(keep, bool) or not isinstance(keep, int) or keep < 1):
            raise ValueError(f"keep of Checkpoint must be a whole number of at least 1, it is {keep!r}")
        check_mode(mode, "Checkpoint")
        if best is None and mode != "auto":
            raise ValueError(f"mode={mode!r} of Checkpoint says how to compare, and nothing what: pass best=")
        if on_error not in ("warn", "raise"):
            raise ValueError(f'on_error of Checkpoint must be "warn" or "raise", it is {on_error!r}')
        if not isinstance(on_driver_loss, bool):
            raise TypeError(f"on_driver_loss of Checkpoint must be True or False, it is {on_driver_loss!r}")
        self.path = None if path is None else os.fspath(path)
        self.every = None if every is None else Trigger.of(every)
        self.keep = keep
        self.best = best
        self.on_error = on_error
        self.on_driver_loss = on_driver_loss
        self.mode = mode

    def settled_mode(self, metrics: Directions) -> str:
        """Which way `best` becomes better, in a run with these metrics."""
        if self.best is None:
            return self.mode
        return settled(self.mode, self.best, metrics, f"Checkpoint(best={self.best!r})")

    def __repr__(self) -> str:
        """As it is written in code."""
        more = ", on_driver_loss=True" if self.on_driver_loss else ""
        return (
            f"Checkpoint({self.path!r}, every={self.every!r}, keep={self.keep}, best={self.best!r}, "
            f"mode={self.mode!r}, on_error={self.on_error!r}{more})"
        )


suggest(globals())
