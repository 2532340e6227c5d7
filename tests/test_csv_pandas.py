"""What pandas makes of odd CSV files, and what Grampus makes of them."""

import gzip
import json

import pandas as pd
import pyarrow as pa
import pytest

import grampus as gp
from grampus import _native


def read(path, **options):
    return pa.table(_native.read_csv([str(path)], json.dumps(options)))


def same(path, text, **options):
    """Read a text with both, and compare."""
    path.write_bytes(text.encode())
    found = read(path, **options).to_pandas()
    pd.testing.assert_frame_equal(found, pd.read_csv(path, **options), check_exact=True)
    return found


@pytest.fixture
def file(tmp_path):
    return tmp_path / "a.csv"


@pytest.mark.parametrize(
    "values",
    [[2**63, 1], [2**64 - 1, 0], [1] * 1000 + [2**63], [2**63, 1.5], [2**63, "x"], [2**63 - 1, -(2**63)]],
    ids=["above int64", "largest", "late", "floats", "texts", "int64"],
)
def test_integers_above_int64_are_uint64(file, values):
    same(file, "a\n" + "".join(f"{value}\n" for value in values))


def test_missing_values_beside_integers_above_int64(file):
    file.write_text(f"a,b\n{2**64 - 1},1\n,2\n")
    found = read(file)["a"]
    assert (found.type, found.to_pylist()) == (pa.uint64(), [2**64 - 1, None])
    assert read(file, dtype={"a": "uint64"})["a"].to_pylist() == [2**64 - 1, None]


@pytest.mark.parametrize(
    ("values", "line"),
    [([2**64, 1], 2), ([1, -(2**63) - 1], 3), ([2**63, -1], 3), ([1] * 70 + [10**30], 72)],
)
def test_integers_of_more_than_64_bits_are_an_error_that_names_the_line(file, values, line):
    file.write_text("a,b\n" + "".join(f"{value},x\n" for value in values))
    with pytest.raises(gp.DataError, match=rf'a\.csv, line {line}, column "a": -?\d+ does not fit') as caught:
        read(file)
    assert "dtype float64 or str" in str(caught.value)
    assert read(file, dtype={"a": "str"})["a"].to_pylist() == [str(value) for value in values]
    assert read(file, dtype={"a": "float64"})["a"].to_pylist() == [float(value) for value in values]


@pytest.mark.parametrize("many", [1, 100])
@pytest.mark.parametrize(
    "long", ["99999999999999999999", "-9223372036854775809", " 00099999999999999999999 "]
)
def test_integers_of_more_than_64_bits_beside_floats(file, long, many):
    """pandas makes texts or floats of them, as their order has it."""
    for values in ([long, *["1.5"] * many], [*["1.5"] * many, long], ["2", *["1.5"] * many, long, "1"]):
        file.write_text("a,b\n" + "".join(f"{value},x\n" for value in values))
        for options in ({}, {"na_values": ["-1"]}):
            line = values.index(long) + 2
            with pytest.raises(gp.DataError, match=rf'a\.csv, line {line}, column "a": {long} does not fit'):
                read(file, **options)
        assert read(file, dtype={"a": "float64"})["a"].to_pylist() == [float(value) for value in values]
    same(file, f"a\n{long}\n1.5\nx\n")
    file.write_text("a\n99999999999999999999\n1.5\n")
    assert pd.read_csv(file)["a"].tolist() == read(file, dtype="str")["a"].to_pylist()
    same(file, "a\n0.5\n99999999999999999999.0\n1e25\n00000000000000000000000001\n18446744073709551615\n")


@pytest.mark.parametrize("header", ["a,a,a.1", "a.1,a,a", "a,a,a", "a,,", ",,Unnamed: 1", "a,a,a.1,a,a.2"])
def test_names_that_come_twice(file, header):
    same(file, header + "\n" + ",".join("123456"[: header.count(",") + 1]) + "\n")


@pytest.mark.parametrize(
    "values", [["-999"], ["-999.0"], [-999], [-999.0], -999, "-999", ["999"], ["x", "-999"]], ids=str
)
def test_numbers_that_stand_for_no_value(file, values):
    text = "a,b,c,d\n-999,-999.0,-999.00,-999.0\n1,2.5,x,y\n3,-999.00,4,-999\n"
    file.write_text(text)
    found = gp.read_csv(file, na_values=values, num_shards=1).to_pandas()
    pd.testing.assert_frame_equal(found, pd.read_csv(file, na_values=values))
    gp.stop()


def test_missing_values_of_single_columns_are_refused(file):
    with pytest.raises(gp.DataError, match="na_values of single columns are not supported"):
        gp.read_csv(file, na_values={"a": ["x"]})


@pytest.mark.parametrize(
    "text",
    [
        "a,b\nNA,\nnan,x\n",
        "a,b\n,1\n2,3\n",
        "a,b\n1,2\n3,4\n",
        "a,b\nx\ny,3\n",
        "a,b\n1\n2,3\n",
        "a\nNaN\ntrue\n",
        "a\nnan\n1\n",
    ],
)
@pytest.mark.parametrize("values", [[], ["NA"], ["nan", ""]], ids=str)
@pytest.mark.parametrize("keep", [True, False])
def test_the_list_of_pandas_counts_or_not(file, text, values, keep):
    if keep and "true" in text:
        pytest.skip("pandas has objects where Arrow has booleans with nulls")
    same(file, text, keep_default_na=keep, na_values=values)


@pytest.mark.parametrize(
    "text",
    [
        "a\r\r\n1\r\r\n2\r\r\n",
        "a,b\r1,2\r3,4\r",
        "a,b\r1,2\r3,4",
        "a,b\r1,2\r\n3,4\n5,6\r7,8",
        'a,b\r"x\ry",2\r3,4\r',
        'a,b\r\n"x\ry",2\r\n',
    ],
)
def test_all_ends_of_lines(file, text):
    same(file, text)


def test_compressed_files(tmp_path):
    frame = pd.DataFrame({"a": range(1000), "b": [f"Zürich {row}" for row in range(1000)]})
    for end in ("csv.gz", "csv.zst"):
        frame.to_csv(tmp_path / f"x.{end}", index=False)
        pd.testing.assert_frame_equal(read(tmp_path / f"x.{end}").to_pandas(), frame)
    assert read(tmp_path).num_rows == 2000
    text = frame.to_json(orient="records", lines=True).encode()
    (tmp_path / "x.jsonl.gz").write_bytes(gzip.compress(text) + gzip.compress(text))
    assert pa.table(_native.read_json([str(tmp_path)])).num_rows == 2000
    whole = (tmp_path / "x.csv.gz").read_bytes()
    (tmp_path / "cut.csv.gz").write_bytes(whole[:-20])
    with pytest.raises(gp.DataError, match=r"cut\.csv\.gz is damaged: it does not decompress"):
        read(tmp_path / "cut.csv.gz")
    frame.to_csv(tmp_path / "x.csv.bz2", index=False)
    with pytest.raises(gp.DataError, match=r"does not read \.bz2: compress it with gzip or zstd"):
        read(tmp_path / "x.csv.bz2")


@pytest.mark.parametrize("text", ["a,b\n", "a,b", "a,b\r\n\r\n"])
def test_a_file_with_a_header_alone(file, text):
    file.write_text(text, newline="")
    shards = gp.read_csv(file)
    assert (len(shards), shards.columns) == (0, ["a", "b"])
    frame = shards.to_pandas()
    assert list(frame.columns) == list(pd.read_csv(file).columns) and frame.empty
    (file.parent / "b.csv").write_text("a,b\n1,x\n")
    assert gp.read_csv(file.parent).to_pandas().to_dict("list") == {"a": [1], "b": ["x"]}
    with pytest.raises(gp.DataError, match="0 rows, and row 0 should name the columns"):
        read_nothing(file)
    gp.stop()


def read_nothing(file):
    file.write_text("")
    read(file)


def test_types_that_are_none(file):
    file.write_text("a,b\n1,2\n")
    with pytest.raises(gp.DataError, match=r'dtype: "category" is no type of a column: give bool, .* or str'):
        gp.read_csv(file, dtype="category").collect()
    found = gp.read_csv(file, dtype={"a": pd.Int16Dtype(), "b": "f4"}).to_arrow()
    assert found.schema.types == [pa.int16(), pa.float32()]
    gp.stop()
