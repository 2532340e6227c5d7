"""What workers tell each other when their operators meet."""

from __future__ import annotations

import itertools
import pickle
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from grampus.frameworks._torch_lane_check import Found


class Word(NamedTuple):
    """What a worker says when it meets the others: what it does, with which optimizer and gradients."""

    does: str
    optimizer: int = 0
    # For each parameter, whether it has a gradient here.
    has: bytes = b""
    loss: float = 0.0
    # What its batch counts for, where workers do not know what all of them count for.
    weight: float = 0.0
    # At the end of a batch: whether the worker stops, and what lane 0 says about buffers.
    stops: bool = False
    says: float = 0.0
    rows: int = 0
    # How often schedulers are to move, with the metric of each time.
    moves: tuple[float | None, ...] = ()
    # At the end of the first batch: what its lanes have found about the criterion.
    found: Found | None = None


END = "end"
MOVE = "move"
# Who has fewer batches than others comes here earlier, and joins in their steps first.
_WAIT = (END, MOVE)


def meet(group: Any, word: Word) -> list[Word]:
    """What all workers do now; those that take a step must take the same."""
    # Peers of the group have proved the key of the job.
    told = group._native.gather_bytes(pickle.dumps(tuple(word)))
    words = [Word(*pickle.loads(each)) for each in told]
    busy = [(rank, each) for rank, each in enumerate(words) if each.does not in _WAIT]
    for rank, each in busy[1:]:
        first = busy[0][1]
        if (each.does, each.optimizer) != (first.does, first.optimizer):
            raise ValueError(
                f"operators take different steps: that of rank {busy[0][0]} optimizer {first.optimizer}, "
                f"that of rank {rank} optimizer {each.optimizer}; let all take the same steps in the same "
                "order"
            )
    return words


def step_of(words: Iterable[Word]) -> Word | None:
    """The step that some worker takes; none where all have ended or want schedulers to move."""
    return next((each for each in words if each.does not in _WAIT), None)


def share_of(words: Iterable[Word], weight: float) -> float:
    """What a worker's gradients count for among those of all that take a step: some may have no rows."""
    total = sum(word.weight for word in words)
    return weight / total if total else 0.0


def merged(moves: Iterable[Sequence[float | None]]) -> tuple[float | None, ...]:
    """As often as the one who asks most; each time with the mean of the metrics that were passed."""
    found: list[float | None] = []
    for each in itertools.zip_longest(*moves):
        known = [metric for metric in each if metric is not None]
        found.append(sum(known) / len(known) if known else None)
    return tuple(found)


def present(grads: list[Any | None]) -> bytes:
    """For each parameter, whether it has a gradient."""
    return bytes(each is not None for each in grads)


def loss_of(words: Iterable[Word]) -> float:
    """The loss of a step over all workers; those that have ended say that of their whole batch.

    >>> loss_of([Word("search", loss=2.0, weight=1.0), Word("search", loss=5.0, weight=3.0), Word(END)])
    4.25
    """
    met = [word for word in words if word.does != END]
    agrees = any(word.weight for word in met)
    return sum(word.loss * share_of(met, word.weight) if agrees else word.loss for word in met)
