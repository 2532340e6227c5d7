"""Calls that all ranks of `grampus run` make together.

The first rank does what a driver does; all ranks, the first too, do what workers do. The others follow: they
run what the first hands out until it says what came of the call, and return or raise the same.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import os
import pickle
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

from grampus import (
    _alike,
    _exception,
    _explain,
    _group,
    _native,
    _notice,
    _one_line,
    _pieces,
    _ranks,
    _report,
    _traceback,
)
from grampus._warning import warn
from grampus._wish import Wish
from grampus.cluster import original
from grampus.collective import Group
from grampus.errors import CallMismatch, ClusterError, PeerLost, WorkerTraceback

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_P = ParamSpec("_P")
_R = TypeVar("_R")
_Class = TypeVar("_Class", bound=type)

# Seconds that ranks stay after an error that nothing catches: the first rank must have shown it, and the rank
# that has raised it is to end first.
_NEXT, _LAST = 0.5, 2.0

OnReport = Callable[[int, bytes], None]


class Failed(NamedTuple):
    """An exception of another rank, as `_native.End` tells of one of a worker."""

    rank: int
    host: str
    pid: int
    text: str
    traceback: str
    consequence: bool
    parts: list[bytes]
    folded: tuple[int, ...] = ()
    #: Where a worker raised it, if that is known already.
    cause: WorkerTraceback | None = None

    @classmethod
    def of(cls, rank: int, error: BaseException) -> Failed:
        """Of what was raised here; its traceback is taken from it."""
        text, full, trace = _exception.message(error), _exception.text(error), _traceback.trace_of(error)
        consequence = isinstance(error, _native.CollectiveError) and not isinstance(error, CallMismatch)
        packed = _pieces.take_apart((trace, _exception.pickled(error)))
        parts = [bytes(piece) for piece in packed]
        failed = cls(rank, socket.gethostname(), os.getpid(), text, full, consequence, parts)
        cause = error.__cause__
        return failed._replace(cause=cause) if isinstance(cause, WorkerTraceback) else failed

    @property
    def origin(self) -> int:
        """The rank on which it was raised first."""
        return self.rank if self.cause is None else self.cause.rank

    @property
    def payloads(self) -> list[_native.Payload]:
        """The exception, as it is unpacked."""
        return [_native.Payload(self.parts)]

    def error(self) -> BaseException:
        """What to raise for it."""
        error = original(self)  # type: ignore[arg-type]
        if self.cause is not None:
            error.__cause__ = self.cause
        return _one_line.shown(error) if _one_line.is_shown(error) else error


class _Agent:
    """Takes the place of a worker's agent: reports go to this very process."""

    def __init__(self, rank: int, on_report: OnReport | None, wish: Wish) -> None:
        self.host = socket.gethostname()
        self._rank = rank
        self._on_report = on_report
        self._wish = wish
        self._lock = threading.Lock()

    def report(self, _task: int, body: bytes) -> None:
        if self._on_report is not None:
            with self._lock:
                self._on_report(self._rank, body)

    def asked_to_yield(self) -> bool | None:
        # `grampus run` tells all ranks to go, or passes Ctrl-C on; what they have is saved first.
        return True if _notice.is_given() or self._wish.saves else None

    def outlive(self, _seconds: float) -> None:
        """There is no driver besides."""

    def leaves(self) -> None:
        """All leave together."""

    def ask_for_time(self, _seconds: float) -> None:
        """As an output: `grampus run` gives what it gives."""


class Team:
    """This rank and the others."""

    def __init__(self) -> None:
        """Meet them."""
        self.meeting = _ranks.meet(_group.DEADLINE)
        lobby, rank, cards = self.meeting
        labels = list(range(len(cards)))
        formed = lobby.form("joint", 1, rank, cards, labels, _group.DEADLINE)
        self._group = Group(formed)
        self._tasks = 0
        # Whether a call that all make together is under way.
        self.busy = False

    @property
    def leads(self) -> bool:
        """Whether this is the first rank."""
        return self.meeting.rank == 0

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        lead: Callable[[], _R],
        took: Callable[[], Any] | None = None,
        take: Callable[[Any], None] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> _R:
        """Make a call with all others; they must make the same, of objects with the same settings.

        The first rank does it by `lead`. The others return the same, and `take` what it `took` from it.
        """
        # Shards count their rows, for which functions of the user may have to run: on each rank alone.
        asked = _alike.Told.of(name, arguments, settings or {})
        self.busy = True
        try:
            self._check_same(asked)
            if self.leads:
                return self._lead(lead, took)
            value: _R = self._follow(take)
            return value
        finally:
            self.busy = False

    def task(
        self, call: Sequence[Any], world: int, on_report: OnReport | None, wish: Wish | None
    ) -> list[Any]:
        """Have the first `world` ranks call a function, in pieces with its arguments; what each returns.

        Where `wish` has begun, Ctrl-C on any rank is noted in it, and does not end the function by itself.
        """
        self._tasks += 1
        wish = Wish() if wish is None else wish
        self._spread(_pieces.take_apart(("task", self._tasks, world, wish.begun)))
        self._spread(call)
        # A copy, as the others have: what a worker changes is not the driver's.
        return self._perform([bytearray(piece) for piece in call], self._tasks, world, on_report, wish)

    def close(self) -> None:
        """Leave the others."""
        self._group.close()

    def _check_same(self, call: _alike.Told) -> None:
        # Peers of the group have proved the key of the job.
        differs = _alike.difference(list(map(pickle.loads, self._told(pickle.dumps(call)))))
        if differs is not None:
            raise CallMismatch(differs) if self.leads else _in_short(CallMismatch(differs), _NEXT)

    def _lead(self, lead: Callable[[], _R], took: Callable[[], Any] | None) -> _R:
        try:
            value = lead()
            pieces = _pieces.take_apart(("returned", value, None if took is None else took()))
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            frames = error.__traceback__
            failed = Failed.of(self.meeting.rank, error)
            with contextlib.suppress(ClusterError):
                self._spread(_raised(failed, took))
            # What packed it took them away.
            error.__traceback__ = frames
            if failed.origin != 0:
                _one_line.held(error, _LAST)
            raise
        self._spread(pieces)
        return value

    def _follow(self, take: Callable[[Any], None] | None) -> Any:
        from grampus._training.leaving import interrupting

        # Between tasks, too, the first rank decides what Ctrl-C ends: it has what is to be kept.
        wish = Wish(begun=True)
        with interrupting(wish):
            while True:
                kind, *rest = _pieces.put_together(self._spread(None))
                if kind != "task":
                    break
                number, world, wish.begun = rest
                self._perform(self._spread(None), number, world, _show_note, wish)
                wish.begun = True
        value, taken = rest
        if take is not None and taken is not None:
            take(taken)
        if kind == "raised":
            raise _in_short(value.error(), _NEXT if value.origin in (0, self.meeting.rank) else _LAST)
        if wish.interrupted is not None:
            raise KeyboardInterrupt
        return value

    def _perform(
        self, call: list[Any], number: int, world: int, on_report: OnReport | None, wish: Wish
    ) -> list[Any]:
        """Do this rank's part of a task; the first rank gets what all return, or raises what one raised."""
        import cloudpickle

        lobby, rank, cards = self.meeting
        value: Any = None
        packed, mine = b"", None
        if rank < world:
            agent = _Agent(rank, on_report, wish)
            _report.begin(agent, number, agent)  # type: ignore[arg-type]
            try:
                with _group.seated(_group.Seat(lobby, rank, cards[:world], f"joint task {number}")):
                    function, args, kwargs = _pieces.put_together(call)
                    value = function(*args, **kwargs)
                packed = b"" if self.leads else cloudpickle.dumps(value)
            except (Exception, SystemExit, KeyboardInterrupt) as error:
                mine = error
            finally:
                _report.end()
        if self._has_failed(mine, wish):
            return []
        return [value, *(pickle.loads(each) for each in self._gathered(packed)[1:world])]

    def _has_failed(self, mine: BaseException | None, wish: Wish) -> bool:
        """Whether a rank raised something.

        The first rank raises it here, and takes over a Ctrl-C of any; the others hear of it when the call
        ends.
        """
        frames = None if mine is None else mine.__traceback__
        failure = None if mine is None else Failed.of(self.meeting.rank, mine)
        told = list(map(pickle.loads, self._told(pickle.dumps((failure, wish.interrupted is not None)))))
        failed = {rank: each for rank, (each, _) in enumerate(told) if each is not None}
        if not self.leads:
            wish.interrupted = None
        elif wish.begun and wish.interrupted is None and any(interrupted for _, interrupted in told):
            wish.interrupted = time.monotonic()
        if not failed or not self.leads:
            return bool(failed)
        # A rank that others have left says so; one of those says why.
        first = min(failed, key=lambda rank: (failed[rank].consequence, rank))
        if first == 0 and mine is not None:
            raise mine.with_traceback(frames)
        raise failed[first].error()

    def _told(self, mine: bytes) -> list[bytes]:
        """What each rank says."""
        with self._all_there():
            return self._group._native.gather_bytes(mine)

    def _gathered(self, mine: bytes) -> list[bytes]:
        """What each rank has, on the first one."""
        import numpy as np

        with self._all_there():
            parts = self._group.gather(np.frombuffer(mine, np.uint8), 0)
        return [] if parts is None else [part.tobytes() for part in parts]

    def _spread(self, pieces: Sequence[Any] | None) -> list[Any]:
        """What the first rank has, on every rank."""
        import numpy as np

        views = [np.frombuffer(piece, np.uint8) for piece in pieces or []]
        # Peers of the group have proved the key of the job.
        sizes = pickle.loads(self._told(pickle.dumps([view.size for view in views]))[0])
        if pieces is None:
            views = [np.empty(size, np.uint8) for size in sizes]
        with self._all_there():
            for view in views:
                if view.size:
                    self._group.broadcast(view, 0)
        return [view.data for view in views]

    @contextlib.contextmanager
    def _all_there(self) -> Iterator[None]:
        try:
            yield
        except PeerLost as lost:
            raise ClusterError(
                f"not all ranks of `grampus run` are there: {lost}; let every rank make the same calls, and "
                "where one was lost, start again with --max-restarts and resume=True"
            ) from None


@functools.cache
def team() -> Team:
    """All ranks; they meet once."""
    return Team()


def works_alone() -> bool:
    """Whether this is a rank of `grampus run` that makes no call together with the others at this moment.

    >>> works_alone()
    False
    """
    return _ranks.is_rank() and not (team.cache_info().currsize and team().busy)


def joint(method: Callable[_P, _R]) -> Callable[_P, _R]:
    """Let all ranks of `grampus run` call a method together.

    What it changes of its object goes from `_taken_along` to `_take_along` of the others, and attributes of
    callbacks to theirs.
    """

    @functools.wraps(method)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if not _ranks.is_rank() or team().busy:
            return method(*args, **kwargs)
        owner: Any = args[0]
        named = inspect.signature(method).bind(*args, **kwargs).arguments
        callbacks = named.get("callbacks")
        # The first names the object, whatever it is called.
        named.pop(next(iter(named)))

        def took() -> Any:
            return owner._taken_along(), [_attributes(each) for each in callbacks or ()]

        def take(taken: Any) -> None:
            owner._take_along(taken[0])
            for callback, attributes in zip(callbacks or (), taken[1], strict=True):
                vars(callback).update(attributes)

        return team().call(
            method.__name__, named, lambda: method(*args, **kwargs), took, take, owner.get_params()
        )

    return call


def led(name: str, path: str | os.PathLike[str], write: Callable[[], None]) -> None:
    """Let the first rank of `grampus run` write something that each has, and the others wait for it."""
    if not _ranks.is_rank() or team().busy:
        return write()

    def lead() -> None:
        # What it writes is in its own memory, and the others do not help.
        team().busy = False
        write()

    return team().call(name, {"path": os.fspath(path)}, lead)


def joint_methods(*names: str) -> Callable[[_Class], _Class]:
    """Make methods of a class joint."""

    def decorated(kind: _Class) -> _Class:
        for name in names:
            setattr(kind, name, joint(getattr(kind, name)))
        return kind

    return decorated


def _attributes(callback: Any) -> dict[str, Any]:
    """What a callback has, as far as it can travel."""
    return {name: value for name, value in vars(callback).items() if not _explain.fails(value)}


def _in_short(error: BaseException, after: float) -> BaseException:
    """An error that the first rank shows in full where nothing catches it, and this one as a line.

    Then it stays for some seconds: `grampus run` names the rank that ends first, and ends the others.
    """
    _one_line.held(error, after)
    if _traceback.is_full() or _one_line.is_shown(error):
        return error
    said = _exception.message(error).partition("\n")[0]
    return _one_line.shown(error, f"{type(error).__name__}: {said} (rank 0 shows the traceback)")


def _raised(failed: Failed, took: Callable[[], Any] | None) -> list[Any]:
    """What the others hear of an error: also what the call has changed, as far as it can travel."""
    if took is not None:
        # The error is what they are to see, whatever else is broken.
        with contextlib.suppress(Exception):
            return _pieces.take_apart(("raised", failed, took()))
    return _pieces.take_apart(("raised", failed, None))


def _show_note(_rank: int, body: bytes) -> None:
    """What a rank has to say to people, it says itself."""
    event = json.loads(body)
    if event.get("kind") == "note":
        warn(event["text"])
