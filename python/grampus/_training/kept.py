"""What a worker keeps of a run whose other workers are gone, and how all of them get it.

A worker that loses another leaves the run with all that it had committed. When the run goes on, the workers
tell each other how far each has come; those that are behind, or new, get all from the one furthest ahead.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from grampus import _report
from grampus._figures import count
from grampus.errors import GrampusError

if TYPE_CHECKING:
    from grampus._training.job import Fit
    from grampus.collective import Group


@dataclass
class Kept:
    """A run as one worker has it: weights and states, and what a checkpoint says besides."""

    run: str
    state: dict[str, Any]
    meta: dict[str, Any]
    # What metrics have counted on the lanes of this worker, and the callbacks' attributes.
    meters: dict[int, Any]
    callbacks: bytes | None
    # Losses of lanes in the step that was cut off.
    begun: dict[int, float] = field(default_factory=dict)
    # Whether the step after it was cut off while it was applied: it comes home, but no run goes on from it.
    torn: bool = False

    @property
    def place(self) -> tuple[int, int]:
        """How far it has come: steps, and epochs, which may end without a step."""
        return self.meta["at"]["step"], self.meta["at"]["epoch"]


class NothingKept(GrampusError):
    """No worker is left that has the run."""


_kept: Kept | None = None


def keep(kept: Kept) -> None:
    """Keep it until the run goes on, or another begins."""
    global _kept
    _kept = kept


def holds(run: str) -> bool:
    """Whether anything is kept of this run."""
    return _kept is not None and _kept.run == run


def let_go() -> None:
    """Keep nothing any more."""
    global _kept
    _kept = None


def gone_on(job: Fit, group: Group) -> Fit:
    """The job as it goes on after a loss, equal on all workers; the user is told from where."""
    found, why = agreed(job, group)
    if group.rank == 0 and _kept is not None:
        text = f"the run goes on from step {found.at['step']} on {count(group.size, 'worker')}{why}"
        _report.note(text + _missing(job, _kept) + (f"; before that, {job.lost}" if job.lost else ""))
    return found


def agreed(job: Fit, group: Group, torn: bool = False) -> tuple[Fit, str]:
    """The job as the worker has it that has come furthest, equal on all workers, and which worker that is.

    All of them keep it from here on until they let it go: another may be lost before the first step. What is
    `torn` counts only where that is said.
    """
    mine = _kept if _kept is not None and _kept.run == job.id and (torn or not _kept.torn) else None
    told = group._native.gather_bytes(
        pickle.dumps(None if mine is None else (mine.place, mine.meters, mine.begun))
    )
    # Peers of the group have proved the key of the job.
    places = [pickle.loads(each) for each in told]
    found = source_of([None if each is None else each[0] for each in places])
    if found is None:
        raise NothingKept("no worker is left that has the run")
    source, why = found
    furthest = places[source][0]
    parts = _parts(mine, group)
    if mine is None or any(each is None or each[0] != furthest for each in places):
        mine = _spread(mine if group.rank == source else None, group, source)
    if parts:
        mine = replace(mine, state={**mine.state, "parts": parts})
    meters: dict[int, Any] = {}
    begun: dict[int, float] = {}
    for each in places:
        if each is not None and each[0] == furthest:
            meters |= each[1]
            begun |= each[2]
    mine = replace(mine, meters=meters, begun=begun)
    keep(mine)
    others = any(each is None or each[0] != furthest for each in places)
    return _with(job, mine), f": {why}" if others else ""


def _parts(mine: Kept | None, group: Group) -> list[bytes]:
    """What each worker has of a run that is divided among them."""
    own = [] if mine is None else mine.state.get("parts", [])
    told = group._native.gather_bytes(pickle.dumps(own))
    return [part for each in told for part in pickle.loads(each)]


def _missing(job: Fit, mine: Kept) -> str:
    """What was lost with the worker, in words."""
    text = ""
    lanes = [str(lane) for lane in range(job.layout.lanes) if lane not in mine.meters]
    if lanes and any(mine.meters.values()) and mine.meta["at"]["step_in_epoch"]:
        text += (
            f"; metrics of training in this epoch leave out what lanes {', '.join(lanes)} had counted before"
        )
    if job.callbacks and mine.callbacks is None:
        text += "; callbacks begin anew, since their attributes cannot be pickled"
    return text


def source_of(places: list[tuple[int, int] | None]) -> tuple[int, str] | None:
    """The rank that has come furthest, and why it is that one; nothing where no rank has anything.

    >>> source_of([None, (7, 1), (8, 1)])
    (2, 'rank 2 had come furthest, 1 of 3 workers had come as far')
    """
    known = [place for place in places if place is not None]
    if not known:
        return None
    furthest = max(known)
    rank = places.index(furthest)
    as_far = sum(place == furthest for place in places)
    return rank, f"rank {rank} had come furthest, {as_far} of {len(places)} workers had come as far"


def _spread(mine: Kept | None, group: Group, source: int) -> Kept:
    """The same on all workers; arrays travel as they are, and are not pickled."""
    import numpy as np

    buffers: list[pickle.PickleBuffer] = []
    text = b"" if mine is None else pickle.dumps(mine, protocol=5, buffer_callback=buffers.append)
    arrays = [np.frombuffer(memoryview(buffer), np.uint8) for buffer in buffers]
    sizes = [array.size for array in arrays]
    told = group._native.gather_bytes(pickle.dumps((sizes, text)))[source]
    sizes, text = pickle.loads(told)
    if mine is None:
        arrays = [np.empty(size, np.uint8) for size in sizes]
    for array in arrays:
        if array.size:
            # What is sent need not be writable, and what is broadcast must be.
            whole = array if mine is None else array.copy()
            group.broadcast(whole, source)
    if mine is not None:
        return mine
    found: Kept = pickle.loads(text, buffers=arrays)
    return found


def _with(job: Fit, kept: Kept) -> Fit:
    from grampus._training import saved

    callbacks = job.callbacks
    if kept.callbacks is not None:
        for callback, attributes in zip(callbacks, pickle.loads(kept.callbacks), strict=True):
            vars(callback).update(attributes)
    told = {**kept.meta, "meters": saved.written_meters(kept.meters), "begun": kept.begun}
    return replace(job, state=kept.state, at=told["at"], saved=told)
