"""This process and all that descend from it, the living included: which they are, and their CPU time."""

import os
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")


def family(root):
    """Return a process and all that came from it."""
    return _family(root, {pid: int(fields[1]) for pid, fields in _stats()})


def cpu_seconds():
    """Return user and system seconds of the tree; the kernel counts them in hundredths."""
    stats = dict(_stats())
    kept = _family(os.getpid(), {pid: int(fields[1]) for pid, fields in stats.items()})
    # Own user and system time, then those of children already waited for.
    return sum(sum(map(int, stats[pid][11:15])) for pid in kept if pid in stats) / _TICK


def own_seconds():
    """Return the CPU seconds of each process of the tree, without those of children."""
    stats = dict(_stats())
    kept = _family(os.getpid(), {pid: int(fields[1]) for pid, fields in stats.items()})
    return {pid: sum(map(int, stats[pid][11:13])) / _TICK for pid in kept if pid in stats}


def _stats():
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The command stands in parentheses and may hold spaces; what follows has a fixed order.
            yield int(stat.parent.name), stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue


def _family(root, parents):
    kept, fresh = {root}, {root}
    while fresh:
        fresh = {pid for pid, parent in parents.items() if parent in fresh} - kept
        kept |= fresh
    return kept
