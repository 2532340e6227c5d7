"""Events with bytes, which may be more than one report carries."""

from __future__ import annotations

import json
from typing import Any

from grampus import _report

# A report carries 1 MiB, and names take room.
_MOST = 900 << 10


def send(event: dict[str, Any], body: bytes) -> None:
    """Send an event and its bytes to the driver, in as many reports as it takes.

    >>> send({"kind": "image"}, b"nobody waits for this")
    """
    for report in cut(event, body):
        _report.send(report)


def cut(event: dict[str, Any], body: bytes, most: int = _MOST) -> list[bytes]:
    """The reports: in each a line of JSON, then some of the bytes.

    >>> cut({"kind": "image"}, b"12345", most=4)[1]
    b'{"kind": "image", "left": 0, "begins": false}\\n5'
    """
    starts = range(0, max(len(body), 1), most)
    parts = [body[start : start + most] for start in starts]
    heads = [
        {**event, "left": len(parts) - number - 1, "begins": number == 0} for number in range(len(parts))
    ]
    return [json.dumps(head).encode() + b"\n" + part for head, part in zip(heads, parts, strict=True)]


def scalars(values: list[tuple[int, str, float]], most: int = _MOST) -> list[bytes]:
    """Values at steps, in as many reports as it takes.

    >>> scalars([(1, "a", 0.5), (1, "b", 0.5)], most=60)[1]
    b'{"kind": "scalars", "values": [[1, "b", 0.5]]}'
    """
    report = json.dumps({"kind": "scalars", "values": values}).encode()
    if len(report) <= most or len(values) == 1:
        return [report]
    half = len(values) // 2
    return scalars(values[:half], most) + scalars(values[half:], most)


class Parcels:
    """Puts events together again; one whose sender was lost on the way is forgotten.

    >>> parcels = Parcels()
    >>> [parcels.take(report) for report in cut({"kind": "image"}, b"12345", most=4)]
    [None, {'kind': 'image', 'bytes': b'12345'}]
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        # How many more reports belong to it; none is awaited without a beginning.
        self._left: int | None = None

    def take(self, report: bytes) -> dict[str, Any] | None:
        """The event that a report completes, or is."""
        head, newline, part = report.partition(b"\n")
        event: dict[str, Any] = json.loads(head)
        if not newline:
            return event
        left, begins = event.pop("left"), event.pop("begins")
        if begins:
            self._parts = []
        elif self._left is None or left != self._left - 1:
            self._left = None
            return None
        self._parts.append(part)
        self._left = left
        if left:
            return None
        self._left, parts = None, self._parts
        self._parts = []
        return {**event, "bytes": b"".join(parts)}
