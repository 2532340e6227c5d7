"""A worker: takes tasks, runs them in the main thread, and sends back what they return or raise."""

from __future__ import annotations

import contextlib
import multiprocessing.process
import os
import signal
import sys
import traceback
from typing import Any, NamedTuple

from grampus import _exception, _group, _native, _notice, _output, _payload, _report, _stacks, _threads
from grampus._traceback import trace_of
from grampus.errors import NotPicklable

# Errors that a rank typically meets because another one has gone; calls that differ have no such excuse.
_CONSEQUENCES = (ConnectionError, EOFError, _native.CollectiveError)
_OWN = (_native.CallMismatch,)
# Bytes of a path.
_LONGEST_SOCKET = 107
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
        join, worker, slot, host, threads, silent_after_ms, folder, *path = secret.read().split("\0")
    if path:
        sys.path[:] = path
    numbers = int(threads), int(silent_after_ms)
    os.set_inheritable(4, False)
    settle_in(folder)
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
        _stacks.listen(),
    )
    lobby = agent.lobby()
    while not _notice.is_given() and (assignment := agent.next()) is not None:
        _work(agent, lobby, assignment, output)
    # Whoever leaves by himself has said how his task ended before he is gone.
    agent.flush()
    return 0


def settle_in(folder: str | None) -> None:
    """Let sockets of `multiprocessing` lie in the job's folder, which is removed however processes end.

    Those of a loader lie in a folder of each of its processes, and one that is killed leaves it behind.
    """
    if folder and len(os.fsencode(folder)) + len("/listener-12345678") <= _LONGEST_SOCKET:
        multiprocessing.process.current_process()._config["tempdir"] = folder  # type: ignore[attr-defined]


def leave(code: int) -> None:
    """End this process without running what the supervisor had registered for its own end."""
    _output.flush()
    os._exit(code)


def _reseed() -> None:
    """Workers forked from one process must not draw the same numbers; fresh processes would not."""
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()


def _undo_modes() -> None:
    """An interrupt may come when a mode is entered and its block is not: the next task must not find it."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_grad_enabled(True)


def _work(
    agent: _native.Agent, lobby: _native.Lobby, assignment: _native.Assignment, output: _output.Output
) -> None:
    task, worker = assignment.task, os.getpid()
    # What ends the task before `settle` has spoken is an interrupt, and interrupts come from being told.
    told = True
    _undo_modes()
    try:
        try:
            if not agent.begin(task):
                return agent.cancelled(task, False)
            os.environ.update(assignment.environment)
            _group.assign(_group.Seat(lobby, assignment.rank, assignment.cards, f"task {task}"))
            _report.begin(agent, task, output)
            function, args, kwargs = _payload.load(assignment.payload)
            value = function(*args, **kwargs)
            answer = _answer(function, value)
        finally:
            if os.getpid() != worker:
                # The function forked, and this is the child coming back: it speaks for no worker.
                leave(0)
            _report.end()
            _group.leave()
            told = agent.settle()
    except (KeyboardInterrupt, SystemExit) as error:
        if told:
            agent.cancelled(task, output.settle(task))
        elif isinstance(error, SystemExit):
            _exit(error)
        else:
            _raised(agent, task, error, told, output)
    except BaseException as error:
        _raised(agent, task, error, told, output)
    else:
        agent.returned(task, answer, output.settle(task))


def _answer(function: Any, value: Any) -> _native.Payload:
    try:
        return _payload.dump(value)
    except Exception as error:
        from grampus import _explain

        why = _explain.explain(value, f"the result of {_explain.describe(function)}")
        raise NotPicklable(f"{why} ({error}): return something else, or save it to a file") from None


def _exit(error: SystemExit) -> None:
    """The function wants the end of its process, so that is what it gets; the log says where."""
    code = error.code
    with contextlib.suppress(Exception):  # the user may have closed the stream
        end = "".join(traceback.format_exception_only(error))
        print(trace_of(error).short, end, file=sys.stderr, sep="", end="")
    leave(code & 0xFF if isinstance(code, int) else int(code is not None))


def _raised(
    agent: _native.Agent, task: int, error: BaseException, told: bool, output: _output.Output
) -> None:
    text = _exception.text(error)
    trace = trace_of(error)
    words = _exception.message(error)
    follows = isinstance(error, _CONSEQUENCES) and not isinstance(error, _OWN)
    consequence = told or follows or any(part in words.lower() for part in _CONSEQUENCE_WORDS)
    payload = _exception.pack(error, trace)
    agent.raised(task, type(error).__name__, words, text, consequence, payload, output.settle(task))
