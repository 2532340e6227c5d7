"""Commands that start parts of Grampus as processes."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

# Says which part of Grampus a process is, and who started it; Rust's launchers set it as well.
_ROLE = "GRAMPUS_ROLE"


def supervisor(python: str) -> list[str]:
    """The command of a supervisor."""
    return [python, *_flags(), "-c", _bootstrap("_supervisor")]


def worker(python: str) -> list[str]:
    """The command of a worker, for supervisors that cannot fork one."""
    return [python, *_flags(), "-c", _bootstrap("_worker")]


def title() -> str:
    """The command of this process, for people."""
    return shlex.join(sys.orig_argv).encode(errors="replace").decode()


def role(name: str) -> tuple[str, str]:
    """The variable that marks a process of Grampus in its environment, whatever its command line says."""
    return _ROLE, f"{name}:{os.getpid()}"


def _bootstrap(module: str) -> str:
    """Start a module of the very package that runs here, wherever the interpreter looks first."""
    home = str(Path(__file__).resolve().parent.parent)
    return f"import sys; sys.path[0] = {home!r}; from grampus.{module} import main; main()"


def _flags() -> list[str]:
    """The interpreter's own flags, as multiprocessing passes them on."""
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return flags
