"""Forks of a process that has used a GPU."""

from __future__ import annotations

import functools
import gc
import os


@functools.cache
def leave_garbage_to_parent() -> None:
    """Keep children of this process, such as those of a DataLoader, from collecting what it has dropped.

    CUDA does not work in a child, and its destructors end the process that calls them there.
    """
    collects = gc.isenabled()

    def hold() -> None:
        nonlocal collects
        collects = gc.isenabled()
        gc.disable()

    def resume() -> None:
        if collects:
            gc.enable()

    def resume_in_child() -> None:
        gc.freeze()
        resume()

    os.register_at_fork(before=hold, after_in_parent=resume, after_in_child=resume_in_child)
