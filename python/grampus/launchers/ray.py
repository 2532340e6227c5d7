"""Workers in actors of Ray, one for each, in a placement group."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from grampus._ray_resources import resources, scarcity
from grampus._starting import explaining
from grampus._tunnel import Ticket, serve
from grampus.errors import ClusterError
from grampus.launchers.gpus import per_worker, room
from grampus.launchers.reach import advised

if TYPE_CHECKING:
    from grampus.engine import Asked
    from grampus.launchers.reach import Knock

# A server of `ray://` forks a process for each client, and on a busy node now and then loses it at once.
_TRIES = 3
_REACHED_BY = (
    "name an address of this machine that the nodes reach, grampus.init(address=…), or run the program on a "
    "node (`ray job submit -- python …`)"
)


class Ray:
    """Workers on the nodes of a Ray cluster, which is joined, or started here."""

    name = "ray"
    session = None
    # An actor has a process of its own.
    reuses = False

    def __init__(self, master: str | None, asked: Asked) -> None:
        """Each worker has one core unless others are asked for."""
        self._ray = _connected(master)
        self.is_client = bool(self._ray.util.client.ray.is_connected())
        self.cores = asked.cores or 1
        self.gpus = asked.gpus
        self.address = asked.address or str(self._ray.util.get_node_ip_address())
        self.bind: str | None = None
        self.port = asked.port
        self._group: Any = None
        self._bundles = 0

    def available_gpus(self) -> float:
        """How many there are, others' included."""
        return float(sum(node.get("GPU", 0) for node in self._nodes()))

    def slots(self) -> int:
        """How many workers can run at once."""
        found = room(self._nodes(), self.cores, self.gpus)
        if not found:
            raise ClusterError(
                f"this Ray has no node for a worker of {per_worker(self.cores, self.gpus)}, "
                f"{resources(self._ray)}: say how many workers there are to be, and they are waited for "
                "until an autoscaler has started nodes, or start some (ray start)"
            )
        return found

    def _nodes(self) -> list[dict[str, float]]:
        return [node["Resources"] for node in self._ray.nodes() if node["Alive"]]

    def hosts(self) -> int:
        """On how many nodes there are CPUs."""
        import ray

        alive = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
        return len({node["NodeManagerAddress"] for node in alive})

    def begin(self, workers: int, within: float) -> None:
        """Reserve the resources of all workers, on as few nodes as can be; an autoscaler may start some."""
        ray = self._ray
        if not ray.is_initialized():
            raise ClusterError("Ray was shut down: call ray.init, and grampus.init again")
        bundle = {"CPU": self.cores} | ({"GPU": self.gpus} if self.gpus else {})
        # What is pending is what an autoscaler looks at.
        self._group = ray.util.placement_group([bundle] * workers, strategy="PACK")
        self._bundles = workers
        asked = f"{workers} workers of {per_worker(self.cores, self.gpus)} each"
        try:
            with explaining(lambda: f"waiting up to {within:g} s for {asked}; {scarcity(ray)}"):
                ray.get(self._group.ready(), timeout=within)
        except ray.exceptions.GetTimeoutError:
            why = scarcity(ray)
            self.end()
            raise ClusterError(
                f"{asked} were asked for, and within {within:g} s there was no room for them; {why}: ask for "
                "fewer workers, start more nodes (ray start), or raise start_timeout where an autoscaler "
                "takes longer"
            ) from None

    def run(self, ticket: Ticket) -> str | None:
        """Run an actor."""
        ray = self._ray
        placed = ticket.slot < self._bundles
        strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(
            self._group, placement_group_bundle_index=ticket.slot
        )
        seat = ray.remote(_Seat).options(
            num_cpus=self.cores,
            num_gpus=self.gpus or None,
            scheduling_strategy=strategy if placed else "DEFAULT",
            max_restarts=0,
        )
        try:
            why = ray.get(seat.remote().serve.remote(ticket, self.gpus == 0))
        except Exception as error:
            return _explained(error)
        return advised(why, _REACHED_BY)

    def ask(self, knock: Knock, within: float) -> str | None:
        """Run a task that takes no CPU."""
        ray = self._ray
        asked = ray.remote(_knocked).options(num_cpus=0, max_retries=0).remote(knock)
        try:
            return advised(ray.get(asked, timeout=within), _REACHED_BY)
        except ray.exceptions.GetTimeoutError:
            ray.cancel(asked)
            return None
        except Exception as error:
            return _explained(error)

    def waits_for(self) -> str | None:
        """Not known."""
        return None

    def scarce(self) -> str:
        """What actors that do not begin wait for."""
        return "actors of Ray that do not begin wait for free CPUs: `ray status` shows who holds them"

    def end(self) -> None:
        """Let go of the cores; actors that are left end with that."""
        group, self._group = self._group, None
        if group is not None and self._ray.is_initialized():
            self._ray.util.remove_placement_group(group)


class _Seat:
    """What runs on a node."""

    def serve(self, ticket: Ticket, hides_gpus: bool) -> str | None:
        # Otherwise Ray has said which GPUs are those of this actor.
        return serve(ticket, gpus=[] if hides_gpus else None)


def _knocked(knock: Knock) -> str | None:
    return knock.connect()


def _connected(master: str | None) -> Any:
    try:
        import ray
    except ImportError:
        raise ClusterError('cluster="ray" needs ray: pip install ray') from None
    import ray.util.scheduling_strategies

    if not ray.is_initialized():
        _join(ray, master or os.environ.get("RAY_ADDRESS") or "local")
    elif master is not None:
        raise ClusterError("Ray is connected already: leave master out, or call ray.shutdown() first")
    return ray


def _join(ray: Any, address: str) -> None:
    dashboard = None if address != "local" else False
    for done in range(1, _TRIES + 1):
        try:
            ray.init(address=address, include_dashboard=dashboard, log_to_driver=False)
        except ConnectionAbortedError as error:
            if done == _TRIES:
                why = str(error).strip().splitlines()[-1].strip()
                raise ClusterError(
                    f"Ray at {address} took no client in {_TRIES} tries ({why}): look at "
                    "ray_client_server.err among the logs of its head node, or run the program on a node "
                    "(`ray job submit -- python …`)"
                ) from error
        else:
            return


def _explained(error: Exception) -> str:
    text = str(error)
    if "No module named 'grampus" in text:
        return "the nodes have no grampus: install it there, or pass runtime_env={'pip': […]} to ray.init"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"Ray gave up its actor: {lines[0] if lines else type(error).__name__}"
