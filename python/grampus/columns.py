"""What is done with columns of numbers between the table and the batch.

A step stands wherever the name of its column may stand: in `feature_cols` and `label_cols`. The steps run in
Rust, once for each block of rows that is read. A value that a step cannot take makes its row a bad one, which
is an error that names file, row and column, or is skipped (`on_error="skip"`).

>>> import grampus as gp
>>> import pyarrow as pa
>>> rows = pa.table({"age": [30, 45], "city": ["Oslo", "Rome"], "words": [[5], [7, 8]]})
>>> features = [[Normalize("age", mean=40, std=10), OneHot("city", ["Rome", "Oslo"])], Pad("words", 3)]
>>> x, words = next(iter(gp.Shards.from_arrow(rows, 1).to_torch(2, feature_cols=features)))
>>> x.tolist(), words.tolist()
([[-1.0, 0.0, 1.0], [0.5, 1.0, 0.0]], [[5, 0, 0], [7, 8, 0]])
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from grampus._arguments import suggest
from grampus._warning import warn

if TYPE_CHECKING:
    from grampus.images import ImageStep

__all__ = ["Cast", "ColumnStep", "Image", "Normalize", "OneHot", "Pad", "Scale"]

_KINDS = {
    "float32": "f32",
    "float64": "f64",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "bool": "bool",
}


@dataclass(frozen=True)
class ColumnStep(ABC):
    """The base of all steps: a column, and what is done with it."""

    column: str

    def __post_init__(self) -> None:
        """Wrong numbers are found where they are written."""
        if not isinstance(self.column, str) or not self.column:
            raise TypeError(f"{self}: column is the name of a column")
        self._step()

    @abstractmethod
    def _step(self) -> dict[str, Any]: ...

    def _described(self) -> dict[str, Any]:
        return {"name": self.column, "step": self._step()}


@dataclass(frozen=True)
class Cast(ColumnStep):
    """Numbers of another type: "float32", "float64", "int8" to "int64", "uint8" or "bool".

    >>> Cast("age", "float32")
    Cast(column='age', dtype='float32')
    """

    dtype: str

    def _step(self) -> dict[str, Any]:
        if self.dtype not in _KINDS:
            raise ValueError(f"{self}: dtype is one of {', '.join(map(repr, _KINDS))}")
        return {"cast": {"kind": _KINDS[self.dtype]}}


@dataclass(frozen=True)
class Scale(ColumnStep):
    """Each value times `by`, with `offset` added, as float32; lists keep their length.

    >>> Scale("pixel", by=1 / 255).offset
    0.0
    """

    by: float
    offset: float = 0.0

    def _step(self) -> dict[str, Any]:
        return {"scale": {"by": _number(self, "by", self.by), "offset": _number(self, "offset", self.offset)}}


@dataclass(frozen=True)
class Normalize(ColumnStep):
    """Each value less `mean`, divided by `std`, as float32; lists keep their length.

    >>> Normalize("age", mean=38.6, std=0)
    Traceback (most recent call last):
    ValueError: Normalize(column='age', mean=38.6, std=0): std is 0, as of a column whose values are all equal
    """

    mean: float
    std: float

    def _step(self) -> dict[str, Any]:
        mean, std = _number(self, "mean", self.mean), _number(self, "std", self.std)
        if std == 0:
            raise ValueError(f"{self}: std is 0, as of a column whose values are all equal")
        return {"normalise": {"mean": mean, "std": std}}


@dataclass(frozen=True)
class OneHot(ColumnStep):
    """A number for each class, 1 for that of the value and 0 for the others, as float32.

    `classes` is their number, where the values are whole numbers from 0 on; or all values there are, texts or
    numbers, in order. Beside other columns in one matrix it takes as many places as there are classes.

    >>> OneHot("city", ["Rome", "Oslo", "Rome"])
    Traceback (most recent call last):
    ValueError: OneHot(column='city', classes=['Rome', 'Oslo', 'Rome']): classes names 'Rome' twice
    """

    classes: int | Sequence[str] | Sequence[float]

    def _step(self) -> dict[str, Any]:
        return {"one_hot": {"classes": self._classes()}}

    def _classes(self) -> Any:
        if isinstance(self.classes, int):
            return _count(self, "classes", self.classes)
        if isinstance(self.classes, str) or not isinstance(self.classes, Sequence):
            raise TypeError(f"{self}: classes is a number, or a list of all values there are")
        listed = list(self.classes)
        if not listed:
            raise ValueError(f"{self}: classes is empty")
        if not all(isinstance(one, str) for one in listed):
            listed = [_number(self, "classes", one) for one in listed]
        twice = [one for place, one in enumerate(listed) if one in listed[:place]]
        if twice:
            raise ValueError(f"{self}: classes names {twice[0]!r} twice")
        return listed


@dataclass(frozen=True)
class Image(ColumnStep):
    """The bytes of JPEG, PNG or WebP files, decoded; `steps` of `grampus.images` say what is done with them.

    It stands alone: no other column is beside it in one array.

    >>> from grampus.images import Resize, ToFloat
    >>> Image("content", [Resize((32, 32)), ToFloat()]).column
    'content'
    """

    steps: Sequence[ImageStep] = ()

    def _step(self) -> dict[str, Any]:
        from grampus.images import pipeline

        return {"images": json.loads(pipeline(self.steps))}


@dataclass(frozen=True)
class Pad(ColumnStep):
    """Lists of numbers filled up at the end with `value`, so that all have one length.

    A longer list makes a bad row, unless `truncate` says that it is cut.

    >>> Pad("tokens", 128)
    Pad(column='tokens', length=128, value=0, truncate=False)
    """

    length: int
    value: float = 0
    truncate: bool = False

    def _step(self) -> dict[str, Any]:
        length, value = _count(self, "length", self.length), _number(self, "value", self.value)
        return {"pad": {"length": length, "value": value, "truncate": bool(self.truncate)}}


def _count(step: ColumnStep, name: str, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value < 2**32:
        return value
    raise ValueError(f"{step}: {name} is a whole number of at least 1")


def _number(step: ColumnStep, name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{step}: {name} takes numbers") from None
    if not math.isfinite(number):
        raise ValueError(f"{step}: {name} must be finite")
    return number


def __getattr__(name: str) -> Any:
    if name == "Normalise":
        warn("grampus.columns.Normalise is now spelt Normalize, as in grampus.images")
        return Normalize
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


suggest(globals())
