"""What can go wrong, as exceptions."""

from __future__ import annotations

from grampus._native import CallMismatch, CheckpointError, CollectiveError, GrampusError, PeerLost

__all__ = [
    "CallMismatch",
    "CheckpointError",
    "ClusterError",
    "CollectiveError",
    "DataError",
    "FeedLost",
    "GrampusError",
    "NoColumn",
    "NotPicklable",
    "NotReproducible",
    "PeerLost",
    "Preempted",
    "RunInUse",
    "StepTimeout",
    "WorkerDied",
    "WorkerTraceback",
]


class ClusterError(GrampusError):
    """The cluster cannot start, cannot go on, or is not there any more."""


class DataError(GrampusError, ValueError):
    """Data cannot be found, read or used as asked; the message names the file, the row and the column."""


class FeedLost(DataError):
    """Rows of a DataFrame or Dataset that an executor held are gone with it.

    `partitions` are those that are to be read again.
    """

    def __init__(self, text: str, partitions: list[int]) -> None:
        super().__init__(text)
        self.partitions = partitions

    def __reduce__(self) -> tuple[type[FeedLost], tuple[str, list[int]]]:
        """Survive a trip to another process."""
        return type(self), (str(self), self.partitions)


class NoColumn(DataError, KeyError):
    """A column that is not there."""

    # A `KeyError` would show its text in quotation marks.
    __str__ = Exception.__str__


class NotPicklable(GrampusError, TypeError):
    """A function, an argument or a result cannot be sent to another process."""


class NotReproducible(GrampusError):
    """A step that was done again after a loss came to another result, in a run that claims to be provable."""


class Preempted(GrampusError):
    """More workers of a run were told to go than it was to make good."""


class RunInUse(GrampusError):
    """Another driver writes into the folder of a run."""


class StepTimeout(GrampusError, TimeoutError):
    """No worker has finished a step for as long as `fit(step_timeout=…)` allows.

    The message names the worker for which the others wait; the stacks of all are in the folder of the run.
    """


class WorkerDied(GrampusError):
    """A worker's process ended, or gave no sign of life, while it worked.

    `rank`, `host` and `pid` say which one; `exit_code` is as a shell shows it (128 + signal), or `None`
    where the process was ended because it had been silent; `output` has the last lines that it wrote.
    """

    def __init__(
        self, text: str, rank: int, host: str, pid: int, exit_code: int | None, output: str = ""
    ) -> None:
        super().__init__(text)
        self.output = output
        self.rank = rank
        self.host = host
        self.pid = pid
        self.exit_code = exit_code

    def __reduce__(self) -> tuple[type[WorkerDied], tuple[str, int, str, int, int | None, str]]:
        """Survive a trip to another process."""
        return type(self), (str(self), self.rank, self.host, self.pid, self.exit_code, self.output)


class WorkerTraceback(GrampusError):
    """Where a worker's exception was raised: the cause of the exception that `run` raises.

    `rank`, `host` and `pid` say which worker; `folded` are ranks that failed after it; `full` is the
    traceback with all frames.
    """

    def __init__(self, text: str, rank: int, host: str, pid: int, folded: list[int], full: str = "") -> None:
        super().__init__(text)
        self.full = full
        self.rank = rank
        self.host = host
        self.pid = pid
        self.folded = folded

    def __reduce__(self) -> tuple[type[WorkerTraceback], tuple[str, int, str, int, list[int], str]]:
        """Survive a trip to another process."""
        return type(self), (str(self), self.rank, self.host, self.pid, self.folded, self.full)
