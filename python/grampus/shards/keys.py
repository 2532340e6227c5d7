"""Columns of tables: found by name, compared as keys, hashed the same in every process."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from grampus.errors import DataError, NoColumn

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def listed(columns: str | Sequence[str] | None) -> list[str]:
    """One name or several, as a list."""
    if columns is None:
        return []
    return [columns] if isinstance(columns, str) else list(columns)


def check(asked: Iterable[Any], have: Sequence[Any]) -> None:
    """Raise for a column that is not there, with the nearest name.

    >>> check(["incom"], ["age", "income"])
    Traceback (most recent call last):
    grampus.errors.NoColumn: there is no column "incom": do you mean "income"?
    """
    for name in asked:
        if name in have:
            continue
        known = {str(column).lower(): str(column) for column in have}
        near = difflib.get_close_matches(str(name).lower(), known, n=1)
        if near:
            hint = f'do you mean "{known[near[0]]}"?'
        else:
            hint = f"there are {', '.join(map(str, have))}" if have else "there is none at all"
        raise NoColumn(f'there is no column "{name}": {hint}')


def values_of(column: Any) -> Any:
    """A column as kernels compare it: categories as what they stand for, and only one zero."""
    import pyarrow
    import pyarrow.compute

    kind = column.type
    if pyarrow.types.is_dictionary(kind):
        return values_of(column.cast(kind.value_type))
    if pyarrow.types.is_float16(kind):
        return values_of(column.cast(pyarrow.float32()))  # few kernels take it
    if pyarrow.types.is_floating(kind):
        # The two zeros are equal, but a hash table sees their bits.
        return pyarrow.compute.add(column, pyarrow.scalar(0, kind))
    return column


def _hashable(column: Any) -> Any:
    """The same, with lists and structs, which no kernel hashes, as their text."""
    import pyarrow

    if pyarrow.types.is_nested(column.type):
        texts = [None if value is None else repr(value) for value in column.to_pylist()]
        return pyarrow.chunked_array([pyarrow.array(texts, pyarrow.large_string())])
    return values_of(column)


def codes(table: Any, columns: Sequence[str]) -> Any:
    """A number for each row, equal where the keys are equal, in order of first appearance from 0 on.

    Nulls equal nulls, and NaN equals NaN.
    """
    import numpy
    import pyarrow

    made = numpy.zeros(table.num_rows, numpy.int64)
    for name in columns:
        numbers, different = _encoded(_hashable(table[name]))
        # At most (rows * rows), which 64 bits hold; numbered again, it is at most the rows.
        made, _ = _encoded(pyarrow.chunked_array([made * max(1, different) + numbers]))
    return made


def _encoded(column: Any) -> tuple[Any, int]:
    """The number of each value, in order of first appearance, and how many there are."""
    import numpy

    if len(column) == 0:
        return numpy.zeros(0, numpy.int64), 0
    encoded = column.dictionary_encode(null_encoding="encode").combine_chunks()
    return encoded.indices.to_numpy(zero_copy_only=False).astype(numpy.int64), len(encoded.dictionary)


def hashes(table: Any, columns: Sequence[str]) -> Any:
    """A 64-bit hash of each row's keys, which depends on nothing but their values."""
    import numpy

    total = numpy.zeros(table.num_rows, numpy.uint64)
    for name in columns:
        column = _hashable(table[name])
        numbers, _ = _encoded(column)
        # In the order of the codes: that of first appearance.
        total = _mixed(total * numpy.uint64(31) + _text_hashes(column.unique())[numbers])
    return total


def _text_hashes(values: Any) -> Any:
    """The texts of values as polynomials of their bytes; a null is a text that no value has."""
    import numpy
    import pyarrow

    if len(values) == 0:
        return numpy.zeros(0, numpy.uint64)
    if not _is_binary(values.type):
        values = values.cast(pyarrow.large_string())
    texts = values.cast(pyarrow.large_binary())
    lengths = pyarrow.compute.binary_length(texts).fill_null(0).to_numpy(zero_copy_only=False)
    # The bytes of all texts, one after the other, nulls and gaps left out.
    data = numpy.frombuffer(b"".join(text for text in texts.to_pylist() if text), numpy.uint8)
    ends = numpy.cumsum(lengths)
    places = numpy.arange(len(data)) - numpy.repeat(ends - lengths, lengths)
    powers = numpy.cumprod(numpy.full(max(1, int(lengths.max())), 0x100000001B3, numpy.uint64))
    terms = numpy.concatenate(
        [[numpy.uint64(0)], (data.astype(numpy.uint64) + numpy.uint64(1)) * powers[places]]
    )
    sums = numpy.cumsum(terms, dtype=numpy.uint64)
    made = sums[ends] - sums[ends - lengths]
    made[numpy.asarray(texts.is_null())] = numpy.uint64(0x9E3779B97F4A7C15)
    return made


def _is_binary(kind: Any) -> bool:
    import pyarrow

    kinds = (pyarrow.types.is_binary, pyarrow.types.is_large_binary, pyarrow.types.is_fixed_size_binary)
    return any(is_one(kind) for is_one in kinds)


def _mixed(numbers: Any) -> Any:
    """Spread what differs in few bits over all of them."""
    import numpy

    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        numbers = (numbers ^ (numbers >> numpy.uint64(shift))) * numpy.uint64(factor)
    return numbers ^ (numbers >> numpy.uint64(31))


def to_numbers(column: Any, name: str) -> Any:
    """A column as an array for a model; an error that says what stands in the way."""
    import pyarrow

    kind = column.type
    if not (
        pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind) or pyarrow.types.is_boolean(kind)
    ):
        raise DataError(
            f'column "{name}" holds {kind}, and a model takes numbers: leave it out, or turn it into numbers'
        )
    if column.null_count:
        row = int(column.is_null().index(True).as_py())
        raise DataError(f'row {row}, column "{name}" is null, and a model needs a value: fill it, or drop it')
    return column.to_numpy()
