"""A cluster: workers that wait for functions to call."""

from __future__ import annotations

import contextlib
import importlib
import operator
import os
import shlex
import sys
import threading
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from grampus import _console, _native, _preload, _programs, _ranks, _threads, _traceback
from grampus._arguments import suggest
from grampus._figures import count
from grampus._starting import check_number, starting
from grampus.errors import ClusterError, GrampusError, NotPicklable, WorkerDied, WorkerTraceback

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from grampus._wish import Wish
    from grampus.frames.supply import Site

Packed = TypeVar("Packed")

# What the other side counts with.
_MOST = 2**31 - 1
# A year: a timeout is no timeout beyond it.
_LONGEST = 365 * 24 * 3600
# What a log file is waited for.
_LOGGED_WITHIN = 0.5
# Everything of a cluster ends within this; longer means that the machine itself is in trouble.
STOP_WITHIN = 20.0


@_traceback.public_methods
class Cluster:
    """Workers that wait for functions to call. Use as a context manager, or `stop` it.

    >>> with Cluster.local(2) as cluster:
    ...     cluster.run(lambda: "hello")
    ['hello', 'hello']
    """

    # Whether its workers are those that there are, and no others.
    is_fixed = False
    # Whether all workers see the memory of this process.
    shares_memory = True

    def __init__(self, native: _native.Cluster, workers: int, hosts: int = 1) -> None:
        """Use `Cluster.local` or `Cluster.ssh`."""
        self._native: _native.Cluster | None = native
        self._job = native.job
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self.workers = workers
        self.hosts = hosts
        # Where an engine has given each worker so many.
        self.cores_per_worker: int | None = None
        # The engine, for those who have it read data.
        self.site: Site | None = None

    @classmethod
    def local(
        cls,
        workers: int | None = None,
        *,
        threads: int | None = None,
        preload: Sequence[str] | None = None,
        log_dir: str | os.PathLike[str] | None = None,
        start_timeout: float = 60.0,
        heartbeat_timeout: float = 3.0,
    ) -> Cluster:
        """Start workers on this machine; for the arguments see `grampus.init`."""
        count = _native.host_cores() if workers is None else whole(workers, "workers")
        settings = Settings.checked(threads, preload, log_dir, start_timeout, heartbeat_timeout)
        return cls(_started(count, settings, directory=str(Path.cwd()), sys_path=_search_path()), count)

    @classmethod
    def ssh(
        cls,
        hosts: Sequence[str],
        workers: int | None = None,
        *,
        command: str = "ssh -o BatchMode=yes {host} {command}",
        python: str | None = None,
        address: str | None = None,
        threads: int | None = None,
        preload: Sequence[str] | None = None,
        log_dir: str | os.PathLike[str] | None = None,
        start_timeout: float = 60.0,
        heartbeat_timeout: float = 3.0,
    ) -> Cluster:
        """Start workers on other hosts, over TLS.

        Args:
            hosts: their names; workers are shared out among them in this order.
            workers: how many in all; by default one per host.
            command: how to run a command on a host: `{host}` is replaced by its name and `{command}` by what
                to run, as one argument. Its standard input and output must reach that command.
            python: the interpreter there, which must have the same version of grampus; by default the path
                of this one.
            address: of this machine as the hosts reach it; found out where not given.
            threads, preload, log_dir, start_timeout, heartbeat_timeout: see `grampus.init`.
        """
        if not hosts:
            raise ClusterError("Cluster.ssh needs at least one host")
        count = len(hosts) if workers is None else whole(workers, "workers")
        remote = shlex.join(_programs.supervisor(python or sys.executable))
        commands = []
        for host in hosts:
            words = [
                word.replace("{host}", host).replace("{command}", remote) for word in shlex.split(command)
            ]
            commands.append((host, words))
        settings = Settings.checked(threads, preload, log_dir, start_timeout, heartbeat_timeout)
        native = _started(count, settings, hosts=commands, address=address, sys_path=_search_path())
        made = cls(native, count, len(hosts))
        made.shares_memory = False
        return made

    @classmethod
    def spark(
        cls,
        session: Any = None,
        workers: int | None = None,
        *,
        master: str | None = None,
        cores_per_worker: int | None = None,
        gpus_per_worker: float | None = None,
        memory: str | None = None,
        conf: dict[str, str] | None = None,
        address: str | None = None,
        port: int = 0,
        threads: int | None = None,
        preload: Sequence[str] | None = None,
        log_dir: str | os.PathLike[str] | None = None,
        start_timeout: float = 60.0,
        heartbeat_timeout: float = 3.0,
    ) -> Cluster:
        """Workers on the executors of Spark, which hold slots only while they work.

        Args:
            session: of Spark, classic or Connect; by default the active one, or a new one.
            workers: how many; by default one for each slot.
            master: of a new session: `local[2]`, `local-cluster[2,1,1024]`, `spark://…`, or `sc://…` for
                Connect.
            cores_per_worker: by default `spark.task.cpus`.
            gpus_per_worker: by default `spark.task.resource.gpu.amount`, or one where executors have enough.
            memory: of each executor of a new session, such as "4g".
            conf: settings of a new session.
            address, port: of this machine as the executors reach it; by default `spark.driver.host` and any.
            threads, preload, log_dir, start_timeout, heartbeat_timeout: see `grampus.init`.
        """
        from grampus.engine import Asked
        from grampus.launchers.spark import Spark, session_for

        settings = Settings.checked(threads, preload, log_dir, start_timeout, heartbeat_timeout)
        asked = Asked.checked(workers, cores_per_worker, gpus_per_worker, address, port, start_timeout)
        return asked.cluster(lambda: Spark(session_for(session, master, memory, conf), asked), settings)

    @classmethod
    def ray(
        cls,
        workers: int | None = None,
        *,
        master: str | None = None,
        cores_per_worker: int | None = None,
        gpus_per_worker: float | None = None,
        address: str | None = None,
        port: int = 0,
        threads: int | None = None,
        preload: Sequence[str] | None = None,
        log_dir: str | os.PathLike[str] | None = None,
        start_timeout: float = 60.0,
        heartbeat_timeout: float = 3.0,
    ) -> Cluster:
        """Workers on the nodes of Ray, which hold CPUs only while they work.

        Args:
            workers: how many; by default one for each CPU, or for each GPU where there are some.
            master: the address of a Ray cluster, `host:6379`; by default the one that this process is
                connected to, that of `RAY_ADDRESS`, or a new one on this machine.
            cores_per_worker: CPUs of each, by default 1.
            gpus_per_worker: by default one where there are enough; a part, such as 0.5, shares one.
            address, port: of this machine as the nodes reach it; by default that of this node and any.
            threads, preload, log_dir, start_timeout, heartbeat_timeout: see `grampus.init`.
        """
        from grampus.engine import Asked
        from grampus.launchers.ray import Ray

        settings = Settings.checked(threads, preload, log_dir, start_timeout, heartbeat_timeout)
        asked = Asked.checked(workers, cores_per_worker, gpus_per_worker, address, port, start_timeout)
        return asked.cluster(lambda: Ray(master, asked), settings)

    @property
    def is_replaceable(self) -> bool:
        """Whether local workers may take the place of those that were stopped."""
        return self.shares_memory or self.is_fixed

    def is_running(self) -> bool:
        """Whether functions can be called."""
        return self._native is not None and self._pid == os.getpid() and self._native.over() is None

    def check_workers(self, asked: int) -> None:
        """Refuse a number of workers that there cannot be."""
        if asked > self.workers:
            raise ValueError(
                f"workers={asked} were asked for, the cluster has {self.workers}: call "
                f"`resize({asked})` of the cluster"
            )

    def run(
        self, function: Callable[..., Any], *args: Any, workers: int | None = None, **kwargs: Any
    ) -> list[Any]:
        """Call a function on every worker at once; see `grampus.run`."""
        if not callable(function):
            raise TypeError(f"{function!r} is not callable: run takes a function, and then its arguments")
        with self.held():
            return self._call(function, args, kwargs, workers)

    def held(self) -> AbstractContextManager[None]:
        """Keep the workers until this ends: they are kept anyway, unless they hold slots of an engine."""
        return nullcontext()

    def _call(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        workers: int | None,
        on_report: Callable[[int, bytes], None] | None = None,
        wish: Wish | None = None,
        least: int | None = None,
        look: Callable[[_native.Task], None] | None = None,
    ) -> list[Any]:
        """Do the same, with `on_report` called here for what workers send by `_report.send`: rank and bytes.

        All reports are passed on before this returns, or raises what a worker raised. If `on_report` itself
        raises, the function is interrupted on every worker, and that exception is raised.

        With a `wish` the call is patient: where one worker is lost, the others are not interrupted but find
        out by themselves; and it may be asked to end where it can go on later.

        With `least` the call is elastic: it begins with so many workers where others are missing, and is
        asked to end where it can go on once they are there.

        `look` is called now and then while the call is under way, and may raise as `on_report` may.
        """
        from grampus._payload import dump

        native = self._running()
        world = self.workers if workers is None else whole(workers, "workers")
        needed = world if least is None else min(least, world)
        if needed > self.workers:
            raise ClusterError(
                f"{needed} workers were asked for, the cluster has {self.workers}: "
                f"call `resize({needed})` of the cluster"
            )
        task: _native.Task | None = None
        try:
            # No frame of a later traceback may hold on to the memory of the arguments: they get no name.
            task = native.submit(needed, world, packed(function, args, kwargs, dump), wish is not None)
            return self._results(native, self._wait(task, on_report, wish, look))
        finally:
            if task is not None:
                task.close()

    def _running(self) -> _native.Cluster:
        if self._native is None:
            raise ClusterError("the cluster was stopped: start another")
        if self._pid != os.getpid():
            raise ClusterError("this process was forked from the driver; only the driver can call workers")
        why = self._native.over()
        if why is not None:
            raise ClusterError(f"the cluster does not run any more: {why}")
        return self._native

    @staticmethod
    def _wait(
        task: _native.Task,
        on_report: Callable[[int, bytes], None] | None,
        wish: Wish | None,
        look: Callable[[_native.Task], None] | None,
    ) -> _native.End:
        """Wait for the end of a task, showing output and passing on reports.

        Ctrl-C, or an exception of `on_report` or `look`, ends the task on every worker first.
        """
        stopped: BaseException | None = None
        while True:
            try:
                if wish is not None and wish.ends:
                    # Again and again: workers that have not begun yet do not hear of it.
                    task.ask_to_yield(wish.saves)
                news = task.wait()
                _console.show(news)
                if stopped is None:
                    stopped = _deliver(task, news.reports, on_report, look)
                    if stopped is not None:
                        task.cancel("what watches it failed, or gave it up")
            except KeyboardInterrupt as error:
                # Workers end within the cancel deadline, and the task with them; a second Ctrl-C as well.
                stopped = stopped or error
                task.cancel("interrupted by the user")
                continue
            if news.end is not None:
                if stopped is not None:
                    raise stopped
                return news.end

    def _results(self, native: _native.Cluster, end: _native.End) -> list[Any]:
        from grampus import _payload

        if end.kind == "returned":
            return [_payload.load(payload) for payload in end.payloads]
        _console.show(native.take_lines())
        if end.kind == "raised":
            error = original(end)
            _log(native, end)
            # The traceback keeps this frame, which must not keep the memory in which the exception came.
            del end
            raise error
        if end.kind == "died":
            raise WorkerDied(end.text, end.rank, end.host, end.pid, end.exit_code, end.output)
        raise ClusterError(end.text)

    def resize(self, workers: int) -> None:
        """Have more workers, or fewer, from now on; from any thread, also while a function runs.

        New workers take part in the next call. `Estimator.fit` goes on with them after its present step, and
        ends with the same weights. Workers that are too many, the last of all, end with their call.

        >>> with Cluster.local(1) as cluster:
        ...     cluster.resize(2)
        ...     cluster.run(lambda: "hello")
        ['hello', 'hello']
        """
        native = self._running()
        self.workers = whole(workers, "workers")
        if self.shares_memory:
            check_number(self.workers)
        native.resize(self.workers)

    def stop(self) -> None:
        """End the workers and all that they started. A second call does nothing."""
        with self._lock:
            native, self._native = self._native, None
        if native is None or self._pid != os.getpid():
            return
        ended = native.stop("stopped by the user", STOP_WITHIN)
        _console.show(native.take_lines())
        if not ended:
            raise ClusterError(f"the cluster did not end within {STOP_WITHIN:.0f} s")

    def __enter__(self) -> Cluster:
        """Return the cluster itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None
    ) -> None:
        """Stop it."""
        self.stop()

    def __repr__(self) -> str:
        """Say how large it is and what it is called in `grampus status`."""
        stopped = "" if self.is_running() else ", stopped"
        return f"<grampus.Cluster of {self.workers} workers, job {self._job}{stopped}>"


class Settings(NamedTuple):
    """What all kinds of clusters can be told."""

    threads: int
    preload: list[str]
    log_dir: str | None
    start_timeout: float
    heartbeat_timeout: float

    @classmethod
    def checked(
        cls,
        threads: int | None,
        preload: Sequence[str] | None,
        log_dir: str | os.PathLike[str] | None,
        start_timeout: float,
        heartbeat_timeout: float,
    ) -> Settings:
        """As the user gave them."""
        return cls(
            whole(_threads.environment_threads() if threads is None else threads, "threads", least=0),
            _preload.by_default() if preload is None else _names(preload),
            None if log_dir is None else str(Path(log_dir).absolute()),
            _seconds(start_timeout, "start_timeout"),
            _seconds(heartbeat_timeout, "heartbeat_timeout", least=0.1),
        )


def _started(workers: int, settings: Settings, **where: Any) -> _native.Cluster:
    """Workers that have joined; `where` says where they are, by default on this machine."""
    native = begun(workers, settings, **where)
    try:
        if "hosts" not in where:
            check_number(workers)
        with starting(workers):
            # The first call needs it; here it is imported while the supervisor starts.
            importlib.import_module("cloudpickle")
            native.wait_ready(settings.start_timeout + 1)
    except BaseException as error:
        native.stop("it did not start", STOP_WITHIN)
        if isinstance(error, GrampusError):
            raise ClusterError(str(error)) from None
        raise
    return native


def begun(
    workers: int,
    settings: Settings,
    *,
    hosts: Sequence[tuple[str, list[str]]] = (),
    engine: str | None = None,
    address: str | None = None,
    bind: str | None = None,
    port: int = 0,
    sys_path: Sequence[str] = (),
    directory: str | None = None,
) -> _native.Cluster:
    """Workers that are about to join."""
    _ranks.check_starts_workers()
    if os.environ.get("GRAMPUS_WORKER"):
        raise ClusterError("a worker cannot start a cluster of its own: call grampus.run in the driver")
    _console.forget_warnings()
    try:
        return _native.Cluster.start(
            workers=workers,
            supervisor=_programs.supervisor(sys.executable),
            title=_programs.title(),
            hosts=list(hosts),
            engine=engine,
            address=address,
            bind=bind,
            port=port,
            sys_path=list(sys_path),
            directory=directory,
            **settings._asdict(),
        )
    except GrampusError as error:
        raise ClusterError(str(error)) from None


def whole(value: Any, name: str, least: int = 1) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise TypeError(f"{name} must be a whole number, it is {value!r}")
    if number < least:
        raise ValueError(f"{name} must be at least {least}, it is {number}")
    if number > _MOST:
        raise ValueError(f"{name} must be at most {_MOST}, it is {number}")
    return number


def _seconds(value: Any, name: str, least: float = 0.001) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number of seconds, it is {value!r}")
    if not least <= value <= _LONGEST:
        raise ValueError(f"{name} must be at least {least} and at most {_LONGEST} seconds, it is {value}")
    return float(value)


def _names(preload: Sequence[str]) -> list[str]:
    if isinstance(preload, str) or not all(isinstance(name, str) for name in preload):
        raise TypeError(f"preload must be a list of names of modules, it is {preload!r}")
    return list(preload)


def _search_path() -> list[str]:
    """Where modules are found; a folder whose name is no text cannot be told to another process."""
    entries = [str(Path(entry).absolute()) for entry in sys.path]
    return [entry for entry in entries if entry.isprintable()]


def _deliver(
    task: _native.Task,
    reports: list[tuple[int, bytes]],
    on_report: Callable[[int, bytes], None] | None,
    look: Callable[[_native.Task], None] | None,
) -> Exception | None:
    """Pass on reports; return what `on_report` or `look` raised, if one did. Ctrl-C goes through."""
    try:
        if on_report is not None:
            for rank, body in reports:
                on_report(rank, body)
        if look is not None:
            look(task)
    except Exception as error:
        return error
    return None


def packed(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], dump: Callable[[Any], Packed]
) -> Packed:
    """A call, ready to travel; where it cannot, raise what says why."""
    try:
        return dump((function, args, kwargs))
    except Exception as error:
        raise NotPicklable(_why_not(function, args, kwargs, error)) from error


def _why_not(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception
) -> str:
    from grampus import _explain

    named = [(f"function {_explain.describe(function)}", function)]
    named += [(f"argument {place}", value) for place, value in enumerate(args)]
    named += [(f"argument {name!r}", value) for name, value in kwargs.items()]
    for name, value in named:
        if _explain.fails(value):
            return f"{_explain.explain(value, name)}: make it inside the function instead"
    return f"the call cannot be sent to the workers: {error}"


def original(end: _native.End) -> BaseException:
    """The worker's exception, with where it was raised as the cause."""
    from grampus import _exception

    trace, error = _exception.unpack(end.payloads[0])
    if error is None:
        error = GrampusError(f"{end.text}\n(its type cannot be made in this process)")
    where = f"rank {end.rank} on {end.host} (pid {end.pid})"
    if end.folded:
        where += f"; {count(len(end.folded), 'other rank')} failed after it"
    worker = end.rank, end.host, end.pid, end.folded, end.traceback
    if _traceback.is_full():
        error.__cause__ = WorkerTraceback(f"{where}\n\n{end.traceback.rstrip()}", *worker)
        return error
    if trace.hidden:
        where += f"; GRAMPUS_TRACEBACK=full shows {count(trace.hidden, 'more frame')}"
    _traceback.attach(
        error, trace, lambda text: WorkerTraceback(f"{where}\n\n{text.rstrip()}".rstrip(), *worker)
    )
    return error


def _log(native: _native.Cluster, end: _native.End) -> None:
    """Add all frames to the log of the rank; an error that cannot be written there is shown all the same."""
    folder = native.logs()
    if folder is None:
        return

    def write(path: Path, text: str) -> None:
        with contextlib.suppress(OSError), path.open("a") as log:
            log.write(text)

    # Beside this thread, which must not hang where the folder does.
    path = Path(folder) / f"rank-{end.rank}.log"
    writer = threading.Thread(target=write, args=(path, end.traceback), name="grampus-log", daemon=True)
    writer.start()
    writer.join(_LOGGED_WITHIN)


suggest(globals())
