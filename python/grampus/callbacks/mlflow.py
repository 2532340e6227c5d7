"""Runs in MLflow."""

from __future__ import annotations

import importlib.util
import io
import os
import re
import time
from collections.abc import Mapping
from typing import Any

from grampus._warning import warn
from grampus.callbacks._checks import check_installed
from grampus.callbacks.tracker import Point, Tracker

# What one call takes, and a name.
_MOST_VALUES = 1000
_LONGEST = 250
# Seconds between two calls: a server may be far away.
_BETWEEN = 1.0


class MLflow(Tracker):
    """Keeps the run in MLflow (`pip install mlflow-skinny`, or mlflow).

    One run, however many workers: `train/loss` and `train/learning_rate` for steps, `train/…` and
    `validation/…` for epochs, what callbacks log, and as parameters the sizes of the run. It is finished when
    `fit` returns, and failed when that raises. A run that goes on from a checkpoint goes on in MLflow: its id
    is kept in `mlflow_run_id`, in the folder of the run and beside its checkpoints.

    Args:
        experiment: its name; it is made where it is missing. By default what MLflow's variables say
            (`MLFLOW_EXPERIMENT_NAME`, `MLFLOW_EXPERIMENT_ID`), or MLflow's default.
        run_name: how the run is called; MLflow invents a name.
        tracking_uri: where MLflow keeps it; by default what `mlflow.set_tracking_uri` or
            `MLFLOW_TRACKING_URI` say.
        every: keep every n-th step.
        tags: of the run.
    """

    _NAME_FILE = "mlflow_run_id"

    def __init__(
        self,
        experiment: str | None = None,
        run_name: str | None = None,
        tracking_uri: str | os.PathLike[str] | None = None,
        every: int = 1,
        tags: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(every)
        check_installed("mlflow", "mlflow-skinny", "MLflow")
        self.experiment = experiment
        self.run_name = run_name
        self.tracking_uri = None if tracking_uri is None else os.fspath(tracking_uri)
        self.tags = dict(tags or {})
        self._client: Any = None
        self._waiting: list[Any] = []
        self._sent = 0.0

    @property
    def place(self) -> str | None:
        """The run."""
        return None if self.run_id is None else f"run {self.run_id}"

    def _open(self, parameters: Mapping[str, Any], known: str | None) -> str:
        from mlflow import MlflowClient
        from mlflow.entities import Param

        self._client = MlflowClient(self.tracking_uri)
        self._waiting, self._sent = [], time.monotonic()
        run = self._old(known) if known is not None else None
        if run is None:
            run = self._client.create_run(self._experiment_id(), tags=self.tags, run_name=self.run_name)
        # A parameter never changes, also where the run goes on with another number of workers.
        fresh = [Param(name, str(value)) for name, value in parameters.items() if name not in run.data.params]
        self._client.log_batch(run.info.run_id, params=fresh)
        return str(run.info.run_id)

    def _old(self, known: str) -> Any:
        from mlflow.exceptions import MlflowException

        try:
            run = self._client.get_run(known)
        except MlflowException as error:
            if error.error_code not in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
                raise
            run = None
        if run is None or run.info.lifecycle_stage != "active":
            warn(f"MLflow does not know the run {known}: it goes on as another")
            return None
        self._client.update_run(known, status="RUNNING")
        return run

    def _experiment_id(self) -> str:
        name = self.experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME")
        if name is None:
            return os.environ.get("MLFLOW_EXPERIMENT_ID", "0")
        found = self._client.get_experiment_by_name(name)
        return str(found.experiment_id if found is not None else self._client.create_experiment(name))

    def _log(self, points: list[Point]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        for point in points:
            named = {_allowed(name): value for name, value in point.values.items()}
            self._waiting += [Metric(name, value, now, point.step) for name, value in named.items()]
        if len(self._waiting) >= _MOST_VALUES or time.monotonic() - self._sent >= _BETWEEN:
            self._send()

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, []
        for start in range(0, len(waiting), _MOST_VALUES):
            self._client.log_batch(self.run_id, metrics=waiting[start : start + _MOST_VALUES])
        self._sent = time.monotonic()

    def _show(self, name: str, png: bytes, step: int) -> None:
        # MLflow takes pictures only through Pillow.
        if importlib.util.find_spec("PIL") is not None:
            from PIL import Image

            # Of pictures it takes no other letters.
            key = _allowed(name.encode("ascii", "replace").decode())
            self._client.log_image(self.run_id, Image.open(io.BytesIO(png)), key=key, step=step)

    def _finish(self, failed: bool) -> None:
        client = self._client
        try:
            self._send()
        finally:
            # Values that it did not take are no reason to leave it running.
            self._client, self._waiting = None, []
            client.set_terminated(self.run_id, "FAILED" if failed else "FINISHED")


def _allowed(name: str) -> str:
    """A name as MLflow takes it: few characters, and no way to another folder.

    >>> _allowed("train/f1@5"), _allowed("../top (3)"), _allowed("/a//b")
    ('train/f1_5', '_/top _3_', 'a/b')
    """
    parts = [re.sub(r"[^\w\-. ]", "_", part) for part in name.split("/") if part]
    return "/".join("_" if set(part) == {"."} else part for part in parts)[:_LONGEST] or "_"
