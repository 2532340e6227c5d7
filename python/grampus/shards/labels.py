"""Labels of images, from their folders or from a file that names them."""

from __future__ import annotations

import json
import posixpath
from pathlib import Path
from typing import Any

from grampus import _native
from grampus.errors import DataError
from grampus.shards import keys, rows

# Names of images that an error gives.
_NAMED = 3


def from_folders(files: list[str]) -> list[int] | None:
    """The number of the folder of each image, in the order of their names; none where there is one folder.

    >>> from_folders(["pets/dog/1.png", "pets/cat/1.png", "pets/cat/2.png"])
    [1, 0, 0]
    """
    folders = [posixpath.dirname(file) for file in files]
    numbers = {folder: number for number, folder in enumerate(sorted(set(folders)))}
    return [numbers[folder] for folder in folders] if len(numbers) > 1 else None


def from_file(files: list[str], label_file: str, image_col: str | None, label_col: str | None) -> Any:
    """The label of each image, as the file has it."""
    image_col, label_col, table = _read(label_file, image_col, label_col)
    images = _Images(files, label_file)
    rows: dict[str, int] = {}
    for row, name in enumerate(table[image_col].to_pylist()):
        found = images.named(str(name))
        if len(found) > 1:
            raise DataError(
                f"{label_file}, row {row}: {name!r} may be {_some(found)}: write more of the path"
            )
        for file in found:
            if file in rows:
                raise DataError(
                    f"{label_file}: rows {rows[file]} and {row} both are of {file}: leave one out"
                )
            rows[file] = row
    missing = [file for file in files if file not in rows]
    if missing:
        raise DataError(
            f"{label_file} has no label for {len(missing)} of {len(files)} images: {_some(missing)}; column "
            f"{image_col!r} must hold their paths, or the ends of these, with or without extension"
        )
    return table[label_col].take([rows[file] for file in files])


def _some(names: list[str]) -> str:
    return ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")


def _read(path: str, image_col: str | None, label_col: str | None) -> tuple[str, str, Any]:
    """The two columns that count, and the table that has them."""
    import pyarrow

    end = rows.text_suffix(path)
    if end in (".parquet", ".pq"):
        table = _native.read_parquet([path])
    elif end in (".json", ".jsonl", ".ndjson"):
        table = _native.read_json([path])
    elif end in (".csv", ".tsv", ".txt"):
        options = {"sep": "\t" if end == ".tsv" else ","}
        first = _native.read_csv([path], json.dumps({**options, "nrows": 1}))
        name, _ = _chosen(path, first.columns, image_col, label_col)
        # As a number, 007 would be 7.
        table = _native.read_csv([path], json.dumps({**options, "dtype": {name: "str"}}))
    else:
        raise DataError(f"{path}: labels come from CSV, JSON-lines or Parquet files: give one of these")
    return *_chosen(path, table.columns, image_col, label_col), pyarrow.table(table)


def _chosen(path: str, have: list[str], image_col: str | None, label_col: str | None) -> tuple[str, str]:
    # Columns of its folders stand behind those of the file.
    folders = {folder.partition("=")[0] for folder in posixpath.dirname(path).split("/") if "=" in folder}
    if image_col is None and folders.issuperset(have[2:]):
        have = have[:2]
    if image_col is not None and label_col is not None:
        keys.check([image_col, label_col], have)
        return image_col, label_col
    if len(have) != 2 or image_col is not None or label_col is not None:
        raise DataError(
            f"{path} has the columns {', '.join(have)}: name both that of the images and that of the labels "
            "(image_col, label_col)"
        )
    return have[0], have[1]


class _Images:
    """Files by what people write for them."""

    def __init__(self, files: list[str], label_file: str) -> None:
        self._files = {_whole(file): file for file in files}
        self._folder = posixpath.dirname(_whole(label_file))
        # By how many parts of a path there are, and whether it has its extension.
        self._ends: dict[tuple[int, bool], dict[str, list[str]]] = {}

    def named(self, written: str) -> list[str]:
        """The file of this path from the folder of the labels; else those whose paths end so."""
        whole = written if "://" in written else posixpath.join(self._folder, written)
        exact = self._files.get(_whole(whole))
        if exact is not None:
            return [exact]
        end = posixpath.normpath(written)
        parts = end.count("/") + 1
        return self._ending(parts, True).get(end) or self._ending(parts, False).get(end, [])

    def _ending(self, parts: int, extension: bool) -> dict[str, list[str]]:
        if (parts, extension) not in self._ends:
            ends = self._ends[parts, extension] = {}
            for whole, file in self._files.items():
                path = whole if extension else posixpath.splitext(whole)[0]
                ends.setdefault("/".join(path.split("/")[-parts:]), []).append(file)
        return self._ends[parts, extension]


def _whole(path: str) -> str:
    return path if "://" in path else posixpath.normpath(Path.cwd() / path)
