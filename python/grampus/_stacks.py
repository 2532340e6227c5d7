"""The stacks of this process for whoever asks while its main thread is stuck."""

from __future__ import annotations

import faulthandler
import os
import signal

# Hardly used by anybody: those with names are, and so are the first and the last of those without.
SIGNAL = signal.SIGRTMAX - 4


def listen() -> tuple[int, int]:
    """Let a signal write the Python stacks of all threads; return it, and the descriptor to which it does.

    The handler is C, and needs no interpreter lock. The file has no name and goes with the process.
    """
    file = os.memfd_create("grampus-stacks")
    faulthandler.register(SIGNAL, file=file, all_threads=True)
    return SIGNAL, file
