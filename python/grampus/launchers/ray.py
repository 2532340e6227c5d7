"""Workers in actors of Ray, one for each, in a placement group."""

from __future__ import annotations

import os
from typing import Any

from grampus._tunnel import Ticket, serve
from grampus.errors import ClusterError


class Ray:
    """Workers on the nodes of a Ray cluster, which is joined, or started here."""

    name = "ray"
    session = None
    # An actor has a process of its own.
    reuses = False

    def __init__(self, master: str | None, cores: int | None, address: str | None, port: int) -> None:
        """`cores` of each worker, by default 1."""
        self._ray = _connected(master)
        self.cores = 1 if cores is None else cores
        self.address = address or str(self._ray.util.get_node_ip_address())
        self.bind: str | None = None
        self.port = port
        self._group: Any = None
        self._bundles = 0

    def slots(self) -> int:
        """How many workers can run at once."""
        nodes = [node for node in self._ray.nodes() if node["Alive"]]
        return sum(int(node["Resources"].get("CPU", 0)) // self.cores for node in nodes)

    def hosts(self) -> int:
        """On how many nodes there are CPUs."""
        import ray

        alive = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
        return len({node["NodeManagerAddress"] for node in alive})

    def begin(self, workers: int, within: float) -> None:
        """Reserve the cores of all workers, on as few nodes as can be; nodes may be joining."""
        ray = self._ray
        if not ray.is_initialized():
            raise ClusterError("Ray was shut down: call ray.init, and grampus.init again")
        self._group = ray.util.placement_group([{"CPU": self.cores}] * workers, strategy="PACK")
        self._bundles = workers
        try:
            ray.get(self._group.ready(), timeout=within)
        except ray.exceptions.GetTimeoutError:
            self.end()
            have, free = ray.cluster_resources().get("CPU", 0), ray.available_resources().get("CPU", 0)
            raise ClusterError(
                f"{workers} workers with {self.cores} CPUs each were asked for, this Ray has {have:g} CPUs, "
                f"of which {free:g} are free: ask for fewer workers, or start more nodes (ray start)"
            ) from None

    def run(self, ticket: Ticket) -> str | None:
        """Run an actor."""
        ray = self._ray
        placed = ticket.slot < self._bundles
        strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(
            self._group, placement_group_bundle_index=ticket.slot
        )
        seat = ray.remote(_Seat).options(
            num_cpus=self.cores, scheduling_strategy=strategy if placed else "DEFAULT", max_restarts=0
        )
        try:
            why = ray.get(seat.remote().serve.remote(ticket))
        except Exception as error:
            return _explained(error)
        if why is not None and "cannot reach the driver" in why:
            return f"{why}: name an address of this machine that the nodes reach, grampus.init(address=…)"
        return None if why is None else str(why)

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

    def serve(self, ticket: Ticket) -> str | None:
        return serve(ticket)


def _connected(master: str | None) -> Any:
    try:
        import ray
    except ImportError:
        raise ClusterError('cluster="ray" needs ray: pip install ray') from None
    import ray.util.scheduling_strategies

    if not ray.is_initialized():
        address = master or os.environ.get("RAY_ADDRESS") or "local"
        ray.init(
            address=address, include_dashboard=None if address != "local" else False, log_to_driver=False
        )
    elif master is not None:
        raise ClusterError("Ray is connected already: leave master out, or call ray.shutdown() first")
    return ray


def _explained(error: Exception) -> str:
    text = str(error)
    if "No module named 'grampus" in text:
        return "the nodes have no grampus: install it there, or pass runtime_env={'pip': […]} to ray.init"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"Ray gave up its actor: {lines[0] if lines else type(error).__name__}"
