"""A Ray on this machine, in a network of its own where that is allowed: Ray listens on all interfaces."""

import ctypes
import os
import subprocess
from pathlib import Path

_CLONE_NEWNET = 0x40000000


def session():
    """Start it with two CPUs, and have it run a task."""
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET) == 0:
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    here = str(Path(__file__).parent)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))
    import ray

    # As its documentation advises for a small local run: no dashboard, no more CPUs than are asked for.
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    ray.get(ray.remote(_nothing).remote())


def _nothing():
    pass
