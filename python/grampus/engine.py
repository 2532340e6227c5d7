"""Clusters whose workers an engine such as Spark or Ray starts, while there is something for them to do."""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from grampus import _console, _native
from grampus._folders import own_folders
from grampus._starting import explaining, starting
from grampus._tunnel import Ahead, Ticket
from grampus._warning import warn
from grampus.cluster import STOP_WITHIN, Cluster, Settings, begun, whole
from grampus.errors import ClusterError, GrampusError
from grampus.frames.supply import Site
from grampus.launchers.gpus import share
from grampus.launchers.reach import refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from grampus.launchers.reach import Knock

# Room for the ports of data above it.
_LAST_PORT = 65_000
# How long the tasks of an engine may take to end once their workers have.
_END_WITHIN = 10.0


class Asked(NamedTuple):
    """What was asked for of all workers, and of the address under which they reach this machine."""

    workers: int | None
    cores: int | None
    gpus: float | None
    address: str | None
    port: int
    # Seconds within which the engine must have begun.
    within: float

    @classmethod
    def checked(
        cls,
        workers: int | None,
        cores: int | None,
        gpus: float | None,
        address: str | None,
        port: int,
        within: float,
    ) -> Asked:
        """As the user gave it."""
        number = whole(port, "port", least=0)
        if number > _LAST_PORT:
            raise ValueError(f"port must be at most {_LAST_PORT}, it is {number}")
        return cls(
            None if workers is None else whole(workers, "workers"),
            None if cores is None else whole(cores, "cores_per_worker"),
            None if gpus is None else _gpus(gpus),
            address,
            number,
            within,
        )

    def cluster(self, make: Callable[[], Launcher], settings: Settings) -> EngineCluster:
        """Workers that an engine starts; by default as many as it has slots for."""
        # The engine is started here, which takes seconds: what was asked for wrongly has been refused.
        launcher = make()
        given = share(launcher.gpus, self.workers, launcher.available_gpus())
        if given.advice is not None:
            warn(given.advice)
        launcher.gpus = given.gpus
        bind = launcher.bind or bind_for(launcher.address)
        if launcher.is_client:
            why = refusal(launcher.address, bind, launcher.port, launcher.ask)
            if why is not None:
                raise ClusterError(why)
        return EngineCluster(launcher, launcher.slots() if self.workers is None else self.workers, settings)


def _gpus(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"gpus_per_worker must be a number, it is {value!r}")
    if value < 0 or (value > 1 and value != int(value)):
        raise ValueError(f"gpus_per_worker must be a whole number, or a part of one GPU, it is {value}")
    return value


class Launcher(Protocol):
    """What an engine does for a cluster."""

    # Of the engine, for people.
    name: str
    # Of this machine, as the workers reach it; where it listens, if elsewhere; and at which port, 0 for any.
    address: str
    bind: str | None
    port: int
    # Of each worker.
    cores: int
    # Of each worker: none leaves them to the engine, and 0 hides them.
    gpus: float | None
    # With which data is read, if the engine has such a thing.
    session: Any
    # Whether this process is connected to a server of the engine alone, which tasks need not reach.
    is_client: bool
    # Tasks come one after the other into the same process.
    reuses: bool

    def available_gpus(self) -> float:
        """How many GPUs workers can have, where they ask for them."""
        ...

    def slots(self) -> int:
        """How many workers can run at once."""
        ...

    def hosts(self) -> int:
        """On how many hosts workers may run, as far as is known now; raise where the engine does not say."""
        ...

    def begin(self, workers: int, within: float) -> None:
        """Get ready for so many, in so many seconds; where that cannot be, raise what says what to change."""
        ...

    def run(self, ticket: Ticket) -> str | None:
        """Have a task call `_tunnel.serve`; return what it returns, or why there is none, in words."""
        ...

    def ask(self, knock: Knock, within: float) -> str | None:
        """Have a small task knock; return what it returns and what to do; nothing where it did not begin."""
        ...

    def waits_for(self) -> str | None:
        """What tasks wait for that have not begun; `None` where all have, or where that is not known."""
        ...

    def scarce(self) -> str:
        """What workers that have not joined are likely to wait for, and what to do; empty where not known."""
        ...

    def end(self) -> None:
        """End all tasks that are left."""
        ...


def bind_for(address: str) -> str:
    """Where to listen for those who reach this machine under an address: there, or, where that is somebody
    else's, who passes connections on, everywhere.

    >>> bind_for("127.0.0.1")
    '127.0.0.1'
    >>> bind_for("192.0.2.1")
    '0.0.0.0'
    """
    try:
        with socket.create_server((address, 0)):
            return address
    except OSError:
        return "0.0.0.0"


class EngineCluster(Cluster):
    """Workers that an engine starts. They hold its slots only while a function runs, or a model trains."""

    shares_memory = False

    def __init__(self, launcher: Launcher, workers: int, settings: Settings) -> None:
        """Use `Cluster.spark` or `Cluster.ray`."""
        self._launcher = launcher
        self._settings = settings._replace(threads=settings.threads or launcher.cores)
        self._native: _native.Cluster | None = None
        self._tasks: _Tasks | None = None
        self._holders = 0
        self._ended = False
        self._pid = os.getpid()
        self._lock: Any = threading.RLock()
        self.workers = workers
        self.cores_per_worker = launcher.cores
        bind = launcher.bind or bind_for(launcher.address)
        # What is started in advance sees all GPUs, which workers that ask for some do not.
        prepares = launcher.reuses and launcher.gpus is None
        ahead = Ahead(own_folders(), settings.preload) if prepares else None
        self.site: Site = Site(
            launcher.name,
            launcher.session,
            launcher.address,
            bind,
            launcher.port,
            ahead,
            settings.start_timeout,
        )

    @property
    def hosts(self) -> int:  # type: ignore[override] # of other clusters it is known from the beginning
        """On how many hosts workers may run."""
        return self._launcher.hosts()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep the workers, once there are some, until this ends."""
        with self._lock:
            self._holders += 1
        try:
            yield
        finally:
            with self._lock:
                self._holders -= 1
                if not self._holders:
                    self._release()

    def is_running(self) -> bool:
        """Whether functions can be called."""
        return not self._ended and self._pid == os.getpid()

    def _running(self) -> _native.Cluster:
        with self._lock:
            if self._native is None and self.is_running():
                self._start()
        return super()._running()

    def _results(self, native: _native.Cluster, end: _native.End) -> list[Any]:
        if end.kind == "cluster":
            raise ClusterError(f"{end.text}\n{self._launcher.scarce()}".rstrip())
        return super()._results(native, end)

    def _start(self) -> None:
        launcher, settings = self._launcher, self._settings
        launcher.begin(self.workers, settings.start_timeout)
        # Known at once: Ctrl-C may come at any moment.
        self._native = native = begun(
            self.workers,
            settings,
            engine=launcher.name,
            address=launcher.address,
            bind=self.site.bind,
            port=launcher.port,
        )
        try:
            self._tasks = _Tasks(native, launcher, settings)
            self._tasks.begin()
            with starting(self.workers), explaining(self._waits_for):
                importlib.import_module("cloudpickle")
                native.wait_ready(settings.start_timeout + 1)
        except BaseException as error:
            why = f"{error}\n{launcher.scarce()}".rstrip() if isinstance(error, GrampusError) else None
            self._release()
            if why is not None:
                raise ClusterError(why) from None
            raise

    def _waits_for(self) -> str | None:
        why = self._launcher.waits_for()
        if why is None:
            return None
        return f"{why}; it is given up after {self._settings.start_timeout:g} s (start_timeout)"

    def _release(self) -> None:
        native, self._native = self._native, None
        tasks, self._tasks = self._tasks, None
        if native is None or self._pid != os.getpid():
            return
        ended = native.stop("there is nothing to do", STOP_WITHIN)
        _console.show(native.take_lines())
        if tasks is not None:
            tasks.end()
        if not ended:
            raise ClusterError(f"the workers did not end within {STOP_WITHIN:.0f} s")

    def resize(self, workers: int) -> None:
        """Have more workers, or fewer, from now on; see `Cluster.resize`."""
        with self._lock:
            self.workers = whole(workers, "workers")
            if self._native is not None:
                self._native.resize(self.workers)

    def stop(self) -> None:
        """End the workers, if there are some, and start no more. A second call does nothing."""
        with self._lock:
            self._ended = True
            self._release()

    def __repr__(self) -> str:
        """Say how large it is."""
        stopped = "" if self.is_running() else ", stopped"
        return f"<grampus.Cluster of {self.workers} workers on {self._launcher.name}{stopped}>"


class _Tasks:
    """The tasks of an engine, one for each worker: each is waited for in a thread of its own."""

    def __init__(self, native: _native.Cluster, launcher: Launcher, settings: Settings) -> None:
        self._native = native
        self._launcher = launcher
        self._silent_after = settings.heartbeat_timeout
        # Then there is as much time left for another.
        self._patience = settings.start_timeout / 2
        self._lock = threading.Lock()
        # By the numbers of the requests for them: their places, and who waits for them.
        self._running: dict[int, tuple[int, threading.Thread]] = {}
        # Requests for places whose task has not ended yet, and since when. An engine may run a lost task
        # again by itself; one that does not, and does not say that it has ended, is not waited for.
        self._again: dict[int, tuple[int, float]] = {}
        self._over = False
        self._join = native.join() or ""
        self._clerk = threading.Thread(target=self._take_orders, name="grampus-tasks", daemon=True)

    def begin(self) -> None:
        """Have tasks started from now on."""
        self._clerk.start()

    def _take_orders(self) -> None:
        while not self._over:
            asked = self._native.summoned()
            with self._lock:
                if asked is not None:
                    self._consider(*asked)
                late = time.monotonic() - self._patience
                for slot in [slot for slot, (_, since) in self._again.items() if since < late]:
                    self._start(slot, self._again.pop(slot)[0])

    def _consider(self, slot: int, summons: int) -> None:
        if any(slot == place for place, _ in self._running.values()):
            self._again[slot] = summons, time.monotonic()
        else:
            self._start(slot, summons)

    def _start(self, slot: int, summons: int) -> None:
        if self._over or not self._native.awaits(summons):
            return
        thread = threading.Thread(
            target=self._follow, args=(slot, summons), name=f"grampus-task-{slot}", daemon=True
        )
        self._running[summons] = slot, thread
        thread.start()

    def _follow(self, slot: int, summons: int) -> None:
        ticket = Ticket(self._join, slot, int(self._silent_after * 1000), _native.__version__, own_folders())
        why = self._launcher.run(ticket)
        with self._lock:
            del self._running[summons]
            if slot in self._again:
                self._start(slot, self._again.pop(slot)[0])
        if why is not None and not self._over:
            self._native.not_coming(summons, why)

    def end(self) -> None:
        """End what has not ended by itself; the workers have."""
        with self._lock:
            self._over = True
            left = [thread for _, thread in self._running.values()]
        until = time.monotonic() + _END_WITHIN
        for thread in left:
            thread.join(max(until - time.monotonic(), 0))
        self._launcher.end()
        for thread in (*left, *([self._clerk] if self._clerk.ident else [])):
            thread.join(_END_WITHIN)
