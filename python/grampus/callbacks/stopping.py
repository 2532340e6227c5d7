"""Callbacks that end a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grampus._direction import Directions, check_mode, settled
from grampus._figures import best_of, count, figure, measures, without_validation
from grampus.callbacks._checks import at_least
from grampus.callbacks.callback import Callback, Run


class EarlyStopping(Callback):
    """Ends the run when a value has not become better for some epochs.

    Args:
        monitor: name of the value in the epochs' records.
        patience: how many epochs in a row without a better value end the run; 0 and 1 both end it at the
            first.
        min_delta: by how much a value must be better to count.
        mode: `"min"` where less is better, `"max"` where more is; `"auto"` asks the metric. Values of which
            nothing says that, such as those of your own functions, need `"min"` or `"max"`.
        start: epochs at the beginning that are not looked at.

    After the run, `best` is the best value and `best_epoch` its epoch (the first is 1).
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        patience: int = 3,
        min_delta: float = 0.0,
        mode: str = "auto",
        start: int = 0,
    ) -> None:
        check_mode(mode, "EarlyStopping")
        at_least("patience of EarlyStopping", patience, 0)
        at_least("start of EarlyStopping", start, 0)
        if not min_delta >= 0:
            raise ValueError(f"min_delta of EarlyStopping must be at least 0, it is {min_delta}")
        self.monitor = monitor
        self.patience = patience
        self.min_delta = min_delta
        self.mode = mode
        self.start = start
        self.best: float | None = None
        self.best_epoch: int | None = None
        self._seen: list[tuple[int, float]] = []
        self._way: str | None = None

    def settle(self, metrics: Directions) -> None:
        """Find out which way the value becomes better, in a run with these metrics."""
        self._way = settled(self.mode, self.monitor, metrics, f"EarlyStopping({self.monitor!r})")

    def on_run_begin(self, run: Run) -> None:
        """Forget an earlier run, and look at what is known of one that is resumed."""
        self.best = self.best_epoch = None
        self._seen = []
        if self._way is None:
            self.settle({})
        for record in run.records:
            self._look(record)

    def _look(self, record: dict[str, Any]) -> None:
        if record["epoch"] > self.start and self.monitor in record:
            self._seen.append((record["epoch"], float(record[self.monitor])))
            self.best_epoch, self.best = best_of(self._seen, self.min_delta, self._way or self.mode)

    def on_epoch_end(self, run: Run) -> None:
        """Look at the record."""
        record = run.record or {}
        if record["epoch"] <= self.start:
            return
        if self.monitor not in record:
            # Some runs validate only every few epochs; one that never measures the name is a mistake.
            if self._seen:
                return
            names = ", ".join(measures(record))
            raise ValueError(
                f"EarlyStopping watches {self.monitor!r}, which is not measured; there are: {names}"
                f"{without_validation(self.monitor, record)}"
            )
        self._look(record)
        reason = early_end(self.monitor, self._seen, self.patience, self.min_delta, self._way or self.mode)
        if reason is not None:
            run.stop(reason)

    def __repr__(self) -> str:
        """As it is written in code."""
        return (
            f"EarlyStopping({self.monitor!r}, patience={self.patience}, min_delta={self.min_delta}, "
            f"mode={self.mode!r}, start={self.start})"
        )


def early_end(
    name: str, seen: Sequence[tuple[int, float]], patience: int, min_delta: float, mode: str
) -> str | None:
    """Why a run should end early, or `None`: a pure function of what was seen.

    >>> early_end("val_loss", [(1, 0.5), (2, 0.6), (3, 0.7)], 2, 0.0, "min")
    'val_loss is not better than 0.5000 of epoch 1 for 2 epochs'
    """
    epoch, value = best_of(seen, min_delta, mode)
    passed = sum(1 for later, _ in seen if later > epoch)
    if passed < max(patience, 1):
        return None
    return f"{name} is not better than {figure(value)} of epoch {epoch} for {count(passed, 'epoch')}"


class StopOnNaN:
    """Ends a run with an error at the first loss that is no number; the error names the rows.

    Without it such a loss is a warning, and the run goes on.
    """
