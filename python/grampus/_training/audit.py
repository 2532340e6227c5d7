"""The ledger: which rows every step of a run used, as each worker writes it down; `grampus audit` reads it.

Every worker writes a file for each attempt, which is a call of the workers: a run that goes on after a loss,
or is resumed, makes another. What a lane is about to use is written before the step begins, and so before the
sum to which it may still contribute when its worker is killed; that a step was done is written by each worker
that has done it.
"""

from __future__ import annotations

import itertools
import json
import operator
import re
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grampus._files import naming

if TYPE_CHECKING:
    from collections.abc import Iterator

    from grampus._training.feed import Answer, Batch
    from grampus._training.job import Fit
    from grampus._training.lanes import Lanes

_FOLDER = "audit"
_FORMAT = 1
_NAME = re.compile(r"attempt-(\d+)-rank-\d+\.jsonl")


def attempts(run: str | None) -> Iterator[int]:
    """Numbers for the attempts to come, behind those that the folder of a run has already."""
    if run is None:
        raise ValueError(
            "audit=True writes into the folder of the run: pass a model_dir= that is a local one"
        )
    folder = Path(run) / _FOLDER
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    known = [int(found[1]) for name in names if (found := _NAME.fullmatch(name))]
    return itertools.count(max(known, default=0) + 1)


@contextmanager
def recorded(job: Fit, lanes: Lanes, feed: Any, watcher: Any) -> Iterator[tuple[Any, Any]]:
    """Feed and watcher for the loop: as they are, or such that write the ledger where one is asked for."""
    if job.audit is None:
        yield feed, watcher
        return
    with _Ledger(job, lanes, feed.batch_size) as ledger:
        yield _Feed(feed, ledger), _Watcher(watcher, ledger)


class _Ledger:
    """The file of one worker and one attempt: a line of JSON for each thing that is told."""

    def __init__(self, job: Fit, lanes: Lanes, batch_size: int) -> None:
        path = Path(str(job.run), _FOLDER, f"attempt-{job.audit:04}-rank-{lanes.group.rank}.jsonl")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._file = path.open("xb")
        except FileExistsError:
            raise ValueError(
                f"{path} is there already: another run writes into this folder; give each its own model_dir"
            ) from None
        self.tell(
            head={
                "format": _FORMAT,
                "attempt": job.audit,
                "rank": lanes.group.rank,
                "workers": lanes.group.size,
                "lanes": lanes.total,
                "seed": lanes.seed,
                "batch_size": batch_size,
                "at": [job.at["epoch"], job.at["step_in_epoch"]],
            }
        )

    def tell(self, **line: Any) -> None:
        """Add a line. It is the kernel's when this returns, and stays if the process is killed."""
        with naming(self._file.name):
            self._file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
            self._file.flush()

    def __enter__(self) -> _Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


class _Feed:
    """A feed that tells the ledger what each step is about to use."""

    def __init__(self, feed: Any, ledger: _Ledger) -> None:
        self._feed = feed
        self._ledger = ledger
        self.steps = feed.steps
        self._steps: Iterator[list[int]] = iter(())

    def open(self, epoch: int, step: int) -> None:
        self._feed.open(epoch, step)
        rows, of = self._feed.samples(epoch), self._feed.table_rows(epoch)
        self._ledger.tell(open={"at": [epoch, step], "rows": rows, "of": of})
        self._steps = ([epoch, number] for number in itertools.count(step))

    def next(self) -> Answer | None:
        answer: Answer | None = self._feed.next()
        if answer is not None:
            total, _, parts = answer
            # Lanes that read for themselves do not know where their rows stand among all.
            placed = total is not None
            told = [_part(lane, count, batch, placed) for lane, count, _, batch in parts]
            self._ledger.tell(begun={"at": next(self._steps), "parts": told})
        return answer


def _part(lane: int, count: int, batch: Batch | None, placed: bool) -> dict[str, Any]:
    """What a lane uses: a lane without rows is told too, since one that is missing may be lost."""
    if batch is None or not placed:
        return {"lane": lane, "count": count}
    rows = batch.rows
    if isinstance(rows, bytearray):
        rows = memoryview(rows).cast("q").tolist()
    told: dict[str, Any] = {"lane": lane, "first": batch.first, "count": len(rows)}
    if isinstance(rows, range):
        told["range"] = [rows.start, rows.stop]
    else:
        # A sampler may choose things that are no numbers.
        with suppress(TypeError):
            told["rows"] = [operator.index(row) for row in rows]
    if count < len(rows):
        # They could not be used; they had their turn.
        told["left_out"] = len(rows) - count
    return told


class _Watcher:
    """A watcher that tells the ledger which steps were done."""

    def __init__(self, watcher: Any, ledger: _Ledger) -> None:
        self._watcher = watcher
        self._ledger = ledger

    def __getattr__(self, name: str) -> Any:
        return getattr(self._watcher, name)

    def step_ends(self, epoch: int, step_in_epoch: int, step: int, loss: float) -> str | None:
        # Before anything is saved: whoever goes on from there does not do the step again.
        self._ledger.tell(done=[epoch, step_in_epoch - 1])
        reason: str | None = self._watcher.step_ends(epoch, step_in_epoch, step, loss)
        return reason

    def fails(self, at: str, error: BaseException) -> None:
        self._watcher.fails(at, error)
        # The last step may have been done and not told.
        self._ledger.tell(left=_place(json.loads(at)))

    def run_ends(self, at: dict[str, Any], reason: str) -> None:
        self._ledger.tell(end=_place(at))
        self._watcher.run_ends(at, reason)


def _place(at: dict[str, Any]) -> list[int]:
    return [at["epoch"], at["step_in_epoch"]]
