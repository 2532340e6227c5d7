"""What looks on while a model trains.

**Callbacks** run beside the model, on the worker of rank 0: they see it, and can end the run. **Loggers** run
in the driver, on the events that rank 0 sends: they write files and draw progress, and never see the model.

>>> stopping = EarlyStopping("val_accuracy", patience=2)
>>> stopping
EarlyStopping('val_accuracy', patience=2, min_delta=0.0, mode='max', start=0)
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from grampus import _native
from grampus._figures import best_of, better_way, columns, count, figure, is_number, measures
from grampus._logger import Logger
from grampus._progress import Progress

__all__ = [
    "CSVLog",
    "Callback",
    "EarlyStopping",
    "JSONLog",
    "Logger",
    "Progress",
    "Run",
    "StopOnNaN",
    "TensorBoard",
]


class Run(Protocol):
    """A run, as callbacks see it."""

    #: Epochs that are finished.
    epoch: int
    #: Steps that are done, over all epochs.
    step: int
    #: Loss of the last step, over the whole batch; `None` before the first.
    loss: float | None
    #: The epoch's record in `on_epoch_end`, as `History` keeps it; `None` elsewhere.
    record: dict[str, Any] | None
    #: The model, to read.
    model: Any
    #: Its optimizer, to read.
    optimizer: Any
    #: What was given to the estimator as `config`.
    config: dict[str, Any]

    def stop(self, reason: str) -> None:
        """End the run after this step, on all workers. The reason is in `History.reason`."""

    def log(self, name: str, value: float) -> None:
        """Put a value into the epoch's record, under a name of its own."""


class Callback:
    """Looks on beside the model. Write a class with the hooks that you need.

    It travels to the worker of rank 0 and must be picklable; when `fit` ends, its attributes come back to the
    object that you passed. It reads: weights that it changes differ between workers. What a hook raises ends
    the run and is raised by `fit`.
    """

    def on_run_begin(self, run: Run) -> None:
        """Before the first step."""

    def on_run_end(self, run: Run) -> None:
        """After the last step of a run that did not fail."""

    def on_epoch_begin(self, run: Run) -> None:
        """Before the first step of an epoch."""

    def on_epoch_end(self, run: Run) -> None:
        """After the last step of an epoch and its validation, with `run.record`."""

    def on_step_begin(self, run: Run) -> None:
        """Before a step."""

    def on_step_end(self, run: Run) -> None:
        """After a step, with `run.loss`."""


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
        _at_least("patience of EarlyStopping", patience, 1)
        _at_least("start of EarlyStopping", start, 0)
        if not min_delta >= 0:
            raise ValueError(f"min_delta of EarlyStopping must be at least 0, it is {min_delta}")
        self.monitor = monitor
        self.patience = patience
        self.min_delta = min_delta
        self.mode = better_way(monitor) if mode == "auto" else mode
        self.start = start
        self.on_run_begin()

    def on_run_begin(self, run: Run | None = None) -> None:  # noqa: ARG002
        """Forget an earlier run."""
        self.best: float | None = None
        self.best_epoch: int | None = None
        self._seen: list[tuple[int, float]] = []

    def on_epoch_end(self, run: Run) -> None:
        """Look at the record."""
        record = run.record or {}
        epoch = record.get("epoch", run.epoch)
        if epoch <= self.start:
            return
        if self.monitor not in record:
            # Some runs validate only every few epochs; one that never measures the name is a mistake.
            if self._seen:
                return
            names = ", ".join(measures(record))
            raise ValueError(
                f"EarlyStopping watches {self.monitor!r}, which is not measured; there are: {names}"
            )
        self._seen.append((epoch, float(record[self.monitor])))
        self.best_epoch, self.best = best_of(self._seen, self.min_delta, self.mode)
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


def _at_least(name: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number, it is {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, it is {value}")


class TensorBoard(Logger):
    """Writes curves for TensorBoard.

    `train/loss` and `train/learning_rate` for steps; at the end of an epoch `train/…` and `validation/…` for
    the metrics, `samples_per_second` and `data_wait`. All are over the steps, counted over all epochs. Where
    a run goes on from a checkpoint, TensorBoard leaves out what an earlier one wrote beyond it.

    Args:
        log_dir: the folder; by default `tensorboard` in the folder of the run.
        every: write every n-th step.
    """

    def __init__(self, log_dir: str | os.PathLike[str] | None = None, every: int = 1) -> None:
        _at_least("every of TensorBoard", every, 1)
        self.log_dir = None if log_dir is None else os.fspath(log_dir)
        self.every = every
        self._folder: str | None = None
        self._writer: _native.EventWriter | None = None
        self._step = 0

    @property
    def place(self) -> str | None:
        """The folder."""
        return self._folder

    def event(self, event: dict[str, Any]) -> None:
        """Write what the event says."""
        now = time.time()
        if event["kind"] == "begin":
            self._begin(event, now)
        elif event["kind"] == "steps":
            self._steps(event["steps"], now)
        elif event["kind"] == "epoch":
            self._epoch(event["record"], now)

    def close(self) -> None:
        """Close the file."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def _begin(self, event: dict[str, Any], now: float) -> None:
        self.close()
        if self.log_dir is None and event.get("run") is None:
            raise ValueError("TensorBoard has no folder: pass log_dir, or let the run have a folder")
        self._folder = self.log_dir or str(Path(event["run"]) / "tensorboard")
        self._writer = _native.EventWriter(self._folder, now)
        self._step = 0

    def _steps(self, steps: list[tuple[int, float, float]], now: float) -> None:
        writer = self._writer
        if writer is None or not steps:
            return
        if self._step == 0:
            writer.begin(steps[0][0], now)
        for step, loss, rate in steps:
            if step % self.every == 0:
                writer.scalar("train/loss", loss, step, now)
                writer.scalar("train/learning_rate", rate, step, now)
        self._step = steps[-1][0]
        writer.flush()

    def _epoch(self, record: dict[str, Any], now: float) -> None:
        writer = self._writer
        if writer is None:
            return
        for name in measures(record):
            if name.startswith("val_"):
                writer.scalar(f"validation/{name.removeprefix('val_')}", record[name], self._step, now)
            elif name != "loss":  # its curve has a point for every step
                writer.scalar(f"train/{name}", record[name], self._step, now)
        for name in ("samples_per_second", "data_wait"):
            if is_number(record.get(name)):
                writer.scalar(name, record[name], self._step, now)
        writer.flush()


class _EpochFile(Logger, ABC):
    """A text file with a line for every epoch."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)

    @property
    def place(self) -> str | None:
        """The file."""
        return self.path

    def event(self, event: dict[str, Any]) -> None:
        """Add an epoch."""
        if event["kind"] == "begin":
            done = event.get("epoch") or 0
            self._replace([record for record in self._kept() if int(record["epoch"]) <= done])
        elif event["kind"] == "epoch":
            self._add(event["record"])

    def _kept(self) -> list[dict[str, Any]]:
        """The records in the file; none where there is no file."""
        try:
            with open(self.path, encoding="utf-8", newline="") as file:
                records = list(self._read(file))
            if all(str(record["epoch"]).isdecimal() for record in records):
                return records
        except FileNotFoundError:
            return []
        except (KeyError, TypeError, ValueError, csv.Error):
            pass
        raise ValueError(
            f"{self.path} is no {type(self).__name__} of epochs: move it away or name another file"
        )

    def _replace(self, records: Sequence[dict[str, Any]]) -> None:
        """Write the file anew, so that it is whole at any moment."""
        target = Path(self.path)
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            with open(fresh, "w", encoding="utf-8", newline="") as file:
                file.write(self._text(records))
            fresh.replace(target)
        finally:
            fresh.unlink(missing_ok=True)

    def _append(self, text: str) -> None:
        with open(self.path, "a", encoding="utf-8", newline="") as file:
            file.write(text)

    @abstractmethod
    def _add(self, record: dict[str, Any]) -> None:
        """Write one more record."""

    @abstractmethod
    def _read(self, lines: Iterable[str]) -> Iterable[dict[str, Any]]:
        """The records that a file holds."""

    @abstractmethod
    def _text(self, records: Sequence[dict[str, Any]]) -> str:
        """A whole file of records."""


class CSVLog(_EpochFile):
    """Writes the epochs' records to a CSV file, one line each, below a line of names.

    A run that starts anew replaces the file; one that goes on after some epochs keeps theirs, and no epoch
    stands there twice.

    Args:
        path: the file. Its folder is made where it is missing.
    """

    def _add(self, record: dict[str, Any]) -> None:
        known = self._kept()
        names = columns(known)
        if set(record) <= set(names):
            self._append(_csv_lines([record], names))
        else:  # the first epoch, or the first one with a validation
            self._replace([*known, record])

    def _read(self, lines: Iterable[str]) -> Iterable[dict[str, Any]]:
        reader = csv.DictReader(lines)
        if "epoch" not in (reader.fieldnames or ["epoch"]):
            raise KeyError("epoch")
        return reader

    def _text(self, records: Sequence[dict[str, Any]]) -> str:
        names = columns(records)
        return _csv_lines([dict(zip(names, names, strict=True)), *records], names) if records else ""


def _csv_lines(records: Iterable[dict[str, Any]], names: Sequence[str]) -> str:
    buffer = io.StringIO()
    csv.DictWriter(buffer, names, lineterminator="\n").writerows(records)
    return buffer.getvalue()


class JSONLog(_EpochFile):
    """Writes the epochs' records to a file, each as a JSON object on a line of its own.

    A run that starts anew replaces the file; one that goes on after some epochs keeps theirs, and no epoch
    stands there twice. JSON has no word for values that are no numbers (NaN, infinity): they are `null`.

    Args:
        path: the file. Its folder is made where it is missing.
    """

    def _add(self, record: dict[str, Any]) -> None:
        self._append(self._text([record]))

    def _read(self, lines: Iterable[str]) -> Iterable[dict[str, Any]]:
        return map(json.loads, lines)

    def _text(self, records: Sequence[dict[str, Any]]) -> str:
        return "".join(f"{json.dumps(_finite(record), allow_nan=False)}\n" for record in records)


def _finite(value: Any) -> Any:
    """The value with `None` for all numbers in it that JSON cannot write."""
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class StopOnNaN:
    """Ends a run with an error at the first loss that is no number; the error names the rows.

    Without it such a loss is a warning, and the run goes on.
    """
