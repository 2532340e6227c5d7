"""What a worker writes, and the notice that it was written.

A result and the output before it take different ways to the driver. Where a task wrote something, the
worker says so with its result and tells the supervisor, which passes the output on and confirms; the driver
shows the output first. A task that wrote nothing costs nothing.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import fcntl
import io
import os
import sys
import termios
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer

_libc = ctypes.CDLL(None)
# Tells a wish for time from the number of a task.
_TIME_ASKED = 1 << 63


class _Counted(io.FileIO):
    """A descriptor that counts what Python writes to it."""

    writes = 0

    def write(self, data: Buffer, /) -> int:
        self.writes += 1
        return super().write(data)


class Output:
    """Standard output and error of a worker."""

    def __init__(self, notice: int) -> None:
        """Replace both streams by ones that count."""
        self._notice = notice
        self._raw = [_Counted(number, "w", closefd=False) for number in (1, 2)]
        self._seen = 0
        streams = [
            io.TextIOWrapper(io.BufferedWriter(raw), "utf-8", "backslashreplace", line_buffering=True)
            for raw in self._raw
        ]
        sys.stdout, sys.stderr = streams
        # Code that replaced the streams for a while puts these back.
        vars(sys).update(__stdout__=streams[0], __stderr__=streams[1])

    def settle(self, task: int) -> bool:
        """Flush; where something was written since the last task, tell the supervisor and return True."""
        flush()
        writes = sum(raw.writes for raw in self._raw)
        wrote = writes != self._seen or any(map(_unread, (1, 2)))
        self._seen = writes
        if wrote:
            os.write(self._notice, task.to_bytes(8, "little"))
        return wrote

    def ask_for_time(self, seconds: float) -> None:
        """Let the supervisor leave this worker so long if the driver is lost."""
        os.write(self._notice, (_TIME_ASKED | round(seconds * 1000)).to_bytes(8, "little"))


def flush() -> None:
    """Write what waits in buffers: Python's, and the one of C, which `os._exit` would drop."""
    for stream in (sys.stdout, sys.stderr):
        # The user may have closed it, or put another object there.
        with contextlib.suppress(Exception):
            stream.flush()
    _libc.fflush(None)


def _unread(descriptor: int) -> int:
    """Bytes in a pipe that nobody has read yet: output of subprocesses and of native code."""
    count = array.array("i", [0])
    with contextlib.suppress(OSError):  # the user closed it, or put a file there
        fcntl.ioctl(descriptor, termios.FIONREAD, count)
    return count[0]
