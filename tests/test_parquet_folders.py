"""Folders of files that differ: partitions, and of Parquet files widths, orders, checksums."""

import json

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import grampus as gp
from grampus import _native


def write(path, table, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **options)


def read(*paths, columns=None):
    return pa.table(_native.read_parquet([str(path) for path in paths], columns))


def read_csv(*paths, **options):
    return pa.table(_native.read_csv([str(path) for path in paths], json.dumps(options)))


def read_json(*paths):
    return pa.table(_native.read_json([str(path) for path in paths]))


ROWS = pa.table({"x": [1.0, 2.0]})
FOLDERS = [
    ["year=2024/city=Rome", "year=2025/city=Oslo"],
    ["year=2024/city=New%20York", "year=2025/city=__HIVE_DEFAULT_PARTITION__"],
    ["k=007", "k=-1"],
    ["k=+5", "k=6"],
    ["k=0.5", "k=1"],
    ["k=a=b", "k="],
    ["k=1", "."],
    ["plain/k=1", "plain/k=2"],
]


@pytest.mark.parametrize("folders", FOLDERS, ids=str)
def test_partitions_are_those_of_pyarrow(tmp_path, folders):
    # Above the folder that is read, a name says nothing.
    root = tmp_path / "run=5" / "in"
    for folder in folders:
        write(root / folder / "part.parquet", ROWS)
    wanted = ds.dataset(root, partitioning="hive").to_table()
    names = wanted.column_names
    order = [(name, "ascending") for name in names]
    for path in (root, f"{root}/**/*.parquet"):
        found = read(path)
        assert found.schema.equals(wanted.schema), (found.schema, wanted.schema)
        assert found.sort_by(order).equals(wanted.sort_by(order))
    assert read(root, columns=names[::-1]).sort_by(order).equals(wanted.select(names[::-1]).sort_by(order))
    assert read(root, columns=names[1:]).num_rows == 4


@pytest.mark.parametrize("folders", FOLDERS, ids=str)
def test_partitions_of_texts_are_those_of_pyarrow(tmp_path, folders):
    root = tmp_path / "run=5" / "in"
    for folder in folders:
        write(root / folder / "part.parquet", ROWS)
    wanted = ds.dataset(root, partitioning="hive").to_table()
    order = [(name, "ascending") for name in wanted.column_names]
    for file in root.rglob("*.parquet"):
        file.with_suffix(".csv").write_text("x\n1.0\n2.0\n")
        file.with_suffix(".jsonl").write_text('{"x": 1.0}\n{"x": 2.0}\n')
    for end, reader in (("csv", read_csv), ("jsonl", read_json)):
        for path in (root, f"{root}/**/*.{end}"):
            found = reader(path)
            assert found.schema.equals(wanted.schema), (found.schema, wanted.schema)
            assert found.sort_by(order).equals(wanted.sort_by(order))


def test_options_of_csv_hold_for_partitions(tmp_path):
    for number, name in enumerate(["007", "8"]):
        folder = tmp_path / f"k={name}" / "x=3"
        folder.mkdir(parents=True)
        (folder / "p.csv").write_text(f"x,y\n{number}.5,a\n{number},b\n")
    rows = {"x": [0.5, 0.0, 1.5, 1.0], "y": ["a", "b", "a", "b"], "k": [7, 7, 8, 8]}
    assert read_csv(tmp_path).to_pydict() == rows
    assert read_csv(tmp_path, usecols=["k", "x"]).to_pydict() == {"x": rows["x"], "k": rows["k"]}
    assert read_csv(tmp_path, usecols=["y"]).to_pydict() == {"y": rows["y"]}
    assert read_csv(tmp_path, usecols=[2]).to_pydict() == {"k": rows["k"]}
    assert read_csv(tmp_path, nrows=3)["k"].to_pylist() == [7, 7, 8]
    assert read_csv(tmp_path, dtype={"k": "str"})["k"].to_pylist() == ["007", "007", "8", "8"]
    assert read_csv(tmp_path, dtype={"k": "float32"})["k"].type == pa.float32()
    assert read_csv(tmp_path, dtype="str").schema.types == [pa.string()] * 3
    with pytest.raises(gp.DataError, match=r'k=.*p\.csv, column "k": "007" is no Boolean: give the column'):
        read_csv(tmp_path, dtype={"k": "bool"})
    with pytest.raises(gp.DataError, match="z"):
        read_csv(tmp_path, usecols=["z"])
    found = gp.read_csv(tmp_path, usecols=lambda name: name != "y", index_col="k").to_pandas()
    pd.testing.assert_frame_equal(found, pd.DataFrame(rows).astype({"k": "int32"}).set_index("k")[["x"]])
    gp.stop()


def test_json_lines_without_rows_have_the_partitions_of_the_others(tmp_path):
    for name, text in {"a": "", "b": '{"x": 1}\n{}\n', "c": '{"k": "own"}\n'}.items():
        folder = tmp_path / f"k={name}"
        folder.mkdir()
        (folder / "p.jsonl").write_text(text)
    assert read_json(tmp_path / "k=a", tmp_path / "k=b").to_pydict() == {"x": [1, None]}
    assert read_json(f"{tmp_path}/k=[ab]/*")["k"].to_pylist() == ["b", "b"]
    assert read_json(tmp_path)["k"].to_pylist() == [None, None, "own"]


def test_partitions_as_spark_has_them(tmp_path):
    for value in (1, 10**10):
        write(tmp_path / f"k={value}" / "part.parquet", ROWS)
    found = read(tmp_path)["k"]
    assert (found.type, sorted(set(found.to_pylist()))) == (pa.int64(), [1, 10**10])


def test_a_file_that_is_named_has_the_partitions_of_its_path(tmp_path):
    path = tmp_path / "year=2024" / "part.parquet"
    write(path, ROWS)
    assert read(path).to_pydict() == {"x": [1.0, 2.0], "year": [2024, 2024]}
    assert read(tmp_path / "year=2024").column_names == ["x"]
    assert read(f"{tmp_path}/year=*/*.parquet")["year"].to_pylist() == [2024, 2024]


def test_a_column_of_the_file_counts_before_that_of_its_folder(tmp_path):
    write(tmp_path / "x=7" / "part.parquet", ROWS)
    assert read(tmp_path).to_pydict() == {"x": [1.0, 2.0]}


def test_partitions_reach_a_model(tmp_path):
    for year in (2024, 2025):
        write(tmp_path / f"year={year}" / "part.parquet", ROWS)
    shards = gp.read_parquet(tmp_path)
    for source in (shards, shards.stream()):
        batches = source.to_torch(4, feature_cols=["x"], label_cols="year")
        assert next(iter(batches))[1].tolist() == [2024, 2024, 2025, 2025]
    gp.stop()


def test_widths_and_orders_may_differ(tmp_path):
    tables = [
        pa.table({"i": pa.array([1], pa.int32()), "f": pa.array([0.5], pa.float32()), "s": ["a"]}),
        pa.table({"s": pa.array(["b"], pa.large_string()), "f": [1.5], "i": [2**40]}),
        pa.table({"i": pa.array([3], pa.uint16()), "s": pa.array([None], pa.null()), "f": [None]}),
    ]
    tables[2] = tables[2].set_column(2, "f", pa.array([None], pa.float64()))
    for number, table in enumerate(tables):
        write(tmp_path / f"{number}.parquet", table)
    wanted = pa.concat_tables(
        [table.select(["i", "f", "s"]) for table in tables], promote_options="permissive"
    )
    found = read(tmp_path)
    assert found.to_pylist() == wanted.to_pylist()
    assert found.schema.field("i").type == pa.int64() and found.schema.field("f").type == pa.float64()
    assert read(tmp_path, columns=["s", "i"]).to_pylist() == wanted.select(["s", "i"]).to_pylist()


@pytest.mark.parametrize(
    "pair", [(pa.uint64(), pa.int64()), (pa.int64(), pa.float64()), (pa.int64(), pa.string())]
)
def test_types_that_no_common_one_holds_are_refused(tmp_path, pair):
    for number, kind in enumerate(pair):
        write(tmp_path / f"{number}.parquet", pa.table({"i": pa.array([1]).cast(kind)}))
    with pytest.raises(gp.DataError, match=r'column "i" holds .* in the first and .* in the second'):
        read(tmp_path)


def test_a_file_without_rows(tmp_path):
    write(tmp_path / "a.parquet", ROWS.slice(0, 0))
    shards = gp.read_parquet(tmp_path)
    assert (len(shards), shards.columns) == (0, ["x"])
    assert shards.to_arrow().equals(ROWS.slice(0, 0))
    gp.stop()


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [False, True])
def test_checksums_of_pages_are_verified(tmp_path, version, dictionary):
    path = tmp_path / "a.parquet"
    values = pa.table({"x": [float(row) for row in range(1000)]})
    options = {"write_page_checksum": True, "compression": "none", "data_page_version": version}
    write(path, values, use_dictionary=dictionary, **options)
    assert read(path).equals(values)
    whole = path.read_bytes()
    at = whole.index(bytes(pa.array([500.0]).buffers()[1])[:8])
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    with pytest.raises(OSError, match="CRC"):
        pq.read_table(path, page_checksum_verification=True)
    with pytest.raises(gp.DataError, match=r"a\.parquet, row group 0 is damaged: .*CRC checksum mismatch"):
        read(path)
