"""Files for TensorBoard."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from grampus import _native
from grampus._figures import curves
from grampus._logger import Logger
from grampus.callbacks._checks import at_least


class TensorBoard(Logger):
    """Writes curves for TensorBoard.

    `train/loss` and `train/learning_rate` for steps; at the end of an epoch `train/…` and `validation/…` for
    the metrics, `samples_per_second` and `data_wait`. All are over the steps, counted over all epochs. Where
    a run goes on from a checkpoint, TensorBoard leaves out what an earlier one wrote beyond it. What
    callbacks log at steps stands under its own name, and so do images; `ModelGraph` shows the model.

    Args:
        log_dir: the folder; by default `tensorboard` in the folder of the run.
        every: write every n-th step.
    """

    may_fail = True
    _is_file = True

    def __init__(self, log_dir: str | os.PathLike[str] | None = None, every: int = 1) -> None:
        at_least("every of TensorBoard", every, 1)
        self.log_dir = None if log_dir is None else os.fspath(log_dir)
        self.every = every
        self._folder: str | None = None
        self._run: str | None = None
        self._writer: _native.EventWriter | None = None
        self._step = 0
        self._is_begun = False

    @property
    def place(self) -> str | None:
        """The folder."""
        return self._folder

    def event(self, event: dict[str, Any]) -> None:
        """Write what the event says."""
        now = time.time()
        if event["kind"] == "begin":
            self._run = event.get("run")
            self._begin(now)
        elif self._writer is None and self._folder is not None:
            # It could not be made when the run began.
            self._begin(now)
        if self._writer is None:
            return
        if event["kind"] == "steps":
            self._steps(self._writer, event["steps"], now)
        elif event["kind"] == "epoch":
            for name, value in curves(event["record"]).items():
                self._writer.scalar(name, value, self._step, now)
            self._writer.flush()
        elif event["kind"] in ("scalars", "image", "graph"):
            self._logged(self._writer, event, now)

    def close(self) -> None:
        """Close the file."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def _begin(self, now: float) -> None:
        self.close()
        if self.log_dir is None and self._run is None:
            raise ValueError("TensorBoard has no folder: pass log_dir, or let the run have a folder")
        self._folder = self.log_dir or str(Path(self._run or "") / "tensorboard")
        self._writer = _native.EventWriter(self._folder, now)
        self._step = 0
        self._is_begun = False

    def _begin_steps(self, writer: _native.EventWriter, step: int, now: float) -> None:
        """Before the first point: TensorBoard leaves out what earlier files have from there on."""
        if not self._is_begun:
            writer.begin(step, now)
            self._is_begun = True

    def _steps(self, writer: _native.EventWriter, steps: list[tuple[int, float, float]], now: float) -> None:
        if not steps:
            return
        self._begin_steps(writer, steps[0][0], now)
        for step, loss, rate in steps:
            if step % self.every == 0:
                writer.scalar("train/loss", loss, step, now)
                writer.scalar("train/learning_rate", rate, step, now)
        self._step = steps[-1][0]
        writer.flush()

    def _logged(self, writer: _native.EventWriter, event: dict[str, Any], now: float) -> None:
        """What a callback has to show."""
        if event["kind"] == "graph":
            writer.graph(event["bytes"], now)
        elif event["kind"] == "image":
            self._begin_steps(writer, event["step"], now)
            size = event["width"], event["height"], event["channels"]
            writer.image(event["name"], event["bytes"], size, event["step"], now)
        else:
            for step, name, value in event["values"]:
                self._begin_steps(writer, step, now)
                writer.scalar(name, value, step, now)
        writer.flush()
