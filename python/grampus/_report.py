"""Reports of the running task to its driver, which sees them while the task runs."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from grampus import _native
    from grampus._output import Output


class _Present(NamedTuple):
    agent: _native.Agent
    task: int
    output: Output
    # A forked child has a copy of all this, and no agent behind it.
    process: int


_present: _Present | None = None


def begin(agent: _native.Agent, task: int, output: Output) -> None:
    """From now on reports are those of this task."""
    global _present
    _present = _Present(agent, task, output, os.getpid())


def end() -> None:
    """From now on there is nothing to report."""
    global _present
    _present = None


def send(body: bytes) -> None:
    """Send up to 1 MiB to the driver, from any thread; outside a task, do nothing.

    What was sent arrives in order, before the end of the task, even where this process dies the next moment.

    >>> send(b"nobody waits for this")
    """
    present = _present
    if present is not None and present.process == os.getpid():
        present.agent.report(present.task, body)


def asked_to_yield() -> bool | None:
    """Whether the driver asks the task to end where it can go on later: then, whether to save what it has.

    >>> asked_to_yield()
    """
    present = _present
    return None if present is None else present.agent.asked_to_yield()


def outlive(seconds: float) -> None:
    """Let the task go on for so long if the driver is lost, asked to save what it has; with 0, not at all.

    >>> outlive(10.0)
    """
    present = _present
    if present is not None:
        present.agent.outlive(seconds)
        present.output.ask_for_time(seconds)


def leaves() -> None:
    """Tell the coordinator that this worker leaves once its task has ended.

    >>> leaves()
    """
    if _present is not None:
        _present.agent.leaves()


def sender() -> dict[str, Any]:
    """Host and process that reports come from, where a driver is to know.

    >>> sender().keys()
    dict_keys(['host', 'pid'])
    """
    return {"host": "" if _present is None else _present.agent.host, "pid": os.getpid()}


def note(text: str) -> None:
    """Warn the user, from whichever worker.

    >>> note("nobody reads this")
    """
    send(json.dumps({"kind": "note", "text": text}).encode())
