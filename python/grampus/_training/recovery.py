"""Going on after workers were lost, as long as that makes sense."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from grampus import _exception
from grampus._figures import count
from grampus._training.kept import NothingKept
from grampus._training.leaving import TOLD_TO_END, Interrupted, Yielded, stopping
from grampus._training.options import check_most
from grampus._warning import warn
from grampus.errors import CheckpointError, FeedLost, GrampusError, PeerLost, WorkerDied

if TYPE_CHECKING:
    from collections.abc import Callable

    from grampus._training.job import Fit
    from grampus._wish import Wish

Answer = TypeVar("Answer")

# A step in which workers are lost again and again loses them for a reason.
_SAME_STEP = 3
# Losses that evaluating and predicting make good.
_REPEATS = 10
_LOST = (WorkerDied, PeerLost, FeedLost)


class Verdict(NamedTuple):
    """Whether to go on, and why."""

    goes_on: bool
    why: str


class Stuck(GrampusError):
    """A run does not come any further: what ends it is the last loss."""


@dataclass
class Losses:
    """The losses of one call, and where it went on after each."""

    most: int | None
    # The option that says so, where there is one.
    option: str | None = None
    # Is told of each.
    hears: Callable[[str], None] | None = None
    lost: list[Exception] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    # How many there were when the run went on last, and whether any step was told of.
    counted: int = 0
    has_trained: bool = False
    # Whether the run was saved when it was asked to end.
    saved: bool = False
    # Whether the next step was cut off while it was applied to the weights that came home.
    torn: bool = False
    # Why a run that the user interrupted could not be saved.
    unsaved: Exception | None = None
    # Whether the user interrupted a run that ended by itself all the same.
    interrupted: bool = False
    # Has read again what was lost with a worker.
    heal: Callable[[], None] = lambda: None
    # Workers that were told to go, and how many of them are made good.
    preempted: int = 0
    most_preempted: int | None = None

    def went_on(self, step: int) -> None:
        """The run went on from this step; raise `Stuck` where it never comes any further."""
        if len(self.lost) == self.counted:
            # Not after a loss: a worker had to go, or another came.
            return
        self.counted = len(self.lost)
        self.steps.append(step)
        again = self.steps[-_SAME_STEP:]
        if len(again) == _SAME_STEP and len(set(again)) == 1:
            raise Stuck(
                f"step {step + 1} was begun {_SAME_STEP} times, and each time a worker was lost: look at its "
                "rows, at the model, and at the memory"
            )

    def lose(self, what: Exception) -> Verdict:
        """One more was lost.

        >>> losses = Losses(most=2)
        >>> losses.lose(WorkerDied("rank 1 was killed", 1, "here", 17, 137))
        Verdict(goes_on=True, why='1 of 2 losses')
        """
        self.lost.append(what)
        if self.hears is not None:
            self.hears(str(what))
        number = len(self.lost)
        if self.most is not None and number > self.most:
            more = "" if self.option is None else f": raise {self.option}"
            return Verdict(False, f"{count(number, 'worker')} lost, and {self.most} are made good{more}")
        return Verdict(True, f"{number} of {'any number of' if self.most is None else self.most} losses")

    def preempt(self, ranks: list[int]) -> Verdict:
        """These were told to go.

        >>> Losses(most=0, most_preempted=1).preempt([0, 2])
        Verdict(goes_on=False, why='2 workers told to go, and 1 made good: raise max_preemptions')
        """
        self.preempted += len(ranks)
        told = f"{count(self.preempted, 'worker')} told to go"
        if self.most_preempted is not None and self.preempted > self.most_preempted:
            return Verdict(False, f"{told}, and {self.most_preempted} made good: raise max_preemptions")
        return Verdict(True, told)


def allowed(max_failures: int | None, max_preemptions: int | None) -> Losses:
    """What a run may lose, as its user says it."""
    losses = Losses(check_most(max_failures, "max_failures"), "max_failures")
    losses.most_preempted = check_most(max_preemptions, "max_preemptions")
    return losses


def train(
    job: Fit,
    call: Callable[[Fit, Wish | None], list[Any]],
    losses: Losses,
    from_checkpoint: Callable[[Fit], Fit | None],
) -> list[Any]:
    """Train with `call`, and go on from what the workers that are left have; where none is, from a file."""
    if job.spec.backend != "grampus":
        # Other libraries do not outlive a loss.
        try:
            return call(job, None)
        except KeyboardInterrupt:
            raise Interrupted from None
    beginning, begun = job, 0
    with stopping() as wish:
        while True:
            gone = ""
            try:
                answers = call(job, wish)
                losses.interrupted = wish.interrupted is not None
                return answers
            except KeyboardInterrupt:
                if wish.begun and wish.interrupted is None:
                    # The program takes Ctrl-C in its own way.
                    raise Interrupted from None
                raise
            except Yielded:
                if wish.interrupted is not None:
                    raise Interrupted from None
                # Where it ended for another reason, nobody has saved it: it does one more step first.
                if wish.stop and (losses.saved or job.saving is None):
                    raise SystemExit(TOLD_TO_END) from None
            except CheckpointError as error:
                if wish.interrupted is None:
                    raise
                # The user wants the end, and not to hear of this alone.
                warn(f"the run was interrupted and could not be saved: {error}")
                losses.unsaved = error
                raise Interrupted from None
            except _LOST as lost:
                _judge(lost, losses)
                losses.heal()
                gone = _named(lost)
            except Stuck as stuck:
                raise _noted(losses.lost[-1], str(stuck)) from None
            except NothingKept as error:
                saved = from_checkpoint(job)
                begun += 1
                # Where nothing was trained yet, nothing is lost.
                may_begin = job.saving is not None or not losses.has_trained
                if saved is None and may_begin and begun <= _SAME_STEP:
                    saved = beginning
                if saved is None:
                    first = losses.lost[-1] if losses.lost else error
                    raise _noted(first, f"{error}, and it was not saved{_advice(job)}") from None
                _warn_of(error, saved, losses)
                job = saved
                continue
            job = replace(job, losses=job.losses + 1, lost=gone)


def _warn_of(error: NothingKept, saved: Fit, losses: Losses) -> None:
    """Say from where the run goes on instead."""
    what = f"{error}; before that, {_named(losses.lost[-1])}" if losses.lost else str(error)
    if saved.resumed_from is not None:
        warn(f"the run goes on from the checkpoint {saved.resumed_from}: {what}")
    elif losses.has_trained:
        warn(f"the run begins anew, since it was not saved yet: {what}")


def _named(lost: Exception) -> str:
    """A loss in a line; what its worker wrote last stands in others."""
    return str(lost).partition("\n")[0]


def _advice(job: Fit) -> str:
    if job.saving is None:
        return ": pass checkpoint="
    return " yet: save more often, as with gp.Checkpoint(…, every=gp.triggers.EverySteps(100))"


def repeated(call: Callable[[], Answer], heal: Callable[[], None] = lambda: None) -> Answer:
    """Call something that may be done again where a worker was lost; `heal` reads lost rows again."""
    losses = Losses(_REPEATS)
    while True:
        try:
            return call()
        except _LOST as lost:
            _judge(lost, losses)
            heal()


def _judge(lost: Exception, losses: Losses) -> None:
    """Go on, or raise what was lost."""
    verdict = losses.lose(lost)
    if not verdict.goes_on:
        raise _noted(lost, verdict.why)


def _noted(error: Exception, text: str) -> Exception:
    _exception.note(error, f"grampus: {text}")
    return error
