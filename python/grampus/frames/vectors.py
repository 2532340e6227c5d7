"""Columns of engines as the packer takes them, and what a model answers as columns.

Lists, numbers, and vectors of Spark's ML library, which Arrow knows as structs, go as they are, so a sparse
vector stays sparse. Where a step reads it, or a struct holds it, it becomes a list. A struct becomes one list
of the numbers in its fields, in their order; a tensor of Ray becomes lists within lists. All of it works on
whole columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grampus.errors import DataError
from grampus.shards import rows

if TYPE_CHECKING:
    from collections.abc import Mapping

_VECTOR = ["type", "size", "indices", "values"]
# What `type` says in a vector of Spark.
_SPARSE, _DENSE = 0, 1


def plain(batch: Any, columns: Mapping[str, Any] | None = None) -> Any:
    """A record batch with these columns, by default all: numbers, vectors, and lists of equal lengths.

    Behind each name is what is done with its values, if anything.

    >>> import pyarrow as pa
    >>> point = pa.array([{"x": 1, "y": 0.5}, {"x": 2, "y": 1.5}])
    >>> plain(pa.record_batch({"point": point}))["point"].to_pylist()
    [[1.0, 0.5], [2.0, 1.5]]
    """
    import pyarrow

    steps = dict.fromkeys(batch.schema.names) if columns is None else columns
    made = {}
    for name, step in steps.items():
        column = batch.column(name)
        made[name] = column if is_vector(column.type) and not step else _as_lists(column, name)
    return pyarrow.record_batch(made)


def _as_lists(column: Any, name: str) -> Any:
    import pyarrow

    kind = column.type
    if isinstance(kind, pyarrow.BaseExtensionType):
        return _tensors(column)
    if is_vector(kind):
        return _vectors(column, name)
    if pyarrow.types.is_struct(kind):
        return _side_by_side(column, name)
    if pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind):
        return _with_room(column)
    return column


def is_vector(kind: Any) -> bool:
    """Whether an Arrow type is that of a vector of Spark's ML library."""
    import pyarrow

    return pyarrow.types.is_struct(kind) and [kind.field(at).name for at in range(kind.num_fields)] == _VECTOR


def _tensors(column: Any) -> Any:
    """The numbers of a tensor of Ray, all of one shape, as lists within lists."""
    import pyarrow

    shape = getattr(column.type, "shape", None)
    storage = column.storage
    if shape is None or not pyarrow.types.is_nested(storage.type):
        return storage
    values = storage.flatten()
    for length in reversed(shape):
        values = pyarrow.FixedSizeListArray.from_arrays(values, length)
    return values


def _vectors(column: Any, name: str) -> Any:
    import numpy
    import pyarrow

    missing = numpy.asarray(column.is_null())
    kinds, sizes, indices, values = column.flatten()
    kinds = kinds.fill_null(_DENSE).to_numpy()
    if (kinds == _DENSE).all():
        return _with_room(values)
    lengths = numpy.asarray(values.value_lengths().fill_null(0))
    widths = numpy.where(kinds == _SPARSE, sizes.fill_null(0).to_numpy(), lengths)
    width = int(widths[~missing][0])
    other = numpy.flatnonzero((widths != width) & ~missing)
    if len(other):
        raise DataError(
            f'row {other[0]}, column "{name}": a vector of {widths[other[0]]} values, where the first has '
            f"{width}: give all one length"
        )
    made = numpy.zeros((len(column), width))
    rows = numpy.repeat(numpy.arange(len(column)), lengths)
    # A dense vector has no indices: its values stand where they are.
    places = numpy.arange(len(rows)) - numpy.repeat(numpy.cumsum(lengths) - lengths, lengths)
    places[kinds[rows] == _SPARSE] = indices.flatten().to_numpy()
    made[rows, places] = values.flatten().to_numpy(zero_copy_only=False)
    return pyarrow.FixedSizeListArray.from_arrays(made.reshape(-1), width, mask=pyarrow.array(missing))


def _side_by_side(column: Any, name: str) -> Any:
    """The numbers of all fields of a struct, one list for each row."""
    import numpy
    import pyarrow

    missing = numpy.zeros(len(column), bool)
    parts = []
    for place, values in enumerate(column.flatten()):
        inner = f"{name}.{column.type.field(place).name}"
        values = _as_lists(values, inner)
        missing |= numpy.asarray(values.is_null())
        parts.append(_matrix(values, inner))
    made = numpy.concatenate(parts, axis=1)
    return pyarrow.FixedSizeListArray.from_arrays(
        made.reshape(-1), made.shape[1], mask=pyarrow.array(missing)
    )


def _matrix(values: Any, name: str) -> Any:
    """Numbers as a row of a matrix each."""
    import pyarrow

    rows, width = len(values), 1
    while pyarrow.types.is_nested(values.type):
        # Flattened, a missing list would take no room.
        values = _filled(values)
        if len(values.value_lengths().unique()) > 1:
            raise DataError(f'column "{name}" has lists of different lengths: pad them to one length')
        values = values.flatten()
        width = len(values) // rows if rows else 0
    kind = values.type
    if pyarrow.types.is_decimal(kind):
        kind, values = pyarrow.float64(), values.cast(pyarrow.float64())
    if not (
        pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind) or pyarrow.types.is_boolean(kind)
    ):
        raise DataError(
            f'column "{name}" holds {kind}, and a model takes numbers: leave it out, or turn it into numbers'
        )
    filled = values.fill_null(False if pyarrow.types.is_boolean(kind) else 0)
    return filled.to_numpy(zero_copy_only=False).reshape(rows, width)


def _with_room(lists: Any) -> Any:
    """Lists of which some are missing, each of which takes as much room as the others: so it can be named."""
    import numpy
    import pyarrow

    filled = _filled(lists)
    if filled is lists:
        return lists
    values, width = filled.flatten(), len(filled[0])
    if len(values) != width * len(lists):
        # Of different lengths: which of them differs is found where they are packed.
        return lists
    missing = pyarrow.array(numpy.asarray(lists.is_null()))
    return pyarrow.FixedSizeListArray.from_arrays(values, width, mask=missing)


def _filled(lists: Any) -> Any:
    """Lists with the first one that is there in the place of those that are missing."""
    import numpy
    import pyarrow

    if not lists.null_count or lists.null_count == len(lists):
        return lists
    missing = numpy.asarray(lists.is_null())
    places = numpy.where(missing, numpy.argmin(missing), numpy.arange(len(lists)))
    return lists.take(pyarrow.array(places))


def column(array: Any) -> Any:
    """An array as a column of an engine: a list for each row where a row has several numbers.

    >>> import numpy as np
    >>> column(np.eye(2, dtype="f4")).type
    ListType(list<item: float>)
    """
    import numpy

    # Engines know neither half floats nor numbers without sign.
    if array.dtype == numpy.float16:
        array = array.astype(numpy.float32)
    elif array.dtype.kind == "u":
        array = array.astype(numpy.int16 if array.dtype.itemsize == 1 else numpy.int64)
    return rows.nested(array)
