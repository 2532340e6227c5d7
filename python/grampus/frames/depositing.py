"""Rows of a partition into the keeping of this executor: what a task of a feed job does.

A keeper is a small process that holds packed rows and gives them out. It takes no slot of the engine. The
first task of an executor starts it; it ends with the executor, with the driver, and when the feed is closed.
What it holds is memory and files without names, so nothing is left of it.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grampus
from grampus import _native, _programs
from grampus._tunnel import Ahead, prepare
from grampus.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True)
class Keeper:
    """Who holds rows, and where it is found."""

    id: int
    pid: int
    host: str
    hidden: str
    address: str


@dataclass(frozen=True)
class Receipt:
    """What was deposited of a partition; it travels to the driver as a result of the task."""

    partition: int
    deposit: int
    rows: int
    # Rows of each block.
    blocks: tuple[int, ...]
    # Rows that must not be used.
    bad: int
    # Bytes that were written: each row is copied once.
    bytes: int
    # Equal where the rows are, however they were cut into batches.
    digest: str
    # Type and shape of each array of a row.
    forms: tuple[tuple[str, tuple[int, ...]], ...]
    keeper: Keeper

    @classmethod
    def from_json(cls, text: str) -> Receipt:
        """Read what `to_json` wrote.

        >>> keeper = Keeper(3, 4, host="a", hidden="b", address="c")
        >>> receipt = Receipt(1, 2, 9, (9,), 0, 72, "d", (("f32", (2,)),), keeper)
        >>> Receipt.from_json(receipt.to_json()) == receipt
        True
        """
        told: dict[str, Any] = json.loads(text)
        told["blocks"] = tuple(told["blocks"])
        told["forms"] = tuple((form["kind"], tuple(form["shape"])) for form in told["forms"])
        told["keeper"] = Keeper(**told["keeper"])
        return cls(**told)

    def to_json(self) -> str:
        """The receipt as text, for engines whose tasks give back rows."""
        told = asdict(self)
        told["forms"] = [{"kind": kind, "shape": shape} for kind, shape in self.forms]
        return json.dumps(told)


@dataclass(frozen=True)
class Order:
    """What a task of a feed job is told.

    It holds the key of the feed, and is as secret as what engines send along with a task.
    """

    join: str
    outputs: str
    skip: bool
    # Bytes that a keeper has in memory at most, by default half of what is free as it starts; the rest is on
    # disk, in `folder` or one of the engine's.
    memory: int | None
    folder: str | None
    # Seconds for which one waits for another, and for a first task; those after which silence is taken for
    # an end.
    wait: float
    silent: float
    # What a supervisor is to import meanwhile, where the next task may start workers.
    ahead: Ahead | None = None

    def __repr__(self) -> str:
        """Without the key."""
        return f"<order of a feed: {self.outputs}>"


def deposit(batches: Iterable[Any], order: Order, partition: int, *, watched: int | None = None) -> Receipt:
    """Pack the rows of a partition as they come, and leave them with the keeper of this executor.

    `batches` are `pyarrow.RecordBatch`, or whatever else gives an Arrow stream; no more than one of them, and
    one block of packed rows, is in memory at a time. Raises `DataError` that names partition, row and column
    where a row cannot be used, unless the feed skips such rows. Where this raises, or is ended, nothing is
    kept of the partition; deposits of attempts that the driver does not take are dropped.

    `watched` is the process with which the keeper ends, by default `executor_process()`.
    """
    found = _open(order, partition, watched)
    for batch in batches:
        found.add(_native.Table.from_stream(batch))
    return Receipt.from_json(found.finish())


def deposit_groups(
    paths: Sequence[str],
    row_groups: Sequence[int],
    order: Order,
    partition: int,
    *,
    watched: int | None = None,
) -> Receipt:
    """Read row groups of Parquet files as a partition, without the engine; otherwise like `deposit`.

    `row_groups` are numbers among those of all `paths`, in the order of the paths.
    """
    found = _open(order, partition, watched)
    found.add_groups(list(paths), list(row_groups))
    return Receipt.from_json(found.finish())


def executor_process() -> int:
    """The process with which a keeper ends: the first above this one that is no Python.

    That is the JVM of an executor of Spark, whose workers Python forks, and the raylet of a node of Ray.
    """
    process = os.getppid()
    while True:
        try:
            stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
            name = Path(f"/proc/{process}/exe").readlink().name
        except OSError:
            return process
        parent = int(stat.rpartition(")")[2].split()[1])
        if not name.startswith("python") or parent <= 1:
            return process
        process = parent


def _open(order: Order, partition: int, watched: int | None) -> _native.Deposit:
    if order.ahead is not None:
        prepare(order.ahead)
    process = executor_process() if watched is None else watched
    # Where each executor sees only its own processes, several have the same number.
    space = Path("/proc/self/ns/pid").stat().st_ino
    hidden = _native.keeper_name(order.join, process, space)
    limit = time.monotonic() + order.wait
    while True:
        found = _native.Deposit.open(order.join, hidden, order.outputs, partition, order.skip, order.wait)
        if found is not None:
            return found
        if time.monotonic() > limit:
            raise DataError(f"the keeper of this executor did not start within {order.wait} s: feed again")
        _start(order, hidden, process, limit)


def _start(order: Order, hidden: str, watched: int, limit: float) -> None:
    """Start a keeper in a session of its own; another task may have done so at the same time."""
    setup = {
        "join": order.join,
        "hidden": hidden,
        "watched": watched,
        "memory": _native.host_memory() // 2 if order.memory is None else order.memory,
        "folder": order.folder or _folder(),
        "silent": order.silent,
        "wait": order.wait,
    }
    top = str(Path(grampus.__file__).parent.parent)
    path = os.pathsep.join(filter(None, [top, os.environ.get("PYTHONPATH")]))
    process = subprocess.Popen(
        [sys.executable, "-m", "grampus._keeper"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        # A folder that an engine removes must not be held.
        cwd="/",
        env=dict([*os.environ.items(), ("PYTHONPATH", path), _programs.role("keeper")]),
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdout as said, process.stdin as told:
        told.write(json.dumps(setup).encode())
        told.close()
        ready, _, _ = select.select([said], [], [], max(limit - time.monotonic(), 0))
        answer = json.loads(said.readline() or b"{}") if ready else {"why": "it did not start in time"}
    # It has forked itself away, or does not run at all.
    process.kill()
    process.wait()
    if "here" not in answer:
        raise DataError(
            f"the keeper of this executor cannot start: {answer.get('why', 'it ended at once')}: look at the "
            f"memory of the executor, and whether {sys.executable} can import grampus"
        )


def _folder() -> str:
    """A folder of this executor's disk."""
    for variable in ("SPARK_LOCAL_DIRS", "LOCAL_DIRS"):
        first = os.environ.get(variable, "").split(",")[0]
        if first and os.access(first, os.W_OK):
            return first
    return tempfile.gettempdir()
