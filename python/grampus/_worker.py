"""A worker: takes tasks, runs them in the main thread, and sends back what they return or raise."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import traceback
from typing import TYPE_CHECKING, Any, NamedTuple

from grampus import _native, _output, _payload, _threads

if TYPE_CHECKING:
    from types import TracebackType

# Errors that a rank typically meets because another one has gone.
_CONSEQUENCES = (ConnectionError, EOFError)
_CONSEQUENCE_WORDS = ("connection reset by peer", "connection closed by peer", "broken pipe")


class Introduction(NamedTuple):
    """What a worker needs to join."""

    join: str
    worker: int
    slot: int
    host: str
    threads: int
    silent_after_ms: int
    notice: int


def main() -> None:
    """Serve as a worker that was started as a fresh process; descriptor 3 says for whom, 4 is for notices."""
    with os.fdopen(3) as secret:
        join, worker, slot, host, threads, silent_after_ms, *path = secret.read().splitlines()
    if path:
        sys.path[:] = path
    numbers = int(threads), int(silent_after_ms)
    os.set_inheritable(4, False)
    leave(serve(Introduction(join, int(worker), int(slot), host, *numbers, notice=4)))


def serve(introduction: Introduction) -> int:
    """Join and work until the job is over; return the exit code."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    output = _output.Output(introduction.notice)
    _threads.set_threads(introduction.threads)
    _reseed()
    os.environ["GRAMPUS_WORKER"] = str(introduction.worker)
    agent = _native.Agent(
        introduction.join,
        introduction.worker,
        introduction.slot,
        introduction.host,
        introduction.silent_after_ms,
    )
    while (assignment := agent.next()) is not None:
        _work(agent, assignment, output)
    return 0


def leave(code: int) -> None:
    """End this process without running what the supervisor had registered for its own end."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # nobody is left to tell
            stream.flush()
    os._exit(code)


def _reseed() -> None:
    """Workers forked from one process must not draw the same numbers; fresh processes would not."""
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()


def _work(agent: _native.Agent, assignment: _native.Assignment, output: _output.Output) -> None:
    task = assignment.task
    if not agent.begin(task):
        agent.cancelled(task, False)
        return
    try:
        try:
            os.environ.update(assignment.environment)
            function, args, kwargs = _payload.load(assignment.payload)
            value = function(*args, **kwargs)
            answer = _payload.dump(value)
        finally:
            agent.settle()
    except KeyboardInterrupt:
        agent.cancelled(task, output.settle(task))
    except BaseException as error:
        _raised(agent, task, error, output)
    else:
        agent.returned(task, answer, output.settle(task))


def _raised(agent: _native.Agent, task: int, error: BaseException, output: _output.Output) -> None:
    text = "".join(traceback.format_exception(type(error), error, _own_frames_removed(error.__traceback__)))
    consequence = isinstance(error, _CONSEQUENCES) or any(
        words in str(error).lower() for words in _CONSEQUENCE_WORDS
    )
    try:
        payload: _native.Payload | None = _payload.dump(_bare(error))
    except Exception:
        payload = None  # the text says it all
    agent.raised(task, type(error).__name__, str(error), text, consequence, payload, output.settle(task))


def _bare(error: BaseException) -> BaseException:
    """Tracebacks hold frames, which cannot travel; the text does instead."""
    error.__traceback__ = None
    return error


def _own_frames_removed(frames: TracebackType | None) -> TracebackType | None:
    """The user's traceback starts in the user's code."""
    while frames is not None and _is_ours(frames):
        frames = frames.tb_next
    return frames


def _is_ours(frames: TracebackType) -> bool:
    name: Any = frames.tb_frame.f_globals.get("__name__")
    return isinstance(name, str) and name.split(".")[0] == "grampus"
