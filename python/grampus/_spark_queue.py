"""Runs jobs of Spark, and describes the tasks and applications that hold the slots they wait for."""

from __future__ import annotations

import contextlib
import math
import secrets
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from grampus._figures import count
from grampus._spark_versions import cancel_jobs, group_jobs, is_connect
from grampus._starting import explaining
from grampus.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

# Seconds between two looks at a job that has no task yet.
_LOOKS_EVERY = 0.5
_CANCELLED_WITHIN = 10.0
# A Master is asked for so many seconds.
_ASKED_FOR = 2.0
_ADVICE = (
    "give this session more slots (spark.cores.max, spark.executor.instances, spark.executor.cores), end "
    "what holds them, or wait longer with gp.init(start_timeout=…)"
)


class Holders(NamedTuple):
    """Holders of the slots that jobs wait for: tasks of this session, and other applications."""

    # Slots of this session, those in use included; `None` where that is not known.
    slots: int | None = None
    # Tasks of the jobs themselves, and of all other jobs of this session.
    own: int = 0
    others: int = 0
    # Stages of those other jobs of this session, each with its tasks.
    stages: tuple[str, ...] = ()
    # Other applications of the same standalone Master.
    applications: tuple[str, ...] = ()

    def has_room(self) -> bool:
        """Whether a slot is free: a task is then about to begin, and lacks no slot.

        >>> Holders(2, own=1).has_room(), Holders(2, others=2).has_room(), Holders(None).has_room()
        (True, False, False)
        """
        return self.slots is not None and self.own + self.others < self.slots


def explained(holders: Holders, what: str = "tasks of Spark that do not begin wait for a free slot") -> str:
    """Describe the known holders of the slots, and what to change.

    >>> print(explained(Holders(2, 0, 2, ("2 tasks of 'count'",))).partition(": give")[0])
    tasks of Spark that do not begin wait for a free slot: of 2 slots, this session runs 2 tasks of 'count'
    >>> print(explained(Holders(0, applications=("etl",)), "waiting").partition(": give")[0])
    waiting: no executor of this session has registered, the Master also runs the application 'etl'
    """
    found = []
    if holders.slots == 0:
        found.append("no executor of this session has registered")
    if holders.own:
        found.append(f"this call itself runs {count(holders.own, 'task')}")
    if holders.stages:
        of = f"of {count(holders.slots, 'slot')}, " if holders.slots else ""
        found.append(f"{of}this session runs {', '.join(holders.stages)}")
    if holders.applications:
        kind = "application" if len(holders.applications) == 1 else "applications"
        found.append(f"the Master also runs the {kind} {', '.join(map(repr, holders.applications))}")
    known = ", ".join(found) or "what holds the slots is not known here, Spark's page shows it"
    return f"{what}: {known}: {_ADVICE}"


class QueuedJob:
    """A job that can be cancelled, and that knows whether it still waits for its first task.

    It is entered by the thread that runs it.
    """

    def __init__(self, session: Any, purpose: str) -> None:
        """The purpose is shown on Spark's page."""
        self.session, self._purpose = session, purpose
        self.group = f"grampus-{secrets.token_hex(4)}"
        # Whether a task has begun, as a Connect server last reported it.
        self._told: bool | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> QueuedJob:
        """Count what this thread runs from now on as the job."""
        self._thread = threading.current_thread()
        group_jobs(self.session, self.group, self._purpose)
        if is_connect(self.session):
            self.session.registerProgressHandler(self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        """Count no more."""
        if is_connect(self.session):
            self.session.removeProgressHandler(self._hear)

    def _hear(self, stages: Iterable[Any], inflight_tasks: int, **_: object) -> None:
        # Each thread that runs something hears of that alone.
        if threading.current_thread() is self._thread:
            stages = list(stages)
            if inflight_tasks or any(stage.num_completed_tasks for stage in stages):
                self._told = True
            elif stages and self._told is None:
                self._told = False

    def has_begun(self) -> bool | None:
        """Whether a task has begun; `None` while Spark still plans the job."""
        if is_connect(self.session):
            return self._told
        tasks = None
        for stage in _stages(self.session.sparkContext, self.group):
            # A failed task does not count: it is run again, and may wait for a slot.
            tasks = (tasks or 0) + stage.numActiveTasks + stage.numCompletedTasks
        return None if tasks is None else tasks > 0

    def cancel(self) -> None:
        """End it, if it runs."""
        cancel_jobs(self.session, self.group)


def run(
    session: Any, purpose: str, call: Callable[[], Any], within: float, patience: float | None = None
) -> Any:
    """Return what a call returns that runs one job, and cancel the job where this is interrupted.

    Its first task must begin `within` so many seconds. With `patience` it must instead have ended after so
    many, or this raises `TimeoutError`.
    """
    job = QueuedJob(session, f"Grampus {purpose}")
    returned: list[Any] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            with job:
                returned.append(call())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work, name="grampus-job", daemon=True)
    thread.start()
    try:
        if patience is None:
            _wait(thread, job, purpose, within)
        else:
            _join(thread, time.monotonic() + patience)
    finally:
        if thread.is_alive():
            job.cancel()
            thread.join(_CANCELLED_WITHIN)
    if failed:
        raise failed[0]
    return returned[0]


def _join(thread: threading.Thread, end: float) -> None:
    # In slices: a thread that joins another without end does not hear Ctrl-C.
    while thread.is_alive():
        thread.join(0.05)
        if thread.is_alive() and time.monotonic() > end:
            raise TimeoutError


def _wait(thread: threading.Thread, job: QueuedJob, purpose: str, within: float) -> None:
    """Wait for the end of a job, whose first task must begin in time."""

    def why() -> str | None:
        if job.has_begun() is not False:
            return None
        found = holders(job.session, [job])
        wait = (
            f"the job that {purpose} waits for a free slot of Spark, for up to {within:g} s (start_timeout)"
        )
        return None if found.has_room() else explained(found, wait)

    queued = time.monotonic()
    with explaining(why):
        while True:
            with contextlib.suppress(TimeoutError):
                return _join(thread, time.monotonic() + _LOOKS_EVERY)
            begun, now = job.has_begun(), time.monotonic()
            if begun:
                return _join(thread, math.inf)
            # As long as Spark plans the job, it waits for no slot.
            queued = now if begun is None else queued
            if now > queued + within:
                wait = f"the job that {purpose} had no task within {within:g} s (start_timeout)"
                raise ClusterError(explained(holders(job.session, [job]), wait))


def holders(session: Any, jobs: Iterable[QueuedJob]) -> Holders:
    """Find the holders of the slots that these jobs wait for."""
    if is_connect(session):
        return Holders()
    context = session.sparkContext
    own = {stage.stageId for job in jobs for stage in _stages(context, job.group)}
    tracker = context.statusTracker()
    active = [stage for number in tracker.getActiveStageIds() if (stage := tracker.getStageInfo(number))]
    others = [stage for stage in active if stage.stageId not in own and stage.numActiveTasks]
    return Holders(
        slots(session),
        sum(stage.numActiveTasks for stage in active if stage.stageId in own),
        sum(stage.numActiveTasks for stage in others),
        tuple(f"{count(stage.numActiveTasks, 'task')} of {stage.name!r}" for stage in others),
        tuple(_applications(session)),
    )


def slots(session: Any) -> int:
    """How many tasks of the default profile can run at once in a classic session."""
    context = session.sparkContext._jsc.sc()
    return int(context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile()))


def _stages(context: Any, group: str) -> Iterator[Any]:
    """Stages of a group of jobs."""
    tracker = context.statusTracker()
    for number in tracker.getJobIdsForGroup(group):
        job = tracker.getJobInfo(number)
        for stage in () if job is None else job.stageIds:
            found = tracker.getStageInfo(stage)
            if found is not None:
                yield found


def _applications(session: Any) -> list[str]:
    """Names of other applications of a standalone Master, which is asked; none where it does not tell."""
    context = session.sparkContext
    if not context.master.startswith("spark://"):
        return []
    found: list[str] = []
    thread = threading.Thread(
        target=lambda: found.extend(_of_master(context)), name="grampus-master", daemon=True
    )
    thread.start()
    thread.join(_ASKED_FOR)
    return list(found)


def _of_master(context: Any) -> list[str]:
    where = urlsplit(context.master.partition(",")[0])
    jvm, inner = context._jvm, context._jsc.sc()
    deploy = jvm.org.apache.spark.deploy
    try:
        address = jvm.org.apache.spark.rpc.RpcAddress(where.hostname, where.port)
        master = inner.schedulerBackend().rpcEnv().setupEndpointRef(address, "Master")
        request = getattr(getattr(deploy, "DeployMessages$RequestMasterState$"), "MODULE$")
        answer = jvm.java.lang.Class.forName("org.apache.spark.deploy.DeployMessages$MasterStateResponse")
        tag = getattr(getattr(jvm.scala.reflect, "ClassTag$"), "MODULE$").apply(answer)
        running = master.askSync(request, tag).activeApps()
        return [app.desc().name() for app in running if app.id() != inner.applicationId()]
    except Exception:
        # Not a public interface of Spark, and a Master may refuse.
        return []
