"""Runs in Weights & Biases."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Mapping
from typing import Any

from grampus.callbacks._checks import check_installed
from grampus.callbacks.tracker import Point, Tracker

# Points of one event, of which about ten come in a second: W&B takes them one by one, each in about 0.5 ms.
_MOST_POINTS = 50


class WandB(Tracker):
    """Keeps the run in Weights & Biases (`pip install wandb`).

    One run, however many workers: `train/loss` and `train/learning_rate` for steps, `train/…` and
    `validation/…` for epochs, what callbacks log, and in its config the sizes of the run. Curves are drawn
    over `step`. It is finished when `fit` returns, and failed when that raises; no process stays. A run that
    goes on from a checkpoint goes on in W&B: its id is kept in `wandb_run_id`, in the folder of the run and
    beside its checkpoints.

    Of a model that makes more than about 500 steps a second, some are left out, evenly.

    Args:
        project: its name.
        name: how the run is called; W&B invents a name.
        mode: `"online"`, `"offline"` or `"disabled"`; by default what `WANDB_MODE` says.
        every: keep every n-th step.
        settings: all else that `wandb.init` takes, such as `entity`, `group`, `tags`, `dir` and `config`.
    """

    _NAME_FILE = "wandb_run_id"

    def __init__(
        self,
        project: str | None = None,
        name: str | None = None,
        mode: str | None = None,
        every: int = 1,
        **settings: Any,
    ) -> None:
        super().__init__(every)
        check_installed("wandb", "wandb", "WandB")
        self.project = project
        self.name = name
        self.mode = mode
        self.settings = settings
        self._run: Any = None
        self._place: str | None = None

    @property
    def place(self) -> str | None:
        """The page of the run, or the folder of its files."""
        return self._place

    def _open(self, parameters: Mapping[str, Any], known: str | None) -> str:
        import wandb

        goes_on = {} if known is None else {"id": known, "resume": "allow"}
        # A run of the user's own stays what it is.
        given: dict[str, Any] = {"reinit": "create_new", "mode": self.mode, **self.settings, **goes_on}
        self._run = wandb.init(project=self.project, name=self.name, **given)
        self._run.config.update(parameters, allow_val_change=True)
        # W&B's own count of steps never goes back, as a run does that goes on from a checkpoint.
        self._run.define_metric("step", hidden=True)
        self._run.define_metric("*", step_metric="step")
        self._place = self._run.url or self._run.dir
        return str(self._run.id)

    def _log(self, points: list[Point]) -> None:
        for point in _thinned(points):
            self._run.log({**point.values, "step": point.step})

    def _show(self, name: str, png: bytes, step: int) -> None:
        # W&B takes pictures only through Pillow.
        if importlib.util.find_spec("PIL") is not None:
            import wandb
            from PIL import Image

            self._run.log({name: wandb.Image(Image.open(io.BytesIO(png))), "step": step})

    def _finish(self, failed: bool) -> None:
        import wandb

        run, self._run = self._run, None
        run.finish(exit_code=int(failed))
        if wandb.setup().most_recent_active_run is None:
            # Nobody else needs the process that W&B has started.
            wandb.teardown()


def _thinned(points: list[Point]) -> list[Point]:
    """At most so many, evenly, with the last.

    >>> kept = _thinned([Point(step, {}) for step in range(1, 1001)])
    >>> len(kept), kept[0].step, kept[-1].step
    (50, 20, 1000)
    """
    most = min(len(points), _MOST_POINTS)
    return [points[(number + 1) * len(points) // most - 1] for number in range(most)]
