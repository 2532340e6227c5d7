"""Workers in tasks of Spark: each is a job of its own with one task.

A job whose tasks must all run at once (a barrier) would fail as a whole where one is lost, and would refuse
dynamic allocation. Here a lost task is one lost worker: Spark runs it again by itself as often as
`spark.task.maxFailures` says, and after that another job is started.
"""

from __future__ import annotations

import re
import secrets
import socket
import threading
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from grampus._spark_versions import cancel_jobs, check_version, is_connect, map_in_arrow, tag_jobs
from grampus._tunnel import Ticket, serve
from grampus.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Iterator


class Spark:
    """Workers on the executors of a session."""

    name = "spark"

    def __init__(self, session: Any, cores: int | None, address: str | None, port: int) -> None:
        """`cores` of each worker; by default those of a task."""
        check_version(session)
        self.session = session
        self._classic = not is_connect(session)
        task_cores = int(self._setting("spark.task.cpus", "1"))
        self.cores = task_cores if cores is None else cores
        self._profile = None if self.cores == task_cores else _profile(self.cores)
        self.bind = None if address else self._setting("spark.driver.bindAddress", None)
        self.address = address or self._setting("spark.driver.host", None) or self._towards_server()
        self.port = port
        self.reuses = self._setting("spark.python.worker.reuse", "true") == "true"
        self._tag = f"grampus-{secrets.token_hex(4)}"
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
        """How many workers can run at once."""
        if self._classic:
            context = self.session.sparkContext._jsc.sc()
            manager = context.resourceProfileManager()
            cores = int(self._setting("spark.task.cpus", "1"))
            return int(context.maxNumConcurrentTasks(manager.defaultResourceProfile())) * cores // self.cores
        # What a Connect session tells: into how many parts it cuts a range by itself.
        from pyspark.sql import functions

        parts = self.session.range(1 << 16).select(functions.spark_partition_id().alias("part"))
        return int(parts.distinct().count()) // self.cores

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
        if self._is_stopped():
            raise ClusterError("the Spark session was stopped: make another, and call grampus.init with it")
        if not self._classic or self._setting("spark.dynamicAllocation.enabled", "false") == "true":
            # How many there can be is not known; whoever waits in vain is told.
            return
        end = time.monotonic() + within
        while (slots := self.slots()) < workers:
            if time.monotonic() > end:
                raise ClusterError(self._too_few(workers, slots))
            time.sleep(0.05)

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
        session = self.session
        try:
            tag_jobs(session, self._tag)
            rows = map_in_arrow(session.range(0, 1, 1, 1), _Task(ticket), "why string", self._profile)
            why = rows[0][0]
        except Exception as error:
            return self._explained(error)
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

    def scarce(self) -> str:
        """What tasks that do not begin wait for."""
        return (
            "tasks of Spark that do not begin wait for a free slot, or for executors: look at "
            "spark.cores.max, spark.executor.cores and what else runs in this session"
        )

    def end(self) -> None:
        """Interrupt what is left."""
        if not self._is_stopped():
            cancel_jobs(self.session, self._tag)


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
