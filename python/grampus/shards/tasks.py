"""Functions that run on the workers, one shard after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from grampus import _exception, _joint, context, session
from grampus.errors import ClusterError, GrampusError, NotPicklable
from grampus.shards.segments import Room

if TYPE_CHECKING:
    from collections.abc import Callable

    from grampus.cluster import Cluster
    from grampus.shards.segments import Part, Record


class Step(NamedTuple):
    """A function of a shard, with what it is given besides."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def run(parts: list[Part], steps: list[Step]) -> list[Part]:
    """Pass every shard through all steps: shard t on worker t modulo the workers.

    Each rank of `grampus run` has shards of its own, in its own memory, and passes all of them by itself.
    """
    if _joint.works_alone():
        room = Room()
        return room.parts(_work(parts, steps, [room], 0))
    cluster = _cluster()
    workers = min(cluster.workers, len(parts))
    rooms = [Room(workers) for _ in range(workers)]
    try:
        answers = cluster._call(_work, (parts, steps, rooms), {}, workers)
    except NotPicklable:
        _explain_steps(steps)
        raise
    made = [iter(room.parts(records)) for room, records in zip(rooms, answers, strict=True)]
    return [next(made[number % workers]) for number in range(len(parts))]


def _explain_steps(steps: list[Step]) -> None:
    """Name what of a step cannot travel in the words of whoever gave it; nothing if all of it can."""
    from grampus import _explain

    for step in steps:
        name = _explain.describe(step.function)
        named = [(f"function {name}", step.function)]
        named += [(f"argument {place} of {name}", value) for place, value in enumerate(step.args, 1)]
        named += [(f"argument {key!r} of {name}", value) for key, value in step.kwargs.items()]
        for what, value in named:
            if _explain.fails(value):
                why = _explain.explain(value, what)
                raise NotPicklable(f"{why}: make it inside the function instead") from None


def _cluster() -> Cluster:
    cluster = session.running()
    if cluster.hosts > 1:
        raise ClusterError(
            f"shards live on one machine, the cluster has {cluster.hosts} hosts: "
            "call grampus.stop(), and grampus.init() for workers of this machine"
        )
    return cluster


def _work(parts: list[Part], steps: list[Step], rooms: list[Room], rank: int | None = None) -> list[Record]:
    """What a worker does: the shards of its rank, written into its room."""
    rank = context.rank() if rank is None else rank
    records = []
    with rooms[rank].writer() as writer:
        for number in range(rank, len(parts), len(rooms)):
            value = _passed(parts[number].load(), steps, number, len(parts))
            records.append(_written(writer, value, steps, number))
            # The mapping of a shard goes before the next one comes.
            del value
    return records


def _passed(value: Any, steps: list[Step], number: int, total: int) -> Any:
    for step in steps:
        try:
            value = step.function(value, *step.args, **step.kwargs)
        except Exception as error:
            _exception.note(error, f"grampus: in shard {number} of {total}")
            raise
    return value


def _written(writer: Any, value: Any, steps: list[Step], number: int) -> Record:
    try:
        record: Record = writer.write(value)
        return record
    except (OSError, GrampusError):
        raise
    except Exception as error:
        from grampus import _explain

        name = f"what {_explain.describe(steps[-1].function)} returned for shard {number}"
        raise NotPicklable(f"{_explain.explain(value, name)} ({error}): return something else") from None
