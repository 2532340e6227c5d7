"""Functions that run on the workers, one shard after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from grampus import _exception, _joint, collective, context, session
from grampus.errors import GrampusError, NotPicklable
from grampus.shards import delivery
from grampus.shards.segments import Room, adopt, store

if TYPE_CHECKING:
    from collections.abc import Callable

    from grampus.cluster import Cluster
    from grampus.shards.delivery import Load
    from grampus.shards.segments import Part, Record


class Step(NamedTuple):
    """A function of a shard, with what it is given besides."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    # Whether it reads files of the driver, which other hosts need not have.
    reads_files: bool = False


def run(parts: list[Part], steps: list[Step]) -> list[Part]:
    """Pass every shard through all steps: shard t on worker t modulo the workers.

    Each rank of `grampus run` has shards of its own, in its own memory, and passes all of them by itself.
    """
    if _joint.works_alone():
        room = Room()
        return room.parts(_work(parts, steps, [room], 0))
    cluster = session.running()
    if steps and steps[0].reads_files and not cluster.shares_memory:
        read, *steps = steps
        parts = store(_passed(part.load(), [read], number, len(parts)) for number, part in enumerate(parts))
        if not steps:
            return parts
    workers = min(cluster.workers, len(parts))
    try:
        written = (_beside if cluster.shares_memory else _away)(cluster, parts, steps, workers)
    except NotPicklable:
        _explain_steps(steps)
        raise
    made = [iter(of_one) for of_one in written]
    return [next(made[number % workers]) for number in range(len(parts))]


def _beside(cluster: Cluster, parts: list[Part], steps: list[Step], workers: int) -> list[list[Part]]:
    """Let workers of this machine write into memory of this process; what each of them has written."""
    rooms = [Room(workers) for _ in range(workers)]
    answers = cluster._call(_work, (parts, steps, rooms), {}, workers)
    return [room.parts(records) for room, records in zip(rooms, answers, strict=True)]


def _away(cluster: Cluster, parts: list[Part], steps: list[Step], workers: int) -> list[list[Part]]:
    """The same by workers of other hosts, which send back what they have written."""
    loads = delivery.loads_of_parts(parts)
    with cluster.held(), delivery.released(cluster, loads):
        delivery.deliver(cluster, loads)
        answers = cluster._call(_work_away, (loads, parts, steps, workers), {}, workers)
    return [adopt(records, written) for records, written in answers]


def _work_away(
    loads: list[Load], parts: list[Part], steps: list[Step], workers: int
) -> tuple[list[Record], Any]:
    """What such a worker does: its memory as it is after that, with where each shard stands in it."""
    with delivery.brought(loads, collective.world()):
        room = Room()
        records = _work(parts, steps, [room] * workers)
    return records, room.contents()


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
