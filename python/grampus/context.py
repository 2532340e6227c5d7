"""Where this process stands among the workers."""

from __future__ import annotations

import os


def _number(name: str, alone: int) -> int:
    # The same variables that torchrun sets, so that the answer is right under any launcher.
    return int(os.environ.get(name, alone))


def rank() -> int:
    """Position of this worker, from 0; 0 in a process that is no worker.

    >>> rank()
    0
    """
    return _number("RANK", 0)


def world_size() -> int:
    """Number of workers; 1 in a process that is no worker.

    >>> world_size()
    1
    """
    return _number("WORLD_SIZE", 1)


def local_rank() -> int:
    """Position of this worker among those on its host.

    >>> local_rank()
    0
    """
    return _number("LOCAL_RANK", 0)


def local_world_size() -> int:
    """Number of workers on this host.

    >>> local_world_size()
    1
    """
    return _number("LOCAL_WORLD_SIZE", 1)
