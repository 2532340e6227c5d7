"""A model that only answers, in a process that is no worker: a task of an engine, or the driver."""

from __future__ import annotations

import hashlib
import importlib
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import cloudpickle

from grampus._folders import own_folders, with_folders
from grampus._training.cleanup import closing
from grampus._training.job import Data, Spec
from grampus._training.lanes import Lanes
from grampus._training.worker import parts
from grampus.errors import NotPicklable
from grampus.shards import feeding
from grampus.shards.batches import Rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from grampus import _native
    from grampus.shards.batches import Wanted

# Rows that a model gets at once: more are no faster on one core, and take more memory.
AT_ONCE = 4096
# Models that a process keeps: plans rarely hold more, and each takes memory.
_KEPT = 4


class Snapshot(NamedTuple):
    """A model as it was at a call, and what it reads; equal ones have equal names."""

    name: str
    body: bytes


class Model(NamedTuple):
    """A model as it is now: what was said about it, its weights, and how many rows it gets at once."""

    spec: Spec
    state: dict[str, Any] | None
    seed: int
    at_once: int | None = None
    output_names: list[str] | None = None

    def snapshot(self, wanted: Wanted) -> Snapshot:
        """What a process needs to answer: no optimizer, no loss."""
        alone = Spec(
            self.spec.framework,
            self.spec.model,
            config=self.spec.config,
            training_operator_cls=self.spec.training_operator_cls,
            precision=self.spec.precision,
            # Tasks of an engine may be many on a host, and know nothing of each other.
            device="cpu",
        )
        weights = None if self.state is None else {"model": self.state["model"]}
        try:
            body = cloudpickle.dumps(
                (alone, weights, self.seed, wanted, self.at_once or AT_ONCE, self.output_names)
            )
            # The folders first: the model may be of a module that is found there.
            body = pickle.dumps((own_folders(), self.spec.framework, body))
        except Exception as error:
            raise NotPicklable(f"the model cannot be sent to other processes: {error}") from error
        return Snapshot(hashlib.sha256(body).hexdigest(), body)


class Answering:
    """The model of a snapshot, ready to answer; on one thread, where an engine runs a task for each core."""

    def __init__(self, body: bytes, threads: int = 1) -> None:
        # Not in this thread: an engine may cancel its task meanwhile, and PyTorch that was cut off while it
        # was imported can be imported by no later task of the process. The pool waits for its thread.
        with ThreadPoolExecutor(1) as pool:
            self._framework, loaded = pool.submit(_imported, body).result()
        spec, weights, seed, self._wanted, self.at_once, self._names = loaded
        self._lanes = Lanes(_Alone(), range(1), 1, seed, threads)  # type: ignore[arg-type]
        self._spec = spec
        self._model = self._framework.model(spec, self._lanes, weights, training=False)

    def close(self) -> None:
        """Leave the process as it was."""
        self._model.close()

    def answers(self, table: _native.Table) -> dict[str, Any]:
        """Arrays for the rows of a table, by the names of their columns: a pure function of these rows."""
        # With a window, nothing is kept: each row is copied once, into the batch that it is part of.
        data = Data(Rows(self._wanted, window=1, tables=[table]), self.at_once, given=True)
        with (
            closing(self._framework.feed(data, self._lanes, self._spec, training=False)) as feed,
            self._model.evaluating(),
        ):
            outputs = [self._model.predict(lane, batch) for _, lane, _, _, batch in parts(feed, self._model)]
        return feeding.renamed(self._framework.predictions(outputs), self._names)


def _imported(body: bytes) -> tuple[Any, Any]:
    """The module of the framework, and what a snapshot holds."""
    folders, framework, rest = pickle.loads(body)
    sys.path[:] = with_folders(folders)
    return importlib.import_module(f"grampus.frameworks.{framework}"), pickle.loads(rest)


_kept: dict[str, Answering] = {}


def answering(name: str, body: Callable[[], bytes], threads: int = 1) -> Answering:
    """The model of a snapshot, which a process loads once; the one that was used last stays longest."""
    found = _kept.pop(name, None) or Answering(body(), threads)
    _kept[name] = found
    while len(_kept) > _KEPT:
        del _kept[next(iter(_kept))]
    return found


class _Alone:
    """The group of a process that has no others: it opens no socket."""

    rank = 0
    size = 1

    @property
    def _native(self) -> _Alone:
        return self

    def gather_bytes(self, mine: bytes) -> list[bytes]:
        return [mine]
