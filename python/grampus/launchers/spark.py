"""Workers in tasks of Spark: each is a job of its own with one task.

A job whose tasks must all run at once (a barrier) would fail as a whole where one is lost, and would refuse
dynamic allocation. Here a lost task is one lost worker: Spark runs it again by itself as often as
`spark.task.maxFailures` says, and after that another job is started.
"""

from __future__ import annotations

import math
import re
import socket
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from grampus._figures import count
from grampus._spark_queue import Holders, QueuedJob, explained, holders, run
from grampus._spark_versions import check_version, is_connect, map_in_arrow
from grampus._tunnel import Ticket, serve
from grampus.errors import ClusterError
from grampus.launchers.gpus import on_whole_gpus, per_worker
from grampus.launchers.reach import advised
from grampus.launchers.spark_executors import registered_slots, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from grampus.engine import Asked
    from grampus.launchers.reach import Knock

_REACHED_BY = (
    "name an address of this machine that the executors reach, grampus.init(address=…), or set "
    "spark.driver.host; with a firewall, open grampus.init(port=…)"
)


class Spark:
    """Workers on the executors of a session."""

    name = "spark"

    def __init__(self, session: Any, asked: Asked) -> None:
        """Each worker has the cores and GPUs of a task unless others are asked for."""
        check_version(session)
        self.session = session
        self.is_client = is_connect(session)
        self._of_task = int(self._setting("spark.task.cpus", "1")), self._gpu_setting("task") or None
        self.cores = asked.cores or self._of_task[0]
        self.gpus = self._of_task[1] if asked.gpus is None else asked.gpus
        self.bind = None if asked.address else self._setting("spark.driver.bindAddress", None)
        self.address = asked.address or self._setting("spark.driver.host", None) or self._towards_server()
        self.port = asked.port
        self._within = asked.within
        self.reuses = self._setting("spark.python.worker.reuse", "true") == "true"
        # Of workers that run, or are to run.
        self._jobs: set[QueuedJob] = set()
        # Whether a task has ended without a worker, which is told with its reason.
        self._failed = False
        self._lock = threading.Lock()

    def _setting(self, name: str, default: Any) -> Any:
        conf = self.session.conf if self.is_client else self.session.sparkContext.getConf()
        return conf.get(name, default)

    def _gpu_setting(self, of: str) -> float:
        return float(self._setting(f"spark.{of}.resource.gpu.amount", "0"))

    def _towards_server(self) -> str:
        """The address of this machine on its way to the server of a Connect session."""
        where = urlsplit(self.session.client._builder.url.geturl())
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            # Nothing is sent.
            probe.connect((where.hostname or "localhost", where.port or 15002))
            return str(probe.getsockname()[0])

    def available_gpus(self) -> float:
        """Executors that have GPUs are taken to have enough: how many there will be is not known."""
        return math.inf if self._gpu_setting("executor") else 0.0

    def slots(self) -> int:
        """How many workers can run at once; executors that are starting are waited for."""
        if self.is_client:
            found = self._parts_of_a_range() // self.cores
        else:
            found = self._workers_on(registered_slots(self.session, self._setting, self._within))
        if not found:
            raise ClusterError(self._too_few(1, 0))
        return found

    def _workers_on(self, tasks: int) -> int:
        """How many workers run at once where so many tasks of a classic session do."""
        found = tasks * self._of_task[0] // self.cores
        if not self.gpus:
            return found
        # The driver is among them.
        executors = int(self.session.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1
        return min(found, executors * on_whole_gpus(self._gpu_setting("executor"), self.gpus))

    def _parts_of_a_range(self) -> int:
        """What a Connect session tells of its cores: into how many parts it cuts a range by itself."""
        from pyspark.sql import functions

        parts = self.session.range(1 << 16).select(functions.spark_partition_id().alias("part")).distinct()
        return int(run(self.session, "counts the slots", parts.count, self._within))

    def hosts(self) -> int:
        """On how many hosts there are executors."""
        if self.is_client:
            raise ClusterError(
                "Spark Connect does not say on which hosts its executors are: pass workers=, and leave "
                "workers_per_node out"
            )
        context = self.session.sparkContext._jsc.sc()
        known = context.getExecutorMemoryStatus().keys().toSeq()
        hosts = [known.apply(place).rpartition(":")[0] for place in range(known.size())]
        driver = self._setting("spark.driver.host", None)
        # The driver is listed, too; without a cluster it is the only one.
        if not context.isLocal() and driver in hosts:
            hosts.remove(driver)
        if not hosts:
            raise ClusterError(
                "Spark has no executors yet, so their hosts cannot be counted: pass workers=, and leave "
                "workers_per_node out"
            )
        return len(set(hosts))

    def begin(self, workers: int, within: float) -> None:
        """Wait for executors that are starting."""
        self._failed = False
        if self._is_stopped():
            raise ClusterError("the Spark session was stopped: make another, and call grampus.init with it")
        if self.is_client or self._setting("spark.dynamicAllocation.enabled", "false") == "true":
            # How many there can be is not known; whoever waits in vain is told.
            return
        found = wait_for(self.session, workers, self._workers_on, within)
        if found < workers:
            raise ClusterError(self._too_few(workers, found))

    def _is_stopped(self) -> bool:
        if self.is_client:
            return bool(self.session.is_stopped)
        context = self.session.sparkContext
        return context._jsc is None or bool(context._jsc.sc().isStopped())

    def _too_few(self, workers: int, slots: int) -> str:
        each = f" of {per_worker(self.cores, self.gpus)}" if self.cores > 1 or self.gpus else ""
        master = self._setting("spark.master", "")
        found = re.fullmatch(r"local(?:\[(?:\d+|\*)\])?", master)
        if found:
            how = f'use the master "local[{workers * self.cores}]"'
        else:
            how = (
                f"raise spark.cores.max (now {self._setting('spark.cores.max', 'not set')}), "
                f"spark.executor.instances or spark.executor.cores, or add machines"
            )
            if self.gpus:
                how += ", or compute on CPUs with gpus_per_worker=0"
        return (
            f"{workers} workers{each} were asked for, and this Spark has {slots} slots for them: {how}; "
            f"or ask for workers={max(slots, 1)}"
        )

    def run(self, ticket: Ticket) -> str | None:
        """Run a job of one task."""
        job = QueuedJob(self.session, "a worker of Grampus")
        with self._lock:
            self._jobs.add(job)
        try:
            with job:
                numbers = self.session.range(0, 1, 1, 1)
                task = _Task(ticket, hides_gpus=self.gpus == 0)
                why = map_in_arrow(numbers, task, "why string", self._profile())[0][0]
        except Exception as error:
            why = self._explained(error)
        finally:
            with self._lock:
                self._jobs.discard(job)
        self._failed = self._failed or why is not None
        return advised(why, _REACHED_BY)

    def ask(self, knock: Knock, within: float) -> str | None:
        """Run a job of one task, unless it finds no slot for too long."""
        numbers = self.session.range(0, 1, 1, 1)
        try:
            answers = run(
                self.session,
                "tries to reach the driver",
                lambda: map_in_arrow(numbers, _Knocking(knock), "why string", None),
                within,
                patience=within,
            )
        except TimeoutError:
            return None
        except Exception as error:
            return self._explained(error)
        return advised(answers[0][0], _REACHED_BY)

    def _profile(self) -> Any:
        """What a task asks for, where that is not what tasks of this session get anyway."""
        from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests

        if (self.cores, self.gpus or None) == self._of_task:
            return None
        requests = TaskResourceRequests().cpus(self.cores)
        if self.gpus:
            requests = requests.resource("gpu", self.gpus)
        return ResourceProfileBuilder().require(requests).build

    def _explained(self, error: Exception) -> str:
        text = str(error)
        if "No module named 'grampus" in text:
            return (
                "the executors have no grampus: install it where their Python is, or ship an environment: "
                "spark-submit --archives env.tar.gz#environment with PYSPARK_PYTHON=./environment/bin/python"
            )
        if "PYTHON_VERSION_MISMATCH" in text:
            found = re.search(r"PYTHON_VERSION_MISMATCH\]?\s*([^\n]*)", text)
            detail = found.group(1).strip() if found else ""
            return f"the executors run another Python: set PYSPARK_PYTHON, or spark.pyspark.python ({detail})"
        if "PyArrow" in text and "not" in text:
            return "the executors have no pyarrow, with which Spark passes rows: install it there"
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return f"Spark gave up its task: {lines[0] if lines else type(error).__name__}"

    def waits_for(self) -> str | None:
        """What tasks wait for that have not begun; `None` where all have, or where that is not known."""
        if not self._without_task():
            return None
        found = self._holders()
        # Meanwhile they may have begun.
        waiting = self._without_task()
        if not waiting or (self._profile is None and found.has_room()):
            return None
        verb = "waits" if waiting == 1 else "wait"
        return f"{count(waiting, 'worker')} {verb} for Spark: {explained(found)}"

    def scarce(self) -> str:
        """What workers that have not joined wait for; nothing where a task has said why it ended."""
        if self._without_task() != 0:
            return explained(self._holders())
        if self._failed:
            return ""
        return (
            "all tasks of Spark have begun, so no slot is missing: workers are slow to start (a busy "
            "machine, a slow disk from which they import): raise start_timeout"
        )

    def _without_task(self) -> int | None:
        """How many jobs still wait for their task; `None` where that is not known."""
        with self._lock:
            begun = [job.has_begun() for job in self._jobs]
        return None if None in begun else begun.count(False)

    def _holders(self) -> Holders:
        with self._lock:
            jobs = list(self._jobs)
        return holders(self.session, jobs)

    def end(self) -> None:
        """Interrupt what is left."""
        if not self._is_stopped():
            with self._lock:
                left = list(self._jobs)
            for job in left:
                job.cancel()


class _Task:
    """What runs on an executor."""

    def __init__(self, ticket: Ticket, hides_gpus: bool) -> None:
        self._ticket = ticket
        self._hides_gpus = hides_gpus

    def __call__(self, rows: Iterator[Any]) -> Iterator[Any]:
        yield from _answer(rows, lambda: serve(self._ticket, self._gpus()))

    def _gpus(self) -> list[str] | None:
        """Those that Spark has given to this task, by which nothing else in its executor is bound."""
        from pyspark import TaskContext

        if self._hides_gpus:
            return []
        context = TaskContext.get()
        given = None if context is None else context.resources().get("gpu")
        return None if given is None else list(given.addresses)


class _Knocking:
    """What runs on an executor to find out whether it reaches the driver."""

    def __init__(self, knock: Knock) -> None:
        self._knock = knock

    def __call__(self, rows: Iterator[Any]) -> Iterator[Any]:
        yield from _answer(rows, self._knock.connect)


def _answer(rows: Iterator[Any], ask: Callable[[], str | None]) -> Iterator[Any]:
    import pyarrow

    # Spark ends Python workers that leave rows unread, and with them the supervisor that rests in one.
    for _ in rows:
        pass
    yield pyarrow.RecordBatch.from_pydict({"why": pyarrow.array([ask()], pyarrow.string())})


def session_for(session: Any, master: str | None, memory: str | None, conf: dict[str, str] | None) -> Any:
    """The session to use: the one given, the active one, or a new one."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise ClusterError('cluster="spark" needs pyspark: pip install pyspark') from None
    if session is not None and not hasattr(session, "range"):
        raise TypeError(f"session must be a SparkSession, it is a {type(session).__name__}")
    if conf is not None and not isinstance(conf, dict):
        raise TypeError(f"conf must be a dict of settings of Spark, it is a {type(conf).__name__}")
    active = session or SparkSession.getActiveSession()
    wishes = {"master": master, "memory": memory, "conf": conf}
    asked = [name for name, value in wishes.items() if value is not None]
    if active is not None:
        if asked:
            raise ClusterError(
                f"{', '.join(asked)} cannot be changed in a Spark session that runs: leave it out, or stop "
                "the session first"
            )
        return active
    builder = SparkSession.builder
    for name, value in {**({"spark.executor.memory": memory} if memory else {}), **(conf or {})}.items():
        builder = builder.config(name, value)
    if master is not None and master.startswith("sc://"):
        return builder.remote(master).getOrCreate()
    return (builder if master is None else builder.master(master)).getOrCreate()
