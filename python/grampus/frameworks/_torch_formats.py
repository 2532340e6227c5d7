"""Weights of torch modules in the formats of others: safetensors, torch's own, Hugging Face, DCP, ONNX."""

from __future__ import annotations

import itertools
import json
import os
import pickle
import pickletools
import re
import secrets
import shutil
import warnings
import zipfile
from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from grampus import _native
from grampus._training import trees
from grampus._training.saved import Packed, tensors, weights_in
from grampus.errors import CheckpointError
from grampus.frameworks import _torch_state
from grampus.frameworks._torch_data import tensor
from grampus.frameworks._torch_making import Several
from grampus.frameworks._torch_memory import packed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# What a file of a Hugging Face folder may hold, in bytes.
LARGEST = 5_000_000_000
# Beyond this, what ONNX files hold must stand beside them: they end at 2 GiB.
_LARGEST_ONNX = 1_500_000_000
_WHOLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
# All names that weights have in such a folder; a `model_ema.safetensors` is somebody else's.
_PARTS = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors|" + re.escape(_INDEX))
# What torch.compile puts into names.
_COMPILED = "_orig_mod."
# Pickles at the beginning of a file of an old torch.
_OLD_PARTS = 4


def save_weights(module: Any, path: str) -> None:
    """Write a file of weights: torch's own, or safetensors."""
    weights = _in_host(_torch_state.uncompiled(module))
    if path.endswith(".safetensors"):
        _write(weights, path)
        return
    with _beside(path) as (unfinished, place):
        try:
            with unfinished.open("wb") as file:
                torch.save(weights, file)
                file.flush()
                os.fsync(file.fileno())
        except (RuntimeError, OSError) as error:
            raise CheckpointError(f"{path} could not be written: {_torch_state.reason(error)}") from error
        unfinished.replace(place)


def _in_host(module: Any) -> Any:
    """All weights; who reads them need not have the GPU on which code of the user has made the model."""
    weights = module.state_dict()
    for name, value in weights.items():
        if isinstance(value, torch.Tensor) and not value.is_cpu:
            weights[name] = value.cpu()
    return weights


def save_as(module: Any, path: str, form: str | None, example: Any) -> None:
    """Write a folder of another's format, or an ONNX file where none is named."""
    module = _torch_state.uncompiled(module)
    if form == "dcp":
        from grampus.frameworks import _torch_dcp

        with _beside(path) as (folder, place):
            _torch_dcp.check_place(place)
            weights = _in_host(module)
            _check_tensors(weights)
            _torch_dcp.write(weights, folder)
            _swap(folder, place)
    elif form == "pretrained":
        with _beside(path) as (folder, place):
            _check_folder(place)
            folder.mkdir()
            if hasattr(module, "save_pretrained"):
                module.save_pretrained(folder)
            else:
                _write_parts(module.state_dict(), folder)
            _merge(folder, place)
    else:
        with _beside(path) as (folder, place):
            folder.mkdir()
            _export(module, folder / place.name, example)
            # What stands beside the file comes first: the file names it.
            for part in sorted(folder.iterdir(), key=lambda part: part.name == place.name):
                part.replace(place.with_name(part.name))


@contextmanager
def _beside(path: str) -> Iterator[tuple[Path, Path]]:
    """A hidden name on the same disk, and the place that it is for; what is left of it goes."""
    if "://" in path:
        raise ValueError(f"{path} is an address: save to a disk, and copy it from there")
    # What a link leads to changes, not the link.
    place = Path(path).resolve()
    place.parent.mkdir(parents=True, exist_ok=True)
    unfinished = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
    try:
        yield unfinished, place
    finally:
        if unfinished.is_dir():
            shutil.rmtree(unfinished, ignore_errors=True)
        else:
            unfinished.unlink(missing_ok=True)


def _swap(folder: Path, place: Path) -> None:
    """Put a folder into a place where an older one may be."""
    if not place.exists():
        folder.rename(place)
        return
    old = folder.with_name(f"{folder.name}.old")
    place.rename(old)
    try:
        folder.rename(place)
    except OSError:
        old.rename(place)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _check_folder(place: Path) -> None:
    """Weights of others may stand in any folder but one whose files belong together."""
    if place.exists() and not place.is_dir():
        raise ValueError(f"{place} is a file: name a folder")
    if (place / "manifest.json").exists():
        raise ValueError(f"{place} is a checkpoint of Grampus, which this would damage: name another folder")


def _merge(folder: Path, place: Path) -> None:
    """Put files into a folder; others that are there, such as a tokenizer's, stay."""
    if not place.exists():
        folder.rename(place)
        return
    names = {part.name for part in folder.iterdir()}
    # The index goes first and comes last: without one, old and new parts are not taken for one model.
    (place / _INDEX).unlink(missing_ok=True)
    for name in sorted(names, key=lambda name: name == _INDEX):
        (folder / name).replace(place / name)
    # Of larger or smaller weights that were there: readers would take them for these.
    for old in place.iterdir():
        if old.name not in names and _PARTS.fullmatch(old.name):
            old.unlink()


def _check_tensors(weights: Mapping[str, Any]) -> None:
    """Only torch's own files hold what a module keeps beside tensors."""
    for name, value in weights.items():
        if not isinstance(value, torch.Tensor):
            raise CheckpointError(
                f"{name} is a {type(value).__name__}, and this format holds tensors alone: save to a .pt file"
            )


def _write(weights: dict[str, Any], path: str | Path) -> None:
    kept = {name: packed(value) for name, value in weights.items()}
    _native.write_tensors(os.fspath(path), tensors(kept), {"format": "pt"})


def _write_parts(weights: dict[str, Any], folder: Path) -> None:
    """Write one file, or several with an index, as Hugging Face's libraries do."""
    _check_tensors(weights)
    parts: list[dict[str, Any]] = [{}]
    held = 0
    for name, value in weights.items():
        if parts[-1] and held + value.nbytes > LARGEST:
            parts.append({})
            held = 0
        parts[-1][name] = value
        held += value.nbytes
    if len(parts) == 1:
        _write(weights, folder / _WHOLE)
        return
    places: dict[str, str] = {}
    for number, part in enumerate(parts, 1):
        file = f"model-{number:05d}-of-{len(parts):05d}.safetensors"
        _write(part, folder / file)
        places |= dict.fromkeys(part, file)
    total = sum(value.nbytes for value in weights.values())
    index = {"metadata": {"total_size": total}, "weight_map": places}
    (folder / _INDEX).write_text(json.dumps(index, indent=2) + "\n")


def _export(module: Any, path: Path, example: Any) -> None:
    """Write an ONNX file that takes any number of rows."""
    if example is None:
        raise ValueError(
            "an ONNX file is made by running the model: pass example=, some rows as the model takes them (a "
            "tensor, or a tuple or dict of tensors)"
        )
    if isinstance(module, Several):
        raise ValueError(
            f"an ONNX file holds one model, and there are {len(module)}: pass one of get_model() to "
            "torch.onnx.export"
        )
    if isinstance(example, Mapping) and "x" in example and set(example) <= {"x", "y"}:
        example = example["x"]
    rows = trees.mapped(_two_rows, example)
    dynamic = trees.mapped(lambda _: {0: "batch"}, rows)
    given: dict[str, Any] = {"args": (rows,), "dynamic_shapes": (dynamic,)}
    if isinstance(rows, dict):
        given = {"kwargs": rows, "dynamic_shapes": dynamic}
    elif isinstance(rows, list | tuple):
        given = {"args": tuple(rows), "dynamic_shapes": tuple(dynamic)}
    size = sum(value.nbytes for value in module.state_dict().values() if isinstance(value, torch.Tensor))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module.cpu(), f=path, **given, verbose=False, external_data=size > _LARGEST_ONNX
            )
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"an ONNX file needs {error.name}: pip install onnx onnxscript", name=error.name
        ) from error


def _two_rows(leaf: Any) -> Any:
    """At least two: PyTorch takes a single row for a number that never changes."""
    rows = tensor(leaf, "example")
    if not rows.dim() or not len(rows):
        raise ValueError("example= has no rows: the first axis of each tensor must count them")
    return rows if len(rows) > 1 else torch.cat([rows, rows])


def weights_of(path: str, make: Callable[[], Any]) -> dict[str, Any]:
    """Weights of a file or a folder, under the names of the module that is made; reading runs no code."""
    own = _torch_state.uncompiled(make()).state_dict()
    folder = Path(path)
    if (folder / ".metadata").is_file():
        from grampus.frameworks import _torch_dcp

        groups = _torch_dcp.groups_of(folder)
        chosen = _chosen({place: fitted(names, own) for place, names in groups.items()}, own, path)
        weights = _torch_dcp.read(folder, _with_tied(chosen, own), own)
    else:
        weights = _checked(_read(path), own)
    return _kept(weights, own)


def weights_from(weights: Mapping[str, Any], make: Callable[[], Any]) -> dict[str, Any]:
    """Weights by name, as `state_dict` returns them, under the names of the module that is made."""
    own = _torch_state.uncompiled(make()).state_dict()
    if not isinstance(weights, Mapping) or not all(map(_is_weight, weights, weights.values())):
        raise ValueError("these are no weights: pass what state_dict() returned")
    return _kept(_checked(dict(weights), own), own)


def _checked(weights: dict[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    found = _with_tied(fitted(weights, own), own)
    # Before memory is taken for tensors that no module of this size has.
    _torch_state.check_fit(own, found)
    return found


def _kept(weights: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: packed(value) for name, value in weights.items()}
    _check_tied(kept, own)
    return {"model": kept}


def _read(path: str) -> dict[str, Any]:
    """The weights of a file or a folder, under the names that they have there."""
    folder = Path(path)
    if folder.is_dir():
        return _parts_of(folder)
    return weights_in(path) if path.endswith(".safetensors") else _torch_file(path)


def _chosen(
    groups: dict[tuple[Any, ...], dict[str, Any]], own: Mapping[str, Any], path: str
) -> dict[str, Any]:
    """Of several dicts of tensors, such as those of a model and of its optimizer, the one that fits best."""

    def fits(place: tuple[Any, ...]) -> tuple[bool, int, bool]:
        names = groups[place].keys()
        return names == own.keys(), len(names & own.keys()), place[-1:] in ((), ("model",))

    if not groups:
        raise CheckpointError(f"{path} holds no tensors")
    best, *others = sorted(groups, key=fits, reverse=True)
    if others and fits(best)[0] and fits(others[0]) == fits(best):
        said = " and ".join(repr(".".join(map(str, place))) for place in (best, others[0]))
        raise CheckpointError(f"{path} holds weights of this model under {said}: save one of them alone")
    return groups[best]


def fitted(weights: dict[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The weights under the names of the module: Lightning, DDP and torch.compile put words before them.

    >>> fitted({"model.module.a.weight": 1, "model.module.a.bias": 2}, {"a.weight": 0, "a.bias": 0})
    {'a.weight': 1, 'a.bias': 2}
    """
    found = {name.replace(_COMPILED, ""): value for name, value in weights.items()}
    if weights.keys() == own.keys() or len(found) < len(weights):
        return weights
    names = {name.replace(_COMPILED, ""): name for name in own}
    words = zip(*(name.split(".")[:-1] for name in found), strict=False)
    shared = [same[0] for same in itertools.takewhile(lambda same: len(set(same)) == 1, words)]
    # Of equally good ones, the shortest.
    prefixes = ["".join(f"{part}." for part in shared[:count]) for count in range(len(shared) + 1)]
    best = max(prefixes, key=lambda prefix: len(names.keys() & {name[len(prefix) :] for name in found}))
    bare = {name[len(best) :]: value for name, value in found.items()}
    return {names.get(name, name): value for name, value in bare.items()}


def _with_tied(weights: dict[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Weights that are one tensor under several names stand in some files only once."""
    also = {
        name: weights[there]
        for names in _tied(own)
        for there in [name for name in names if name in weights][:1]
        for name in names
        if name not in weights
    }
    return {**weights, **also}


def _check_tied(weights: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """One tensor has one value: of two, the module would keep the last that is loaded."""
    for first, *others in _tied(own):
        for name in others:
            if not np.array_equal(weights[name].array, weights[first].array):
                raise CheckpointError(
                    f"{first} and {name} are one tensor in this model, and differ in the file: load it into "
                    "a model where they are two"
                )


def _tied(own: Mapping[str, Any]) -> list[list[str]]:
    """Names of one tensor."""
    found: dict[Any, list[str]] = {}
    for name, value in own.items():
        if isinstance(value, torch.Tensor) and value.numel() and not value.is_meta:
            found.setdefault((value.data_ptr(), value.shape, value.stride()), []).append(name)
    return [names for names in found.values() if len(names) > 1]


def _parts_of(folder: Path) -> dict[str, Packed]:
    """The weights of a Hugging Face folder."""
    if (folder / _WHOLE).is_file():
        return weights_in(str(folder / _WHOLE))
    try:
        places: dict[str, str] = json.loads((folder / _INDEX).read_text())["weight_map"]
        files = {str(file) for file in places.values()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{folder / _INDEX} is no index of weights: {error!r}") from None
    parts: dict[str, dict[str, Packed]] = {}
    for file in sorted(files):
        if Path(file).name != file or not (folder / file).is_file():
            raise CheckpointError(f"{folder} lacks {file!r}, which {_INDEX} names: copy the whole folder")
        parts[file] = weights_in(str(folder / file))
    for name, file in places.items():
        if name not in parts[file]:
            raise CheckpointError(f"{folder / file} lacks {name!r}, which {_INDEX} says is there")
    return {name: parts[file][name] for name, file in places.items()}


def _torch_file(path: str) -> dict[str, Any]:
    """The weights of a file that `torch.save` or Lightning wrote."""
    try:
        _check_sums(path)
        weights = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, CheckpointError):
        raise
    except Exception as error:
        why = _why(error)
        if isinstance(error, pickle.UnpicklingError) and _is_whole(path):
            raise CheckpointError(
                f"{path} holds more than weights, and reading it could run code: where you trust it, write "
                f"torch.load(path, weights_only=False)'s weights to a file of their own ({why})"
            ) from None
        # Bytes that torch did not write fail in any way.
        raise CheckpointError(f"{path} is damaged, or no file of weights: {why}") from None
    if isinstance(weights, dict) and isinstance(weights.get("state_dict"), dict):
        weights = weights["state_dict"]
    if not isinstance(weights, dict) or not all(map(_is_weight, weights, weights.values())):
        raise ValueError(f"{path} holds no state dict: save model.state_dict()")
    return weights


def _is_weight(name: Any, value: Any) -> bool:
    if not isinstance(name, str):
        return False
    if not isinstance(value, torch.Tensor):
        # What modules keep besides, by torch's rules under this name.
        return name.endswith("_extra_state")
    return value.layout is torch.strided and not value.is_meta and not value.is_quantized


def _check_sums(path: str) -> None:
    """Torch reads past checksums that do not fit."""
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as archive:
        # All are 0 where torch.save was told to compute none.
        bad = archive.testzip() if any(each.CRC for each in archive.infolist()) else None
    if bad is not None:
        raise CheckpointError(f"{path} is damaged: its part {bad!r} does not fit its checksum")


def _is_whole(path: str) -> bool:
    """Whether a file that torch refuses is what a program has written; looking at it runs no code."""
    if zipfile.is_zipfile(path):
        # Its checksums were looked at.
        return True
    try:
        with Path(path).open("rb") as file:
            for _ in range(_OLD_PARTS):
                for _operation in pickletools.genops(file):
                    pass
                if not file.peek(1):
                    break
    except Exception:
        # Bytes of any kind fail in any way.
        return False
    return True


def _why(error: Exception) -> str:
    """What torch refused; it says how to read it all the same, at length."""
    lines = [line.strip() for line in str(error).splitlines() if "Unsupported" in line or "GLOBAL" in line]
    said = next(iter(lines or str(error).splitlines()), type(error).__name__)
    return said.partition(". ")[0]
