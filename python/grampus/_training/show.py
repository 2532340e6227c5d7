"""What the driver shows and writes while a run goes on."""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING, Any

from grampus.callbacks import Progress, TensorBoard

if TYPE_CHECKING:
    from types import TracebackType

    from grampus.callbacks import Logger


class Show:
    """Hands the events of a run to the loggers; progress and TensorBoard are among them unless given."""

    def __init__(self, loggers: list[Logger], folder: str | None) -> None:
        """`folder` is that of the run."""
        self._loggers = list(loggers)
        if not any(isinstance(logger, Progress) for logger in loggers):
            self._loggers.insert(0, Progress())
        if folder is not None and not any(isinstance(logger, TensorBoard) for logger in loggers):
            self._loggers.append(TensorBoard())

    def __enter__(self) -> Show:
        """Return itself."""
        return self

    def report(self, rank: int, body: bytes) -> None:  # noqa: ARG002
        """Take what a worker reports."""
        event: dict[str, Any] = json.loads(body)
        if event["kind"] == "note":
            warnings.warn(event["text"], RuntimeWarning, stacklevel=2)
        for logger in self._loggers:
            logger.event(event)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None
    ) -> None:
        """Close them all, whatever one of them says."""
        for logger in self._loggers:
            logger.close()
