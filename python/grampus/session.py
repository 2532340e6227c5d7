"""The cluster of this process: started by `init`, used by `run`, ended by `stop` or at exit."""

from __future__ import annotations

import atexit
import contextlib
import inspect
import os
import threading
from typing import TYPE_CHECKING, Any

from grampus import _ranks
from grampus._arguments import suggest
from grampus._traceback import public
from grampus.cluster import Cluster
from grampus.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class _Session:
    """At most one cluster a process."""

    def __init__(self) -> None:
        self.cluster: Cluster | None = None
        self.settings: dict[str, Any] = {}
        self.stopped = False
        # Whether it was another than one of local workers, which none may replace unasked.
        self.lost = False
        # A forked child of the driver shares this object, but not the cluster.
        self.pid = os.getpid()
        # Two threads must not start two clusters.
        self.lock = threading.RLock()

    def own(self) -> Cluster | None:
        return self.cluster if self.pid == os.getpid() else None


_session = _Session()
_KINDS = ("local", "spark", "ray")
# What all kinds of clusters can be told, and what only those of engines.
_EVERYWHERE = ("workers", "threads", "preload", "log_dir", "start_timeout", "heartbeat_timeout")
_OF_ENGINES = (
    "master",
    "session",
    "cores_per_worker",
    "gpus_per_worker",
    "memory",
    "conf",
    "address",
    "port",
)


@public
def init(
    workers: int | None = None,
    cluster: str | Cluster = "local",
    *,
    master: str | None = None,
    session: Any = None,
    cores_per_worker: int | None = None,
    gpus_per_worker: float | None = None,
    memory: str | None = None,
    conf: dict[str, str] | None = None,
    address: str | None = None,
    port: int | None = None,
    threads: int | None = None,
    preload: Sequence[str] | None = None,
    log_dir: str | os.PathLike[str] | None = None,
    start_timeout: float = 60.0,
    heartbeat_timeout: float = 3.0,
) -> Cluster:
    """Start the workers of this process, or return those that run already with the same settings.

    Args:
        workers: how many; by default one for each core that this process may use.
        cluster: "local", "spark", "ray", or a `Cluster` that was made by hand.
        master, cores_per_worker, gpus_per_worker, address, port: of Spark and Ray: see `Cluster.spark` and
            `Cluster.ray`. `master` is the address of the engine, `address` that of this machine.
        session, memory, conf: of Spark.
        threads: of each worker; by default `OMP_NUM_THREADS` where it is set, otherwise the cores divided
            by the workers.
        preload: modules to import once, before the workers are forked; by default those of numpy and torch
            that this process has imported, and with torch its compiler, which the first optimizer needs.
        log_dir: a folder for a file of output per rank; by default they go when the cluster goes.
        start_timeout: seconds within which all workers must have joined.
        heartbeat_timeout: seconds after which a worker that gives no sign of life is given up.

    >>> init(workers=2)                       # doctest: +ELLIPSIS
    <grampus.Cluster of 2 workers, job ...>
    >>> stop()
    """
    given = locals()
    settings = {name: given[name] for name in _EVERYWHERE}
    settings["preload"] = preload if preload is None or isinstance(preload, str) else tuple(preload)
    settings |= {name: given[name] for name in _OF_ENGINES if given[name] is not None}
    with _session.lock:
        running = _session.own()
        if running is not None and running.is_running():
            _check_same({**settings, "cluster": cluster})
            return running
        made = _made(cluster, settings)
        _session.cluster, _session.settings = made, {**settings, "cluster": cluster}
        _session.stopped = _session.lost = False
        _session.pid = os.getpid()
        return made


def _of_ranks(workers: int | None, cluster: str | Cluster) -> Cluster:
    """The ranks that are there: what `grampus run` was told decides about them."""
    from grampus.ranked import RankCluster

    if cluster != "local":
        raise ClusterError(
            f"this script runs on ranks of `grampus run`, which are the workers, and cluster={cluster!r} was "
            "asked for: start it without `grampus run`, or leave cluster= out"
        )
    made = RankCluster()
    if workers is not None:
        made.check_workers(workers)
    return made


def _made(cluster: str | Cluster, settings: dict[str, Any]) -> Cluster:
    if _ranks.is_rank():
        return _of_ranks(settings["workers"], cluster)
    if isinstance(cluster, Cluster):
        asked = [name for name, value in settings.items() if value != _DEFAULTS[name]]
        if asked:
            raise TypeError(f"{asked[0]} cannot be changed in a cluster that was made by hand: leave it out")
        if not cluster.is_running():
            raise ClusterError("the cluster was stopped or has ended: start another")
        return cluster
    if cluster not in _KINDS:
        kinds = ", ".join(map(repr, _KINDS))
        raise ClusterError(f"unknown cluster {cluster!r}: use one of {kinds}, or a grampus.Cluster")
    kind = getattr(Cluster, cluster)
    unknown = sorted(settings.keys() - inspect.signature(kind).parameters.keys())
    if unknown:
        raise TypeError(f"{unknown[0]} is nothing that a cluster of kind {cluster!r} has: leave it out")
    made: Cluster = kind(**settings)
    return made


_DEFAULTS = {name: parameter.default for name, parameter in inspect.signature(init).parameters.items()}


def _check_same(settings: dict[str, Any]) -> None:
    """What is left at its default is not asked for, and so no other setting."""
    other = [
        f"{name}={_session.settings.get(name)!r}"
        for name, value in settings.items()
        if value not in (_session.settings.get(name), _DEFAULTS.get(name))
    ]
    if other:
        raise ClusterError(
            f"a cluster runs already with other settings ({', '.join(other)}): call grampus.stop() first"
        )


@public
def run(function: Callable[..., Any], *args: Any, workers: int | None = None, **kwargs: Any) -> list[Any]:
    """Call a function on every worker at once and return one result per rank, in order of rank.

    The function may be a closure, a lambda or a cell of a notebook. Without `init`, workers are started
    first, as many as `workers` says. On a larger cluster the first `workers` ranks run it.

    If it raises on a worker, the same exception is raised here, and the other ranks are ended.

    >>> init(workers=2)                       # doctest: +ELLIPSIS
    <grampus.Cluster of 2 workers, job ...>
    >>> run(lambda x, y: x + y, 1, y=2)
    [3, 3]
    >>> stop()
    """
    with _session.lock:
        cluster = _session.own()
        if cluster is None:
            if _session.stopped:
                raise ClusterError("the cluster was stopped: call grampus.init() to start another")
            cluster = init(workers)
    return cluster.run(function, *args, workers=workers, **kwargs)


def running(**settings: Any) -> Cluster:
    """The cluster that an Estimator or shards work on; without one, `init` starts local workers.

    Raises `ClusterError` where the cluster has ended by itself, or where it was on other hosts, on Spark or
    on Ray, and was stopped: work that was meant for others never begins here unasked.
    """
    with _session.lock:
        cluster = _session.cluster
        if cluster is not None and cluster.is_running():
            return cluster
        gone = "was stopped" if _session.lost else None
        if cluster is not None:
            gone = _gone(cluster)
        if gone is not None:
            raise ClusterError(f"the cluster {gone}: call grampus.init() to start another")
        return init(**settings)


def _gone(cluster: Cluster) -> str | None:
    """What became of a cluster that does not run, where local workers may not replace it."""
    if _session.own() is None:
        return None if cluster.is_replaceable else "belongs to the process that forked this one"
    native = cluster._native
    if native is not None:
        return f"has ended ({native.over()})"
    return None if cluster.is_replaceable else "was stopped"


# Called by `stop`: each releases what an engine holds for this process.
_releases: list[Callable[[], None]] = []


def at_stop(release: Callable[[], None]) -> None:
    """Call a function in each `stop`."""
    if release not in _releases:
        _releases.append(release)


def stop() -> None:
    """End the workers of this process and all that they started. Without a cluster it does nothing."""
    if os.getpid() == _session.pid:
        for release in _releases:
            release()
    with _session.lock:
        cluster = _session.own()
        if cluster is not None:
            _session.cluster = None
            _session.stopped, _session.lost = True, not cluster.is_replaceable
    if cluster is not None:
        cluster.stop()


def _unlock() -> None:
    """A forked process has not the thread that may have held the lock, and would wait for it forever."""
    _session.lock = threading.RLock()


def _stop_at_exit() -> None:
    """Another Ctrl-C meanwhile ends the wait: workers end without their driver, too."""
    with contextlib.suppress(KeyboardInterrupt):
        stop()


atexit.register(_stop_at_exit)
os.register_at_fork(after_in_child=_unlock)


suggest(globals())
