"""Checkpoints of a run: what is in them, and how a run goes on from one."""

from __future__ import annotations

import base64
import json
import math
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from grampus import _native, _report
from grampus._training.cleanup import is_told_to_end
from grampus._warning import warn
from grampus.errors import CheckpointError

if TYPE_CHECKING:
    from grampus._training.job import Fit, Saving

# How long the end of a run waits for what is being written; a store that is slower is in trouble.
WITHIN = 600.0
# How long a run that fails holds its error back for what is being written: it is where the next run begins.
_AFTER_FAILURE = 10.0
# Between two looks whether the worker is told to end meanwhile.
_LOOK = 0.05
_TYPES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
    "complex64": "C64",
}
_NAMES = {code: name for name, code in _TYPES.items()}


@dataclass(frozen=True)
class Packed:
    """A tensor as bytes in an array, which travels without a copy; numpy has no type for some of them."""

    dtype: str
    shape: tuple[int, ...]
    array: Any


class Saved(NamedTuple):
    """A run as it was saved."""

    name: str
    state: dict[str, Any]
    meta: dict[str, Any]


class Store:
    """Where the first worker saves a run."""

    def __init__(self, job: Fit) -> None:
        """Of this job."""
        if job.saving is None:
            raise CheckpointError("this run is not saved: pass checkpoint=")
        self._job = job
        self._saving = job.saving
        self._store = _native.CheckpointStore(job.saving.url)
        # A run that goes on after a loss may have saved the step at which it stands.
        self._written = {entry[0] for entry in self._store.list()} if job.losses else set()
        # A place that never took anything is a mistake, one that takes nothing more may be full.
        self._worked = job.saved is not None
        best = None if job.saved is None else job.saved.get("best")
        self._best: tuple[float, str] | None = None if best is None else (best[0], best[1])

    def save(self, state: dict[str, Any], meta: dict[str, Any], score: float | None) -> str | None:
        """Begin to write what `state` holds now; nothing where this step is saved already."""
        name = f"step-{meta['at']['step']:08d}"
        if score is not None and (self._best is None or score > self._best[0]):
            self._best = score, name
        if name in self._written:
            return None
        # What became of the last one must not keep this one from being begun.
        self.wait()
        self._written.add(name)
        pinned = [] if self._best is None else [self._best[1]]
        _begin(self._store, name, state, {**meta, "best": self._best}, self._saving.keep, pinned)
        return name

    def wait(self) -> None:
        """Wait until all is written; where that cannot be, raise, or warn and let the run go on."""
        try:
            self._worked |= self._wait(WITHIN)
        except CheckpointError as error:
            if self._saving.on_error == "raise" or not self._worked:
                raise
            _report.note(f"a checkpoint could not be written, and the run goes on: {error}")

    def _wait(self, seconds: float) -> bool:
        """Whether something was being written."""
        try:
            return self._store.wait(seconds) is not None
        except TimeoutError as late:
            raise CheckpointError(str(late)) from None

    def close(self) -> None:
        """Let what is being written be whole, if it is soon: readers pass over what is not.

        A worker that is told to end does not wait: it would be ended with the state that it keeps. The write
        goes on meanwhile.
        """
        end = time.monotonic() + _AFTER_FAILURE
        while not is_told_to_end() and time.monotonic() < end:
            try:
                self._store.wait(_LOOK)
            except TimeoutError:
                continue
            except CheckpointError:
                pass
            return


def located(place: str) -> str:
    """A place in full: relative paths are the driver's."""
    return place if "://" in place else str(Path(place).absolute())


def write(store: _native.CheckpointStore, state: dict[str, Any], meta: dict[str, Any]) -> None:
    """Write one checkpoint, and wait for it."""
    _begin(store, f"step-{meta['at']['step']:08d}", state, meta, None, [])
    store.wait(WITHIN)


def _begin(
    store: _native.CheckpointStore,
    name: str,
    state: dict[str, Any],
    meta: dict[str, Any],
    keep: int | None,
    pinned: list[str],
) -> None:
    text = json.dumps(_finite({**meta, "plain": state.get("plain")}))
    files = {f"{file}.safetensors": tensors(state.get(file, {})) for file in ("model", "optimizer")}
    store.begin(name, files, text, keep, pinned)


def tensors(packed: dict[str, Packed]) -> dict[str, tuple[list[int] | tuple[int, ...], str, Any]]:
    """Tensors as a checkpoint takes them."""
    return {name: _entry(name, value) for name, value in packed.items()}


def _entry(name: str, value: Any) -> tuple[list[int], str, Any]:
    if not isinstance(value, Packed):
        raise CheckpointError(
            f"{name!r} is a {type(value).__name__}, and a checkpoint holds tensors alone: let the model keep "
            "it as a tensor"
        )
    if value.dtype not in _TYPES:
        raise CheckpointError(
            f"tensor {name!r} is of {value.dtype}, which no checkpoint holds: use another type"
        )
    return list(value.shape), _TYPES[value.dtype], value.array


def weights_in(path: str) -> dict[str, Packed]:
    """Tensors of a .safetensors file.

    A copy: whoever writes to such a file in place would change the mapped one, or end this process.
    """
    found = packed(_native.read_tensors(path))
    return {name: replace(value, array=value.array.copy()) for name, value in found.items()}


def packed(found: dict[str, tuple[list[int], str, Any]]) -> dict[str, Packed]:
    """Tensors of a checkpoint as they travel."""
    import numpy as np

    for name, (_, code, _) in found.items():
        if code not in _NAMES:
            raise CheckpointError(f"tensor {name!r} is of {code}, which cannot be trained: convert it first")
    return {
        name: Packed(_NAMES[code], tuple(shape), np.asarray(memory))
        for name, (shape, code, memory) in found.items()
    }


def check_unused(url: str, step: int) -> None:
    """A run that is at a step must find none of a later one: whoever reads the newest would get those."""
    newest = max(_native.CheckpointStore(url).list(), key=lambda entry: entry[1], default=None)
    if newest is not None and newest[1] > step:
        raise CheckpointError(
            f"{url} holds checkpoints of another run, up to {newest[0]}: go on with it (resume=True), or use "
            "another folder"
        )


def latest(url: str, resumed: bool = False) -> tuple[Saved | None, list[str]]:
    """The newest whole checkpoint of a store, and why newer ones were passed over.

    For a run that is to be `resumed`, raise where there are some and none is whole: a run that starts anew
    would be written beside them.
    """
    found, reasons = _native.CheckpointStore(url).read_latest(resumed)
    if found is None:
        return None, reasons
    name, meta, files = found
    return _saved(name, meta, files), reasons


def sought(resume: bool | str, saving: Saving | None, model_dir: Any) -> Saved | None:
    """The newest whole checkpoint of the place that `resume` names; `True` means that of the run itself."""
    place = resume if isinstance(resume, str) else None
    if place is None:
        place = saving.url if saving is not None else model_dir
    if place is None:
        raise ValueError("resume=True needs a place to look for checkpoints: pass checkpoint= or model_dir=")
    found, reasons = latest(located(os.fspath(place)), resumed=True)
    _tell(reasons)
    if found is None and isinstance(resume, str):
        warn(f"there is no checkpoint in {place}, which resume= names: the run starts from the beginning")
    return found


def _tell(reasons: list[str]) -> None:
    for reason in reasons:
        warn(f"a newer checkpoint was passed over: {reason}")


def read(url: str, best: bool = False) -> Saved:
    """One checkpoint, or of a store of several the newest, or the one that this calls the best."""
    if best:
        return _best(url)
    try:
        meta, files = _native.read_checkpoint(url)
    except CheckpointError:
        found, reasons = latest(url)
        if found is None:
            raise
        _tell(reasons)
        return found
    return _saved(url.rstrip("/").rpartition("/")[2], meta, files)


def _best(url: str) -> Saved:
    newest, _ = latest(url)
    if newest is None or newest.meta.get("best") is None:
        raise CheckpointError(
            f"{url} does not say which checkpoint is the best: train with gp.Checkpoint(…, best='val_loss'), "
            "and pass its folder"
        )
    return read(f"{url.rstrip('/')}/{newest.meta['best'][1]}")


def _saved(name: str, meta: str, files: dict[str, Any]) -> Saved:
    told = _numbers(json.loads(meta))
    state = {file: packed(files.get(f"{file}.safetensors", {})) for file in ("model", "optimizer")}
    return Saved(name, {**state, "plain": told.get("plain")}, told)


_ODD = "number"


def _finite(value: Any) -> Any:
    """The value with a text for every number that JSON cannot write."""
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return {_ODD: str(value)} if isinstance(value, float) and not math.isfinite(value) else value


def _numbers(value: Any) -> Any:
    """What `_finite` was given.

    >>> _numbers(_finite({"best": [math.inf, 0.5]}))
    {'best': [inf, 0.5]}
    """
    if isinstance(value, dict):
        if value.keys() == {_ODD}:
            return float(value[_ODD])
        return {key: _numbers(part) for key, part in value.items()}
    return [_numbers(part) for part in value] if isinstance(value, list) else value


def written_meters(by_lane: dict[int, dict[str, bytes]]) -> dict[str, dict[str, str]]:
    """States of meters as texts."""
    return {
        str(lane): {name: base64.b64encode(state).decode() for name, state in states.items()}
        for lane, states in by_lane.items()
    }


def read_meters(told: dict[str, dict[str, str]]) -> dict[int, dict[str, bytes]]:
    """States of meters again."""
    return {
        int(lane): {name: base64.b64decode(state) for name, state in states.items()}
        for lane, states in told.items()
    }
