"""Data of other libraries, cut into shards."""

from __future__ import annotations

from typing import Any

from grampus import _native, session
from grampus.cluster import whole
from grampus.errors import DataError
from grampus.shards import rows


def shards_for(total: int, asked: int | None) -> int:
    """How many shards so many rows make: as asked, or one for each worker."""
    if total == 0:
        raise DataError("there are no rows to cut into shards: give at least one")
    if asked is None:
        cluster = session._session.own()
        return min(total, _native.host_cores() if cluster is None else cluster.workers)
    count = whole(asked, "num_shards")
    if count > total:
        raise DataError(
            f"the number of shards, {count}, is larger than the number of rows, {total}: "
            f"ask for at most {total}"
        )
    return count


def cut(value: Any, num_shards: int | None) -> list[Any]:
    """Rows of any kind, cut evenly."""
    kind = rows.kind_of(value)
    return rows.recut([value], kind, shards_for(rows.count(value, kind), num_shards))


def cut_table(table: Any, num_shards: int | None) -> list[Any]:
    """A table of files, cut evenly; one without rows, as of a header alone, keeps its columns."""
    if table.num_rows:
        return cut(table, num_shards)
    return rows.recut([table], "table", 1 if num_shards is None else whole(num_shards, "num_shards"))


def arrays(data: Any, num_shards: int | None) -> list[Any]:
    """A tree of arrays, all with as many rows, cut evenly."""
    import numpy

    found = list(rows.leaves(data))
    for path, leaf in found:
        if not isinstance(leaf, numpy.ndarray) or leaf.ndim == 0:
            what = "an array without rows" if isinstance(leaf, numpy.ndarray) else f"a {type(leaf).__name__}"
            raise DataError(
                f"partition takes numpy arrays, alone or in dicts, tuples and lists, data{path} is {what}: "
                "use numpy.asarray, or Shards.from_objects for other objects"
            )
    if not found:
        raise DataError("partition takes numpy arrays, there is none in the data")
    if len({len(leaf) for _, leaf in found}) > 1:
        lengths = ", ".join(f"data{path} has {len(leaf)}" for path, leaf in found)
        raise DataError(f"all arrays must have as many rows: {lengths}")
    return cut(data, num_shards)


def arrow(data: Any) -> Any:
    """Anything that gives an Arrow stream, as a table."""
    import pyarrow

    if not hasattr(data, "__arrow_c_stream__") and not isinstance(data, pyarrow.RecordBatch):
        raise DataError(
            f"from_arrow takes what gives an Arrow stream (__arrow_c_stream__), not a {type(data).__name__}: "
            "tables of pyarrow, polars, DuckDB and others do"
        )
    return rows.as_arrow(data)


def huggingface(data: Any) -> Any:
    """A dataset of Hugging Face as a table, its selections and shuffles applied."""
    if isinstance(data, dict):
        raise DataError(
            f"this holds {len(data)} datasets ({', '.join(data)}): choose one, as in data['train']"
        )
    if not hasattr(data, "with_format") or not hasattr(data, "__getitem__"):
        raise DataError(
            f"from_huggingface takes a datasets.Dataset, not a {type(data).__name__}: "
            "load it whole (streaming=False)"
        )
    return rows.as_arrow(data.with_format("arrow")[:])


def collated(places: range, dataset: Any) -> Any:
    """Some rows of a torch dataset as arrays, as a DataLoader would stack them."""
    import torch
    from torch.utils.data import default_collate

    batch = default_collate([dataset[place] for place in places])
    return rows.mapped(batch, lambda leaf: leaf.numpy() if isinstance(leaf, torch.Tensor) else leaf)


def torch_ranges(dataset: Any, num_shards: int | None) -> list[range]:
    """Which rows of a torch dataset go into which shard."""
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        raise DataError(
            f"from_torch takes a dataset with rows by number (__getitem__ and __len__), "
            f"not a {type(dataset).__name__}"
        )
    total = len(dataset)
    return [range(start, stop) for start, stop in rows.evenly(total, shards_for(total, num_shards))]


def npz(file: str) -> dict[str, Any]:
    """The arrays of a file of numpy's, by name; no code in it is run."""
    import zipfile

    import numpy

    try:
        # Opened here: numpy leaves a file open that turns out to be none of its own.
        with open(file, "rb") as opened, numpy.load(opened, allow_pickle=False) as held:
            return {name: held[name] for name in held.files}
    except (ValueError, OSError, EOFError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        raise DataError(f"{file} cannot be read as arrays (.npz): {error}") from None
