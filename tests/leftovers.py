"""What a test leaves behind: nothing, or it fails."""

from __future__ import annotations

import contextlib
import gc
import shutil
import tempfile
import time
from pathlib import Path

import psutil
from processes import command_line, end, has_role, lives, marked

import grampus as gp
from grampus import _preload, session

# The promise is about what stays, not about the moment in which it goes.
GONE_WITHIN = 3.0


@contextlib.contextmanager
def leaving_nothing(monkeypatch, engine=False):
    """For one test; or for all of a module, whose fixture `runtime` then starts a cluster for them.

    Beside an engine such as Spark, whose processes outlive the test, only those with a role of Grampus count.
    """
    # Short: a socket's path holds 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="gp-", dir="/tmp"))
    temporary = folder / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.setenv("TMPDIR", str(temporary))
    # Output is buffered, as it is for users.
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    # As in a fresh process: no cluster was ever started or stopped.
    monkeypatch.setattr(session, "_session", session._Session())
    # Torch, which other tests have imported here, would make every start take seconds.
    monkeypatch.setattr(_preload, "WORTH", ("numpy",))
    memory, descriptors = shared_memory(), open_descriptors()
    yield folder
    gp.stop()
    # Exceptions that a test caught hold its frames in a circle.
    gc.collect()
    try:
        left = {
            "processes": wait_for_none(lambda: processes(folder, engine)),
            "threads": wait_for_none(own_threads),
            "files": wait_for_none(lambda: files(folder)),
            "shared memory": wait_for_none(lambda: unowned(shared_memory() - memory)),
        }
        if not engine:
            left["descriptors"] = wait_for_none(lambda: more(open_descriptors(), descriptors))
    finally:
        for pid in processes(folder, engine):
            end(pid)
        shutil.rmtree(folder)
    left = {kind: found for kind, found in left.items() if found}
    assert not left, f"the test left something behind: {left}"


@contextlib.contextmanager
def beside_an_engine(monkeypatch, tmp_path):
    """For one test, in a folder of its own, while an engine runs."""
    monkeypatch.chdir(tmp_path)
    # Torch leaves a cache in the temporary folder; ours must stay empty.
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    with leaving_nothing(monkeypatch, engine=True) as folder:
        yield folder


def wait_for_none(look):
    """What is there whenever one looks, until the time is over."""
    found = look()
    end = time.monotonic() + GONE_WITHIN
    while found and time.monotonic() < end:
        time.sleep(0.02)
        found = look()
    return found


def processes(folder, engine):
    children = [child.pid for child in psutil.Process().children(recursive=True)]
    found = {pid: describe(pid) for pid in {*children, *marked(str(folder))} if exists(pid)}
    if not engine:
        return found
    # Never by a name or a path: an engine that is installed in a folder called grampus is not ours.
    ours = {pid: what for pid, what in found.items() if has_role(pid) and not rests(pid)}
    # One that ends while it is looked at does not rest either.
    return {pid: what for pid, what in ours.items() if exists(pid)}


def rests(pid):
    """Whether it is a supervisor without workers and driver, which a task of an engine keeps a while."""
    with contextlib.suppress(OSError, psutil.Error):
        idle = (
            Path(f"/proc/{pid}/fd/1").readlink() == Path("/dev/null") and not psutil.Process(pid).children()
        )
        return idle and has_role(pid, "supervisor")
    return False


def exists(pid):
    return Path(f"/proc/{pid}").exists()


def describe(pid):
    return command_line(pid) if lives(pid) else "a zombie"


def own_threads():
    names = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    return [name for name in names if name.startswith("grampus")]


def files(folder):
    return [str(path) for path in folder.rglob("*") if path != folder / "tmp"]


def shared_memory():
    folder = Path("/dev/shm")
    return set(folder.iterdir()) if folder.exists() else set()


def unowned(paths):
    """Those that no process of somebody else on this machine has in use."""
    if not paths:
        return []
    used = ""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            used += maps.read_text()
    return [str(path) for path in paths if str(path) not in used]


def open_descriptors():
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = entry.readlink()
        except OSError:
            continue  # the one that reads the folder
        # A plot opens its fonts once for the whole process.
        if target.suffix != ".ttf":
            found.append(f"{entry.name}: {target}")
    return found


def more(now, before):
    return sorted(set(now) - set(before)) if len(now) > len(before) else []
