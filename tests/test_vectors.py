"""Columns of engines as the packer takes them, without any engine."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from grampus.errors import DataError
from grampus.frames.vectors import column, plain

VECTOR = pa.struct(
    [
        ("type", pa.int8()),
        ("size", pa.int32()),
        ("indices", pa.list_(pa.int32())),
        ("values", pa.list_(pa.float64())),
    ]
)


def dense(*values):
    return {"type": 1, "size": None, "indices": None, "values": list(values)}


def sparse(size, **values):
    places = [int(name[1:]) for name in values]
    return {"type": 0, "size": size, "indices": places, "values": list(values.values())}


# A step that reads a vector reads a list.
STEP = {"v": {"pad": {"length": 3}}}


def made(values, kind=None):
    return plain(pa.record_batch({"v": pa.array(values, kind)}), STEP)["v"]


def test_vectors_stay_as_they_are():
    batch = pa.record_batch({"v": pa.array([sparse(3, _1=5), dense(1, 2, 3), None], VECTOR)})
    assert plain(batch).equals(batch)
    assert plain(batch, {"v": {}}).equals(batch)


@pytest.mark.parametrize(
    "vectors",
    [
        [dense(0, 5, 0), dense(1, 2, 3)],
        [sparse(3, _1=5), dense(1, 2, 3)],
        [sparse(3, _1=5), sparse(3, _0=1, _1=2, _2=3)],
    ],
    ids=["dense", "both", "sparse"],
)
def test_vectors_are_lists(vectors):
    assert made(vectors, VECTOR).to_pylist() == [[0, 5, 0], [1, 2, 3]]


def test_part_of_a_batch_and_a_vector_of_zeros():
    whole = pa.record_batch({"v": pa.array([dense(9, 9), sparse(2), sparse(2, _0=1.5), dense(7, 8)], VECTOR)})
    assert plain(whole.slice(1, 3), STEP)["v"].to_pylist() == [[0, 0], [1.5, 0], [7, 8]]
    assert plain(whole.slice(0, 0), STEP)["v"].to_pylist() == []


@pytest.mark.parametrize("first", [dense(1, 2), sparse(2, _0=1.0, _1=2.0)], ids=["dense", "sparse"])
def test_a_missing_vector_stays_in_its_place(first):
    assert made([None, first, None], VECTOR).to_pylist() == [None, [1, 2], None]
    assert made([None, None], VECTOR).null_count == 2


def test_vectors_of_two_lengths():
    with pytest.raises(DataError, match='row 1, column "v": a vector of 4 values, where the first has 3'):
        made([dense(1, 2, 3), sparse(4, _0=1.0)], VECTOR)


def test_structs_are_flattened_in_the_order_of_their_fields():
    values = [
        {"a": 1, "b": {"c": True, "d": [1.5, 2.5]}, "e": 0.5},
        {"a": 2, "b": {"c": False, "d": [3.5, 4.5]}, "e": None},
    ]
    assert made(values).to_pylist() == [[1, 1, 1.5, 2.5, 0.5], None]


def test_a_struct_that_lacks_a_list_or_a_vector():
    kind = pa.struct([("a", pa.list_(pa.int64())), ("v", VECTOR)])
    values = [{"a": None, "v": dense(1, 2)}, {"a": [3], "v": None}, None, {"a": [4], "v": sparse(2, _1=5)}]
    assert made(values, kind).to_pylist() == [None, None, None, [4, 0, 5]]


def test_a_struct_that_holds_no_numbers():
    with pytest.raises(DataError, match=r'column "v\.a" holds string'):
        made([{"a": "text"}])
    with pytest.raises(DataError, match=r'column "v\.a" has lists of different lengths'):
        made([{"a": [1]}, {"a": [1, 2]}])


def test_a_missing_list_takes_the_room_of_one():
    assert made([[1, 2], None]).type == pa.list_(pa.int64(), 2)
    assert made([[1, 2], None]).to_pylist() == [[1, 2], None]
    # Which list differs is said by the packer.
    assert made([[1, 2], None, [3]]).to_pylist() == [[1, 2], None, [3]]


def test_only_the_columns_that_are_asked_for():
    batch = pa.record_batch({"a": [1], "b": [2], "c": [3]})
    assert plain(batch, {"c": {}, "a": {}}).schema.names == ["c", "a"]


@pytest.mark.parametrize("shape", [(3,), (3, 2), (3, 2, 4), (0, 2), (3, 0)])
def test_arrays_are_columns(shape):
    array = np.arange(np.prod(shape), dtype="f4").reshape(shape)
    assert column(array).to_pylist() == array.tolist()


@pytest.mark.parametrize(
    ("dtype", "kind"), [("f2", "float"), ("u1", "int16"), ("u4", "int64"), ("?", "bool")]
)
def test_types_that_engines_lack(dtype, kind):
    assert str(column(np.ones(2, dtype)).type) == kind


def test_decimals_in_structs_are_floats():
    lists = pa.list_(pa.decimal128(10, 2))
    kind = pa.struct([("a", lists), ("b", pa.decimal128(5, 1))])
    assert made([{"a": [Decimal("0.5")], "b": Decimal(3)}], kind).to_pylist() == [[0.5, 3.0]]


def test_more_numbers_than_a_column_of_lists_can_count():
    wide = np.broadcast_to(np.zeros((1, 1_000_000), bool), (2200, 1_000_000))
    with pytest.raises(DataError, match=r"2200 rows of 1000000 numbers each .* holds 2147483647 numbers"):
        column(wide)
