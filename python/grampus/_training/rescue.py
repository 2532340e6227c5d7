"""Brings home what a run had trained when it was interrupted, or failed.

Workers keep the state of their last committed step until the next call, whatever has ended the run.
"""

from __future__ import annotations

import time
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from grampus import _exception, _one_line
from grampus._training import recovery, worker
from grampus._training.leaving import Interrupted, interrupting
from grampus._training.show import hear
from grampus._training.watcher import NotANumber
from grampus._wish import Wish

if TYPE_CHECKING:
    from collections.abc import Callable

    from grampus import _native
    from grampus._training.job import Fit
    from grampus._training.oversight import Crew
    from grampus._training.recovery import Losses

# Seconds that workers may take in all: the state of a large model travels for minutes.
_WITHIN = 600.0


class Rescued(NamedTuple):
    """A run as its workers had it."""

    state: dict[str, Any]
    at: dict[str, Any]
    records: list[dict[str, Any]]
    torn: bool


def rescued(crew: Crew, job: Fit, error: BaseException, losses: Losses) -> Rescued | None:
    """What the workers that are left have of a run, where it is more than the run began with.

    After a first Ctrl-C the second one is noted and ends nothing here; the third one gives up.
    """
    if isinstance(error, NotANumber):
        return None
    second = isinstance(error, KeyboardInterrupt) and not isinstance(error, Interrupted)
    if second and not losses.has_trained:
        return None
    # A rank of `grampus run` may hear only now of the Ctrl-C that has ended the run.
    wish = Wish(begun=True)
    # What ended the run is what the user is to see, whatever else is broken.
    found = None
    with suppress(Exception, KeyboardInterrupt), nullcontext() if second else interrupting(wish):
        found = _brought_home(crew, job, wish)
        losses.torn = found is not None and found.torn
    losses.interrupted |= wish.interrupted is not None
    return found


def _brought_home(crew: Crew, job: Fit, wish: Wish) -> Rescued | None:
    look = _limit(_WITHIN)

    def hand_over() -> list[Any]:
        return crew.cluster._call(worker.hand_over, (job,), {}, crew.most, hear, wish, 1, look)

    # Another worker may be lost on the way, and those that are left have as much.
    found = recovery.repeated(hand_over)[0]
    if found is None or found["at"]["step"] <= job.at["step"]:
        return None
    return Rescued(found["state"], found["at"], found["records"], found["torn"])


def _limit(seconds: float) -> Callable[[_native.Task], None]:
    end = time.monotonic() + seconds

    def look(_task: _native.Task) -> None:
        if time.monotonic() > end:
            raise TimeoutError(f"workers did not hand over their state within {seconds:.0f} s")

    return look


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
        text = f"interrupted at {place(at)}: the estimator keeps the weights of that step{_torn(losses)}"
        if losses.saved and job.saving is not None:
            text += f", and resume=True goes on from there ({job.saving.url})"
        else:
            text += ' (estimator.save("model.safetensors") in `except KeyboardInterrupt`)'
    found = _one_line.shown(KeyboardInterrupt(text))
    if losses.unsaved is not None:
        _exception.note(found, f"grampus: the run could not be saved: {losses.unsaved}")
    return found


def _torn(losses: Losses) -> str:
    return ", which the next step has changed in part" if losses.torn else ""


def tell(error: BaseException, at: dict[str, Any] | None, job: Fit, losses: Losses) -> None:
    """Say in an error what became of what was trained; raise what `fit` raises after Ctrl-C instead."""
    if isinstance(error, Interrupted) or (isinstance(error, KeyboardInterrupt) and losses.has_trained):
        raise interruption(at, job, losses) from None
    if isinstance(error, KeyboardInterrupt):
        return
    if at is not None:
        text = f"the estimator keeps the weights of {place(at)}{_torn(losses)}: save() them, or fit() on"
    elif losses.has_trained:
        text = "nothing of this run is left, and the estimator has the weights of before"
    else:
        text = "nothing was trained"
    if at is not None or losses.has_trained:
        _exception.note(error, f"grampus: {text}")
    if losses.interrupted:
        # After the error, which is to be seen as its cause.
        raise KeyboardInterrupt(f"interrupted: {text}") from error
