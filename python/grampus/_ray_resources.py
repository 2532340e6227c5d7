"""Resources of a Ray cluster and the programs that hold them, in words for messages."""

from __future__ import annotations

import contextlib
from typing import Any

from grampus._figures import count

# Other programs of which a message says that they may hold CPUs.
_NAMED = 3


def scarcity(ray: Any) -> str:
    """Describe the resources of a cluster, which are free, and which other programs may hold the rest."""
    others = _others(ray)
    held = f", other programs on it are {', '.join(others[:_NAMED])}" if others else ""
    more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
    return f"{resources(ray)}{held}{more} (`ray status` shows what is held)"


def resources(ray: Any) -> str:
    """Describe the resources of a cluster, and how many are free."""
    have, free = ray.cluster_resources(), ray.available_resources()
    parts = [
        f"{count(have.get(unit, 0), unit)}, of which {free.get(unit, 0):g} are free"
        for unit in ("CPU", "GPU")
        if unit == "CPU" or have.get(unit)
    ]
    return f"this Ray has {' and '.join(parts)}"


def _others(ray: Any) -> list[str]:
    """Programs that are connected to the cluster besides this one."""
    found: list[str] = []
    if ray.util.client.ray.is_connected():
        return found
    # Without a dashboard, Ray has no public function for this.
    with contextlib.suppress(AttributeError, KeyError):
        own = ray.get_runtime_context().get_job_id()
        for job in ray._private.state.jobs():
            program = job["Entrypoint"]
            if not job["IsDead"] and job["JobID"] != own and "dashboard" not in program:
                found.append(f"{program!r} (pid {job['DriverPid']} on {job['DriverIPAddress']})")
    return found
