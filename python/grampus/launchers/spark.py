"""Workers in tasks of Spark: each is a job of its own with one task.

A job whose tasks must all run at once (a barrier) would fail as a whole where one is lost, and would refuse
dynamic allocation. Here a lost task is one lost worker: Spark runs it again by itself as often as
`spark.task.maxFailures` says, and after that another job is started.
"""

from __future__ import annotations

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
from grampus.launchers.spark_executors import registered_slots, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator


class Spark:
    """Workers on the executors of a session."""

    name = "spark"

    def __init__(
        self, session: Any, cores: int | None, address: str | None, port: int, within: float
    ) -> None:
        """`cores` of each worker, by default those of a task; executors are waited for `within` seconds."""
        check_version(session)
        self.session = session
        self._classic = not is_connect(session)
        task_cores = int(self._setting("spark.task.cpus", "1"))
        self.cores = task_cores if cores is None else cores
        self._profile = None if self.cores == task_cores else _profile(self.cores)
        self.bind = None if address else self._setting("spark.driver.bindAddress", None)
        self.address = address or self._setting("spark.driver.host", None) or self._towards_server()
        self.port = port
        self._within = within
        self.reuses = self._setting("spark.python.worker.reuse", "true") == "true"
        # Of workers that run, or are to run.
        self._jobs: set[QueuedJob] = set()
        # Whether a task has ended without a worker, which is told with its reason.
        self._failed = False
        self._lock = threading.Lock()

    def _setting(self, name: str, default: Any) -> Any:
        conf = self.session.sparkContext.getConf() if self._classic else self.session.conf
        return conf.get(name, default)

    def _towards_server(self) -> str:
        """The address of this machine on its way to the server of a Connect session."""
        where = urlsplit(self.session.client._builder.url.geturl())
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            # Nothing is sent.
            probe.connect((where.hostname or "localhost", where.port or 15002))
            return str(probe.getsockname()[0])

    def slots(self) -> int:
        """How many workers can run at once; executors that are starting are waited for."""
        if self._classic:
            tasks = registered_slots(self.session, self._setting, self._within)
            found = tasks * int(self._setting("spark.task.cpus", "1")) // self.cores
        else:
            found = self._parts_of_a_range() // self.cores
        if not found:
            raise ClusterError(self._too_few(1, 0))
        return found

    def _parts_of_a_range(self) -> int:
        """What a Connect session tells of its cores: into how many parts it cuts a range by itself."""
        from pyspark.sql import functions

        parts = self.session.range(1 << 16).select(functions.spark_partition_id().alias("part")).distinct()
        return int(run(self.session, "counts the slots", parts.count, self._within))

    def hosts(self) -> int:
        """On how many hosts there are executors."""
        if not self._classic:
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
        if not self._classic or self._setting("spark.dynamicAllocation.enabled", "false") == "true":
            # How many there can be is not known; whoever waits in vain is told.
            return
        cores = int(self._setting("spark.task.cpus", "1"))
        found = wait_for(self.session, -(-workers * self.cores // cores), within) * cores // self.cores
        if found < workers:
            raise ClusterError(self._too_few(workers, found))

    def _is_stopped(self) -> bool:
        if self._classic:
            context = self.session.sparkContext
            return context._jsc is None or bool(context._jsc.sc().isStopped())
        return bool(self.session.is_stopped)

    def _too_few(self, workers: int, slots: int) -> str:
        each = f" of {self.cores} cores" if self.cores > 1 else ""
        master = self._setting("spark.master", "")
        found = re.fullmatch(r"local(?:\[(?:\d+|\*)\])?", master)
        if found:
            how = f'use the master "local[{workers * self.cores}]"'
        else:
            how = (
                f"raise spark.cores.max (now {self._setting('spark.cores.max', 'not set')}), "
                f"spark.executor.instances or spark.executor.cores, or add machines"
            )
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
                why = map_in_arrow(numbers, _Task(ticket), "why string", self._profile)[0][0]
        except Exception as error:
            why = self._explained(error)
        finally:
            with self._lock:
                self._jobs.discard(job)
        self._failed = self._failed or why is not None
        if why is not None and "cannot reach the driver" in why:
            return (
                f"{why}: name an address of this machine that the executors reach, grampus.init(address=…), "
                "or set spark.driver.host; with a firewall, open grampus.init(port=…)"
            )
        return None if why is None else str(why)

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

    def __init__(self, ticket: Ticket) -> None:
        self._ticket = ticket

    def __call__(self, rows: Iterator[Any]) -> Iterator[Any]:
        import pyarrow

        # Spark ends Python workers that leave rows unread, and with them the supervisor that rests in one.
        for _ in rows:
            pass
        yield pyarrow.RecordBatch.from_pydict({"why": pyarrow.array([serve(self._ticket)], pyarrow.string())})


def _profile(cores: int) -> Any:
    from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests

    return ResourceProfileBuilder().require(TaskResourceRequests().cpus(cores)).build


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
