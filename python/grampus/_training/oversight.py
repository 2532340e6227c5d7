"""What the driver looks after while a run goes on: that steps end, and that no worker holds up the others."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from grampus._training import pace, worker
from grampus._training.hang import Watchdog
from grampus._training.leaving import Interrupted
from grampus._training.parcel import Parcels
from grampus._warning import warn
from grampus._wish import Wish

if TYPE_CHECKING:
    from collections.abc import Iterator

    from grampus import _native
    from grampus._training.job import Fit
    from grampus._training.pace import Slow
    from grampus._training.show import Show
    from grampus.cluster import Cluster


# Seconds that the step under way may take to end after Ctrl-C; where steps take long, as long as some do.
_PATIENCE = 5.0
_STEPS = 3


class Crew(NamedTuple):
    """The workers that a run takes: how many it needs, and for how many it has something to do."""

    cluster: Cluster
    least: int | None
    most: int


class Oversight:
    """Of one run, which may take several calls of its workers."""

    def __init__(self, crew: Crew, show: Show, job: Fit, policy: str, attempts: Iterator[int] | None) -> None:
        """`policy` is what becomes of a slow worker; `attempts` numbers the calls, where a ledger is kept."""
        if policy != "warn" and crew.cluster.is_fixed:
            raise ValueError(
                f"slow_worker={policy!r} moves lanes, and ranks of `grampus run` stay: use 'warn'"
            )
        without = without_effect(policy, job.layout.lanes, min(crew.most, crew.cluster.workers))
        if without is not None:
            warn(without)
        self._crew = crew
        self._show = show
        self._policy = policy
        self._attempts = attempts
        self._watchdog = Watchdog(job.step_timeout, job.run)
        self._named: set[str] = set()
        self._shares: dict[str, float] = {}
        self._to_go: set[str] = set()
        self._evicted = 0
        self._wish: Wish | None = None
        self._validates = False
        self._patience = _PATIENCE
        # When a save that is under way, or was last, ends at the latest, by the monotonic clock.
        self._saved_by = 0.0
        # Only the first worker sends any.
        self._parcels = Parcels()
        # How many workers a call has, its first event says.
        self._paces: pace.Paces | None = None

    def call(self, job: Fit, wish: Wish | None) -> list[Any]:
        """Train on the workers, and look after them."""
        cluster, least, most = self._crew
        if self._to_go:
            # All of them have left the run after the same step, and one leaves the cluster.
            cluster._call(pace.leave, (self._to_go,), {}, None, least=1)
            self._to_go = set()
        if wish is not None:
            # Whether it was heard or a loss came first: here all of them begin anew.
            wish.regroup = False
            # Ranks of `grampus run` are there, and only the first hears from the others.
            wish.begun |= cluster.is_fixed
        self._wish = wish
        self._watchdog.begin()
        self._paces = None
        audit = None if self._attempts is None else next(self._attempts)
        job = replace(job, shares=self._shares, audit=audit)
        return cluster._call(worker.fit, (job,), {}, most, self.report, wish, least, self.look)

    def look(self, task: _native.Task) -> None:
        """Called again and again; raises `StepTimeout` where the run hangs.

        Raises `Interrupted` where the user has interrupted the run and its step does not end soon: workers
        leave it within half a second then, or are ended. A save is waited for.
        """
        self._watchdog.look(task)
        since = None if self._wish is None else self._wish.interrupted
        if since is None:
            return
        until = max(since, self._saved_by) + self._patience
        if self._validates or time.monotonic() > until:
            raise Interrupted

    def report(self, rank: int, body: bytes) -> None:
        """Take what a worker reports."""
        event = self._parcels.take(body)
        if event is None:
            return
        if event["kind"] == "whereabouts":
            self._watchdog.answer(rank, event)
            return
        self._watchdog.progress()
        # Validation has no step that could be cut off.
        self._validates = event["kind"] == "validate" or (self._validates and event["kind"] == "pace")
        if event["kind"] == "saving":
            self._saved_by = time.monotonic() + event["within"]
            return
        if event["kind"] == "steps" and event["step"]:
            self._patience = max(_PATIENCE, _STEPS * event["seconds"] / event["step"])
        if event["kind"] == "pace":
            found = None if self._paces is None else self._paces.hear(rank, event)
            if found is not None:
                self._slow(found)
            return
        if self._wish is not None:
            self._wish.begun = True
        if "workers" in event:
            self._watchdog.ranks = event["workers"]
            self._paces = pace.Paces(event["workers"], self._named)
        self._show.event(event)

    def _slow(self, found: Slow) -> None:
        what, why = self._verdict(found)
        if what == "evict":
            self._to_go.add(found.pace.worker)
            self._evicted += 1
        elif what == "shed":
            self._shares[found.pace.worker] = 1 / found.factor
        if what != "warn" and self._wish is not None:
            self._wish.regroup = True
        self._show.slow(found, why)

    def _verdict(self, found: Slow) -> tuple[str, str]:
        return verdict(self._policy, found.pace.lanes, self._evicted, self._show.losses.most)


def without_effect(policy: str, lanes: int, workers: int) -> str | None:
    """Why a policy has no effect on a run of so many lanes and workers, if it has none.

    >>> without_effect("evict", lanes=4, workers=1)
    "slow_worker='evict' has no effect: workers are compared with each other, and this run has one"
    >>> without_effect("shed", lanes=4, workers=2)
    """
    if policy != "warn" and workers == 1:
        why = "workers are compared with each other, and this run has one"
    elif policy == "shed" and lanes <= workers:
        why = f"each of {workers} workers has one lane, and none to give away: pass more lanes= than workers"
    else:
        return None
    return f"slow_worker={policy!r} has no effect: {why}"


def verdict(policy: str, lanes: int, evicted: int, most: int | None) -> tuple[str, str]:
    """What to do about a slow worker that drives so many lanes, and why.

    >>> verdict("shed", lanes=3, evicted=0, most=10)
    ('shed', 'some of its 3 lanes go to others')
    >>> verdict("shed", lanes=1, evicted=0, most=10)
    ('warn', 'it has one lane only, and none to give away: make an Estimator with more lanes than workers')
    >>> verdict("evict", lanes=1, evicted=10, most=10)
    ('warn', 'it stays, since max_failures=10 workers were replaced before it')
    """
    if policy == "shed" and lanes == 1:
        advice = "make an Estimator with more lanes than workers"
        return "warn", f"it has one lane only, and none to give away: {advice}"
    if policy == "evict" and most is not None and evicted >= most:
        return "warn", f"it stays, since max_failures={most} workers were replaced before it"
    why = {
        "warn": "all wait for it",
        "shed": f"some of its {lanes} lanes go to others",
        "evict": "another takes its place",
    }
    return policy, why[policy]
