"""Numbers and marks of JSON lines that other readers bend silently."""

import json

import pyarrow as pa
import pytest

import grampus as gp
from grampus import _native


def read(path):
    return pa.table(_native.read_json([str(path)]))


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def file(tmp_path):
    return tmp_path / "a.jsonl"


def test_integers_above_int64_are_uint64(file):
    rows = [
        {"a": 2**63, "b": [1, 2**64 - 1], "c": {"d": 2**63}, "e": 2**63, "f": 1, "g": "1" * 25},
        {"a": 1, "b": [], "c": {"d": 5}, "e": 0.5, "f": -1, "g": "x"},
        {"a": None, "b": None, "c": None, "e": None, "f": None, "g": None},
    ]
    found = read(lines(file, rows))
    assert found.to_pylist() == rows
    types = {field.name: str(field.type) for field in found.schema}
    assert types == {
        "a": "uint64",
        "b": "list<item: uint64>",
        "c": "struct<d: uint64>",
        "e": "double",
        "f": "int64",
        "g": "string",
    }


def test_integers_above_int64_in_another_part_of_the_file(file):
    """Parts are 8 MiB, and each is looked at by itself."""
    rows = [{"a": row, "pad": "x" * 1000} for row in range(20_000)]
    rows[15_000]["a"] = 2**64 - 1
    found = read(lines(file, rows))["a"]
    assert (found.type, found[15_000].as_py(), found[19_999].as_py()) == (pa.uint64(), 2**64 - 1, 19_999)


@pytest.mark.parametrize(("values", "line"), [([1, 2**64], 2), ([2**63, -1], 1), ([-(2**63) - 1], 1)])
def test_integers_of_more_than_64_bits_are_an_error_that_names_the_line(file, values, line):
    lines(file, [{"a": {"b": value}} for value in values])
    with pytest.raises(gp.DataError, match=rf'a\.jsonl, line {line}, column "a\.b": -?\d+ and the other'):
        read(file)
    lines(file, [{"a": value} for value in [*values, 0.5]])
    assert read(file)["a"].to_pylist() == [*map(float, values), 0.5]


def test_names_that_read_like_those_of_nested_columns(file):
    rows = [
        {"a.b": 2**64 - 1, "a": {"b": 0.5}, "l[]": 2**63, "l": [0.5], "": {"c": 2**63}, "c": 0.5},
        {"a.b": 1, "a": {"b": 1.5}, "l[]": 1, "l": [1.5], "": {"c": 1}, "c": 1.5},
    ]
    found = read(lines(file, rows))
    assert found.to_pylist() == rows
    assert (found.schema.field("a.b").type, found.schema.field("l[]").type) == (pa.uint64(), pa.uint64())
    lines(file, [{"a": {"b": 0.5}, "a.b": 1}, {"a.b": 2**64}])
    with pytest.raises(gp.DataError, match=rf'line 2, column "a\.b": {2**64} and the other integers'):
        read(file)
    lines(file, [{"a": [{"b": 2**64}]}])
    with pytest.raises(gp.DataError, match=rf'line 1, column "a\[\]\.b": {2**64} and the other integers'):
        read(file)


def test_a_mark_at_the_beginning_is_not_part_of_the_text(file):
    file.write_bytes(b'\xef\xbb\xbf{"a": 1}\n{"a": }\n')
    with pytest.raises(gp.DataError, match=r"a\.jsonl, line 2 is damaged"):
        read(file)
    file.write_bytes(b'\xef\xbb\xbf{"a": 1}\n')
    assert read(file).to_pylist() == [{"a": 1}]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_json_does_not_have(file, value):
    lines(file, [{"a": 1.0}, {"a": value}])
    with pytest.raises(
        gp.DataError, match=r"line 2 is damaged: .*: JSON has no NaN and no Infinity: write null"
    ):
        read(file)
