"""The supervisor of a host: imports once, forks workers, ends them.

Beside the main thread it has one that writes log files, which is safe to fork beside: it holds no lock that
a worker needs. If a preloaded module starts a thread, forking would not be safe any more; workers are then
started as fresh processes, and the reason is reported.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from grampus import _native, _output, _preload, _programs, _threads, _worker

if TYPE_CHECKING:
    from types import FrameType


def main() -> None:
    """Serve the driver on standard input and output until it is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    supervisor = _called()
    while supervisor is not None:
        # Modules of users may change from one job to the next.
        again = _preload.LIBRARIES.issuperset(supervisor.preload)
        try:
            _serve(supervisor)
        finally:
            supervisor.end()
        if not (again and supervisor.rest()):
            break
    # Everything has ended; taking the interpreter apart module by module would only cost time.
    _worker.leave(0)


def _called() -> _native.Supervisor | None:
    """For the first job.

    Whoever may have another one soon has named a descriptor at which to wait for it; and modules to import
    before the first, where there is none yet.
    """
    if not sys.argv[1:]:
        return _native.Supervisor.attach(None)
    place = int(sys.argv[1])
    if not sys.argv[2:]:
        return _native.Supervisor.attach(place)
    _import_all(sys.argv[2:])
    return _native.Supervisor.await_call(place)


def _serve(supervisor: _native.Supervisor) -> None:
    def leave(number: int, _frame: FrameType | None) -> None:
        # No exception: a module that is being imported could swallow it, and would be half imported then.
        supervisor.end()
        _worker.leave(128 + number)

    # Until it is ready and listens for itself. SIGTERM comes too if the driver ends meanwhile.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)
    if supervisor.sys_path:
        sys.path[:] = supervisor.sys_path
    if supervisor.directory:
        os.chdir(supervisor.directory)
    failed = _import_all(supervisor.preload)
    # What a module printed must not wait in a buffer that every worker would inherit and write out.
    _output.flush()
    _worker.settle_in(supervisor.folder)
    forks, why = _may_fork()
    note = "; ".join([why] * (not forks) + failed)
    supervisor.ready(forks, note, _programs.worker(sys.executable))
    # What is alive now is shared by all workers: moving it would copy its pages.
    gc.collect()
    gc.freeze()
    while (entry := supervisor.next()) is not None:
        try:
            pid = _fork()
        except OSError as error:
            advice = "use fewer workers, or allow more processes (ulimit -u) or more memory"
            supervisor.give_up_fork(f"{error}: {advice}")
            continue
        if pid == 0:
            _become_worker(supervisor, entry)
        supervisor.adopt(pid)
        # Its ends of the worker's pipes are for the worker alone.
        del entry


def _fork() -> int:
    """Fork, without Python's warning about threads: the one that writes log files does no harm.

    The warning comes back on both sides: in a worker it may be about threads of the user's code.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        return os.fork()


def _import_all(names: list[str]) -> list[str]:
    """Import modules; one that cannot be imported is the user's function's business, not ours."""
    # One thread meanwhile, so that no library starts a pool that forking would lose.
    _threads.set_variables(1)
    failed = []
    for name in ("cloudpickle", *names):
        try:
            importlib.import_module(name)
        except (Exception, SystemExit) as error:
            failed.append(f"{name} could not be preloaded: {error}")
    return failed


def _may_fork() -> tuple[bool, str]:
    """Whether workers may be forked from this process, and why (not)."""
    # A thread that is about to end may still be listed.
    for _ in range(20):
        threads = len(list(Path("/proc/self/task").iterdir()))
        if threads == 1:
            return True, "workers are forked"
        time.sleep(0.001)
    return False, f"workers are spawned: preloading left {threads} threads, which a fork would lose"


def _become_worker(supervisor: _native.Supervisor, entry: _native.Entry) -> None:
    """Never returns: the rest of this stack belongs to the supervisor."""
    code = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        notice = entry.enter()
        introduction = _worker.Introduction(
            join=supervisor.join,
            worker=entry.worker,
            slot=entry.slot,
            host=supervisor.host,
            threads=supervisor.threads,
            silent_after_ms=supervisor.silent_after_ms,
            notice=notice,
        )
        supervisor.abandon()
        code = _worker.serve(introduction)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        _worker.leave(code)
