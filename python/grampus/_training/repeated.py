"""Steps that are done again after a loss: a model that is deterministic computes what it had computed before.

Whoever had done a part of the step keeps its loss, and whoever does that part again compares.
"""

from __future__ import annotations

from grampus import _report
from grampus.errors import NotReproducible


class Repeated:
    """The losses of lanes in the step under way."""

    def __init__(self, before: dict[int, float] | None = None, step: int = 0, strict: bool = False) -> None:
        """`before` are those of the same step when it was cut off; `strict` makes another one an error."""
        self._before = before or {}
        self._step = step
        self._strict = strict
        # What another worker needs to know if this step is cut off.
        self.losses: dict[int, float] = {}

    def add(self, lane: int, loss: float) -> None:
        """A lane is done."""
        self.losses[lane] = loss
        before = self._before.get(lane)
        # As texts: what is no number equals itself, and 0.0 is not -0.0.
        if before is None or before.hex() == loss.hex():
            return
        text = (
            f"the model's step is not deterministic: step {self._step + 1} was done again after a worker was "
            f"lost, and the loss of lane {lane} was {before!r} before and is {loss!r} now; results depend on "
            "losses; look for random numbers of its own, the time, threads, and states that are no buffers"
        )
        if self._strict:
            raise NotReproducible(f"{text}; audit=True claims that it is")
        _report.note(text)

    def done(self) -> None:
        """The step is done on all lanes."""
        self.losses.clear()
        self._before = {}
