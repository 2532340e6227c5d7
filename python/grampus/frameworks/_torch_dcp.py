"""Folders of torch's Distributed Checkpoint, written and read by one process."""

from __future__ import annotations

import pickle
import warnings
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint import filesystem, metadata

from grampus.errors import CheckpointError
from grampus.frameworks._torch_memory import packed
from grampus.frameworks._torch_state import check_fit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from grampus._training.saved import Packed

_TOLD = ".metadata"
# All that the description of a checkpoint is made of, beside the types of torch's numbers.
_KNOWN: dict[tuple[str, str], Any] = {
    **{
        (metadata.__name__, name): getattr(metadata, name)
        for name in (*metadata.__all__, "_MEM_FORMAT_ENCODING")
    },
    **{(filesystem.__name__, name): getattr(filesystem, name) for name in ("_StorageInfo", "_StoragePrefix")},
    ("torch", "Size"): torch.Size,
    ("torch.serialization", "_get_layout"): torch.serialization._get_layout,
    ("collections", "OrderedDict"): dict,
    # Where it was written; the module is another one in Python 3.13.
    **{(place, "PosixPath"): PurePosixPath for place in ("pathlib", "pathlib._local")},
    **{(place, "WindowsPath"): PureWindowsPath for place in ("pathlib", "pathlib._local")},
}


class _Unpickler(pickle.Unpickler):
    """It knows the parts of a description and nothing else, so that reading one runs no code."""

    def find_class(self, module: str, name: str) -> Any:
        found = _KNOWN.get((module, name))
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
    if place.exists() and not (place / _TOLD).is_file() and (place.is_file() or any(place.iterdir())):
        raise ValueError(f"{place} is there and is no checkpoint of torch: name a new folder")


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
        # Other values are pickles, and nobody asks for them.
        if isinstance(entry, metadata.TensorStorageMetadata):
            *place, name = (told.planner_data or {}).get(key, (key,))
            groups.setdefault(tuple(place), {})[str(name)] = key, entry
    return groups


def read(folder: Path, chosen: dict[str, tuple[str, Any]], own: Mapping[str, Any]) -> dict[str, Packed]:
    """Tensors by the names that they are chosen under."""
    # Before memory is taken for tensors that no module of this size has.
    check_fit(own, {name: torch.empty(entry.size, device="meta") for name, (_, entry) in chosen.items()})
    asked = {key: torch.empty(entry.size, dtype=entry.properties.dtype) for key, entry in chosen.values()}
    with warnings.catch_warnings(), _failing_as_one(folder):
        warnings.simplefilter("ignore")
        dcp.load(asked, storage_reader=_Reader(folder, _described(folder)), no_dist=True)
    return {name: packed(asked[key]) for name, (key, _) in chosen.items()}


def _described(folder: Path) -> metadata.Metadata:
    """What a checkpoint says of itself."""
    path = folder / _TOLD
    try:
        with path.open("rb") as file:
            told = _Unpickler(file).load()
        files = {info.relative_path for info in told.storage_data.values()}
        described = dict(told.state_dict_metadata)
    except CheckpointError as error:
        raise CheckpointError(f"{path} is not read: {error}") from None
    except Exception as error:
        # Bytes that are no pickle, or one of other things, fail in any way.
        raise CheckpointError(f"{path} does not describe a checkpoint: {error!r}") from None
    for file in files:
        if Path(file).name != file:
            raise CheckpointError(f"{path} names the file {file!r}, which is outside of its folder")
    return metadata.Metadata(described, told.planner_data, told.storage_data, metadata.StorageMeta())


@contextmanager
def _failing_as_one(folder: Path) -> Iterator[None]:
    """Raise what went wrong: torch raises something that is no `Exception`."""
    try:
        yield
    except dcp.CheckpointException as error:
        cause = next(iter(error.failures.values()))[0]
        raise CheckpointError(f"{folder}: {type(cause).__name__}: {cause}") from cause
