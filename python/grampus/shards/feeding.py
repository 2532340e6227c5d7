"""What a model reads of shards, files and tables."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING, Any

from grampus._figures import count
from grampus._warning import warn
from grampus.columns import ColumnStep
from grampus.errors import DataError
from grampus.shards import rows
from grampus.shards.batches import Rows, is_one, listed, wanted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grampus.images import ImageStep
    from grampus.shards.batches import Columns
    from grampus.shards.collection import Shards

_ON_ERROR = ("raise", "skip")
# Rows that are named where several are left out.
_SHOWN = 5


def stacked(columns: Columns | None) -> Columns | None:
    """Several columns as one matrix."""
    if columns is None:
        return None
    several = listed(columns)
    return [several] if len(several) > 1 and all(map(is_one, several)) else several


def rows_of(
    shards: Shards,
    feature_cols: Columns | None,
    label_cols: Columns | None,
    images: Sequence[ImageStep] | None = None,
    on_error: str = "raise",
) -> Any:
    """Rows that a loader reads; or a tree of arrays, where the shards are such."""
    if on_error not in _ON_ERROR:
        raise ValueError(f"on_error must be one of {', '.join(map(repr, _ON_ERROR))}, it is {on_error!r}")
    source = shards._source
    if source is not None and source.image_col is not None and feature_cols is None:
        feature_cols = source.image_col
        label_cols = label_cols or _label(shards, source.label_col)
        images = images or source.steps
    skip = on_error == "skip" or shards._skip
    if source is not None and source.paths is not None and shards._parts is None:
        return Rows(wanted(feature_cols, label_cols, images), None, source.paths, shards._window, skip)
    parts = shards._computed()
    kind = parts[0].form.kind
    if kind in ("frame", *rows.ARROW):
        return Rows(wanted(feature_cols, label_cols, images), parts, skip=skip)
    if kind == "object":
        raise DataError(
            "these shards are objects that have no rows: turn them into dicts of arrays, such as "
            "{'x': …, 'y': …}, with transform_shard"
        )
    return rows.together(shards.collect(), kind)


def _label(shards: Shards, column: str | None) -> str | None:
    return column if column is None or column in shards.columns else None


def is_path(value: Any) -> bool:
    """Whether data is the name of files."""
    if isinstance(value, str | os.PathLike):
        return True
    return (
        isinstance(value, list) and bool(value) and all(isinstance(one, str | os.PathLike) for one in value)
    )


def shards_of(value: Any, *columns: Columns | None) -> Shards | None:
    """Shards of what names files, or gives an Arrow stream; nothing for other data.

    A frame of pandas is other data, unless steps or lists of columns are asked of it.
    """
    from grampus.shards import readers
    from grampus.shards.collection import Shards

    if isinstance(value, Shards):
        return value
    if is_path(value):
        first = os.fspath(value[0] if isinstance(value, list) else value)
        read = {".csv": readers.read_csv, ".json": readers.read_json, ".jsonl": readers.read_json}
        return read.get(rows.text_suffix(first), readers.read_parquet)(value)
    if type(value).__module__.split(".")[0] == "pandas":
        return Shards.from_pandas(value, 1) if any(map(_is_made, columns)) else None
    return Shards.from_arrow(value, 1) if hasattr(value, "__arrow_c_stream__") else None


def _is_made(chosen: Any) -> bool:
    """Whether some array is not a column as it stands; names of frames may be other things than text."""
    if isinstance(chosen, ColumnStep):
        return True
    return isinstance(chosen, list | tuple) and any(isinstance(one, ColumnStep | list) for one in chosen)


def shared_rows(shards: Shards, feature_cols: Columns | None, label_cols: Columns | None) -> Any:
    """What workers read: where all rows are kept, arrays in memory that all of them see."""
    found = rows_of(shards, feature_cols, label_cols)
    if not isinstance(found, Rows) or found.window is not None or found.wanted.images:
        return found
    # The next call with the same columns finds them packed.
    key = found.wanted.outputs
    if key not in shards._packed:
        shards._packed[key] = packed = found.pack()
        if packed.bad:
            warn(left_out([why for _, why in packed.bad]))
    return shards._packed[key]


def left_out(whys: Sequence[str]) -> str:
    """Which rows a model does not get, in a sentence.

    >>> left_out(["row 3 of a.csv, column 'x' is null"])
    "1 row is left out: row 3 of a.csv, column 'x' is null"
    """
    many = f"{len(whys)} rows are" if len(whys) > 1 else "1 row is"
    more = f"; and {len(whys) - _SHOWN} more" if len(whys) > _SHOWN else ""
    return f"{many} left out: {'; '.join(whys[:_SHOWN])}{more}"


def output_names(output_cols: str | Sequence[str] | None) -> list[str] | None:
    """The names that outputs of a model are to have, if some were given."""
    if output_cols is None:
        return None
    names = [output_cols] if isinstance(output_cols, str) else list(output_cols)
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"output_cols= takes names of columns, not {names!r}")
    twice = [name for place, name in enumerate(names) if name in names[:place]]
    if twice:
        raise ValueError(f'output_cols= names "{twice[0]}" twice: give each output a name of its own')
    return names


def renamed(columns: dict[str, Any], names: list[str] | None) -> dict[str, Any]:
    """What was predicted, under these names.

    >>> renamed({"prediction": 1}, ["score", "label"])
    Traceback (most recent call last):
    grampus.errors.DataError: output_cols= names 2 columns, and the model has 1 output (prediction): name each
    """
    if names is None:
        return columns
    if len(names) != len(columns):
        raise DataError(
            f"output_cols= names {count(len(names), 'column')}, and the model has "
            f"{count(len(columns), 'output')} ({', '.join(columns)}): name each"
        )
    return dict(zip(names, columns.values(), strict=True))


def with_predictions(data: Any, shards: Shards | None, columns: dict[str, Any]) -> Any:
    """Data with what was predicted for its rows: a frame or shards; what else has shards becomes a table."""
    if shards is None:
        return extended(data, "frame", columns)
    found = _extended_shards(shards, columns)
    return found if shards is data else found.to_arrow()


def _extended_shards(shards: Shards, columns: dict[str, Any]) -> Shards:
    from grampus.shards.collection import Shards
    from grampus.shards.segments import store

    parts = shards._computed()
    ends = list(itertools.accumulate(part.form.rows for part in parts))
    starts = [0, *ends[:-1]]
    return Shards(
        store(
            extended(part.load(), part.form.kind, {name: array[start:end] for name, array in columns.items()})
            for part, start, end in zip(parts, starts, ends, strict=True)
        )
    )


def extended(value: Any, kind: str, columns: dict[str, Any]) -> Any:
    """A shard, or a frame, with further columns."""
    if kind == "frame":
        return value.assign(**{name: one if one.ndim == 1 else list(one) for name, one in columns.items()})
    if kind in rows.ARROW:
        table = rows.as_arrow(value)
        for name, one in columns.items():
            table = rows.with_column(table, name, rows.nested(one))
        return rows.from_arrow(table, kind)
    return {**value, **columns} if isinstance(value, dict) else (value, *columns.values())
