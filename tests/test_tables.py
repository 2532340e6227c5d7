"""Tables as Python sees them: real files, a real server that speaks S3, another that speaks HTTP."""

from __future__ import annotations

import contextlib
import functools
import http.server
import io
import json
import os
import random
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from object_store import serving
from processes import PATIENCE

import grampus as gp
from grampus import _native


def read_csv(*paths, **options):
    table = _native.read_csv([str(path) for path in paths], json.dumps(options))
    return pa.table(table).to_pandas()


def random_frame(seed, rows=200):
    """A frame with all that a file can hold: nulls, text of all kinds, numbers of all sizes."""
    rng = np.random.default_rng(seed)
    words = ["plain", 'say "hi"', "a,b", "two\nlines", "ü and 漢字", "#5", " space ", "x\\y", "-", "1e"]
    return pd.DataFrame(
        {
            "int": rng.integers(-(2**62), 2**62, rows),
            "small": rng.integers(-5, 5, rows),
            "float": rng.normal(size=rows) * 10.0 ** rng.integers(-20, 20, rows),
            "holes": np.where(rng.random(rows) < 0.3, np.nan, rng.normal(size=rows).round(3)),
            "flag": rng.random(rows) < 0.5,
            "text": rng.choice(words, rows),
            "gaps": [None if rng.random() < 0.3 else rng.choice(words) for _ in range(rows)],
        }
    )


@pytest.mark.parametrize("seed", range(5))
def test_csv_is_what_pandas_reads(tmp_path, seed):
    random_frame(seed).to_csv(tmp_path / "a.csv", index=False)
    pd.testing.assert_frame_equal(
        read_csv(tmp_path / "a.csv"), pd.read_csv(tmp_path / "a.csv"), check_exact=True
    )


@pytest.mark.parametrize(
    "options",
    [
        {"header": None},
        {"header": 2},
        {"header": 0, "names": ["a", "b", "c"]},
        {"names": ["a", "b", "c"]},
        {"usecols": ["z", "x"]},
        {"usecols": [1]},
        {"dtype": "str"},
        {"dtype": {"x": "float32", "y": "int16"}},
        {"nrows": 2},
        {"na_values": ["3", "five"]},
        {"sep": ";"},
        {"quotechar": "'"},
        {"escapechar": "\\"},
        {"comment": "#"},
    ],
    ids=str,
)
def test_options_mean_what_they_mean_to_pandas(tmp_path, options):
    sep, quote = options.get("sep", ","), options.get("quotechar", '"')
    lines = [["x", "y", "z"], ["1", "2", f"{quote}a{sep}b{quote}"], ["3", "4", "five"], [], ["5", "6", ""]]
    text = "\r\n".join(sep.join(line) for line in lines)
    if "escapechar" in options:
        text += '\r\n7,8,\\,\\"q'
    if "comment" in options:
        text = f"# first\n{text} # rest\n7,8,9#10\n#,,,,\n"
    path = tmp_path / "a.csv"
    path.write_text(text, newline="")
    wanted = pd.read_csv(path, **options)
    wanted.columns = [str(name) for name in wanted.columns]
    pd.testing.assert_frame_equal(read_csv(path, **options), wanted, check_dtype="header" not in options)


def test_types_hold_for_the_whole_file(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("late,text,null,big\n" + "1,2,,5\n" * 5000 + f"2.5,x,,{2**64 - 1}\n")
    table = _native.read_csv([str(path)])
    assert table.dtypes == ["Float64", "Utf8", "Float64", "UInt64"]
    assert pa.table(table)["big"][-1].as_py() == 2**64 - 1
    assert pa.table(table)["null"].null_count == table.num_rows == 5001


def test_many_files_are_one_table_in_order(tmp_path):
    frames = [random_frame(seed, rows=seed * 7) for seed in range(1, 6)]
    for number, frame in enumerate(frames):
        frame.to_csv(tmp_path / f"{number}.csv", index=False)
        frame.to_parquet(tmp_path / f"{number}.parquet")
        frame.to_json(tmp_path / f"{number}.jsonl", orient="records", lines=True)
    wanted = pd.concat(frames, ignore_index=True)
    ways = [f"{tmp_path}", f"{tmp_path}/*.KIND", *[[f"{tmp_path}/{n}.KIND" for n in range(5)]]]
    for way in ways:
        paths = [path.replace("KIND", "parquet") for path in ([way] if isinstance(way, str) else way)]
        found = pa.table(_native.read_parquet(paths)).to_pandas()
        pd.testing.assert_frame_equal(found, wanted)
        paths = [path.replace(".parquet", ".csv") for path in paths]
        found = pa.table(_native.read_csv(paths)).to_pandas()
        pd.testing.assert_frame_equal(found, wanted, check_exact=True)
        paths = [path.replace(".csv", ".jsonl") for path in paths]
        found = pa.table(_native.read_json(paths)).to_pandas()
        pd.testing.assert_frame_equal(found, wanted, rtol=1e-9)


def test_nested_json(tmp_path):
    rows = [{"id": 1, "tags": ["a", "b"], "at": {"x": 1}}, {"id": 2.5, "at": {"x": 2.5, "y": "z"}}]
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    found = pa.table(_native.read_json([str(tmp_path / "a.jsonl")])).to_pylist()
    assert found == [
        {"id": 1.0, "tags": ["a", "b"], "at": {"x": 1.0, "y": None}},
        {"id": 2.5, "tags": None, "at": {"x": 2.5, "y": "z"}},
    ]


def rich_table(rows=1000):
    rng = random.Random(0)
    return pa.table(
        {
            "i": pa.array(range(rows), pa.int32()),
            "f": pa.array([rng.random() for _ in range(rows)], pa.float32()),
            "s": [rng.choice(["ü", None, "long " * 9]) for _ in range(rows)],
            "c": pa.array([rng.choice("abc") for _ in range(rows)]).dictionary_encode(),
            "t": pa.array(range(rows), pa.timestamp("us", "UTC")),
            "d": pa.array(range(rows), pa.date32()),
            "l": [[1, None, rng.randrange(9)][: rng.randrange(4)] for _ in range(rows)],
            "n": [{"a": n, "b": str(n)} for n in range(rows)],
            "z": pa.array([b"\0\xff"] * rows, pa.binary()),
            "m": pa.array([n % 10 for n in range(rows)], pa.decimal128(10, 2)),
        }
    )


def test_parquet_of_all_types_row_group_by_row_group(tmp_path):
    wanted = rich_table()
    for number in range(3):
        pq.write_table(wanted.slice(number * 300, 300), tmp_path / f"{number}.parquet", row_group_size=100)
    dataset = _native.ParquetDataset([str(tmp_path)])
    assert dataset.columns == wanted.column_names
    assert dataset.num_rows == 900
    assert dataset.row_groups[4] == (f"{tmp_path}/1.parquet", 1, 100)
    assert pa.table(_native.read_parquet([str(tmp_path)])).equals(wanted.slice(0, 900))
    found = pa.table(dataset.read([4, 0], ["s", "i"]))
    assert found.equals(pa.concat_tables([wanted.slice(400, 100), wanted.slice(0, 100)]).select(["s", "i"]))
    assert pa.table(dataset.read([], ["i"])).num_rows == 0
    assert dataset.read([0], []).num_rows == 100


def test_a_table_travels_without_copies():
    wanted = rich_table()
    table = _native.Table.from_stream(wanted)
    back = pa.table(table)
    assert back.equals(wanted)
    address = [chunked["i"].chunk(0).buffers()[1].address for chunked in (wanted, back)]
    assert address[0] == address[1]
    frame = pd.DataFrame({"a": [1, 2], "b": ["x", None]})
    assert _native.Table.from_stream(frame).columns == ["a", "b"]
    # The capsule may be taken by nobody.
    table.__arrow_c_stream__(None)
    with pytest.raises(TypeError, match="list has no __arrow_c_stream__"):
        _native.Table.from_stream([1])


def test_slices_columns_and_sums_of_tables():
    wanted = rich_table(100)
    table = _native.Table.from_stream(wanted)
    both = _native.Table.concat([table, table])
    assert both.num_rows == 200
    assert pa.table(both.slice(90, 20)).equals(pa.concat_tables([wanted.slice(90), wanted.slice(0, 10)]))
    assert both.slice(190, 50).num_rows == 10 and both.slice(500, 1).num_rows == 0
    assert both.select(["s", "i"]).columns == ["s", "i"]
    assert table.dtypes[:2] == ["Int32", "Float32"]
    with pytest.raises(gp.DataError, match="table 0 and table 1 do not have the same columns"):
        _native.Table.concat([table, table.select(["i"])])


def test_tables_in_shared_memory():
    wanted = rich_table()
    memory = os.memfd_create("table")
    table = _native.Table.from_stream(wanted)
    first = table.write_ipc(memory, 0)
    offset = (first + 63) // 64 * 64
    second = table.slice(10, 5).write_ipc(memory, offset)
    mapped = [_native.Table.map_ipc(memory, 0, first), _native.Table.map_ipc(memory, offset, second)]
    os.close(memory)
    assert pa.table(mapped[0]).equals(wanted)
    assert pa.table(mapped[1]).equals(wanted.slice(10, 5))
    with pytest.raises(gp.DataError):
        table.write_ipc(-1, 0)
    with pytest.raises(gp.DataError, match="cut short"), open("/dev/null") as nothing:
        _native.Table.map_ipc(nothing.fileno(), 0, 100)


def test_what_is_written_is_read_by_others(tmp_path):
    frame = random_frame(1)
    table = _native.Table.from_stream(pa.Table.from_pandas(frame, preserve_index=False))
    table.write_csv(tmp_path / "a.csv")
    table.write_parquet(tmp_path / "a.parquet")
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "a.csv"), frame)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "a.parquet"), frame)
    assert (tmp_path / "a.csv").stat().st_mode & 0o400
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "a.parquet"]


def test_what_cannot_be_written_leaves_nothing(tmp_path):
    nested = _native.Table.from_stream(rich_table(10))
    with pytest.raises(gp.DataError):
        nested.write_csv(tmp_path / "a.csv")
    with pytest.raises(gp.DataError, match="no such file or folder"):
        nested.write_parquet(tmp_path / "none" / "a.parquet")
    assert list(tmp_path.iterdir()) == []


@contextlib.contextmanager
def web(folder):
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join(PATIENCE)


def test_the_web(tmp_path, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    wanted = rich_table()
    pq.write_table(wanted, tmp_path / "a b.parquet", row_group_size=100)
    (tmp_path / "a.csv").write_text("x\n1\n2\n")
    with web(tmp_path) as url:
        assert read_csv(f"{url}/a.csv", f"{url}/a.csv?version=2")["x"].tolist() == [1, 2, 1, 2]
        dataset = _native.ParquetDataset([f"{url}/a%20b.parquet"])
        assert pa.table(dataset.read([3], ["i"])).equals(wanted.slice(300, 100).select(["i"]))
        with pytest.raises(gp.DataError, match=r"/none\.csv: there is no such file"):
            read_csv(f"{url}/none.csv")
        with pytest.raises(gp.DataError, match="lists no files"):
            read_csv(f"{url}/*.csv")


@pytest.mark.timeout(120)
def test_s3(tmp_path, monkeypatch):
    import boto3

    wanted = rich_table(100)
    with serving(monkeypatch, tmp_path / "log") as url:
        client = boto3.client("s3", endpoint_url=url, region_name="us-east-1")
        for number in range(3):
            buffer = io.BytesIO()
            pq.write_table(wanted, buffer, row_group_size=40)
            client.put_object(Bucket="bucket", Key=f"in/part={number}/a.parquet", Body=buffer.getvalue())
        client.put_object(Bucket="bucket", Key="in/_SUCCESS", Body=b"")
        client.put_object(Bucket="bucket", Key="in/b.csv", Body=b"x,y\n1,2\n")
        assert read_csv("s3://bucket/in/b.csv", "s3://bucket/in/*.csv")["y"].tolist() == [2, 2]
        assert _native.find_files(["s3://bucket/in"], ["parquet"]) == [
            f"s3://bucket/in/part={number}/a.parquet" for number in range(3)
        ]
        dataset = _native.ParquetDataset(["s3://bucket/in/**/*.parquet"])
        assert len(dataset.row_groups) == 9
        assert pa.table(dataset.read([1], ["i", "s"])).equals(wanted.slice(40, 40).select(["i", "s"]))
        assert pa.table(_native.read_parquet(["s3://bucket/in/"])).num_rows == 300
        for path, why in [
            ("s3://bucket/none.csv", r"s3://bucket/none\.csv: there is no such file or folder"),
            ("s3://bucket/none/*.csv", "no file matches this pattern"),
            ("s3://bucket/in/part=0", r"ends in \.csv"),
            ("s3://other/a.csv", "s3://other/a.csv: "),
        ]:
            with pytest.raises(gp.DataError, match=why):
                read_csv(path)


def test_wrong_use_is_told(tmp_path):
    assert issubclass(gp.DataError, gp.GrampusError) and issubclass(gp.DataError, ValueError)
    (tmp_path / "a.csv").write_text("age,b\n1,2\n3,4,5\n")
    (tmp_path / "b.csv").write_text("age,c\n1,2\n")
    (tmp_path / "ok.csv").write_text("age,b\n1,2\n")
    for paths, options, why in [
        ([tmp_path / "none.csv"], {}, r"none\.csv: there is no such file or folder"),
        ([tmp_path / "*.tsv"], {}, r"\*\.tsv: no file matches this pattern"),
        ([tmp_path / "a.csv"], {}, r"a\.csv, line 3 has 3 fields of at most 2"),
        ([tmp_path / "ok.csv", tmp_path / "b.csv"], {}, r"ok\.csv and .*b\.csv do not have the same columns"),
        ([tmp_path / "ok.csv"], {"usecols": ["agee"]}, 'no column "agee": do you mean "age"'),
        ([tmp_path / "ok.csv"], {"dtype": {"b": "dog"}}, 'dtype: "dog" is no type'),
        ([tmp_path / "ok.csv"], {"speling": 1}, "speling"),
        ([], {}, "paths: there is none"),
        (["hdfs://a/b"], {}, "hdfs:// is not supported"),
    ]:
        with pytest.raises(gp.DataError, match=why):
            read_csv(*paths, **options)


def test_files_that_are_not_whole(tmp_path):
    wanted = rich_table()
    path = tmp_path / "a.parquet"
    pq.write_table(wanted, path, row_group_size=100)
    whole = path.read_bytes()
    for length in [0, 4, 11, 100, len(whole) // 2, len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(gp.DataError, match=r"a\.parquet is damaged"):
            _native.ParquetDataset([str(path)])
    # The footer stands, the pages do not.
    path.write_bytes(whole[:4] + b"\xff" * 2000 + whole[2004:])
    with pytest.raises(gp.DataError, match=r"a\.parquet, row group 0 is damaged"):
        _native.read_parquet([str(path)])
    pq.write_table(wanted, tmp_path / "b.parquet")
    pq.write_table(wanted.set_column(0, "i", wanted["i"].cast(pa.string())), tmp_path / "c.parquet")
    pq.write_table(wanted.drop_columns("s"), tmp_path / "d.parquet")
    with pytest.raises(gp.DataError, match='column "i" holds Int32 in the first and Utf8 in the second'):
        _native.read_parquet([str(tmp_path / name) for name in ("b.parquet", "c.parquet")])
    with pytest.raises(gp.DataError, match='the second has no column "s"'):
        _native.read_parquet([str(tmp_path / name) for name in ("b.parquet", "d.parquet")])
    with pytest.raises(gp.DataError, match='no column "ii": do you mean "i"'):
        _native.read_parquet([str(tmp_path / "b.parquet")], ["ii"])
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n{"a": }\n')
    with pytest.raises(gp.DataError, match=r"a\.jsonl, line 2 is damaged"):
        _native.read_json([str(tmp_path / "a.jsonl")])


def test_reading_leaves_no_descriptor(tmp_path):
    wanted = rich_table(50)
    pq.write_table(wanted, tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_text("x\n1\n")
    memory = os.memfd_create("table")
    before = len(list(Path("/proc/self/fd").iterdir())), threading.active_count()
    for _ in range(1000):
        table = _native.read_parquet([str(tmp_path / "a.parquet")])
        _native.read_csv([str(tmp_path / "a.csv")])
        _native.Table.map_ipc(memory, 0, table.write_ipc(memory, 0))
    assert (len(list(Path("/proc/self/fd").iterdir())), threading.active_count()) == before
    os.close(memory)
