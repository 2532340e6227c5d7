"""Callbacks that end a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grampus._figures import best_of, better_way, count, figure, measures, without_validation
from grampus.callbacks._checks import at_least
from grampus.callbacks.callback import Callback, Run


class EarlyStopping(Callback):
    """Ends the run when a value has not become better for some epochs.

    Args:
        monitor: name of the value in the epochs' records.
        patience: how many epochs may pass without a better value.
        min_delta: by how much a value must be better to count.
        mode: `"min"` where less is better, `"max"` where more is; `"auto"` takes less for names with
            loss, error, mae, mse, msle, mspe, mape or mdape in them.
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
        if mode not in ("auto", "min", "max"):
            raise ValueError(f'mode of EarlyStopping must be "auto", "min" or "max", it is {mode!r}')
        at_least("patience of EarlyStopping", patience, 1)
        at_least("start of EarlyStopping", start, 0)
        if not min_delta >= 0:
            raise ValueError(f"min_delta of EarlyStopping must be at least 0, it is {min_delta}")
        self.monitor = monitor
        self.patience = patience
        self.min_delta = min_delta
        self.mode = better_way(monitor) if mode == "auto" else mode
        self.start = start
        self.best: float | None = None
        self.best_epoch: int | None = None
        self._seen: list[tuple[int, float]] = []

    def on_run_begin(self, run: Run) -> None:
        """Forget an earlier run, and look at what is known of one that is resumed."""
        self.best = self.best_epoch = None
        self._seen = []
        for record in run.records:
            self._look(record)

    def _look(self, record: dict[str, Any]) -> None:
        if record["epoch"] > self.start and self.monitor in record:
            self._seen.append((record["epoch"], float(record[self.monitor])))
            self.best_epoch, self.best = best_of(self._seen, self.min_delta, self.mode)

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
        reason = early_end(self.monitor, self._seen, self.patience, self.min_delta, self.mode)
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
    if passed < patience:
        return None
    return f"{name} is not better than {figure(value)} of epoch {epoch} for {count(passed, 'epoch')}"


class StopOnNaN:
    """Ends a run with an error at the first loss that is no number; the error names the rows.

    Without it such a loss is a warning, and the run goes on.
    """
