"""Files as shards: read when they are asked for, by the threads of the core."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from grampus import _native
from grampus._traceback import public
from grampus.errors import DataError
from grampus.shards import labels, sources
from grampus.shards.collection import Shards, Source

if TYPE_CHECKING:
    from collections.abc import Callable

    from grampus.images import ImageStep

Paths: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"

_PARQUET = ["parquet", "pq"]
_IMAGES = ["jpg", "jpeg", "png", "webp"]


@public
def read_csv(
    path: Paths,
    *,
    sep: str = ",",
    header: int | str | None = "infer",
    names: Sequence[str] | None = None,
    index_col: str | int | None = None,
    usecols: Sequence[str] | Sequence[int] | Callable[[str], bool] | None = None,
    dtype: Any = None,
    quotechar: str = '"',
    escapechar: str | None = None,
    comment: str | None = None,
    nrows: int | None = None,
    na_values: str | float | Sequence[str | float] | None = None,
    keep_default_na: bool = True,
    num_shards: int | None = None,
) -> Shards:
    """Read CSV files; the options are those of pandas. Types are those that all values of a column fit.

    Integers above int64 are uint64; those that need more than 64 bits are an error that names the line.

    Args:
        path: a file, a folder, a pattern such as `data/*.csv`, an `s3://` or `http(s)://` address, or a list.
            Files that end in `.gz` or `.zst` are decompressed.
        sep, header, names, usecols, dtype, quotechar, escapechar, comment, nrows, na_values, keep_default_na:
            as in pandas.
        index_col: makes the shards pandas frames with this column as their index.
        num_shards: by default one for each worker.
    """
    paths = _paths(path)
    options: dict[str, Any] = {
        "sep": sep,
        "header": header,
        "quotechar": quotechar,
        "na_values": _missing(na_values),
        "keep_default_na": bool(keep_default_na),
    }
    options |= {"escapechar": escapechar, "comment": comment, "nrows": nrows}
    options |= {"names": None if names is None else list(names), "dtype": _types(dtype)}

    def read() -> Any:
        chosen = usecols
        if callable(chosen):
            first = _native.read_csv(paths, json.dumps({**options, "nrows": 1}))
            chosen = [name for name in first.columns if chosen(name)]
        picked = None if chosen is None else list(chosen)
        return _native.read_csv(paths, json.dumps({**options, "usecols": picked}))

    shards = Shards._from_table_reader(read, num_shards)
    return shards if index_col is None else shards.transform_shard(_indexed, index_col)


def _indexed(table: Any, column: str | int) -> Any:
    frame = table.to_pandas()
    return frame.set_index(frame.columns[column] if isinstance(column, int) else column)


def _missing(values: Any) -> list[str]:
    """What stands for no value, as texts."""
    if isinstance(values, Mapping):
        raise DataError(
            "na_values of single columns are not supported: give values that hold for all columns"
        )
    if values is None:
        return []
    single = isinstance(values, str) or not isinstance(values, Iterable)
    return [str(value) for value in ([values] if single else values)]


def _types(dtype: Any) -> Any:
    import numpy

    if dtype is None:
        return None
    if isinstance(dtype, Mapping):
        return {str(name): _types(one) for name, one in dtype.items()}
    if dtype in (str, object, "object", "string"):
        return "str"
    try:
        return numpy.dtype(dtype).name
    except TypeError:
        # A type of pandas: the core knows Int64 and such, and says of others what it takes.
        return str(getattr(dtype, "name", dtype))


@public
def read_json(path: Paths, *, num_shards: int | None = None) -> Shards:
    """Read files of JSON lines: an object in each line, whose keys are the columns."""
    paths = _paths(path)
    return Shards._from_table_reader(lambda: _native.read_json(paths), num_shards)


@public
def read_parquet(
    path: Paths, columns: Sequence[str] | None = None, *, num_shards: int | None = None
) -> Shards:
    """Read Parquet files: all columns, or these.

    Nothing is read before rows are asked for. `shards.stream()` lets a model read them in windows that need
    little memory, instead of keeping all.
    """
    paths, chosen = _paths(path), None if columns is None else list(columns)
    shards = Shards._from_table_reader(lambda: _native.read_parquet(paths, chosen), num_shards)
    shards._source = Source(paths, chosen)
    return shards


@public
def read_images(
    path: Paths,
    *,
    image_col: str | None = None,
    label_col: str | None = None,
    label_func: Callable[[str], Any] | None = None,
    label_file: str | os.PathLike[str] | None = None,
    steps: Sequence[ImageStep] = (),
    num_shards: int | None = None,
) -> Shards:
    """Read images: JPEG, PNG and WebP files, or the columns of Parquet files that hold them.

    The shards are tables with the columns `image`, the bytes of the file, and `label`; they are decoded where
    batches are made of them.

    Args:
        path: files, folders, patterns or addresses.
        image_col, label_col: columns of Parquet files, or of `label_file`.
        label_func: makes a label of the path of a file; by default it is the number of its folder among all
            folders, in the order of their names, where there are several.
        label_file: a CSV, JSON-lines or Parquet file with a row for each image: `image_col` holds its path
            from the folder of this file, or the end of its path, with or without extension (`train/7.png`,
            `7.png`, `7`), and `label_col` its label. A file of two columns has them in this order. Each
            image needs a row; rows of other images do not count.
        steps: what is done with images when batches are made of them; see `grampus.images`.
    """
    paths = _paths(path)
    if label_func is not None and (image_col or label_col or label_file) is not None:
        raise ValueError(
            "label_func makes labels of paths: give it without image_col, label_col and label_file"
        )
    if label_col is not None and (image_col or label_file) is None:
        raise ValueError(
            "label_col names a column of Parquet files, with image_col, or of label_file: give one of these"
        )
    if image_col is not None and label_file is None:
        columns = [image_col] if label_col is None else [image_col, label_col]
        shards = read_parquet(path, columns, num_shards=num_shards)
        shards._source = Source(paths, columns, image_col, label_col, tuple(steps))
        return shards

    def labels_of(files: list[str]) -> Any:
        if label_file is not None:
            return labels.from_file(files, os.fspath(label_file), image_col, label_col)
        return labels.from_folders(files) if label_func is None else [label_func(file) for file in files]

    shards = Shards._from_table_reader(lambda: _pictures(paths, labels_of), num_shards)
    shards._source = Source(None, None, "image", "label", tuple(steps))
    return shards


def _pictures(paths: list[str], labels_of: Callable[[list[str]], Any]) -> Any:
    import pyarrow

    table = pyarrow.table(_native.read_files(paths, _IMAGES))
    files = table["path"].to_pylist()
    found = labels_of(files)
    columns = {"image": table["bytes"], "label": found, "path": table["path"]}
    return pyarrow.table({name: column for name, column in columns.items() if column is not None})


def _paths(path: Paths) -> list[str]:
    if isinstance(path, str | os.PathLike):
        return [os.fspath(path)]
    listed = [os.fspath(one) for one in path]
    if not listed:
        raise DataError("no path was given: give at least one")
    return listed


@public
def read_npz(path: Paths) -> Shards:
    """Read files of numpy arrays, each a shard: a dict of its arrays.

    Args:
        path: a file, a folder, a pattern such as `data/*.npz`, or a list of these.
    """
    found = _native.find_files(_paths(path), ["npz"])
    return Shards._from_files(found, sources.npz)
