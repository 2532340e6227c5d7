"""What is done with images between the file and the batch.

The steps run in Rust, on the threads that read the data, in the order in which they are given. Names, sizes
and rules are those of `torchvision.transforms`; a size is one number for a square, or (height, width). What
is random depends on the seed, the epoch and the row alone: it is the same with any number of workers.

>>> steps = [RandomCrop(32, padding=4), RandomFlip(), Normalize(mean=[0.5, 0.5, 0.4], std=[0.2, 0.2, 0.3])]
>>> pipeline(steps)                                        # doctest: +ELLIPSIS
'{"steps": [{"step": "random_crop", "width": 32, "height": 32, "padding": 4}, {"step": "flip_horizontal", ...
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from grampus._arguments import suggest

__all__ = [
    "CenterCrop",
    "Channels",
    "ChannelsLast",
    "ImageStep",
    "Normalize",
    "RandomCrop",
    "RandomFlip",
    "RandomResizedCrop",
    "Resize",
    "ToFloat",
    "pipeline",
]

# One number, or (height, width).
Size: TypeAlias = "int | tuple[int, int]"
# Steps that draw random numbers, by the names that the engine knows them by.
RANDOM = frozenset(("flip_horizontal", "random_crop", "random_resized_crop"))


class ImageStep(ABC):
    """The base of all steps."""

    @abstractmethod
    def _described(self) -> dict[str, Any]: ...


class _Output(ImageStep):
    """A step that says what the numbers of the batch are: it may stand anywhere, once."""


@dataclass(frozen=True)
class Resize(ImageStep):
    """To another size, bilinear with antialias.

    One number is the new length of the shorter side, the other stays in proportion; (height, width) is exact.

    >>> pipeline([Resize(256)])
    '{"steps": [{"step": "resize_shorter", "side": 256}], "output": {"kind": "u8"}}'
    """

    size: Size

    def _described(self) -> dict[str, Any]:
        if isinstance(self.size, int):
            return {"step": "resize_shorter", "side": _whole(self, "size", self.size)}
        return {"step": "resize", **_sides(self, self.size)}


@dataclass(frozen=True)
class CenterCrop(ImageStep):
    """The middle of the image, with black around it where the image is smaller.

    >>> pipeline([CenterCrop((2, 3))])
    '{"steps": [{"step": "center_crop", "width": 3, "height": 2}], "output": {"kind": "u8"}}'
    """

    size: Size

    def _described(self) -> dict[str, Any]:
        return {"step": "center_crop", **_sides(self, self.size)}


@dataclass(frozen=True)
class RandomCrop(ImageStep):
    """A part at a random place of the image with `padding` black pixels on each side.

    >>> RandomCrop(32, padding=4)
    RandomCrop(size=32, padding=4)
    """

    size: Size
    padding: int = 0

    def _described(self) -> dict[str, Any]:
        padding = _whole(self, "padding", self.padding)
        return {"step": "random_crop", **_sides(self, self.size), "padding": padding}


@dataclass(frozen=True)
class RandomResizedCrop(ImageStep):
    """A part of random area (`scale`), shape (`ratio`, width to height) and place, resized.

    >>> RandomResizedCrop(224, scale=(0.5, 1.0)).scale
    (0.5, 1.0)
    """

    size: Size
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    def _described(self) -> dict[str, Any]:
        return {
            "step": "random_resized_crop",
            **_sides(self, self.size),
            "scale": _pair(self, "scale", self.scale),
            "ratio": _pair(self, "ratio", self.ratio),
        }


@dataclass(frozen=True)
class RandomFlip(ImageStep):
    """Left and right exchanged, in this part of the images.

    >>> RandomFlip()
    RandomFlip(probability=0.5)
    """

    probability: float = 0.5

    def _described(self) -> dict[str, Any]:
        return {"step": "flip_horizontal", "probability": _number(self, "probability", self.probability)}


@dataclass(frozen=True)
class ToFloat(_Output):
    """Floats, each the sample (0 to 255) times `scale`; 0 to 1 if nothing is said.

    >>> pipeline([ToFloat()])
    '{"steps": [], "output": {"kind": "f32"}}'
    """

    scale: float | None = None

    def _described(self) -> dict[str, Any]:
        scale = {} if self.scale is None else {"scale": _number(self, "scale", self.scale)}
        return {"kind": "f32", **scale}


@dataclass(frozen=True)
class Normalize(_Output):
    """Floats, less `mean` and divided by `std`: one number for all channels, or one for each in their order.

    >>> pipeline([Normalize(0.5, 0.25)])
    '{"steps": [], "output": {"kind": "f32", "mean": [0.5], "std": [0.25]}}'
    """

    mean: float | Sequence[float]
    std: float | Sequence[float]

    def _described(self) -> dict[str, Any]:
        return {
            "kind": "f32",
            "mean": _numbers(self, "mean", self.mean),
            "std": _numbers(self, "std", self.std),
        }


@dataclass(frozen=True)
class Channels(_Output):
    """Which channels, in which order: "rgb" (if nothing is said), "bgr" or "gray".

    >>> pipeline([Channels("gray")])
    '{"steps": [], "output": {"kind": "u8", "channels": "gray"}}'
    """

    order: Literal["rgb", "bgr", "gray"]

    def _described(self) -> dict[str, Any]:
        if self.order not in ("rgb", "bgr", "gray"):
            raise ValueError(f"{self}: the order of channels is 'rgb', 'bgr' or 'gray'")
        return {"channels": self.order}


@dataclass(frozen=True)
class ChannelsLast(_Output):
    """Rows, columns, channels, as TensorFlow takes them; without it the channels come first.

    >>> pipeline([ChannelsLast()])
    '{"steps": [], "output": {"kind": "u8", "layout": "hwc"}}'
    """

    def _described(self) -> dict[str, Any]:
        return {"layout": "hwc"}


def pipeline(steps: Iterable[ImageStep]) -> str:
    """The text from which readers make the steps. Numbers are bytes unless a step makes floats of them."""
    moves: list[dict[str, Any]] = []
    output: dict[str, Any] = {"kind": "u8"}
    seen: set[type] = set()
    for number, step in enumerate(steps, 1):
        if not isinstance(step, ImageStep):
            raise TypeError(
                f"image step {number} is {step!r}: give steps of grampus.images, such as Resize(224)"
            )
        if not isinstance(step, _Output):
            moves.append(step._described())
            continue
        if type(step) in seen:
            raise ValueError(f"image step {number}: {type(step).__name__} can be given only once")
        seen.add(type(step))
        output.update(step._described())
    return json.dumps({"steps": moves, "output": output})


def _sides(step: ImageStep, size: Size) -> dict[str, int]:
    if isinstance(size, Sequence) and len(size) == 2:
        height, width = size
    else:
        height = width = size
    return {"width": _whole(step, "size", width), "height": _whole(step, "size", height)}


def _whole(step: ImageStep, name: str, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**32:
        return value
    allowed = "a whole number, or (height, width)" if name == "size" else "a whole number"
    raise ValueError(f"{step}: {name} is {allowed}")


def _number(step: ImageStep, name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{step}: {name} takes numbers") from None


def _numbers(step: ImageStep, name: str, values: float | Iterable[float]) -> list[float]:
    return [_number(step, name, value) for value in (values if isinstance(values, Iterable) else [values])]


def _pair(step: ImageStep, name: str, values: tuple[float, float]) -> list[float]:
    numbers = _numbers(step, name, values)
    if len(numbers) != 2:
        raise ValueError(f"{step}: {name} is two numbers, from and to")
    return numbers


suggest(globals())
