"""When something happens in a run: its end, a checkpoint, a validation.

A trigger is a description that workers read; whether it fires is decided in one place for all.

>>> trigger = MaxEpoch(10) | MinLoss(0.1)
>>> trigger.fires(epoch=3, step=900, epoch_end=True, loss=0.08)
'the loss 0.08 is below 0.1'
>>> trigger.fires(epoch=3, step=900, epoch_end=True, loss=0.5) is None
True
"""

from __future__ import annotations

import json
import math
from operator import index
from typing import Any, ClassVar, SupportsFloat, SupportsIndex

from grampus import _native
from grampus._arguments import suggest

__all__ = [
    "And",
    "EveryEpoch",
    "EverySteps",
    "MaxEpoch",
    "MaxIteration",
    "MaxScore",
    "MaxSteps",
    "MinLoss",
    "Or",
    "SeveralIteration",
    "Trigger",
]

# What the other side counts with.
_MOST = 2**64 - 1


class Trigger:
    """The base of all triggers; `a & b` fires when both do, `a | b` when one does."""

    kind: ClassVar[str]

    @staticmethod
    def of(given: Trigger | str) -> Trigger:
        """The trigger that is meant: the one that is given, or that of the name "EveryEpoch".

        >>> Trigger.of("EveryEpoch")
        EveryEpoch()
        """
        if isinstance(given, Trigger):
            return given
        if given == EveryEpoch.__name__:
            return EveryEpoch()
        raise TypeError(f'{given!r} is no trigger: pass one of grampus.triggers, or "EveryEpoch"')

    def _fields(self) -> dict[str, Any]:
        return {}

    def _description(self) -> dict[str, Any]:
        return {"kind": self.kind, **self._fields()}

    def to_json(self) -> str:
        """The text from which workers make the trigger.

        >>> EverySteps(20).to_json()
        '{"kind": "every_steps", "n": 20}'
        """
        return json.dumps(self._description())

    def fires(
        self,
        *,
        epoch: int,
        step: int,
        epoch_end: bool,
        loss: float | None = None,
        score: float | None = None,
    ) -> str | None:
        """Why the trigger fires, or `None`.

        Args:
            epoch: epochs that are finished.
            step: steps that are done, over all epochs.
            epoch_end: whether an epoch has just ended.
            loss: the last one.
            score: first metric of the last validation.
        """
        return _native.trigger_fires(self.to_json(), epoch, step, epoch_end, loss, score)

    def __and__(self, other: Trigger) -> And:
        """Both at once."""
        return And(self, other) if isinstance(other, Trigger) else NotImplemented

    def __or__(self, other: Trigger) -> Or:
        """One of the two."""
        return Or(self, other) if isinstance(other, Trigger) else NotImplemented

    def __eq__(self, other: object) -> bool:
        """Whether both describe the same."""
        if not isinstance(other, Trigger):
            return NotImplemented
        return self._description() == other._description()

    def __hash__(self) -> int:
        """Equal for equal triggers."""
        return hash(self.to_json())

    def __repr__(self) -> str:
        """As it is written in code."""
        return f"{type(self).__name__}({', '.join(map(repr, self._fields().values()))})"


class EveryEpoch(Trigger):
    """At the end of every epoch."""

    kind = "every_epoch"


class _Count(Trigger):
    def __init__(self, n: SupportsIndex) -> None:
        if isinstance(n, bool) or not isinstance(n, SupportsIndex):
            raise TypeError(f"n of {type(self).__name__} must be a whole number, it is {n!r}")
        self.n = index(n)
        if not 1 <= self.n <= _MOST:
            raise ValueError(f"n of {type(self).__name__} must be from 1 to {_MOST}, it is {self.n}")

    def _fields(self) -> dict[str, Any]:
        return {"n": self.n}


class EverySteps(_Count):
    """After every `n` steps, counted over all epochs."""

    kind = "every_steps"


class MaxEpoch(_Count):
    """When `n` epochs are finished."""

    kind = "max_epoch"


class MaxSteps(_Count):
    """When `n` steps are done, counted over all epochs."""

    kind = "max_steps"


class _Bound(Trigger):
    _side: ClassVar[str]

    def __init__(self, value: SupportsFloat) -> None:
        if isinstance(value, bool) or not isinstance(value, SupportsFloat):
            raise TypeError(f"the bound of {type(self).__name__} must be a number, it is {value!r}")
        self.value = float(value)
        if not math.isfinite(self.value):
            raise ValueError(f"the bound of {type(self).__name__} must be finite, it is {self.value}")

    def _fields(self) -> dict[str, Any]:
        return {self._side: self.value}


class MinLoss(_Bound):
    """When the loss is below `value`."""

    kind = "min_loss"
    _side = "below"


class MaxScore(_Bound):
    """When the first metric of the validation is above `value`."""

    kind = "max_score"
    _side = "above"


class _Several(Trigger):
    def __init__(self, *triggers: Trigger | str) -> None:
        if not triggers:
            raise TypeError(f"{type(self).__name__} needs at least one trigger")
        # a & b & c is one list of three, whichever pair was written first.
        self.triggers: tuple[Trigger, ...] = tuple(
            part
            for trigger in map(Trigger.of, triggers)
            for part in (trigger.triggers if isinstance(trigger, type(self)) else (trigger,))
        )

    def _fields(self) -> dict[str, Any]:
        return {"of": [trigger._description() for trigger in self.triggers]}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.triggers))})"


class And(_Several):
    """When all of them fire at once."""

    kind = "and"


class Or(_Several):
    """When one of them fires."""

    kind = "or"


# Names that BigDL's users know.
SeveralIteration = EverySteps
MaxIteration = MaxSteps


suggest(globals())
