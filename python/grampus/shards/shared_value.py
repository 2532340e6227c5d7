"""One value that all workers see."""

from __future__ import annotations

from typing import Any

from grampus import session
from grampus.errors import DataError
from grampus.shards.segments import Part, store


class SharedValue:
    """A value that is stored once for all workers of this machine: hand it to functions, and read `value`.

    Workers of other hosts get a copy each, with every call that has it.

    >>> import numpy as np
    >>> table = SharedValue({"weights": np.arange(3)})
    >>> table.value["weights"].sum()
    np.int64(3)
    >>> table.unpersist()
    """

    def __init__(self, data: Any) -> None:
        self._part: Part | None = store([data])[0]
        self._loaded: list[Any] = []

    @property
    def value(self) -> Any:
        """The value; its arrays share the memory of the one copy until they are written to."""
        if not self._loaded:
            if self._part is None:
                raise DataError("the shared value was unpersisted: make another")
            self._loaded.append(self._part.load())
        return self._loaded[0]

    def unpersist(self) -> None:
        """Let the memory go."""
        self._part = None
        self._loaded.clear()

    def __getstate__(self) -> dict[str, Any]:
        """Where the copy is; for workers that see no memory of this process, the copy."""
        cluster = session._session.own()
        if cluster is None or cluster.shares_memory:
            return {"_part": self._part, "_loaded": []}
        return {"_part": None, "_loaded": [self.value]}
