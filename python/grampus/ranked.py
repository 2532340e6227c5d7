"""A cluster of the ranks that `grampus run` has started, of which this process is one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from grampus import _joint, _pieces
from grampus.cluster import Cluster, packed, whole
from grampus.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable

    from grampus import _native
    from grampus._wish import Wish


class RankCluster(Cluster):
    """Workers that are ranks of `grampus run`. Every rank makes the same calls, and gets the same answers."""

    is_fixed = True

    def __init__(self) -> None:
        """Use `grampus.init` in a script that `grampus run` starts."""
        self._team = _joint.team()
        self._native = None
        self._ended = False
        self._pid = os.getpid()
        cards = self._team.meeting.cards
        self.workers = len(cards)
        self.hosts = len({address for address, _ in cards})
        self.shares_memory = self.hosts == 1
        self.cores_per_worker = None
        self.site = None

    def is_running(self) -> bool:
        """Whether functions can be called."""
        return not self._ended and self._pid == os.getpid()

    def check_workers(self, asked: int) -> None:
        """Refuse another number than that of the ranks."""
        if asked != self.workers:
            raise ClusterError(
                f"workers={asked} were asked for, and `grampus run` has started {self.workers} ranks, which "
                f"are the workers: leave workers= out, or start {asked} ranks"
            )

    def _call(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        workers: int | None,
        on_report: Callable[[int, bytes], None] | None = None,
        wish: Wish | None = None,
        least: int | None = None,  # noqa: ARG002 - ranks do not come and go
        look: Callable[[_native.Task], None] | None = None,  # noqa: ARG002 - nobody is beside the ranks to look
    ) -> list[Any]:
        from grampus._training.leaving import Yielded

        world = self.workers if workers is None else min(whole(workers, "workers"), self.workers)

        def lead() -> list[Any]:
            try:
                call = packed(function, args, kwargs, _pieces.take_apart)
                return self._team.task(call, world, on_report, wish)
            except Yielded:
                # The ranks were told to go, and there are no others.
                if wish is not None:
                    wish.stop = True
                raise

        if self._team.busy:
            return lead()
        name = getattr(function, "__qualname__", type(function).__name__)
        named = {f"argument {number}": each for number, each in enumerate(args)}
        return self._team.call(f"run {name}", {**named, **kwargs}, lead)

    def resize(self, workers: int) -> None:
        """Refused: ranks are started by `grampus run`."""
        raise ClusterError(f"ranks of `grampus run` stay as many as they are: start it with -n {workers}")

    def stop(self) -> None:
        """Leave the other ranks; they are ended by `grampus run`. A second call does nothing."""
        self._ended = True

    def __repr__(self) -> str:
        """Say how large it is."""
        return f"<grampus.Cluster of {self.workers} ranks of `grampus run`>"
