"""Shards as batches: in a loop of one's own, and in the Estimator."""

import gc
import io
import itertools
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from clusters import one_cluster, scratch  # noqa: F401 - a fixture
from PIL import Image
from torch import nn

import grampus as gp
from grampus.images import Normalize, RandomCrop, RandomFlip

runtime = one_cluster(workers=3)


def table(rows=100, seed=0):
    draw = np.random.default_rng(seed)
    columns = {"id": np.arange(rows), "a": draw.normal(size=rows), "b": draw.normal(size=rows)}
    columns["label"] = (columns["a"] + columns["b"] > 0).astype("int64")
    return pa.table(columns)


@pytest.fixture
def files(tmp_path):
    """A folder of Parquet files with row groups of uneven size."""
    folder = tmp_path / "table"
    folder.mkdir()
    whole = table()
    for number, (first, end) in enumerate([(0, 37), (37, 40), (40, 100)]):
        pq.write_table(whole.slice(first, end - first), folder / f"{number}.parquet", row_group_size=11)
    return folder


def picture(number, size=8):
    pixels = np.random.default_rng(number).integers(0, 256, (size, size, 3), dtype="uint8")
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return pixels, file.getvalue()


# A loop of one's own


def seeded(shuffle, seed):
    return {"seed": seed} if shuffle else {}


def ids(batches):
    return [batch.tolist() for batch in batches]


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("window", [None, 1, 3])
@pytest.mark.parametrize("size", [1, 7, 100, 101])
def test_every_row_once_in_each_epoch(files, shuffle, window, size):
    shards = gp.read_parquet(files)
    shards = shards if window is None else shards.stream(window)
    batches = shards.to_torch(size, shuffle, **seeded(shuffle, 3), feature_cols="id")
    assert len(batches) == -(-100 // size)
    first, second = ids(batches), ids(batches)
    assert [len(batch) for batch in first] == [size] * (100 // size) + ([100 % size] if 100 % size else [])
    assert sorted(itertools.chain(*first)) == sorted(itertools.chain(*second)) == list(range(100))
    assert (list(itertools.chain(*first)) == list(range(100))) is not shuffle
    assert (first == second) is not shuffle
    again = shards.to_torch(size, shuffle, **seeded(shuffle, 3), feature_cols="id")
    assert ids(again) == first
    other = shards.to_torch(size, shuffle, **seeded(shuffle, 4), feature_cols="id")
    assert (ids(other) == first) is not shuffle


@pytest.mark.parametrize("window", [None, 2])
def test_a_loop_goes_on_where_it_was(files, window):
    shards = gp.read_parquet(files)
    shards = shards if window is None else shards.stream(window)

    def make():
        return shards.to_torch(9, True, seed=5, feature_cols="id")

    whole = make()
    wanted = ids(whole) + ids(whole)
    for step in random.Random(1).sample(range(len(wanted)), 8):
        interrupted = make()
        seen = []
        while len(seen) < step:
            for batch in interrupted:
                seen.append(batch.tolist())
                if len(seen) == step:
                    break
        state = interrupted.state_dict()
        resumed = make()
        resumed.load_state_dict(state)
        rest = ids(resumed)
        assert rest == wanted[step : step + len(rest)]
        assert (step + len(rest)) % len(whole) == 0


def test_columns_become_matrices_and_labels(files):
    batches = gp.read_parquet(files).to_torch(10, feature_cols=["a", "b"], label_cols="label")
    x, y = next(iter(batches))
    wanted = table()
    assert (x.dtype, tuple(x.shape), y.dtype, tuple(y.shape)) == (torch.float32, (10, 2), torch.int64, (10,))
    assert x[:, 1].tolist() == pytest.approx(wanted["b"][:10].to_pylist())
    assert y.tolist() == wanted["label"][:10].to_pylist()


def test_shards_of_all_kinds_give_the_same_batches(files):
    whole = table()
    features = np.stack([whole["a"], whole["b"]], axis=1).astype("float32")
    arrays = {"x": features, "y": whole["label"].to_numpy()}
    kinds = [
        gp.read_parquet(files),
        gp.Shards.from_arrow(whole, 3),
        gp.Shards.from_pandas(whole.to_pandas(), 2),
        gp.Shards.partition(arrays, 4),
    ]
    found = []
    for number, shards in enumerate(kinds):
        named = {} if number == 3 else {"feature_cols": ["a", "b"], "label_cols": "label"}
        batches = shards.to_torch(16, True, seed=1, **named)
        found.append(torch.cat([torch.cat([x, y[:, None]], dim=1) for x, y in batches]))
    assert all(torch.equal(found[0], other) for other in found[1:])


def test_transform_drop_last_and_threads(files):
    shards = gp.read_parquet(files)
    batches = shards.to_torch(
        30, feature_cols="id", transform=lambda batch: batch * 2, drop_last=True, threads=1
    )
    assert [batch.tolist()[0] for batch in batches] == [0, 60, 120]


def test_rows_that_cannot_be_used():
    holed = pa.table({"a": [1.0, None, 3.0, 4.0], "b": [1, 2, None, 4]})
    shards = gp.Shards.from_arrow(holed, 2)
    with pytest.raises(gp.DataError, match=r'shard 0, row 1, column "a" is null'):
        list(shards.to_torch(2, feature_cols="a", label_cols="b"))
    batches = shards.to_torch(2, feature_cols="a", label_cols="b", on_error="skip")
    assert [(x.tolist(), y.tolist()) for x, y in batches] == [([1.0], [1]), ([4.0], [4])]
    assert [reason.partition(",")[0] for reason in batches.skipped] == ["shard 0", "shard 1"]
    with pytest.raises(ValueError, match="on_error must be one of 'raise', 'skip'"):
        shards.to_torch(2, feature_cols="a", on_error="ignore")


def test_a_batch_is_the_loops_own(files):
    batches = iter(gp.read_parquet(files).to_torch(10, feature_cols="id"))
    kept = [next(batches) for _ in range(3)]
    kept[0] += 1000
    assert [batch.tolist()[0] for batch in (*kept, next(batches))] == [1000, 10, 20, 30]


# Images


@pytest.fixture
def pictures(tmp_path):
    folder = tmp_path / "pictures"
    for number in range(12):
        file = folder / ("cat" if number % 2 else "dog") / f"{number:02}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(picture(number)[1])
    return folder


def test_images_of_folders(pictures):
    shards = gp.read_images(pictures)
    x, y = next(iter(shards.to_torch(12)))
    assert (tuple(x.shape), x.dtype, y.tolist()) == ((12, 3, 8, 8), torch.uint8, [0] * 6 + [1] * 6)
    assert np.array_equal(x[0].permute(1, 2, 0).numpy(), picture(1)[0])
    named = gp.read_images(str(pictures / "*" / "*.png"), label_func=lambda path: int(Path(path).stem))
    assert sorted(next(iter(named.to_torch(12)))[1].tolist()) == list(range(12))


def test_random_steps_depend_on_the_row_alone(tmp_path):
    rows = {"image": [picture(number)[1] for number in range(20)], "label": list(range(20))}
    pq.write_table(pa.table(rows), tmp_path / "p.parquet", row_group_size=6)
    steps = [RandomCrop(6, padding=1), RandomFlip(), Normalize([0.5] * 3, [0.2] * 3)]
    found = []
    for size, threads, window in [(20, 1, None), (3, 2, None), (7, 3, 2)]:
        shards = gp.read_images(tmp_path / "p.parquet", image_col="image", label_col="label", steps=steps)
        shards = shards if window is None else shards.stream(window)
        batches = list(shards.to_torch(size, True, seed=9, threads=threads))
        labels = torch.cat([y for _, y in batches])
        found.append(torch.cat([x for x, _ in batches])[labels.argsort()])
    assert found[0].dtype == torch.float32
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_a_damaged_image_is_named_or_skipped(tmp_path):
    rows = {"image": [picture(0)[1], b"\xff\xd8\xff no image", picture(2)[1]], "label": [0, 1, 2]}
    pq.write_table(pa.table(rows), tmp_path / "p.parquet")
    shards = gp.read_images(tmp_path / "p.parquet", image_col="image", label_col="label")
    with pytest.raises(gp.DataError, match=r'p.parquet, row group 0, row 1, column "image"'):
        list(shards.to_torch(3))
    batches = shards.to_torch(3, on_error="skip")
    assert [y.tolist() for _, y in batches] == [[0, 2]]
    assert len(batches.skipped) == 1


# The Estimator


def estimator(workers=2, lanes=3, features=2):
    return gp.Estimator.from_torch(
        model=lambda config: nn.Linear(features, 2),
        optimizer=lambda model, config: torch.optim.SGD(model.parameters(), lr=0.5),
        loss=nn.CrossEntropyLoss(),
        metrics=[gp.metrics.Accuracy()],
        workers=workers,
        lanes=lanes,
        seed=1,
    )


COLUMNS = {"feature_cols": [["a", "b"]], "label_cols": "label"}


def test_the_estimator_takes_paths_tables_and_shards(files):
    whole = table()
    digests = set()
    shards = gp.read_parquet(files), gp.Shards.from_arrow(whole, 5)
    for data in (files, str(files / "*.parquet"), whole, *shards):
        model = estimator()
        model.fit(data, epochs=3, batch_size=10, **COLUMNS)
        digests.add(model.digest())
    assert len(digests) == 1
    measured = model.evaluate(files, **COLUMNS)
    assert measured["accuracy"] > 0.9
    assert measured["num_samples"] == 100


@pytest.mark.parametrize("window", [None, 2])
def test_equal_weights_at_any_number_of_workers(files, window):
    shards = gp.read_parquet(files)
    shards = shards if window is None else shards.stream(window)
    digests = set()
    for workers in (1, 2, 3):
        model = estimator(workers)
        history = model.fit(shards, epochs=2, batch_size=9, **COLUMNS)
        assert sum(worker["rows"] for worker in history.workers) == 200
        digests.add(model.digest())
    assert len(digests) == 1


def test_a_stream_is_resumed_within_an_epoch(files):
    shards = gp.read_parquet(files).stream(2)
    whole = estimator()
    whole.fit(shards, epochs=2, batch_size=9, **COLUMNS)
    estimator().fit(shards, epochs=2, batch_size=9, max_steps=16, checkpoint="runs", **COLUMNS)
    again = estimator(workers=3)
    again.fit(shards, epochs=2, batch_size=9, checkpoint="runs", resume=True, **COLUMNS)
    assert again.digest() == whole.digest()


def test_predictions_stay_with_their_rows(files, tmp_path):
    model = estimator()
    model.fit(files, batch_size=10, **COLUMNS)
    whole = table()
    x = torch.tensor(np.stack([whole["a"], whole["b"]], axis=1), dtype=torch.float32)
    wanted = model.get_model()(x).detach().numpy()
    found = model.predict(files, batch_size=7, feature_cols=[["a", "b"]])
    assert found["id"].to_pylist() == list(range(100))
    assert np.allclose(np.stack(found["prediction"].to_pylist()), wanted, atol=1e-6)
    shards = model.predict(gp.Shards.from_pandas(whole.to_pandas(), 3), feature_cols=[["a", "b"]])
    assert np.allclose(np.stack(shards.to_pandas()["prediction"]), wanted, atol=1e-6)
    dicts = model.predict(gp.Shards.partition({"x": x.numpy()}, 3))
    assert np.allclose(np.concatenate([shard["prediction"] for shard in dicts]), wanted, atol=1e-6)
    out = model.predict(files, feature_cols=[["a", "b"]], out=tmp_path / "out.parquet")
    assert pq.read_table(out).equals(found)


def test_images_train(tmp_path):
    rows = {"image": [picture(number)[1] for number in range(24)], "label": [n % 2 for n in range(24)]}
    pq.write_table(pa.table(rows), tmp_path / "p.parquet", row_group_size=7)
    steps = [RandomFlip(), Normalize([0.5] * 3, [0.5] * 3)]
    digests = set()
    for workers, window in [(1, None), (3, None), (2, 2), (3, 2)]:
        shards = gp.read_images(tmp_path / "p.parquet", image_col="image", label_col="label", steps=steps)
        model = gp.Estimator.from_torch(
            model=lambda config: nn.Sequential(nn.Flatten(), nn.Linear(192, 2)),
            optimizer=lambda model, config: torch.optim.SGD(model.parameters(), lr=0.1),
            loss=nn.CrossEntropyLoss(),
            workers=workers,
            lanes=3,
        )
        model.fit(shards if window is None else shards.stream(window), epochs=2, batch_size=8)
        digests.add((window, model.digest()))
    assert len(digests) == 2


@pytest.mark.parametrize("window", [None, 2])
def test_bad_rows_are_left_out_and_named(tmp_path, window):
    whole = table(40)
    holes = pa.array([None if row in (3, 17, 39) else 1.0 for row in range(40)])
    pq.write_table(whole.set_column(1, "a", holes), tmp_path / "t.parquet", row_group_size=11)
    shards = gp.read_parquet(tmp_path / "t.parquet")
    shards = shards if window is None else shards.stream(window)
    with pytest.raises(gp.DataError, match='column "a" is null'):
        estimator().fit(shards, batch_size=8, **COLUMNS)
    digests = set()
    for workers in (1, 2, 3):
        model = estimator(workers)
        with pytest.warns(RuntimeWarning, match=r'left out: .*t\.parquet, row group \d, row \d+, column "a"'):
            history = model.fit(shards.skip_bad_rows(), epochs=2, batch_size=8, **COLUMNS)
        assert sum(worker["rows"] for worker in history.workers) == 2 * 37
        digests.add(model.digest())
    assert len(digests) == 1
    with pytest.warns(RuntimeWarning, match="left out"):
        assert model.evaluate(shards.skip_bad_rows(), **COLUMNS)["num_samples"] == 37
    with pytest.raises(gp.DataError, match='column "a" is null'):
        model.predict(shards.skip_bad_rows(), feature_cols=[["a", "b"]])


# Wrong use


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"feature_cols": "aa"}, 'there is no column "aa": do you mean "a"'),
        ({"feature_cols": ["a", "name"]}, 'column "name" holds text'),
        ({}, "feature_cols"),
    ],
)
def test_wrong_columns(columns, message):
    shards = gp.Shards.from_arrow(table().append_column("name", pa.array(["x"] * 100)), 2)
    with pytest.raises(gp.DataError, match=message):
        next(iter(shards.to_torch(10, **columns)))


def test_wrong_files(tmp_path):
    with pytest.raises(gp.DataError, match="there is no such file"):
        len(gp.read_parquet(tmp_path / "none.parquet"))
    (tmp_path / "cut.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(gp.DataError, match=r"cut\.parquet"):
        gp.read_parquet(tmp_path / "cut.parquet").to_torch(2, feature_cols="a")
    with pytest.raises(gp.DataError, match="can be streamed"):
        gp.Shards.from_arrow(table()).stream()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"batch_size": 2.5}, "batch_size must be a whole number"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"threads": 0}, "threads must be at least 1"),
        ({"feature_cols": []}, "a list of columns is empty"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        gp.Shards.from_arrow(table(), 2).to_torch(**{"batch_size": 2, "feature_cols": "a", **options})


def test_columns_are_those_of_tables():
    with pytest.raises(gp.DataError, match="these are arrays"):
        gp.Shards.partition({"x": np.arange(4)}, 2).to_torch(2, feature_cols="a")


def test_two_loops_at_once_are_told_apart():
    batches = gp.Shards.from_arrow(table(), 2).to_torch(10, feature_cols="id")
    first = iter(batches)
    next(first)
    next(iter(batches))
    with pytest.raises(RuntimeError, match="another loop over these batches has begun"):
        next(first)


def test_a_forked_process_is_told_that_it_has_no_threads():
    batches = gp.Shards.from_arrow(table(), 2).to_torch(10, feature_cols="id")
    loader = torch.utils.data.DataLoader(batches, batch_size=None, num_workers=1)
    with pytest.raises(RuntimeError, match="use DataLoader\\(num_workers=0\\)"):
        next(iter(loader))
    assert len(list(torch.utils.data.DataLoader(batches, batch_size=None))) == 10


def test_a_table_without_rows():
    empty = table().slice(0, 0)
    with pytest.raises(gp.DataError, match="no rows"):
        gp.Shards.from_arrow(empty)


def open_things():
    return [len(list(Path("/proc/self", what).iterdir())) for what in ("fd", "task")]


def test_a_thousand_loaders_leave_nothing():
    held = table()
    # Exceptions that other tests caught hold their loaders in a circle.
    gc.collect()
    before = open_things()
    shards = gp.Shards.from_arrow(held, 2)
    for _ in range(1000):
        next(iter(shards.to_torch(50, True, feature_cols="id", threads=2)))
    del shards
    assert open_things() == before
