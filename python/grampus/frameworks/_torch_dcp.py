"""Folders of torch's Distributed Checkpoint, written and read by one process."""

from __future__ import annotations

import pickle
import warnings
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint import filesystem, metadata

from grampus.errors import CheckpointError
from grampus.frameworks._torch_memory import packed
from grampus.frameworks._torch_state import check_fit, reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from grampus._training.saved import Packed

_TOLD = ".metadata"
# All that the description of a checkpoint is made of, beside the types of torch's numbers.
_PARTS = {
    *((metadata.__name__, name) for name in metadata.__all__),
    *((filesystem.__name__, name) for name in ("_StorageInfo", "_StoragePrefix")),
    # Where it was written; the module has another name since Python 3.13.
    *((module, kind) for module in ("pathlib", "pathlib._local") for kind in ("PosixPath", "WindowsPath")),
}


def _member(_: Any, name: str) -> str:
    """The name of a member of an enum, as Python 3.11 has written it for a while; its value is not used."""
    return name


_PLAIN: dict[tuple[str, str], Any] = {
    (metadata.__name__, "_MEM_FORMAT_ENCODING"): int,
    ("torch", "Size"): tuple,
    ("torch.serialization", "_get_layout"): str,
    ("collections", "OrderedDict"): dict,
    ("builtins", "getattr"): _member,
}


class _Part:
    """A part of a description as it was pickled."""

    def __init__(self, *given: Any) -> None:
        self.given = given

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Unpickler(pickle.Unpickler):
    """It makes parts of a description and nothing else, so that reading one runs no code.

    Their classes are new each time: a pickle can also set attributes of the classes that it names.
    """

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _PARTS:
            return type(name, (_Part,), {})
        found = _PLAIN.get((module, name))
        if found is None and module == "torch" and isinstance(vars(torch).get(name), torch.dtype):
            found = vars(torch)[name]
        if found is None:
            raise CheckpointError(
                f"it names {module}.{name}, which is no part of a checkpoint, and reading that could run code"
            )
        return found


class _Reader(dcp.FileSystemReader):  # type: ignore[misc]
    """Torch's reader, with a description that is read without running code."""

    def __init__(self, folder: Path, told: metadata.Metadata) -> None:
        super().__init__(folder)
        self._told = told

    def read_metadata(self, *_: Any, **__: Any) -> metadata.Metadata:
        return self._told


def check_place(place: Path) -> None:
    """A checkpoint takes the place of another one, and of nothing else."""
    if not place.exists():
        return
    if not place.is_dir() or any(part.name != _TOLD and part.suffix != ".distcp" for part in place.iterdir()):
        raise ValueError(f"{place} is there and is no checkpoint of torch alone: name a new folder")


def write(weights: dict[str, Any], folder: Path) -> None:
    """Write weights under their names."""
    with warnings.catch_warnings(), _failing_as_one(folder):
        # It tells that there is no process group.
        warnings.simplefilter("ignore")
        dcp.save(weights, checkpoint_id=folder, no_dist=True)


def groups_of(folder: Path) -> dict[tuple[Any, ...], dict[str, tuple[str, Any]]]:
    """The dicts of tensors in a checkpoint, by the way to each: names, with keys and descriptions."""
    told = _described(folder)
    groups: dict[tuple[Any, ...], dict[str, tuple[str, Any]]] = {}
    for key, entry in told.state_dict_metadata.items():
        *place, name = told.planner_data.get(key, (key,))
        groups.setdefault(tuple(place), {})[str(name)] = key, entry
    return groups


def read(folder: Path, chosen: dict[str, tuple[str, Any]], own: Mapping[str, Any]) -> dict[str, Packed]:
    """Tensors by the names that they are chosen under."""
    # Before memory is taken for tensors that no module of this size has.
    check_fit(own, {name: SimpleNamespace(shape=entry.size) for name, (_, entry) in chosen.items()})
    for key, entry in chosen.values():
        if sum(chunk.sizes.numel() for chunk in entry.chunks) != entry.size.numel():
            raise CheckpointError(f"{folder / _TOLD} does not tell where all of {key} is")
    told = _described(folder)
    keys = {key for key, _ in chosen.values()}
    for file in sorted({info.relative_path for at, info in told.storage_data.items() if at.fqn in keys}):
        if not (folder / file).is_file():
            raise CheckpointError(f"{folder} lacks {file!r}, which {_TOLD} names: copy the whole folder")
    asked = {key: torch.zeros(entry.size, dtype=entry.properties.dtype) for key, entry in chosen.values()}
    with warnings.catch_warnings(), _failing_as_one(folder):
        warnings.simplefilter("ignore")
        dcp.load(asked, storage_reader=_Reader(folder, told), no_dist=True)
    return {name: packed(asked[key]) for name, (key, _) in chosen.items()}


def _described(folder: Path) -> metadata.Metadata:
    """What a checkpoint says of the tensors in it."""
    path = folder / _TOLD
    try:
        with path.open("rb") as file:
            told = _rebuilt(_Unpickler(file).load().state)
    except CheckpointError as error:
        raise CheckpointError(f"{path} is not read: {error}") from None
    except Exception as error:
        # Bytes that are no pickle, or one of other things, fail in any way.
        raise CheckpointError(f"{path} does not describe a checkpoint: {error!r}") from None
    return told


def _rebuilt(told: dict[str, Any]) -> metadata.Metadata:
    """Torch's own description of the tensors; other values are pickles, and nobody asks for them."""
    entries = {
        str(key): _tensor(part.state)
        for key, part in told["state_dict_metadata"].items()
        if type(part).__name__ == metadata.TensorStorageMetadata.__name__
    }
    stored = {
        metadata.MetadataIndex(
            part.state["fqn"], part.state.get("offset"), part.state.get("index")
        ): filesystem._StorageInfo(**info.state)
        for part, info in told["storage_data"].items()
    }
    for info in stored.values():
        if Path(info.relative_path).name != info.relative_path:
            raise CheckpointError(f"it names the file {info.relative_path!r}, which is outside of its folder")
    ways = (told.get("planner_data") or {}).items()
    places = {str(key): tuple(map(str, way)) or (str(key),) for key, way in ways}
    return metadata.Metadata(entries, places, stored, metadata.StorageMeta())


def _tensor(told: dict[str, Any]) -> metadata.TensorStorageMetadata:
    chunks = [
        metadata.ChunkStorageMetadata(torch.Size(part.state["offsets"]), torch.Size(part.state["sizes"]))
        for part in told["chunks"]
    ]
    # The first is the type of the numbers; the others say how they lay in memory.
    dtype = told["properties"].state[0]
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"{dtype!r} is no type of numbers")
    properties = metadata.TensorProperties(dtype=dtype)
    return metadata.TensorStorageMetadata(properties, torch.Size(told["size"]), chunks)


@contextmanager
def _failing_as_one(folder: Path) -> Iterator[None]:
    """Raise what went wrong: torch raises something that is no `Exception`."""
    try:
        yield
    except dcp.CheckpointException as error:
        cause = reason(next(iter(error.failures.values()))[0])
        raise CheckpointError(f"{folder}: {type(cause).__name__}: {cause}") from cause
