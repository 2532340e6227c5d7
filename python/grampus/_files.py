"""Errors of files that name the file: those of a full disk do not by themselves."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Inside, an error of the system names this file.

    >>> with naming("/dev/full"), open("/dev/full", "w") as file:
    ...     file.write("x" * 100_000)
    Traceback (most recent call last):
    OSError: [Errno 28] No space left on device: '/dev/full'
    """
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error
