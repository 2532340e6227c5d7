"""Losses as users write them: what they do is in the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Loss:
    """What a model is to make small: the mean over rows, as in PyTorch."""

    kind: ClassVar[str] = ""

    def description(self) -> dict[str, Any]:
        """As the engine reads it."""
        return {"kind": self.kind, **{name: value for name, value in vars(self).items() if value is not None}}


@dataclass(frozen=True)
class CrossEntropy(Loss):
    """Of scores, one for each class, and the number of the right class."""

    weights: Sequence[float] | None = None
    label_smoothing: float = 0.0
    ignore_index: int | None = None
    kind: ClassVar[str] = "CrossEntropy"


@dataclass(frozen=True)
class NLL(Loss):
    """Of logarithms of probabilities, and the number of the right class."""

    weights: Sequence[float] | None = None
    ignore_index: int | None = None
    kind: ClassVar[str] = "Nll"


@dataclass(frozen=True)
class MSE(Loss):
    """The square of the difference."""

    kind: ClassVar[str] = "Mse"


@dataclass(frozen=True)
class L1(Loss):
    """The difference without its sign."""

    kind: ClassVar[str] = "L1"


@dataclass(frozen=True)
class SmoothL1(Loss):
    """The square of small differences, the absolute value of others."""

    beta: float = 1.0
    kind: ClassVar[str] = "SmoothL1"


@dataclass(frozen=True)
class BCE(Loss):
    """Of probabilities."""

    kind: ClassVar[str] = "Bce"


@dataclass(frozen=True)
class BCEWithLogits(Loss):
    """Of scores."""

    kind: ClassVar[str] = "BceWithLogits"


@dataclass(frozen=True)
class KL(Loss):
    """How far a distribution is from one whose logarithms come out."""

    kind: ClassVar[str] = "Kl"


@dataclass(frozen=True)
class Poisson(Loss):
    """Of the logarithm of a rate, and counts."""

    kind: ClassVar[str] = "Poisson"


@dataclass(frozen=True)
class Hinge(Loss):
    """What is missing to `margin` on the right side; targets are 1 and -1."""

    margin: float = 1.0
    kind: ClassVar[str] = "Hinge"


@dataclass(frozen=True)
class Cosine(Loss):
    """One minus the cosine of the angle to the target."""

    kind: ClassVar[str] = "Cosine"
