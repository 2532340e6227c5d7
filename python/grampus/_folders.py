"""Folders in which a user has modules, told to processes that were not started from here."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path


def own_folders() -> list[str]:
    """Folders of this process with modules of its user: not those of the interpreter, nor of its packages."""
    packages = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    roots = tuple(filter(None, (sys.prefix, sys.base_prefix, *packages)))
    folders = [Path(entry).absolute() for entry in sys.path]
    return [str(folder) for folder in folders if folder.is_dir() and not str(folder).startswith(roots)]


def with_folders(folders: list[str]) -> list[str]:
    """Where this process finds modules, and then where others do: on one machine, or a shared disk."""
    return [*sys.path, *(folder for folder in folders if folder not in sys.path)]
