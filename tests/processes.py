"""Processes of a test: drivers of their own, and a look at what runs."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil

# A busy machine may take long for anything; a test that waits so long has failed.
PATIENCE = 20.0


def wait_until(condition, seconds=PATIENCE):
    """Look until a condition holds; return what it said last."""
    end = time.monotonic() + seconds
    while not (held := condition()) and time.monotonic() < end:
        time.sleep(0.01)
    return held


def lives(pid):
    """Whether a process runs: a zombie does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def command_line(pid):
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def has_role(pid, role=""):
    """Whether Grampus started a process, as its environment says; a forked worker has its supervisor's."""
    with contextlib.suppress(OSError):
        environment = b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
        return f"\0GRAMPUS_ROLE={role}".encode() in environment
    return False


def supervisor_of(worker):
    """The process that owns a worker."""
    return psutil.Process(worker).ppid()


def marked(mark):
    """Processes, wherever they hang in the tree, whose environment holds a mark when they were started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if mark.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
    return found


def start(script, *arguments, **options):
    """Start a Python program whose text is given; its output is piped."""
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, **{**pipes, **options})


def finish(driver, seconds=PATIENCE):
    """Wait for the end of a program: its exit code, output and errors."""
    try:
        out, err = driver.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        driver.kill()
        out, err = driver.communicate()
        raise AssertionError(f"no end within {seconds} s\n{out}\n{err}") from None
    return driver.returncode, out, err


def run_file(path, text, seconds=PATIENCE, launcher=(), **options):
    """Write a script and run it as a user would; it must succeed. Return its output."""
    path.write_text(textwrap.dedent(text))
    driver = subprocess.Popen(
        [sys.executable, *launcher, str(path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )
    code, out, err = finish(driver, seconds)
    assert code == 0, f"{out}\n{err}"
    return out


def read_line(driver, seconds=PATIENCE):
    """The next line of a program's output."""
    end, line = time.monotonic() + seconds, b""
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([driver.stdout], [], [], end - time.monotonic())
        # Byte by byte: what a buffer had taken, no later call would see.
        byte = os.read(driver.stdout.fileno(), 1) if ready else b""
        said = (driver.stderr or driver.stdout).read() if ready and not byte else "it waits"
        assert byte, f"the driver said nothing more: {said}"
        line += byte
    return line.decode().strip()


def end(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
