"""Predictions that the workers write to Parquet while they predict."""

import fcntl
import os
import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from clusters import one_cluster, scratch  # noqa: F401 - a fixture
from torch import nn

import grampus as gp
from grampus._training import recovery, written
from grampus.shards import blocks

runtime = one_cluster(workers=3)

COLUMNS = {"feature_cols": [["a", "b"]]}


class Noisy(nn.Module):
    """Two outputs, one of which is drawn."""

    def forward(self, x):
        return {"sum": x.sum(1), "drawn": torch.rand(len(x), 2)}


def estimator(workers=2, model=None):
    return gp.Estimator.from_torch(
        model=model or (lambda config: Noisy()), optimizer=None, workers=workers, lanes=3, seed=1
    )


def table(rows=1000):
    draw = np.random.default_rng(0)
    names = pa.array([None if row % 7 == 0 else f"Zürich {row}" for row in range(rows)])
    return pa.table({"id": np.arange(rows), "a": draw.normal(size=rows), "b": np.ones(rows), "name": names})


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Files that are cut into many blocks."""
    monkeypatch.setattr(blocks, "_ROWS", 50)
    folder = tmp_path / "in"
    folder.mkdir()
    for number, (first, end) in enumerate([(0, 400), (400, 401), (401, 401), (401, 1000)]):
        pq.write_table(table().slice(first, end - first), folder / f"{number}.parquet", row_group_size=33)
    return folder


def test_rows_come_once_in_order_and_equal_at_any_number_of_workers(files, tmp_path):
    found = []
    for workers in (1, 2, 3):
        out = estimator(workers).predict(files, out=tmp_path / f"{workers}.parquet", **COLUMNS)
        found.append(pq.read_table(out))
    assert found[0].equals(found[1])
    assert found[0].equals(found[2])
    assert found[0].select(["id", "a", "b", "name"]).equals(table())
    wanted = np.asarray(table()["a"], "float32") + 1
    assert np.allclose(found[0]["prediction_sum"], wanted)
    # Every row drew numbers of its own.
    assert len({row[0] for row in found[0]["prediction_drawn"].to_pylist()}) == 1000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.parquet", "2.parquet", "3.parquet", "in"]


def test_a_folder_gets_a_file_for_each_block(files, tmp_path):
    out = estimator().predict(files, out=tmp_path / "out", **COLUMNS)
    found = sorted(path.name for path in (tmp_path / "out").iterdir())
    # Of 50 rows at most, or a row group; a short last one goes with that before; no rows make no block.
    assert found == [f"part-{number:05}.parquet" for number in range(12 + 1 + 18)]
    assert gp.read_parquet(out).to_arrow()["id"].to_pylist() == list(range(1000))


def test_shards_and_tables_are_written_too(tmp_path):
    shards = gp.Shards.from_pandas(table().to_pandas(), 4)
    for number, data in enumerate([shards, table(), shards.transform_shard(lambda frame: frame[::2])]):
        out = estimator().predict(data, out=tmp_path / f"{number}.parquet", **COLUMNS)
        found = pq.read_table(out)
        assert np.allclose(found["prediction_sum"], np.asarray(found["a"], "float32") + 1)
        assert len(found) == (1000, 1000, 500)[number]


def test_an_error_names_the_block_and_leaves_nothing(files, tmp_path):
    class Picky(nn.Module):
        def forward(self, x):
            if len(x) == 1:
                raise ArithmeticError("one row")
            return x

    (tmp_path / "out.parquet").write_text("old")
    model = estimator(model=lambda config: Picky())
    with pytest.raises(ArithmeticError, match="one row") as caught:
        model.predict(files, out=tmp_path / "out.parquet", batch_size=300, **COLUMNS)
    assert f"in {files / '1.parquet'} from row group 0 on" in str(caught.value.__notes__)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out.parquet"]
    assert (tmp_path / "out.parquet").read_text() == "old"


def test_what_a_killed_driver_left_is_not_taken_for_a_part(files, tmp_path):
    left = tmp_path / ".out.parts"
    left.mkdir()
    (left / "part-99999.parquet").write_text("half")
    estimator().predict(files, out=tmp_path / "out", **COLUMNS)
    assert len(list((tmp_path / "out").iterdir())) == 31
    assert not left.exists()


def hiding(monkeypatch, folder, names, seconds=None):
    """Hide parts when all are written, for good or for a while, as a network file system may."""
    repeated = recovery.repeated

    def run(*arguments):
        repeated(*arguments)
        for name in names:
            (folder / name).rename(folder.parent / f"hidden-{name}")

        def show():
            for name in names:
                (folder.parent / f"hidden-{name}").rename(folder / name)

        if seconds is not None:
            threading.Timer(seconds, show).start()

    monkeypatch.setattr(recovery, "repeated", run)


@pytest.mark.parametrize("name", ["out", "out.parquet"])
def test_a_part_that_is_not_visible_is_an_error_that_names_it(files, tmp_path, monkeypatch, name):
    monkeypatch.setattr(written, "VISIBLE_WITHIN", 0.2, raising=False)
    hiding(monkeypatch, tmp_path / f".{name}.parts", ["part-00007.parquet", "part-00008.parquet"])
    with pytest.raises(gp.DataError, match=r"2 of 31 parts .* part-00007.parquet, part-00008.parquet"):
        estimator().predict(files, out=tmp_path / name, **COLUMNS)
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith("hidden")) == ["in"]


def test_a_part_that_comes_late_is_waited_for(files, tmp_path, monkeypatch):
    hiding(monkeypatch, tmp_path / ".out.parts", ["part-00030.parquet"], seconds=0.5)
    out = estimator().predict(files, out=tmp_path / "out", **COLUMNS)
    assert gp.read_parquet(out).to_arrow()["id"].to_pylist() == list(range(1000))


def test_an_existing_prediction_is_replaced(tmp_path):
    model = estimator(model=lambda config: nn.Flatten(0))
    given = pa.table({"prediction": ["old", "older"], "a": [1.0, 2.0]})
    pq.write_table(given, tmp_path / "in.parquet")
    for data in (given, str(tmp_path / "in.parquet"), given.to_pandas(), gp.Shards.from_arrow(given, 2)):
        found = model.predict(data, feature_cols=[["a"]])
        found = found.to_arrow() if isinstance(found, gp.Shards) else pa.table(found)
        assert found.column_names == ["prediction", "a"]
        assert found["prediction"].to_pylist() == [1.0, 2.0]
    out = model.predict(given, out=tmp_path / "out.parquet", feature_cols=[["a"]])
    assert pq.read_table(out).to_pydict() == {"prediction": [1.0, 2.0], "a": [1.0, 2.0]}
    assert given["prediction"].to_pylist() == ["old", "older"]


def test_wrong_places_are_refused_before_anything_is_done(files, tmp_path):
    model = estimator()
    (tmp_path / "there").mkdir()
    (tmp_path / "a.parquet").mkdir()
    for out, says in [
        ("s3://bucket/out", "is an address"),
        (tmp_path / "no" / "out.parquet", "folder that does not exist"),
        (tmp_path / "there", "exists: name a new folder"),
        (tmp_path / "a.parquet", "is a folder: name a file"),
    ]:
        with pytest.raises(ValueError, match=says):
            model.predict(files, out=out, **COLUMNS)
    with pytest.raises(ValueError, match="rows of tables, files or shards"):
        model.predict({"x": np.ones((3, 2), "float32")}, out=tmp_path / "out")
    with pytest.raises(ValueError, match="no rows to predict"):
        model.predict(files / "2.parquet", out=tmp_path / "out", **COLUMNS)
    held = tmp_path / ".out.parts"
    held.mkdir()
    descriptor = os.open(held, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(ValueError, match="another prediction is being written"):
        model.predict(files, out=tmp_path / "out", **COLUMNS)
    os.close(descriptor)
    assert held.exists()
