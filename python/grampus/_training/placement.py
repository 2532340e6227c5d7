"""On which workers an Estimator works, and how the work is cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grampus import _native, session
from grampus._preload import WORTH, with_companions
from grampus._traceback import public_methods
from grampus._training.job import Layout

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from grampus._training import saved
    from grampus.cluster import Cluster


@public_methods
class Placement:
    """The part of an Estimator that looks after its workers."""

    _params: dict[str, Any]
    _layout: Layout | None
    _started: Cluster | None

    def _seed(self) -> int:
        raise NotImplementedError

    def shutdown(self, force: bool = False) -> None:
        """End the workers that this Estimator started; those of `grampus.init` stay, unless with `force`."""
        if force or (self._started is not None and session._session.own() is self._started):
            session.stop()
        self._started = None

    def __enter__(self) -> Self:
        """Return the Estimator itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None
    ) -> None:
        """Shut it down."""
        self.shutdown()

    def _cluster(self) -> tuple[Cluster, int]:
        asked, each = self._params["workers"], self._params["workers_per_node"]
        before = session._session.own()
        framework = {"lightning": "torch"}.get(self._params["framework"], self._params["framework"])
        heavy = [framework] if framework in WORTH else []
        cluster = session.running(workers=each or asked, preload=with_companions(["numpy", *heavy]))
        if cluster is not before:
            self._started = cluster
        if each is not None:
            asked = each * cluster.hosts
        if asked is not None:
            cluster.check_workers(asked)
        return cluster, cluster.workers if asked is None else asked

    def _most(self, cluster: Cluster, layout: Layout) -> int:
        """For how many workers there is something to do; of an elastic call, also if they are not there."""
        asked: int | None = self._params["workers"]
        if asked is None:
            asked = layout.lanes if self._params["backend"] == "grampus" else cluster.workers
        return min(asked, layout.lanes)

    def _laid_out(self, cluster: Cluster, workers: int) -> Layout:
        if self._layout is None:
            lanes = self._params["lanes"]
            lanes = workers if lanes is None else lanes
            threads = self._params["threads_per_lane"]
            if threads is None:
                # Cores and lanes of a host, or of a worker where an engine counts its cores.
                if cluster.cores_per_worker is None:
                    cores, homes = _native.host_cores(), cluster.hosts
                else:
                    cores, homes = cluster.cores_per_worker, workers
                threads = _native.threads_per_lane(cores, -(-lanes // homes))
            self._layout = Layout(lanes, self._seed(), threads)
        backend = self._params["backend"]
        if backend != "grampus" and self._layout.lanes != workers:
            raise ValueError(
                f"{backend=} needs as many lanes as workers, not {self._layout.lanes} lanes "
                f"on {workers} workers: use backend='grampus', or lanes={workers}"
            )
        return self._layout

    def _adopted(self, found: saved.Saved) -> None:
        """Take the lanes, threads and seed of a saved run."""
        told = found.meta["layout"]
        for name in ("lanes", "threads_per_lane", "seed"):
            asked, kept = self._params[name], told[name.removesuffix("_per_lane")]
            if asked is not None and asked != kept:
                raise ValueError(
                    f"{name}={asked} was asked for and the run was saved with {name}={kept}: its weights "
                    f"depend on it; leave {name} out to go on"
                )
        self._layout = Layout(told["lanes"], told["seed"], told["threads"])
