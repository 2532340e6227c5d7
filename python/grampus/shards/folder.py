"""Shards in folders: written whole or not at all, read without running code."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grampus._files import naming
from grampus.errors import DataError
from grampus.shards import rows, sources

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_MANIFEST = "shards.json"
_FORMAT = 1


@contextlib.contextmanager
def written(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A folder to write into, which takes its name when all is written."""
    target = Path(path).absolute()
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise DataError(f"{str(path)!r} exists: remove it first, or choose another path")
    target.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        with naming(target):
            yield folder
        # mkdtemp keeps others out; a folder that was asked for is like any other.
        folder.chmod(0o777 & ~_umask())
        folder.rename(target)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_tables(path: str | os.PathLike[str], values: Iterable[Any], suffix: str) -> None:
    """A file of tables for each shard."""
    import pyarrow.csv
    import pyarrow.parquet

    write = {"parquet": pyarrow.parquet.write_table, "csv": pyarrow.csv.write_csv}[suffix]
    with written(path) as folder:
        for number, value in enumerate(values):
            rows.one_kind([value], f"write_{suffix}", rows.TABULAR)
            try:
                write(rows.as_arrow(value), folder / f"part-{number:05}.{suffix}")
            except pyarrow.ArrowException as error:
                raise DataError(f"shard {number} cannot be written as {suffix}: {error}") from None


def save(path: str | os.PathLike[str], values: Iterable[Any], allow_pickle: bool) -> None:
    """A file for each shard and, last, the list of them."""
    with written(path) as folder:
        listed = []
        for number, value in enumerate(values):
            entry = _saved(folder, f"{number:05}", value)
            if entry["as"] == "pickle":
                if not allow_pickle:
                    raise DataError(
                        f"shard {number} is a {type(value).__name__}, which only a pickle can hold, and "
                        "reading a pickle runs code: give save and load allow_pickle=True if that is wanted"
                    )
                (folder / entry["file"]).write_bytes(pickle.dumps(value, protocol=5))
            listed.append(entry)
        manifest = {"format": _FORMAT, "shards": listed}
        (folder / _MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")


def _saved(folder: Path, name: str, value: Any) -> dict[str, Any]:
    """Write a shard in a form without code, where there is one; say which."""
    import numpy
    import pyarrow

    kind = rows.kind_of(value)
    if kind in rows.TABULAR:
        with contextlib.suppress(pyarrow.ArrowException):
            # Unlike `rows.as_arrow` it keeps the index, and the types that only pandas has.
            table = pyarrow.Table.from_pandas(value) if kind == "frame" else rows.as_arrow(value)
            with pyarrow.ipc.new_file(str(folder / f"{name}.arrow"), table.schema) as out:
                out.write_table(table)
            return {"as": "arrow", "kind": kind, "file": f"{name}.arrow"}
    if kind == "arrays":
        leaves = [leaf for _, leaf in rows.leaves(value)]
        tree = _tree(value)
        if tree is not None and not any(leaf.dtype.hasobject for leaf in leaves):
            numpy.savez(folder / f"{name}.npz", *leaves)
            return {"as": "arrays", "tree": tree, "file": f"{name}.npz"}
    return {"as": "pickle", "file": f"{name}.pickle"}


def _tree(value: Any) -> Any:
    """The shape of nested dicts, tuples and lists in the words of JSON; nothing where it has none."""
    if isinstance(value, dict):
        parts = [_tree(part) for part in value.values()]
        plain = type(value) is dict and all(isinstance(key, str) for key in value)
        return None if not plain or None in parts else {"dict": dict(zip(value, parts, strict=True))}
    if isinstance(value, tuple | list):
        parts = [_tree(part) for part in value]
        return None if type(value) not in (tuple, list) or None in parts else {type(value).__name__: parts}
    return "array"


def _planted(tree: Any, leaves: Iterator[Any]) -> Any:
    if tree == "array":
        return next(leaves)
    ((kind, parts),) = tree.items()
    if kind == "dict":
        return {key: _planted(part, leaves) for key, part in parts.items()}
    made = [_planted(part, leaves) for part in parts]
    return tuple(made) if kind == "tuple" else made


def entries(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """What the manifest of a folder lists, with whole paths."""
    folder = Path(path).absolute()
    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        if manifest["format"] != _FORMAT:
            raise DataError(
                f"{str(path)!r} was saved in format {manifest['format']}: this version reads {_FORMAT}"
            )
        return [{**entry, "file": str(folder / Path(entry["file"]).name)} for entry in manifest["shards"]]
    except FileNotFoundError:
        raise DataError(f"{str(path)!r} holds no saved shards: it has no {_MANIFEST}") from None
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise DataError(f"{str(folder / _MANIFEST)!r} is damaged: {error!r}") from None


def load(entry: dict[str, Any], allow_pickle: bool) -> Any:
    """One shard of a folder."""
    file = entry["file"]
    if entry["as"] == "pickle" and not allow_pickle:
        raise DataError(
            f"{file} is a pickle, and reading it runs code: call load with allow_pickle=True if you trust it"
        )
    try:
        return _READERS[entry["as"]](entry)
    except DataError:
        raise
    except (OSError, EOFError, KeyError, ValueError, pickle.UnpicklingError) as error:
        raise DataError(f"{file} cannot be read: {error}") from None


def _load_arrow(entry: dict[str, Any]) -> Any:
    import pyarrow

    with pyarrow.memory_map(entry["file"]) as file:
        return rows.from_arrow(pyarrow.ipc.open_file(file).read_all(), entry["kind"])


def _load_arrays(entry: dict[str, Any]) -> Any:
    held = sources.npz(entry["file"])
    return _planted(entry["tree"], iter([held[f"arr_{place}"] for place in range(len(held))]))


def _load_pickle(entry: dict[str, Any]) -> Any:
    return pickle.loads(Path(entry["file"]).read_bytes())


_READERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "arrow": _load_arrow,
    "arrays": _load_arrays,
    "pickle": _load_pickle,
}
