"""Brings home what a run had trained when it was interrupted, or failed.

Workers keep the state of their last committed step until the next call, whatever has ended the run.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from grampus import _exception, _one_line
from grampus._training import worker
from grampus._training.show import hear
from grampus._wish import Wish
from grampus.errors import GrampusError

if TYPE_CHECKING:
    from grampus._training.job import Fit
    from grampus._training.oversight import Crew
    from grampus._training.recovery import Losses


class Rescued(NamedTuple):
    """A run as its workers had it."""

    state: dict[str, Any]
    at: dict[str, Any]
    records: list[dict[str, Any]]


def rescued(crew: Crew, job: Fit, error: BaseException) -> Rescued | None:
    """What the workers that are left have of a run, where it is more than the run began with."""
    if isinstance(error, FloatingPointError):
        # The step that made a loss no number has spoilt the weights.
        return None
    # What ended the run is what the user is to see, whatever else is broken.
    with suppress(GrampusError, OSError):
        # A rank of `grampus run` may hear only now of the Ctrl-C that has ended the run.
        wish = Wish(begun=True)
        answers = crew.cluster._call(worker.hand_over, (job,), {}, crew.most, hear, wish, 1)
        found = answers[0]
        if found is not None and found["at"]["step"] > job.at["step"]:
            return Rescued(found["state"], found["at"], found["records"])
    return None


def place(at: dict[str, Any]) -> str:
    """Where a run stands, for people.

    >>> place({"epoch": 1, "step_in_epoch": 31, "step": 431})
    'epoch 2, step 431'
    >>> place({"epoch": 2, "step_in_epoch": 0, "step": 800})
    'epoch 2, step 800'
    """
    return f"epoch {at['epoch'] + (at['step_in_epoch'] > 0)}, step {at['step']}"


def interruption(at: dict[str, Any] | None, job: Fit, losses: Losses) -> KeyboardInterrupt:
    """What `fit` raises after Ctrl-C: a line that says what became of what was trained."""
    if at is None:
        text = "interrupted: nothing of this run is left, and the estimator has the weights of before"
    else:
        text = f"interrupted at {place(at)}: the estimator keeps the weights of that step"
        if losses.saved and job.saving is not None:
            text += f", and resume=True goes on from there ({job.saving.url})"
        else:
            text += ' (estimator.save("model.safetensors") in `except KeyboardInterrupt`)'
    return _one_line.shown(KeyboardInterrupt(text))


def note(error: BaseException, at: dict[str, Any] | None) -> None:
    """Say in an error that what was trained is not lost, where that is so."""
    if at is None:
        return
    _exception.note(
        error, f"grampus: the estimator keeps the weights of {place(at)}: save() them, or fit() on"
    )
