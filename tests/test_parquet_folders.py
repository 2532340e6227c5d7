"""Folders of Parquet files that differ: partitions, widths, orders, checksums."""

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


ROWS = pa.table({"x": [1.0, 2.0]})


@pytest.mark.parametrize(
    "folders",
    [
        ["year=2024/city=Rome", "year=2025/city=Oslo"],
        ["year=2024/city=New%20York", "year=2025/city=__HIVE_DEFAULT_PARTITION__"],
        ["k=007", "k=-1"],
        ["k=0.5", "k=1"],
        ["k=a=b", "k="],
        ["k=1", "."],
        ["plain/k=1", "plain/k=2"],
    ],
    ids=str,
)
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
