"""Shards in files: whole or not at all, and read without running code."""

import json
import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from clusters import one_cluster
from shard_tables import random_table

import grampus as gp

runtime = one_cluster(workers=2, preload=("numpy", "pandas", "pyarrow"))


def test_tables_are_saved_and_loaded(tmp_path):
    table = random_table(5)
    gp.Shards.from_arrow(table, 4).save(tmp_path / "saved")
    loaded = gp.Shards.load(tmp_path / "saved")
    assert loaded.num_partitions() == 4
    assert loaded.to_arrow().equals(table)
    assert sorted(path.suffix for path in (tmp_path / "saved").iterdir()) == [".arrow"] * 4 + [".json"]


def test_frames_keep_their_index_and_types(tmp_path):
    frame = pd.DataFrame(
        {
            "kind": pd.Categorical(["b", "a", "b"], categories=["b", "a"], ordered=True),
            "when": pd.date_range("2024-01-01", periods=3, tz="Europe/Berlin"),
            "maybe": pd.array([1, None, 3], dtype="Int8"),
        },
        index=pd.Index([7, 8, 9], name="id"),
    )
    gp.Shards.from_pandas(frame, 2).save(tmp_path / "saved")
    pd.testing.assert_frame_equal(gp.Shards.load(tmp_path / "saved").to_pandas(), frame)


def test_trees_of_arrays_keep_their_shape(tmp_path):
    data = {"x": (np.arange(5, dtype=np.float16), [np.zeros((5, 2), bool)]), "t": np.array(list("abcde"))}
    gp.Shards.partition(data, 2).save(tmp_path / "saved")
    found = gp.Shards.load(tmp_path / "saved").collect()
    assert isinstance(found[0]["x"], tuple) and isinstance(found[0]["x"][1], list)
    np.testing.assert_array_equal(np.concatenate([part["x"][0] for part in found]), data["x"][0])
    np.testing.assert_array_equal(np.concatenate([part["t"] for part in found]), data["t"])
    assert found[0]["x"][0].dtype == np.float16


def test_other_objects_need_a_pickle_that_both_sides_allow(tmp_path):
    shards = gp.Shards.from_objects([{"a": 1}, np.array([[1, None]], dtype=object)])
    with pytest.raises(gp.DataError, match="shard 0 is a dict, which only a pickle can hold"):
        shards.save(tmp_path / "saved")
    assert not list(tmp_path.iterdir())
    shards.save(tmp_path / "saved", allow_pickle=True)
    with pytest.raises(gp.DataError, match="is a pickle, and reading it runs code"):
        gp.Shards.load(tmp_path / "saved").collect()
    found = gp.Shards.load(tmp_path / "saved", allow_pickle=True).collect()
    assert found[0] == {"a": 1} and found[1].tolist() == [[1, None]]


def test_a_pickle_that_poses_as_arrays_is_not_run(tmp_path):
    gp.Shards.partition(np.arange(4), 2).save(tmp_path / "saved")

    class Trap:
        def __reduce__(self):
            return (tmp_path.joinpath("sprung").touch, ())

    (tmp_path / "saved" / "00000.npz").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(gp.DataError, match=r"00000\.npz cannot be read"):
        gp.Shards.load(tmp_path / "saved").collect()
    assert not (tmp_path / "sprung").exists()


def test_a_manifest_cannot_lead_out_of_its_folder(tmp_path):
    gp.Shards.partition(np.arange(4), 1).save(tmp_path / "saved")
    (tmp_path / "saved" / "00000.npz").rename(tmp_path / "other.npz")
    manifest = tmp_path / "saved" / "shards.json"
    manifest.write_text(manifest.read_text().replace("00000.npz", "../other.npz"))
    with pytest.raises(gp.DataError, match="cannot be read"):
        gp.Shards.load(tmp_path / "saved").collect()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda folder: (folder / "shards.json").unlink(), "holds no saved shards: it has no shards.json"),
        (lambda folder: (folder / "shards.json").write_text("{"), "is damaged"),
        (lambda folder: (folder / "shards.json").write_text("[]"), "is damaged"),
        (lambda folder: (folder / "shards.json").write_text(json.dumps({"format": 9})), "format 9"),
        (lambda folder: (folder / "00001.arrow").unlink(), "00001.arrow cannot be read"),
        (lambda folder: (folder / "00001.arrow").write_bytes(b"ARROW1"), "00001.arrow cannot be read"),
    ],
)
def test_what_is_damaged_is_named(tmp_path, spoil, words):
    gp.Shards.from_arrow(pa.table({"a": [1, 2, 3]}), 2).save(tmp_path / "saved")
    spoil(tmp_path / "saved")
    with pytest.raises(gp.DataError, match=words):
        gp.Shards.load(tmp_path / "saved").collect()


def test_tables_are_written_for_others(tmp_path):
    frame = pd.DataFrame({"a": [1, 2, 3], "b": ["x", None, "ü"]})
    for shards in (gp.Shards.from_pandas(frame, 2), gp.Shards.from_arrow(pa.table(frame), 2)):
        name = repr(shards.first())[:2].strip("<")
        shards.write_parquet(tmp_path / f"p{name}")
        shards.write_csv(tmp_path / f"c{name}")
        files = sorted(path.name for path in (tmp_path / f"p{name}").iterdir())
        assert files == ["part-00000.parquet", "part-00001.parquet"]
        found = pa.parquet.read_table(tmp_path / f"p{name}").to_pandas()
        pd.testing.assert_frame_equal(found, frame)
        parts = [pd.read_csv(path) for path in sorted((tmp_path / f"c{name}").iterdir())]
        pd.testing.assert_frame_equal(pd.concat(parts, ignore_index=True), frame)


def test_a_write_that_fails_leaves_nothing(tmp_path):
    shards = gp.Shards.from_arrow(pa.table({"a": [1, 2], "l": [[1], [2]]}), 2)
    with pytest.raises(gp.DataError, match="shard 0 cannot be written as csv"):
        shards.write_csv(tmp_path / "out")
    mixed = gp.Shards.from_objects([pa.table({"a": [1]}), "text"])
    with pytest.raises(gp.DataError, match="write_parquet needs tables"):
        mixed.write_parquet(tmp_path / "out")
    failing = gp.Shards.from_objects([1, 2]).transform_shard(lambda shard: 1 / (shard - 2))
    with pytest.raises(ZeroDivisionError):
        failing.save(tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_what_is_there_already_is_not_overwritten(tmp_path):
    shards = gp.Shards.from_arrow(pa.table({"a": [1, 2]}), 2)
    (tmp_path / "empty").mkdir()
    shards.save(tmp_path / "empty")
    with pytest.raises(gp.DataError, match="exists: remove it first"):
        shards.save(tmp_path / "empty")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(gp.DataError, match="exists"):
        shards.write_csv(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"
    shards.save(tmp_path / "deep" / "er")
    assert len(gp.Shards.load(tmp_path / "deep" / "er")) == 2


def test_files_of_arrays_are_read(tmp_path):
    for number in range(3):
        np.savez(tmp_path / f"{number}.npz", x=np.arange(4) + number, y=np.ones((4, 2)))
    (tmp_path / "readme.txt").write_text("not an array")
    for path in (tmp_path, str(tmp_path / "*.npz"), [tmp_path / f"{number}.npz" for number in range(3)]):
        shards = gp.read_npz(path)
        assert shards.num_partitions() == 3
        assert [part["x"][0] for part in shards] == [0, 1, 2]
    assert gp.read_npz([tmp_path / "2.npz", tmp_path / "0.npz"])["x"].first()[0] == 2


def test_files_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(gp.DataError, match=r"missing\.npz: there is no such file"):
        gp.read_npz(tmp_path / "missing.npz")
    with pytest.raises(gp.DataError, match=r"\*\.npz: no file matches"):
        gp.read_npz(str(tmp_path / "*.npz"))
    with pytest.raises(gp.DataError, match="no file in or below this folder ends in"):
        gp.read_npz(tmp_path)
    (tmp_path / "bad.npz").write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(gp.DataError, match=r"bad\.npz cannot be read as arrays"):
        gp.read_npz(tmp_path / "bad.npz").collect()
