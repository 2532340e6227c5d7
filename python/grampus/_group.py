"""The groups of the present process: formed when first needed, left when the task ends."""

from __future__ import annotations

import secrets
import socket
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from grampus import _native, _ranks, context

if TYPE_CHECKING:
    from collections.abc import Iterator

# How long a call, or forming a group, waits for a rank that lives but does something else.
DEADLINE = 1800.0


class Seat(NamedTuple):
    """Where this process stands among those that it can form groups with."""

    lobby: _native.Lobby
    rank: int
    cards: list[tuple[str, bytes]]
    name: str


_seat: Seat | None = None
_formed: dict[str, int] = {}
_groups: list[_native.Group] = []


def assign(seat: Seat) -> None:
    """Take a seat; what was formed on the last one is left."""
    global _seat
    leave()
    _seat = seat


@contextmanager
def seated(seat: Seat) -> Iterator[None]:
    """Inside, sit elsewhere; what was formed there is left at the end."""
    global _seat, _formed, _groups
    before = _seat, _formed, _groups
    _seat, _formed, _groups = seat, {}, []
    try:
        yield
    finally:
        leave()
        _seat, _formed, _groups = before


def seat() -> Seat | None:
    """The present seat."""
    return _seat


def leave() -> None:
    """Leave all groups."""
    global _seat
    _seat = None
    _formed.clear()
    for group in _groups:
        group.close()
    _groups.clear()


def form(ranks: list[int] | None, deadline: float) -> _native.Group:
    """Form the group of some ranks, or of all. All of them must do so, equally often."""
    began = time.monotonic()
    seat = _seat or _alone(deadline)
    if ranks is None:
        ranks = list(range(len(seat.cards)))
    if seat.rank not in ranks:
        raise ValueError(f"rank {seat.rank} is not among the ranks {ranks}: let only members form a group")
    if sorted(set(ranks)) != ranks or ranks[0] < 0 or ranks[-1] >= len(seat.cards):
        raise ValueError(f"ranks must be in order, each once, and below {len(seat.cards)}, not {ranks}")
    name = f"{seat.name} {ranks}"
    # A higher number each time: what is left of the last group can never be taken for the new one.
    generation = _formed[name] = _formed.get(name, 0) + 1
    cards = [seat.cards[rank] for rank in ranks]
    # Meeting the other ranks of `grampus run` has taken its part of the time, and has found all there.
    left = max(deadline - (time.monotonic() - began), min(deadline, 1.0))
    group = seat.lobby.form(name, generation, ranks.index(seat.rank), cards, ranks, deadline, left)
    _groups.append(group)
    return group


def _alone(deadline: float) -> Seat:
    if _ranks.is_rank():
        seat = Seat(*_ranks.meet(deadline), "ranks")
        assign(seat)
        return seat
    if context.world_size() > 1:
        raise _native.CollectiveError(
            "this process was started as one of several, but neither by gp.run nor by `grampus run`: "
            'use one of them, or torch.distributed with init_process_group("grampus")'
        )
    host = socket.gethostname()
    lobby = _native.Lobby(secrets.token_bytes(32), host, "127.0.0.1")
    seat = Seat(lobby, 0, [(host, lobby.card())], "alone")
    assign(seat)
    return seat
