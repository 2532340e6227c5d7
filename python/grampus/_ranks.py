"""The ranks of `grampus run`, where this process is one of several."""

from __future__ import annotations

import os
from typing import NamedTuple

from grampus import _native, context
from grampus.errors import ClusterError

# What `grampus run` tells its ranks, besides torchrun's variables: where their key is.
_KEY = "GRAMPUS_RANKS_KEY"


class Meeting(NamedTuple):
    """Where this rank forms groups, and the address and card of each rank."""

    lobby: _native.Lobby
    rank: int
    cards: list[tuple[str, bytes]]


def is_rank() -> bool:
    """Whether this process is one of several ranks of `grampus run`, and no worker of one.

    >>> is_rank()
    False
    """
    return _is_one_of_several() and _KEY in os.environ


def leads() -> bool:
    """Whether this process writes files and shows progress: false in all ranks but the first.

    >>> leads()
    True
    """
    return not is_rank() or context.rank() == 0


_meeting: Meeting | None = None


def meet(within: float) -> Meeting:
    """Meet the others, once; wait so many seconds for those who have not come."""
    global _meeting
    if _meeting is None:
        met = _native.meet_ranks(within)
        if met is None:
            raise ClusterError(
                "`grampus run` does not say who the other ranks are: leave its variables as they are"
            )
        _meeting = Meeting(*met)
    return _meeting


def check_starts_workers() -> None:
    """Refuse workers of its own to a process that is itself one of several.

    Each of them would train a model, all to the same file.
    """
    if not _is_one_of_several():
        return
    place = f"rank {context.rank()} of {context.world_size()}"
    if is_rank():
        raise ClusterError(
            f"this process is {place} of `grampus run`, and the ranks are the workers: call grampus.init(), "
            "or nothing, instead of starting a cluster"
        )
    raise ClusterError(
        f"this process is {place} of another launcher (RANK and WORLD_SIZE are set), and each rank would do "
        f"all the work for itself: start the script with `grampus run -n {context.local_world_size()}`, or "
        "once and without a launcher"
    )


def _is_one_of_several() -> bool:
    # A launcher sets both.
    return "RANK" in os.environ and context.world_size() > 1 and not os.environ.get("GRAMPUS_WORKER")
