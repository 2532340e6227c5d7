"""Schedules of the learning rate of torch models: torch's own, and those of `gp.optim`."""

from __future__ import annotations

import inspect
import json
from typing import TYPE_CHECKING, Any

import torch

from grampus import _native
from grampus._direction import Directions, better_way
from grampus._figures import without_validation
from grampus._training import creator
from grampus.metrics import directions
from grampus.optim import Schedule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from grampus._training.job import Spec

_PLATEAU = torch.optim.lr_scheduler.ReduceLROnPlateau
_KEYS = ("scheduler", "monitor", "interval")
# What Lightning knows besides, and what needs nothing to be done.
_IGNORED = {"name", "strict", "reduce_on_plateau"}
_INTERVALS = {"step": "batch", "epoch": "epoch"}


class TorchSchedule:
    """A scheduler of torch's kind, with the moments at which it moves."""

    def __init__(self, scheduler: Any, each: str, monitor: str | None, metrics: Directions) -> None:
        """It moves each "batch" or each "epoch", by what is monitored where it looks at that."""
        self.scheduler = scheduler
        self._each = each
        self._looks = looks(scheduler)
        self._monitor = monitor
        if self._looks and each == "batch":
            raise ValueError(
                "ReduceLROnPlateau looks at what came out of an epoch, and cannot step each batch: let it "
                "step each epoch"
            )
        if monitor is not None and not self._looks:
            raise ValueError(
                f"a {type(scheduler).__name__} looks at nothing: leave monitor={monitor!r} out, which is for "
                "ReduceLROnPlateau"
            )
        if self._looks and each == "epoch":
            self._check_mode(scheduler.mode, metrics)

    def _check_mode(self, mode: str, metrics: Directions) -> None:
        """Torch's default is "min", whatever is monitored: the rate of a model that improves would be cut."""
        name = self._monitor or "loss"
        if better_way(name, metrics) in (None, mode):
            return
        more, less = ("less", "more") if mode == "max" else ("more", "less")
        said = "" if self._monitor else ", which it looks at where no monitor is named"
        raise ValueError(
            f"ReduceLROnPlateau(mode={mode!r}) cuts the rate unless there is {less} of {name!r}{said}, of "
            f"which {more} is better: pass mode={'min' if mode == 'max' else 'max'!r}, or another monitor"
        )

    def step_ends(self) -> None:
        """A step is done."""
        if self._each == "batch":
            self.scheduler.step()

    def epoch_ends(self, record: dict[str, float]) -> None:
        """An epoch is done, and this came out of it."""
        if self._each != "epoch":
            return
        if self._looks:
            self.scheduler.step(self._seen(record))
        else:
            self.scheduler.step()

    def _seen(self, record: dict[str, float]) -> float:
        if self._monitor is None:
            return record.get("val_loss", record["loss"])
        if self._monitor not in record:
            raise ValueError(
                f"there is no {self._monitor!r} for the scheduler to look at: an epoch has "
                f"{', '.join(sorted(record))}{without_validation(self._monitor, record)}"
            )
        return record[self._monitor]


class OwnSchedule:
    """A schedule of `gp.optim`, which counts steps and epochs by itself."""

    def __init__(self, schedule: Schedule, optimizer: Any, metrics: Directions) -> None:
        """Each group of parameters begins with its own rate."""
        self._described = json.dumps(schedule.description()), dict(metrics)
        self._rates = _native.Rates(*self._described)
        # What users see of it.
        self.scheduler = self
        self._optimizer = optimizer
        self._bases = [float(group["lr"]) for group in optimizer.param_groups]
        self._steps = self._epochs = 0
        self._set()

    def step_ends(self) -> None:
        """A step is done."""
        self._steps += 1
        self._set()

    def epoch_ends(self, record: dict[str, float]) -> None:
        """An epoch is done, and this came out of it."""
        self._rates.observe(self._steps, self._epochs, record)
        self._epochs += 1
        self._set()

    def step(self, metric: float | None = None) -> None:  # noqa: ARG002
        """Nobody has to move it."""
        raise ValueError("a schedule of gp.optim counts steps by itself: leave its step to it")

    def _set(self) -> None:
        for group, base in zip(self._optimizer.param_groups, self._bases, strict=True):
            group["lr"] = self._rates.at(base, self._steps, self._epochs)

    def state_dict(self) -> dict[str, Any]:
        """All that it needs to go on."""
        return {
            "steps": self._steps,
            "epochs": self._epochs,
            "bases": self._bases,
            "plateau": self._rates.seen(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self._steps, self._epochs, self._bases = state["steps"], state["epochs"], state["bases"]
        self._rates = _native.Rates(*self._described, state["plateau"])
        self._set()


def make_schedulers(spec: Spec, optimizers: list[Any]) -> list[TorchSchedule | OwnSchedule]:
    """The schedules that a user asks for: objects, a function that makes them, or dicts with one."""
    if spec.scheduler is None:
        return []
    scheduler, told = _parted(spec.scheduler)
    if not _is_own(scheduler) and not hasattr(scheduler, "step") and not isinstance(scheduler, list | tuple):
        if not callable(scheduler):
            raise TypeError(
                f"scheduler is a {type(scheduler).__name__}: pass a torch scheduler, one of gp.optim, or a "
                "function f(optimizer, config)"
            )
        given = optimizers[0] if len(optimizers) == 1 else list(optimizers)
        scheduler = creator.call(scheduler, "scheduler creator", "f(optimizer, config)", given, spec.config)
    found = list(scheduler) if isinstance(scheduler, list | tuple) else [scheduler]
    return scheduled(found, optimizers, spec.scheduler_step_freq, directions(spec.metrics), told)


def scheduled(
    found: Iterable[Any],
    optimizers: list[Any],
    each: str,
    metrics: Directions,
    told: dict[str, Any] | None = None,
) -> list[TorchSchedule | OwnSchedule]:
    """Schedulers of these optimizers, or dicts with one, each with the moments at which it moves."""
    schedules: list[TorchSchedule | OwnSchedule] = []
    for given in found:
        scheduler, more = _parted(given)
        more = {**(told or {}), **more}
        if _is_own(scheduler):
            if more:
                raise ValueError(
                    "a schedule of gp.optim counts steps by itself, and gp.optim.Plateau names its own "
                    f"monitor: leave {', '.join(more)} out"
                )
            made: Any = scheduler() if inspect.isclass(scheduler) else scheduler
            schedules += [OwnSchedule(made, optimizer, metrics) for optimizer in optimizers]
            continue
        if not hasattr(scheduler, "step"):
            raise TypeError(
                f"the scheduler creator returned a {type(scheduler).__name__}, not a torch scheduler, nor "
                "one of gp.optim"
            )
        if hasattr(scheduler, "optimizer") and all(scheduler.optimizer is not own for own in optimizers):
            raise ValueError("the scheduler was built for another optimizer: build it from this one")
        when = _INTERVALS[more["interval"]] if "interval" in more else each
        schedules.append(TorchSchedule(scheduler, when, more.get("monitor"), metrics))
    return schedules


def looks(scheduler: Any) -> bool:
    """Whether a scheduler looks at what came out of an epoch."""
    return isinstance(scheduler, _PLATEAU)


def _is_own(scheduler: Any) -> bool:
    return isinstance(scheduler, Schedule) or (inspect.isclass(scheduler) and issubclass(scheduler, Schedule))


def _parted(given: Any) -> tuple[Any, dict[str, Any]]:
    """A scheduler, and what a dict says besides: the convention of Lightning."""
    if not isinstance(given, dict):
        return given, {}
    known = {*_KEYS, *_IGNORED, *({"frequency"} if given.get("frequency") == 1 else ())}
    if "scheduler" not in given or not given.keys() <= known:
        raise ValueError(
            f"a dict for scheduler has the keys {', '.join(map(str, given))}: it needs 'scheduler', and "
            "may have 'monitor' and 'interval'"
        )
    told = {name: given[name] for name in _KEYS[1:] if given.get(name) is not None}
    if told.get("interval", "epoch") not in _INTERVALS:
        raise ValueError(f"interval must be 'epoch' or 'step', it is {told['interval']!r}")
    return given["scheduler"], told
