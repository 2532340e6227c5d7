"""Steps that do not end: the driver notices, asks all ranks what they are in, and gives the run up."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from grampus import _exception
from grampus.errors import StepTimeout

if TYPE_CHECKING:
    from grampus import _native

# How long a rank may take to say where it stands: its agent has a thread of its own.
_ANSWER_WITHIN = 2.0
_REPORT = "hang.txt"
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$')


class Where(NamedTuple):
    """Where a rank stands, as it says itself."""

    host: str
    pid: int
    phase: str
    # In that phase, and since it has finished anything.
    seconds: float
    idle: float
    # What of the run is done: epochs, steps and rows of the epoch under way.
    epoch: int
    step: int
    rows: int
    # The collective call in which it waits for others, if it does.
    waits_for: str | None
    # How its main thread is called in the stacks.
    main: str
    stacks: str | None

    @classmethod
    def of(cls, told: dict[str, Any]) -> Where:
        """From what a rank has reported."""
        return cls(**{name: told[name] for name in cls._fields})

    def __str__(self) -> str:
        """In words."""
        call = "" if self.waits_for is None else f", waiting in {self.waits_for} for others,"
        return (
            f"on {self.host} (pid {self.pid}) has been in {self.phase}{call} for {self.seconds:.1f} s at "
            f"epoch {self.epoch + 1}, step {self.step + 1}, row {self.rows}"
        )

    @property
    def waits(self) -> bool:
        """Whether it waits for others, be it in a call of another library that sums gradients."""
        return self.waits_for is not None or self.phase == "sync"

    def frame(self) -> str | None:
        """What the main thread is in: file, line and function.

        >>> stacks = 'Thread 0x7f (most recent call first):\\n  File "data.py", line 12 in read\\n'
        >>> Where("here", 7, "data", 4.0, 4.0, 0, 0, 0, None, "0x7f", stacks).frame()
        'data.py:12 in read'
        """
        lines = iter((self.stacks or "").splitlines())
        for line in lines:
            if self.main in line:
                found = _FRAME.match(next(lines, ""))
                return None if found is None else f"{Path(found[1]).name}:{found[2]} in {found[3]}"
        return None


def blamed(ranks: list[Where | None]) -> tuple[int | None, str]:
    """The rank for which the others wait, and why it is that one; none where all of them wait.

    >>> waits = Where("here", 7, "sync", 4.0, 4.0, 0, 16, 512, "all_reduce", "0x7f", None)
    >>> blamed([waits, waits._replace(phase="data", waits_for=None)])
    (1, 'it waits for nobody')
    >>> blamed([waits, None])
    (1, 'it did not answer')
    >>> blamed([waits, waits])
    (None, 'all ranks wait in collective calls')
    """
    busy = {rank: where.seconds for rank, where in enumerate(ranks) if where and not where.waits}
    if len(busy) == 1:
        return next(iter(busy)), "it waits for nobody"
    if busy:
        rank = max(busy, key=lambda each: busy[each])
        return rank, f"of {len(busy)} that wait for nobody it has been in its phase for longest"
    if None in ranks:
        return ranks.index(None), "it did not answer"
    return None, "all ranks wait in collective calls"


def summary(ranks: list[Where | None], silent: float) -> str:
    """What an error says of a step that did not end."""
    rank, why = blamed(ranks)
    text = f"no step was finished for {silent:.1f} s: "
    if rank is None:
        return f"{text}{why}; rank 0 {ranks[0]}"
    where = ranks[rank]
    frame = None if where is None else where.frame()
    text += f"rank {rank} {_said(where)}{'' if frame is None else f' ({frame})'}"
    waiting = [other for other, where in enumerate(ranks) if where is not None and where.waits]
    if len(waiting) == 1:
        return f"{text}; rank {waiting[0]} waits for it"
    return f"{text}; {len(waiting)} others wait for it" if waiting else text


def _said(where: Where | None) -> str:
    return "did not answer" if where is None else str(where)


def report(ranks: list[Where | None], silent: float) -> str:
    """All that is known of a step that did not end, for people: a line for each rank, then the stacks."""
    told = [f"rank {rank} {_said(where)}" for rank, where in enumerate(ranks)]
    rank, why = blamed(ranks)
    told.append(why if rank is None else f"rank {rank} is to blame: {why}")
    for rank, where in enumerate(ranks):
        if where is not None:
            stacks = where.stacks or "no stacks: its signal is taken by other code\n"
            told += ["", f"rank {rank}, main thread {where.main}:", stacks.rstrip("\n")]
    return "\n".join([summary(ranks, silent), "", *told, ""])


class Watchdog:
    """Looks whether a call still comes any further; if no rank has finished anything for so long, ends it."""

    def __init__(self, timeout: float, folder: str | None) -> None:
        """`folder` is that of the run, for the report."""
        self._timeout = timeout
        self._folder = folder
        self.begin()

    def begin(self) -> None:
        """A call begins; how many ranks it has may be known later."""
        self.ranks: int | None = None
        self._answers: dict[int, Where] = {}
        self.progress()

    def progress(self) -> None:
        """The run has come further."""
        self._since = time.monotonic()
        self._asked: float | None = None

    def answer(self, rank: int, told: dict[str, Any]) -> None:
        """A rank says where it stands."""
        self._answers[rank] = Where.of(told)

    def look(self, task: _native.Task) -> None:
        """Ask all ranks once nothing has been heard for too long; raise `StepTimeout` where they hang."""
        now = time.monotonic()
        if self._asked is None:
            if now - self._since >= self._timeout:
                self._answers, self._asked = {}, now
                task.inspect(self._timeout)
            return
        complete = self.ranks is not None and len(self._answers) >= self.ranks
        if not complete and now - self._asked < _ANSWER_WITHIN:
            return
        self._asked = None
        # A task that nobody runs has not begun: workers are being replaced, for which others set the time.
        idle = min((where.idle for where in self._answers.values()), default=0.0)
        if idle < self._timeout:
            # Steps are finished, or batches of validation data, of which nobody tells.
            self._since = now - idle
            return
        ranks = max(self._answers) + 1 if self.ranks is None else self.ranks
        raise self._error([self._answers.get(rank) for rank in range(ranks)], idle)

    def _error(self, ranks: list[Where | None], silent: float) -> StepTimeout:
        advice = "raise step_timeout if steps may take so long"
        whole = report(ranks, silent)
        if self._folder is None:
            error = StepTimeout(f"{summary(ranks, silent)}; {advice}")
            _exception.note(error, whole)
            return error
        path = Path(self._folder, _REPORT)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(whole)
        except OSError as full:
            error = StepTimeout(f"{summary(ranks, silent)}; {advice} (no report could be written: {full})")
            _exception.note(error, whole)
            return error
        return StepTimeout(f"{summary(ranks, silent)}. stacks of all ranks: {path}; {advice}")
