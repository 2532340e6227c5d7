"""What bench/goodput.py knows of the workers that it kills: who they are, and how far they have come."""

import os
from pathlib import Path


def sign_in(folder):
    """Be one of those that may be killed."""
    Path(folder, "pids", str(os.getpid())).write_text(_began(os.getpid()))


def has_signed_in(folder, pid):
    """Whether the process that has this number now, if any, is the one that signed in under it."""
    began = _began(pid)
    return began is not None and Path(folder, "pids", str(pid)).read_text() == began


def _began(pid):
    """When a process began, in ticks since the machine did; numbers of processes come back, this does not."""
    try:
        # The command stands in parentheses and may hold spaces; what follows has a fixed order.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return None


class Progress:
    """The rows that have been trained: one number in a file, which a killed process leaves whole."""

    def __init__(self, folder):
        self.file = os.open(Path(folder, "progress"), os.O_WRONLY | os.O_CREAT, 0o600)

    def set(self, rows):
        os.pwrite(self.file, f"{rows:20}".encode(), 0)


def trained(folder):
    """How many rows have been trained; none before the first step."""
    path = Path(folder, "progress")
    return int(path.read_text() or 0) if path.exists() else 0
