"""What every benchmark shares: its command line, runs of fresh processes and what they cost, kept results."""

import argparse
import atexit
import contextlib
import ctypes
import datetime
import importlib.metadata
import json
import os
import platform
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
_PR_SET_CHILD_SUBREAPER = 36
_LINGER = 10.0
_NO_MEASUREMENTS = "SMOKE RUN: smallest sizes, one round, Grampus alone: these figures are NO measurements"

_smoke = False


class Failed(Exception):
    """A contender did not end well."""


def parse(parser: argparse.ArgumentParser, **smallest: object) -> argparse.Namespace:
    """Parse the command line of a benchmark, with `--smoke`, which replaces options by the smallest.

    A smoke run shows that every part of a script still works: only Grampus takes part, once, a failure ends
    the script, and nothing is kept.
    """
    global _smoke
    words = "run every part once, with Grampus alone, to see that it works; measures nothing"
    parser.add_argument("--smoke", action="store_true", help=words)
    options = parser.parse_args()
    if options.smoke:
        if getattr(options, "save", False) or getattr(options, "write", False):
            parser.error("a smoke run measures nothing, so there is nothing to keep")
        _smoke = True
        vars(options).update(smallest)
        # Whoever ends this script for its length ends its contenders as well.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
        print(_NO_MEASUREMENTS, flush=True)
        atexit.register(print, _NO_MEASUREMENTS)
    return options


def is_smoke() -> bool:
    return _smoke


def leave_out(name: str, failure: Failed) -> str:
    """Return what to say of a contender that failed and takes no further part; in a smoke run it ends all."""
    if _smoke:
        raise Failed(f"{name}: {failure}") from failure
    return f"{name}: left out, {failure}"


def miss(part: str, reason: str, required: str | None = None) -> None:
    """Say that a part is left out for want of something, or fail where a variable forbids that."""
    if required and os.environ.get(required):
        raise Failed(f"{part}: {reason}, and {required} is set")
    print(f"{part}: left out, {reason}")


def has_fashion_mnist(folder: str) -> bool:
    """Return whether the data are there; only a smoke run goes on without them."""
    if list(Path(folder).glob("train-images-idx3-ubyte*")):
        return True
    reason = f"{folder} holds no train-images-idx3-ubyte: apt-get install dataset-fashion-mnist"
    if not _smoke:
        sys.exit(reason)
    miss("all that trains on Fashion-MNIST", reason, "GRAMPUS_REQUIRE_DATA")
    return False


def example(crate: str, name: str, profile: str = "release") -> Path:
    """Build an example in Rust and return its program; in a smoke run return that of the tests."""
    if not _smoke:
        command = ["cargo", "build", "--quiet", "--profile", profile, "-p", crate, "--example", name]
        subprocess.run(command, cwd=ROOT, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    program = target / ("debug" if _smoke else profile) / "examples" / name
    if not program.exists():
        raise Failed(f"{program} is missing: cargo test --workspace --no-run")
    return program


def save(name: str, packages: Sequence[str], **results: object) -> None:
    """Append one line to the results, so that a later run can be laid beside this one."""
    path = HERE / "results" / f"{name}.jsonl"
    path.parent.mkdir(exist_ok=True)
    line = {"machine": machine(), "packages": {one: version(one) for one in packages}, **results}
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    print(f"\nappended to {path.relative_to(ROOT)}")


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
        in_time = False
        try:
            in_time = _ends_within(process.pid, limit)
        finally:
            wall = time.perf_counter() - began
            if not in_time:
                os.killpg(process.pid, signal.SIGKILL)
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        cpu = usage.ru_utime + usage.ru_stime + _reap_orphans()
        output.seek(0)
        text = output.read()
    if _smoke and not (in_time and process.returncode == 0):
        print(text, file=sys.stderr, flush=True)
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
    if _smoke:
        # Most of a short Spark is its compiler.
        environment["JAVA_TOOL_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    return environment


def _ends_within(pid: int, limit: float) -> bool:
    descriptor = os.pidfd_open(pid)
    try:
        return bool(select.select([descriptor], [], [], limit)[0])
    finally:
        os.close(descriptor)


def _reap_orphans() -> float:
    """Wait until no descendant is left to disturb the next contender; return their CPU seconds."""
    cpu, deadline, late = 0.0, time.monotonic() + _LINGER, False
    while True:
        try:
            pid, _, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            if late:
                raise Failed(f"left processes behind that still ran {_LINGER:.0f} s later") from None
            return cpu
        if pid:
            cpu += usage.ru_utime + usage.ru_stime
            continue
        if late := time.monotonic() > deadline:
            _end_children()
        time.sleep(0.01)


def _end_children() -> None:
    for task in Path("/proc/self/task").iterdir():
        for pid in (task / "children").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


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
