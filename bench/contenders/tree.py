"""CPU time of this process and all that descend from it, the living included."""

import os
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds():
    """Return user and system seconds of the tree; the kernel counts them in hundredths."""
    parents, seconds = {}, {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # The command stands in parentheses and may hold spaces; what follows has a fixed order.
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(entry.name)] = int(fields[1])
        # Own user and system time, then those of children already waited for.
        seconds[int(entry.name)] = sum(map(int, fields[11:15])) / _TICK
    return sum(used for pid, used in seconds.items() if _descends(pid, os.getpid(), parents))


def _descends(pid, ancestor, parents):
    while pid and pid != ancestor:
        pid = parents.get(pid, 0)
    return pid == ancestor
