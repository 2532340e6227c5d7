"""What a contender of bench/spark.py or bench/ray.py prints: what a call has cost, its whole tree counted."""

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from tree import family, own_seconds

_PR_SET_CHILD_SUBREAPER = 36
_EVERY = 0.05
_LOOK_EVERY = 0.2
_PAGE = os.sysconf("SC_PAGE_SIZE")
# Seconds for one call; who takes longer is stopped, and that is what is printed.
LIMIT = 180


def report(call, watch=False):
    """Call, and print the seconds, or the memory that it took beside what was there before."""
    keep_orphans()
    print(json.dumps(_watched(call) if watch else _timed(call)), flush=True)


def say(**figures):
    print(json.dumps(figures), flush=True)


def keep_orphans():
    """What ends its parent, such as a daemon, stays in this tree."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_orphans():
    """End what others have left behind of themselves: torchrun's agents wait for each other for minutes."""
    for pid in family(os.getpid()) - {os.getpid()}:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class _TooLongError(BaseException):
    """Nobody who catches errors catches this."""


def _too_long(*_):
    raise _TooLongError


class _Meter(threading.Thread):
    """Adds up the CPU seconds of the tree. Not all of it is waited for, so it is looked at all the time."""

    def __init__(self):
        super().__init__(daemon=True)
        self._before = own_seconds()
        self._seen = dict(self._before)
        self._over = threading.Event()

    def run(self):
        while not self._over.wait(_LOOK_EVERY):
            self._seen.update(own_seconds())

    def stop(self):
        """Return the seconds since it was made."""
        self._over.set()
        self.join()
        self._seen.update(own_seconds())
        return sum(self._seen.values()) - sum(self._before.values())


def _timed(call):
    signal.signal(signal.SIGALRM, _too_long)
    meter = _Meter()
    meter.start()
    signal.alarm(LIMIT)
    wall = time.perf_counter()
    capped = False
    try:
        call()
    except _TooLongError:
        capped = True
    finally:
        signal.alarm(0)
    return {"seconds": time.perf_counter() - wall, "cpu": meter.stop(), "capped": capped}


def _watched(call):
    command = [sys.executable, __file__, str(os.getpid())]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as watcher:
        before = json.loads(watcher.stdout.readline())
        call()
        most = json.loads(watcher.communicate("done\n")[0])
    return {name: most[name] - before[name] for name in before} | {"before": before["rss"]}


def taken(root, without):
    """Return bytes of all processes of a tree: as each sees them, with what is shared shared out, and real.

    Real are the private pages of the tree and all shared memory of the machine, mapped or not.
    """
    rss = pss = anonymous = 0
    for pid in family(root) - {without}:
        with contextlib.suppress(OSError, ValueError):
            rss += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
            sizes = {line.split()[0]: int(line.split()[1]) * 1024 for line in lines}
            pss += sizes["Pss:"]
            anonymous += sizes["Pss_Anon:"]
    shared = next(
        line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("Shmem:")
    )
    return {"rss": rss, "pss": pss, "real": anonymous + int(shared.split()[1]) * 1024}


def _watch(root):
    """Print what is there now, and once told to end what there was at most."""
    most = taken(root, os.getpid())
    print(json.dumps(most), flush=True)
    while not select.select([sys.stdin], [], [], _EVERY)[0]:
        now = taken(root, os.getpid())
        most = {name: max(most[name], now[name]) for name in most}
    print(json.dumps(most), flush=True)


if __name__ == "__main__":
    _watch(int(sys.argv[1]))
