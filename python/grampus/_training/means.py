"""Numbers that code of the user returns for batches: means over rows, whoever has seen which."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

from grampus import _explain, _meters, metrics
from grampus.errors import NotPicklable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from grampus.collective import Group


class Means:
    """What batches have said so far.

    >>> means = Means()
    >>> means.add({"loss": 1.0, "note": "a"}, rows=1)
    >>> means.add({"loss": 4.0, "note": "b"}, rows=2)
    >>> means.values()
    {'loss': 3.0, 'note': 'a'}
    """

    def __init__(self) -> None:
        self.rows = 0
        # Sum and rows of each number; objects of torchmetrics, which count by themselves; and the first of
        # what is neither.
        self._sums: dict[str, tuple[float, float]] = {}
        self._counting: dict[str, list[Any]] = {}
        self._others: dict[str, Any] = {}

    def add(self, said: Mapping[str, Any], rows: int) -> None:
        """A batch of so many rows has said this."""
        self.rows += rows
        for name, value in said.items() if rows else ():
            number = as_number(value)
            if number is not None:
                total, seen = self._sums.get(name, (0.0, 0.0))
                self._sums[name] = total + number * rows, seen + rows
            elif metrics.is_torchmetrics(value):
                self._counting[name] = [value]
            else:
                self._others.setdefault(name, value)

    def join(self, said: Mapping[str, Any], rows: int) -> None:
        """More about rows that were counted before."""
        self.add(said, rows)
        self.rows -= rows

    def reset(self) -> None:
        """Let objects that count by themselves begin anew."""
        for [metric] in self._counting.values():
            metric.reset()

    def values(self) -> dict[str, Any]:
        """The means, and one value of what has none."""
        means = {name: total / seen for name, (total, seen) in self._sums.items() if seen}
        means |= {name: _meters.value_of_all(parts) for name, parts in self._counting.items()}
        return {**means, **{name: value for name, value in self._others.items() if name not in means}}

    def over_all(self, group: Group) -> Means:
        """What all workers of a group have seen."""
        # Peers of the group have proved the key of the job.
        return Means.merged(pickle.loads(each) for each in group._native.gather_bytes(self._packed()))

    def _packed(self) -> bytes:
        import cloudpickle

        try:
            packed: bytes = cloudpickle.dumps(self)
        except Exception as error:
            for name, value in {**self._others, **self._counting}.items():
                if _explain.fails(value):
                    why = _explain.explain(value, f"what the operator returned as {name!r}")
                    raise NotPicklable(f"{why} ({error}): return numbers, texts or arrays") from None
            raise
        return packed

    @classmethod
    def merged(cls, parts: Iterable[Means]) -> Means:
        """What all of them have seen."""
        whole = cls()
        for part in parts:
            whole.rows += part.rows
            for name, (total, seen) in part._sums.items():
                known = whole._sums.get(name, (0.0, 0.0))
                whole._sums[name] = known[0] + total, known[1] + seen
            for name, counting in part._counting.items():
                whole._counting.setdefault(name, []).extend(counting)
            for name, value in part._others.items():
                whole._others.setdefault(name, value)
        return whole


def as_number(value: Any) -> float | None:
    """A number as Python has it; of arrays and tensors, those of one element."""
    if isinstance(value, int | float):
        return float(value)
    size = getattr(value, "numel", None)
    count = size() if callable(size) else getattr(value, "size", None)
    found = value.item() if count == 1 and hasattr(value, "item") else None
    return float(found) if isinstance(found, int | float) else None
