"""Tracebacks as users read them: their own frames, without those of Grampus and of the libraries between.

`GRAMPUS_TRACEBACK=full` shows every frame instead.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import linecache
import os
import re
import sys
import sysconfig
import traceback
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

from grampus.errors import GrampusError, WorkerTraceback

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_P = ParamSpec("_P")
_R = TypeVar("_R")
_Class = TypeVar("_Class", bound=type)

_GRAMPUS = f"{Path(__file__).absolute().parent}{os.sep}"
_LIBRARY = f"{sysconfig.get_path('stdlib')}{os.sep}"
_PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
# Packages that call the user's code: what they do on the way to it is not what a user looks for.
_CALLERS = ("torch", "lightning", "pytorch_lightning", "lightning_fabric", "cloudpickle", "pyspark", "ray")
# Before the traceback in the message of an error that a process of a loader raised.
_QUOTED = "Original Traceback (most recent call last):\n"
# Methods without a name that users call by an operator or a built-in function.
_OPERATORS = ("__call__", "__enter__", "__exit__", "__getitem__", "__init__", "__iter__", "__len__")


def is_full() -> bool:
    """Whether the user wants every frame."""
    return os.environ.get("GRAMPUS_TRACEBACK") == "full"


class WorkerTrace(NamedTuple):
    """Where a worker raised an exception: what Python prints for it, without the exception itself.

    `short` has the user's frames, `hidden` is the number of those left out, and `parts` are the same for the
    exceptions of a group.
    """

    short: str
    hidden: int
    parts: list[WorkerTrace]


def trace_of(error: BaseException) -> WorkerTrace:
    """Where an exception was raised, and those that led to it, with the user's frames alone."""
    _shorten_message(error)
    found = traceback.TracebackException.from_exception(error, compact=True)
    members = getattr(error, "exceptions", ()) if getattr(found, "exceptions", None) else ()
    if members:
        # Each has a trace of its own.
        vars(found)["exceptions"] = None
    hidden = _shorten(found)
    end = "".join(found.format_exception_only())
    return WorkerTrace(
        "".join(found.format()).removesuffix(end), hidden, [trace_of(each) for each in members]
    )


def _shorten(found: traceback.TracebackException) -> int:
    """Leave out frames, here and in what led to it; return how many."""
    hidden, waiting = 0, [found]
    while waiting:
        told = waiting.pop()
        if told.stack:
            kept = _of_interest(told.stack)
            hidden += len(told.stack) - len(kept)
            told.stack[:] = kept
        if not told.stack:
            # Not even the line that says that frames follow.
            vars(told)["stack"] = None
        nested = getattr(told, "exceptions", None) or ()
        waiting += [each for each in (told.__cause__, told.__context__, *nested) if each is not None]
    return hidden


def _shorten_message(error: BaseException) -> None:
    """Shorten the traceback that PyTorch writes into the message of an error of a loader's process."""
    if error.args and isinstance(text := error.args[0], str) and _QUOTED in text:
        before, heading, quoted = text.partition(_QUOTED)
        # PyTorch has a type of text for messages of several lines.
        error.args = type(text)(before + heading + short_text(quoted)), *error.args[1:]


def short_text(quoted: str) -> str:
    """The text of a traceback without frames of Grampus and of installed packages.

    >>> quoted = '''  File "/usr/lib/python3/dist-packages/torch/utils/data/dataloader.py", line 7, in fetch
    ...     return self.dataset[row]
    ...   File "/home/me/train.py", line 3, in __getitem__
    ...     return rows[row]
    ... KeyError: 5'''
    >>> print(short_text(quoted))
      File "/home/me/train.py", line 3, in __getitem__
        return rows[row]
    KeyError: 5
    """
    kept, shown = [], True
    for line in quoted.splitlines(keepends=True):
        if found := re.match(r'  File "(.*)", line \d+, in ', line):
            shown = not (is_ours(found[1]) or _is_installed(found[1]))
        elif not line.startswith("    "):
            shown = True
        if shown:
            kept.append(line)
    return "".join(kept)


def _of_interest(stack: list[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    """The user's frames, and the one that raised, unless that is ours."""
    installed = [frame for frame in stack if not is_ours(frame.filename)]
    # A user's package may itself be installed: then its frames are the ones to show.
    own = [frame for frame in installed if not _is_installed(frame.filename)] or [
        frame for frame in installed if not _calls_users(frame.filename)
    ]
    last = stack[-1]
    return own if is_ours(last.filename) or (own and own[-1] is last) else [*own, last]


def is_ours(filename: str) -> bool:
    """Whether a file is one of Grampus."""
    return filename.startswith(_GRAMPUS)


def _is_installed(filename: str) -> bool:
    """Whether a file belongs to Python or to an installed package; Cython names files without folders."""
    return (
        filename.startswith((_LIBRARY, "<frozen ")) or filename.endswith(".pyx") or _package(filename) != ""
    )


def _calls_users(filename: str) -> bool:
    package = _package(filename)
    return package in _CALLERS or (not package and _is_installed(filename))


def _package(filename: str) -> str:
    """The installed package of a file; nothing where it belongs to none.

    >>> _package("/usr/lib/python3/dist-packages/torch/nn/functional.py")
    'torch'
    >>> _package("/home/me/train.py")
    ''
    """
    for folder in _PACKAGES:
        if folder in filename:
            return filename.rpartition(folder)[2].partition(os.sep)[0]
    return ""


def public(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Let exceptions leave a function that users call without the frames of Grampus."""

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            if not is_full() and not is_ours(sys._getframe(1).f_code.co_filename):
                _trim(error)
            # Raised again in this way, it gets no entry for this frame.
            raise

    return call


def public_methods(kind: _Class) -> _Class:
    """Make all public methods of a class `public`."""
    for name, member in list(vars(kind).items()):
        if name.startswith("_") and name not in _OPERATORS:
            continue
        if inspect.isfunction(member):
            setattr(kind, name, public(member))
        elif isinstance(member, classmethod):
            setattr(kind, name, classmethod(public(member.__func__)))
        elif isinstance(member, property) and member.fget is not None:
            setattr(kind, name, member.getter(public(member.fget)))
    return kind


def _trim(error: BaseException) -> None:
    """Take our frames away where the user can do something about the error; a fault of ours keeps them."""
    entries = list(_entries(error.__traceback__))
    kept = [entry for entry in entries if not is_ours(entry.tb_frame.f_code.co_filename)]
    if not (kept and entries[-1] is kept[-1] and _has_users(kept)) and not _is_meant(error, entries[-1]):
        return
    error.__traceback__ = frames = _joined(kept)
    # Python 3.10 raises again with the traceback that it has put aside, whose first entry is of `call`.
    entries[0].tb_next = frames
    _trim_causes(error)


def _trim_causes(error: BaseException) -> None:
    """What led to it was raised inside of us: no frames, unless some are the user's."""
    seen = {id(error)}
    while (cause := error.__cause__) is not None and id(cause) not in seen:
        seen.add(id(cause))
        kept = [e for e in _entries(cause.__traceback__) if not is_ours(e.tb_frame.f_code.co_filename)]
        cause.__traceback__ = _joined(kept if _has_users(kept) else [])
        error = cause


def _is_meant(error: BaseException, last: TracebackType) -> bool:
    """Whether an error says all there is to say: it comes from a worker, or we have raised it on purpose."""
    if isinstance(error.__cause__, WorkerTraceback) or isinstance(error, GrampusError | KeyboardInterrupt):
        return True
    code = last.tb_frame.f_code
    if not is_ours(code.co_filename):
        return False
    # A call that does not fit the parameters has not even begun.
    wrong_call = code.co_name == "call" and isinstance(error, TypeError)
    line = linecache.getline(code.co_filename, last.tb_lineno).lstrip()
    return wrong_call or isinstance(error, OSError) or line.startswith("raise ")


def _has_users(entries: list[TracebackType]) -> bool:
    return any(not _is_installed(entry.tb_frame.f_code.co_filename) for entry in entries)


def _entries(first: TracebackType | None) -> Iterator[TracebackType]:
    while first is not None:
        yield first
        first = first.tb_next


def _joined(entries: list[TracebackType]) -> TracebackType | None:
    found: TracebackType | None = None
    for entry in reversed(entries):
        found = TracebackType(found, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return found


def attach(error: BaseException, trace: WorkerTrace, cause: Callable[[str], Any]) -> None:
    """Make `cause`, which takes the text of a trace, what led to an exception, and to those of a group."""
    error.__cause__ = cause(trace.short)
    for member, part in zip(getattr(error, "exceptions", ()), trace.parts, strict=False):
        if part.short:
            attach(member, part, cause)


def keep_traceback(error: BaseException, folder: str) -> None:
    """Write all frames of a worker's exception to `error.txt`, where that is possible."""
    cause = error.__cause__
    if isinstance(cause, WorkerTraceback):
        with contextlib.suppress(OSError):
            Path(folder, "error.txt").write_text(f"{str(cause).partition(chr(10))[0]}\n\n{cause.full}")
