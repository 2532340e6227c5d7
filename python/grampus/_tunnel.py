"""What a task of an engine does for a cluster: it starts a supervisor, which starts a worker."""

from __future__ import annotations

import os
import platform
import sys
from typing import TYPE_CHECKING, NamedTuple

from grampus import _native, _preload, _programs
from grampus._folders import with_folders

if TYPE_CHECKING:
    from collections.abc import Sequence


class Ticket(NamedTuple):
    """What a task needs to know. It holds the key of the job, and is as secret as what carries it."""

    join: str
    slot: int
    silent_after_ms: int
    version: str
    # Folders of the driver in which modules may be.
    folders: list[str]


class Ahead(NamedTuple):
    """What a supervisor that is started in advance needs to know."""

    folders: list[str]
    modules: list[str]


def prepare(ahead: Ahead) -> None:
    """Have a supervisor import modules beside what this task does, for the next task in this process."""
    if _preload.LIBRARIES.issuperset(ahead.modules):
        _native.prepare_supervisor(
            _programs.supervisor(sys.executable), _environment(ahead.folders), ahead.modules
        )


def serve(ticket: Ticket, gpus: Sequence[str] | None = None) -> str | None:
    """Serve the driver until it has no use for this task any more; return why that cannot be, if so.

    `gpus` are those that the worker sees, by default those that this task sees.
    """
    if ticket.version != _native.__version__:
        return (
            f"{platform.node()} has grampus {_native.__version__} in {sys.executable}, the driver has "
            f"{ticket.version}: install one version everywhere"
        )
    try:
        _native.serve_tunnel(
            ticket.join,
            ticket.slot,
            _programs.supervisor(sys.executable),
            _environment(ticket.folders, gpus),
            ticket.silent_after_ms,
        )
    except _native.GrampusError as error:
        return str(error)
    return None


def _environment(folders: list[str], gpus: Sequence[str] | None = None) -> list[tuple[str, str]]:
    return [
        ("PYTHONPATH", os.pathsep.join(filter(None, with_folders(folders)))),
        _programs.role("supervisor"),
        # What runs beside this task has GPUs of its own: it must not be this process that is changed.
        *([] if gpus is None else [("CUDA_VISIBLE_DEVICES", ",".join(gpus))]),
    ]
