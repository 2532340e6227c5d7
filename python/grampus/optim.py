"""Optimizers and schedules of Grampus's own, for `gp.Estimator.from_native` and `from_torch`.

Settings and defaults are those of torch.optim, and results equal to rounding. Of torch models, what an
optimizer remembers is divided among the workers; a schedule moves optimizers of torch, too.

>>> import grampus as gp
>>> gp.optim.SGD(lr=0.1, momentum=0.9).description()["kind"]
'Sgd'
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from operator import index
from typing import Any, ClassVar, SupportsFloat

from grampus._arguments import suggest

__all__ = [
    "LAMB",
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Cosine",
    "Decay",
    "Exponential",
    "Ftrl",
    "Group",
    "Increase",
    "MultiStep",
    "OneCycle",
    "Optimizer",
    "PerEpoch",
    "Plateau",
    "Poly",
    "RMSprop",
    "Schedule",
    "Stages",
    "Step",
    "WarmUp",
]


class _Described:
    """Settings, which may be numbers of any kind."""

    kind: ClassVar[str] = ""

    def __post_init__(self) -> None:
        self.description()  # refuses what is of a wrong type where it was written

    def description(self) -> dict[str, Any]:
        """As the engine reads it."""
        found = {"kind": self.kind}
        for field in fields(self):  # type: ignore[arg-type]
            wanted, read = _READ[str(field.type)]
            value = getattr(self, field.name)
            try:
                found[field.name] = read(value)
            except (TypeError, ValueError, AttributeError):
                where = f"{field.name} of {type(self).__name__}"
                raise TypeError(f"{where} must be {wanted}, it is {value!r}") from None
        return found


def _number(value: Any) -> float:
    # Texts are none, although `float` takes them.
    if not isinstance(value, SupportsFloat) or not math.isfinite(value):
        raise TypeError
    return float(value)


def _count(value: Any) -> int:
    if index(value) < 0:
        raise ValueError
    return index(value)


def _flag(value: Any) -> bool:
    if value not in (False, True):
        raise TypeError
    return bool(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _pair(value: Any) -> list[float]:
    one, other = value
    return [_number(one), _number(other)]


# By the types that fields name: what they need, and as what it is written.
_READ: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "float": ("a finite number", _number),
    "int": ("a whole number from 0 on", _count),
    "bool": ("True or False", _flag),
    "str": ("a text", _text),
    "tuple[float, float]": ("two finite numbers", _pair),
    "Sequence[int]": ("whole numbers from 0 on", lambda value: [_count(each) for each in value]),
    "Schedule": ("a schedule", lambda value: value.description()),
    "Sequence[tuple[Schedule, int]]": (
        "pairs of a schedule and its steps",
        lambda value: [{"schedule": each.description(), "steps": _count(steps)} for each, steps in value],
    ),
}


@dataclass(frozen=True)
class Optimizer(_Described):
    """How weights follow from gradients."""

    lr: float


@dataclass(frozen=True)
class SGD(Optimizer):
    """Steps along the gradient."""

    lr: float = 1e-3
    momentum: float = 0.0
    dampening: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False
    kind: ClassVar[str] = "Sgd"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nesterov and (self.momentum <= 0 or self.dampening != 0):
            raise ValueError(
                f"nesterov of SGD needs a momentum above 0 and no dampening, they are {self.momentum} and "
                f"{self.dampening}: pass momentum=, or leave it out"
            )
        if self.dampening != 0 and self.momentum == 0:
            raise ValueError(
                f"dampening={self.dampening} of SGD has no effect without a momentum: pass momentum=, or "
                "leave it out"
            )


@dataclass(frozen=True)
class Adam(Optimizer):
    """Steps by the mean of gradients over that of their squares."""

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    amsgrad: bool = False
    kind: ClassVar[str] = "Adam"


@dataclass(frozen=True)
class AdamW(Optimizer):
    """Adam whose decay does not go through the means."""

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.01
    amsgrad: bool = False
    kind: ClassVar[str] = "AdamW"


@dataclass(frozen=True)
class Adagrad(Optimizer):
    """Smaller steps for what has had large gradients."""

    lr: float = 1e-2
    lr_decay: float = 0.0
    weight_decay: float = 0.0
    initial_accumulator_value: float = 0.0
    eps: float = 1e-10
    kind: ClassVar[str] = "Adagrad"


@dataclass(frozen=True)
class Adadelta(Optimizer):
    """Steps as large as those before, by what gradients are now."""

    lr: float = 1.0
    rho: float = 0.9
    eps: float = 1e-6
    weight_decay: float = 0.0
    kind: ClassVar[str] = "Adadelta"


@dataclass(frozen=True)
class Adamax(Optimizer):
    """Adam by the greatest gradient."""

    lr: float = 2e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    kind: ClassVar[str] = "Adamax"


@dataclass(frozen=True)
class RMSprop(Optimizer):
    """Steps by gradients over the mean of their squares."""

    lr: float = 1e-2
    alpha: float = 0.99
    eps: float = 1e-8
    weight_decay: float = 0.0
    momentum: float = 0.0
    centered: bool = False
    kind: ClassVar[str] = "RmsProp"


@dataclass(frozen=True)
class Ftrl(Optimizer):
    """Follows the leader, regularized: for sparse linear models."""

    lr: float = 1e-3
    learning_rate_power: float = -0.5
    initial_accumulator_value: float = 0.1
    l1: float = 0.0
    l2: float = 0.0
    l2_shrinkage: float = 0.0
    kind: ClassVar[str] = "Ftrl"


@dataclass(frozen=True)
class LAMB(Optimizer):
    """Adam for large batches: each tensor goes as far as it is long."""

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-6
    weight_decay: float = 0.0
    kind: ClassVar[str] = "Lamb"


@dataclass(frozen=True)
class Group:
    """Layers with a learning rate of their own, as a factor, and a decay: only for `Estimator.from_native`.

    `layers` are names of layers or of single parameters, such as "fc" or "fc.bias".
    """

    layers: Sequence[str]
    lr_factor: float = 1.0
    weight_decay: float | None = None

    def description(self) -> dict[str, Any]:
        """As the engine reads it."""
        return {**vars(self), "layers": [self.layers] if isinstance(self.layers, str) else list(self.layers)}


@dataclass(frozen=True)
class Schedule(_Described):
    """The learning rate as a function of the step; `PerEpoch` makes it one of the epoch."""


@dataclass(frozen=True)
class Decay(Schedule):
    """`lr / (1 + decay * step)`."""

    decay: float = 0.0
    kind: ClassVar[str] = "Default"


@dataclass(frozen=True)
class Poly(Schedule):
    """`lr * (1 - step / max_iteration) ** power`."""

    power: float
    max_iteration: int
    kind: ClassVar[str] = "Poly"


@dataclass(frozen=True)
class Exponential(Schedule):
    """`lr * decay_rate ** (step / decay_step)`."""

    decay_step: int
    decay_rate: float
    stair_case: bool = False
    kind: ClassVar[str] = "Exponential"


@dataclass(frozen=True)
class Step(Schedule):
    """Multiplied with `gamma` every `step_size` steps."""

    step_size: int
    gamma: float
    kind: ClassVar[str] = "Step"


@dataclass(frozen=True)
class MultiStep(Schedule):
    """Multiplied with `gamma` at each of some steps."""

    step_sizes: Sequence[int]
    gamma: float
    kind: ClassVar[str] = "MultiStep"


@dataclass(frozen=True)
class Increase(Schedule):
    """`lr + delta * step`: Orca's `Warmup`."""

    delta: float
    kind: ClassVar[str] = "Increase"


@dataclass(frozen=True)
class Cosine(Schedule):
    """Half a wave of a cosine down to `floor`, in `total` steps."""

    total: int
    floor: float = 0.0
    kind: ClassVar[str] = "Cosine"


@dataclass(frozen=True)
class OneCycle(Schedule):
    """Up to `max_lr` and down again, once in a run."""

    max_lr: float
    total_steps: int
    pct_start: float = 0.3
    div_factor: float = 25.0
    final_div_factor: float = 1e4
    kind: ClassVar[str] = "OneCycle"


@dataclass(frozen=True)
class Plateau(Schedule):
    """Multiplied with `factor` when `monitor` has not got better for more than `patience` epochs.

    `monitor` is a name in the record of an epoch, such as "loss" or "val_accuracy"; `mode` says whether "min"
    or "max" is better, "auto" asks the metric, and `epsilon` says by how much it has to be. After a cut,
    `cooldown` epochs do not count.
    """

    monitor: str = "loss"
    factor: float = 0.1
    patience: int = 10
    mode: str = "auto"
    epsilon: float = 1e-4
    cooldown: int = 0
    min_lr: float = 0.0
    kind: ClassVar[str] = "Plateau"


@dataclass(frozen=True)
class Stages(Schedule):
    """Schedules one after the other, each for so many steps: Orca's `SequentialSchedule`."""

    steps_per_epoch: int
    stages: Sequence[tuple[Schedule, int]]
    kind: ClassVar[str] = "Sequence"


@dataclass(frozen=True)
class WarmUp(Schedule):
    """Grows in a line for `steps` steps, then goes on with another."""

    steps: int
    then: Schedule
    kind: ClassVar[str] = "WarmUp"


@dataclass(frozen=True)
class PerEpoch(Schedule):
    """Another schedule that counts epochs where it says steps."""

    of: Schedule
    kind: ClassVar[str] = "PerEpoch"


suggest(globals())
