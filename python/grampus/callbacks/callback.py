"""What a callback is, and what it sees of a run."""

from __future__ import annotations

from typing import Any, Protocol


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
    #: Those of the epochs before, also of the part of a run that is resumed.
    records: list[dict[str, Any]]
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

    def log_step(self, name: str, value: float) -> None:
        """Put a value at the present step of the curve `name`, for TensorBoard and other trackers."""

    def image(self, name: str, array: Any) -> None:
        """Show a picture at the present step, for TensorBoard and other trackers.

        An array or tensor of height x width, height x width x 1 or 3, or 3 x height x width; bytes, or
        floats from 0 to 1.
        """

    def graph(self, graph: bytes) -> None:
        """Show the model in TensorBoard: the bytes of a `GraphDef`, as `ModelGraph` makes them."""


class Callback:
    """Looks on beside the model. Write a class with the hooks that you need.

    It travels to the worker of rank 0 and must be picklable; when `fit` ends, its attributes come back to the
    object that you passed. One that cannot be pickled by then stays there, with a warning. It reads: weights
    that it changes differ between workers. What a hook raises ends the run and is raised by `fit`.
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
