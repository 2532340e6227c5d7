"""Runs a command as a fresh process and says what it and all its descendants cost."""

import ctypes
import datetime
import importlib.metadata
import os
import platform
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

_PR_SET_CHILD_SUBREAPER = 36
_LINGER = 10.0


class Failed(Exception):
    """A contender did not end well."""


class Sample(NamedTuple):
    """One timing, in seconds."""

    wall: float
    cpu: float


def run(command: Sequence[str], limit: float = 120.0) -> tuple[Sample, str]:
    """Time one run of the command from outside; return its cost and what it printed.

    Its orphans are waited for and their CPU time is counted, but not their wall time.
    """
    # Orphans come to us, not to init: only so do the daemons of a contender show up in its CPU time.
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryDirectory() as scratch:
        began = time.perf_counter()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=_environment(scratch),
            start_new_session=True,
        )
        in_time = _ends_within(process.pid, limit)
        wall = time.perf_counter() - began
        if not in_time:
            os.killpg(process.pid, signal.SIGKILL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        cpu = usage.ru_utime + usage.ru_stime + _reap_orphans()
        output.seek(0)
        text = output.read()
    if not in_time:
        raise Failed(f"still running after {limit:.0f} s")
    if process.returncode != 0:
        raise Failed(f"exit status {process.returncode}: {(text.strip().splitlines() or ['no output'])[-1]}")
    return Sample(wall, cpu), text


def _environment(scratch: str) -> dict[str, str]:
    environment = dict(os.environ)
    # No report over the network, no token file in the home of whoever runs this (both cost Ray time), and no
    # logs that stay behind.
    environment.update(RAY_USAGE_STATS_ENABLED="0", RAY_AUTH_MODE="disabled", RAY_TMPDIR=scratch)
    return environment


def _ends_within(pid: int, limit: float) -> bool:
    descriptor = os.pidfd_open(pid)
    try:
        return bool(select.select([descriptor], [], [], limit)[0])
    finally:
        os.close(descriptor)


def _reap_orphans() -> float:
    """Wait until no descendant is left to disturb the next contender; return their CPU seconds."""
    cpu, deadline = 0.0, time.monotonic() + _LINGER
    while True:
        try:
            pid, _, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return cpu
        if pid:
            cpu += usage.ru_utime + usage.ru_stime
        elif time.monotonic() > deadline:
            raise Failed(f"left processes behind that still run {_LINGER:.0f} s later")
        else:
            time.sleep(0.01)


def version(distribution: str) -> str | None:
    """Return the version of what is installed under this name, or nothing."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def machine() -> dict[str, object]:
    """Return the facts without which a figure means little."""
    memory = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    models = [
        line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")
    ]
    return {
        "when": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "cpu": models[0].partition(":")[2].strip() if models else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_mib": int(memory["MemTotal"].split()[0]) // 1024,
        "available_mib": int(memory["MemAvailable"].split()[0]) // 1024,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
    }
