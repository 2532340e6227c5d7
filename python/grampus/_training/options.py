"""What users say about a run, checked and brought into one form."""

from __future__ import annotations

import importlib.util
import operator
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, SupportsFloat

from grampus import _native
from grampus._direction import Directions
from grampus._training import saved
from grampus._training.job import Saving
from grampus.callbacks import Callback, EarlyStopping, Logger, StopOnNaN
from grampus.callbacks._checks import check_hooks
from grampus.checkpoint import Checkpoint
from grampus.cluster import _seconds
from grampus.operators import TrainingOperator
from grampus.triggers import EveryEpoch, Trigger

_BACKENDS = ("grampus", "torch_distributed", "horovod")
_POLICIES = ("warn", "shed", "evict")
RUNS = "grampus_runs"
check_seconds = _seconds


class _Default(int):
    """A number that was not asked for, and gives way to that of a loader."""


DEFAULT_BATCH_SIZE = _Default(32)


def check_size(value: Any, name: str, least: int = 1) -> int:
    """A whole number of at least 1, or of another least."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, it is {value!r}") from None
    if isinstance(value, bool) or number < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, it is {value!r}")
    return int(number)


def check_number(value: Any, name: str) -> None:
    """A number."""
    # Those of numpy are some, too; texts have no such method.
    if isinstance(value, bool) or not isinstance(value, SupportsFloat):
        raise TypeError(f"{name} must be a number, it is {value!r}")


def check_most(value: Any, name: str) -> int | None:
    """A whole number, or `None` for any."""
    return None if value is None else check_size(value, name, least=0)


def check_seed(seed: Any) -> None:
    """What random numbers can be drawn from."""
    try:
        fits = 0 <= operator.index(seed) < 2**64
    except TypeError:
        raise TypeError(f"seed must be a whole number, it is {seed!r}") from None
    if not fits:
        raise ValueError(f"seed must be a whole number from 0 to 2**64 - 1, it is {seed!r}")


def check_least(min_workers: Any, most: int, regroups: bool) -> int | None:
    """How many workers a run can do with; nothing where it needs all, since other libraries do."""
    least = check_size(min_workers, "min_workers")
    if least > most:
        raise ValueError(
            f"min_workers={least} is more than the run has a use for, which is {most}: a worker without a "
            "lane has nothing to do; raise lanes, or lower min_workers"
        )
    if least > 1 and not regroups:
        raise ValueError(
            f"min_workers={least} has no effect: other backends than 'grampus', and operators with a "
            "train_batch or train_epoch of their own, need all workers; leave it out"
        )
    return least if regroups else None


def check_policy(policy: Any, backend: str) -> str:
    """What becomes of a slow worker."""
    if policy not in _POLICIES:
        raise ValueError(f"slow_worker must be 'warn', 'shed' or 'evict', it is {policy!r}")
    if policy != "warn" and backend != "grampus":
        raise ValueError(
            f"slow_worker={policy!r} needs backend='grampus': a run with {backend=} cannot regroup"
        )
    return str(policy)


def check_backend(backend: str) -> None:
    """A backend that is known, and there."""
    if backend not in _BACKENDS:
        raise ValueError(f"there is no backend {backend!r}: use 'grampus', 'torch_distributed' or 'horovod'")
    if backend == "horovod" and importlib.util.find_spec("horovod") is None:
        raise ValueError("backend='horovod' needs Horovod, which is not installed: use backend='grampus'")


def check_settings(params: dict[str, Any]) -> None:
    """Settings of a model that must be one of a few."""
    freq, operator = params["scheduler_step_freq"], params["training_operator_cls"]
    if freq not in ("batch", "epoch", "manual", None):
        raise ValueError(f"scheduler_step_freq must be 'batch', 'epoch' or 'manual', it is {freq!r}")
    if freq is None and params["scheduler"] is not None:
        raise ValueError("a scheduler was passed, and scheduler_step_freq=None: say when it steps")
    # Operators are told of it, and may have schedulers of their own.
    if freq in ("batch", "manual") and params["scheduler"] is None and operator is None:
        raise ValueError(
            f"scheduler_step_freq={freq!r} has no effect, there is no scheduler: pass scheduler=, or leave "
            "it out"
        )
    if operator is not None and not (isinstance(operator, type) and issubclass(operator, TrainingOperator)):
        raise TypeError(f"training_operator_cls must be a class of gp.TrainingOperator, it is {operator!r}")
    if params["initialization_hook"] is not None and not callable(params["initialization_hook"]):
        raise TypeError(f"initialization_hook must be a function, it is {params['initialization_hook']!r}")
    if params["precision"] not in (None, "bf16", "fp16"):
        raise ValueError(f"precision must be 'bf16', 'fp16' or None, it is {params['precision']!r}")
    if params["workers"] is not None and params["workers_per_node"] is not None:
        raise ValueError("workers and workers_per_node were both passed: pass one of them")


def check_info(info: Any, operates: bool) -> dict[str, Any]:
    """What operators are passed."""
    if info is not None and not isinstance(info, dict):
        raise TypeError(f"info must be a dict, it is a {type(info).__name__}")
    if info and not operates:
        raise ValueError("info is for a gp.TrainingOperator, and there is none: leave it out")
    return dict(info or {})


def ends(epochs: Any, max_steps: Any) -> dict[str, Any]:
    """How far to go: a number of `epochs`, or a trigger as JSON that is the `end`, and `max_steps`."""
    most = None if max_steps is None else check_size(max_steps, "max_steps")
    if isinstance(epochs, Trigger):
        return {"epochs": None, "end": epochs.to_json(), "max_steps": most}
    return {"epochs": check_size(epochs, "epochs"), "end": None, "max_steps": most}


def check_score(triggers: Sequence[str | None], metrics: Directions, validates: bool) -> None:
    """Refuse a trigger that waits for a score in vain, or for one that rises as the model becomes worse."""
    for trigger in triggers:
        if trigger is not None:
            _native.check_score(trigger, list(metrics.items()), validates)


def parted(
    callbacks: Sequence[Any] | None, checkpoint: Any, metrics: Directions
) -> tuple[list[Callback], list[Logger], bool, Any]:
    """Callbacks beside the model, loggers, whether to stop at a loss that is no number, what to save."""
    beside: list[Callback] = []
    loggers: list[Logger] = []
    stops = False
    if callbacks is not None and not isinstance(callbacks, Sequence):
        raise TypeError(f"callbacks must be a list, it is {callbacks!r}")
    for each in callbacks or ():
        if isinstance(each, StopOnNaN):
            stops = True
        elif isinstance(each, Checkpoint):
            if checkpoint is not None:
                raise ValueError(
                    "checkpoint= was passed, and a Checkpoint among the callbacks: pass one of them"
                )
            checkpoint = each
        elif isinstance(each, Logger):
            loggers.append(each)
        elif isinstance(each, Callback):
            check_hooks(each)
            if isinstance(each, EarlyStopping):
                each.settle(metrics)
            beside.append(each)
        else:
            raise TypeError(
                f"{each!r} is no callback: derive its class from grampus.callbacks.Callback or Logger"
            )
    return beside, loggers, stops, checkpoint


def saving(
    checkpoint: Any, model_dir: str | os.PathLike[str] | None, backend: str, metrics: Directions
) -> Saving | None:
    """Where and when a run is saved."""
    if checkpoint is None:
        return None
    if isinstance(checkpoint, Trigger) or checkpoint == EveryEpoch.__name__:
        checkpoint = Checkpoint(every=checkpoint)
    elif isinstance(checkpoint, str | os.PathLike):
        checkpoint = Checkpoint(checkpoint)
    elif not isinstance(checkpoint, Checkpoint):
        raise TypeError(
            f"checkpoint is a {type(checkpoint).__name__}: pass a folder, a trigger or a Checkpoint"
        )
    if checkpoint.on_driver_loss and backend != "grampus":
        raise ValueError(
            f"on_driver_loss of Checkpoint needs backend='grampus': with {backend!r} a run ends at once"
        )
    place = model_dir if checkpoint.path is None else checkpoint.path
    if place is None:
        raise ValueError("there is no place for checkpoints: pass checkpoint='some/folder', or model_dir=")
    every = checkpoint.every if checkpoint.every is not None else EveryEpoch()
    if checkpoint.best is not None:
        # What is compared is measured when an epoch ends: other checkpoints have nothing to show.
        every = every | EveryEpoch()
    url = saved.located(os.fspath(place))
    how = checkpoint.best, checkpoint.settled_mode(metrics), checkpoint.on_error, checkpoint.on_driver_loss
    return Saving(url, every.to_json(), checkpoint.keep, *how)


def run_folder(model_dir: str | os.PathLike[str] | None) -> str | None:
    """The folder of a run; none where that is no local one."""
    if model_dir is not None:
        place = os.fspath(model_dir)
        return None if "://" in place else str(Path(place).absolute())
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for number in range(1, 1000):
        folder = Path(RUNS) / (stamp if number == 1 else f"{stamp}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError:
            return None
        return str(folder.absolute())
    return None
