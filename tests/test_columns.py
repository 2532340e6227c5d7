"""Steps of columns on their way into a batch, held against numpy."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from clusters import one_cluster  # a fixture
from torch import nn

import grampus as gp
from grampus.columns import Cast, Normalize, OneHot, Pad, Scale

runtime = one_cluster(workers=2)

ROWS = 60


def table():
    draw = np.random.default_rng(0)
    lengths = draw.integers(0, 5, ROWS)
    return pa.table(
        {
            "age": draw.integers(18, 80, ROWS),
            "income": draw.normal(3, 1, ROWS),
            "colour": draw.integers(0, 4, ROWS),
            "city": [["Rome", "Oslo", "Lima"][number] for number in draw.integers(0, 3, ROWS)],
            "pixels": list(draw.integers(0, 256, (ROWS, 3), dtype="uint8")),
            "words": [draw.integers(1, 100, length).tolist() for length in lengths],
            "spare": ["never read"] * ROWS,
            "label": draw.integers(0, 2, ROWS),
        }
    )


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(table(), path, row_group_size=17)
    return path


def column(name):
    return table()[name].to_numpy(zero_copy_only=False)


def hot(values, classes):
    return (np.asarray(values)[:, None] == np.asarray(classes)).astype("float32")


def padded(length, value=0):
    return np.array([(words + [value] * length)[:length] for words in table()["words"].to_pylist()])


CASES = {
    "cast": (Cast("age", "float64"), lambda: column("age").astype("float64")),
    "cast lists": (Cast("pixels", "int16"), lambda: np.stack(column("pixels")).astype("int16")),
    "scale": (Scale("income", by=1 / 3, offset=2), lambda: column("income") * (1 / 3) + 2),
    "scale lists": (Scale("pixels", by=1 / 255), lambda: np.stack(column("pixels")) * (1 / 255)),
    "normalise": (Normalize("age", mean=38.6, std=13.6), lambda: (column("age") - 38.6) / 13.6),
    "numbers": (OneHot("colour", 4), lambda: hot(column("colour"), range(4))),
    "listed": (OneHot("colour", [3, 1, 0, 2]), lambda: hot(column("colour"), [3, 1, 0, 2])),
    "texts": (
        OneHot("city", ["Oslo", "Lima", "Rome"]),
        lambda: hot(column("city"), ["Oslo", "Lima", "Rome"]),
    ),
    "pad": (Pad("words", 4), lambda: padded(4)),
    "cut": (Pad("words", 2, value=-1, truncate=True), lambda: padded(2, -1)),
    "beside": (
        ["age", OneHot("colour", 4), Scale("income", by=2)],
        lambda: np.column_stack([column("age"), hot(column("colour"), range(4)), column("income") * 2]),
    ),
}
DOUBLES = ("cast",)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("streamed", [False, True])
def test_a_step_does_what_numpy_does(file, case, streamed):
    step, wanted = CASES[case]
    shards = gp.read_parquet(file).stream(2) if streamed else gp.Shards.from_arrow(table(), 3)
    batches = list(shards.to_torch(7, feature_cols=step, label_cols="label"))
    found = torch.cat([x for x, _ in batches]).numpy()
    wanted = wanted()
    if wanted.dtype == "float64" and case not in DOUBLES:
        wanted = wanted.astype("float32")
    assert found.dtype == wanted.dtype
    assert np.array_equal(found, wanted)


def test_steps_in_all_places(file):
    features = [["income", OneHot("city", ["Rome", "Oslo", "Lima"])], Pad("words", 4)]
    batches = gp.read_parquet(file).to_torch(ROWS, feature_cols=features, label_cols=OneHot("label", 2))
    (x, words), y = next(iter(batches))
    assert (tuple(x.shape), words.dtype, tuple(y.shape)) == ((ROWS, 4), torch.int64, (ROWS, 2))


def test_only_the_columns_of_the_steps_are_read(file):
    spare = table().column_names.index("spare")
    damaged = bytearray(file.read_bytes())
    metadata = pq.read_metadata(file)
    for group in range(metadata.num_row_groups):
        chunk = metadata.row_group(group).column(spare)
        first = chunk.dictionary_page_offset
        damaged[first : first + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    file.write_bytes(damaged)
    shards = gp.read_parquet(file)
    assert len(list(shards.to_torch(ROWS, feature_cols=["age", OneHot("colour", 4)]))) == 1
    with pytest.raises(gp.DataError, match=r"t\.parquet"):
        shards.to_torch(ROWS, feature_cols=OneHot("spare", ["never read"]))


VECTOR = pa.struct(
    {"type": pa.int8(), "size": pa.int32(), "indices": pa.list_(pa.int32()), "values": pa.list_(pa.float64())}
)


@pytest.mark.parametrize("streamed", [False, True])
def test_what_spark_writes_into_files(tmp_path, streamed):
    """Vectors of its ML library, of which every second is sparse, and decimals."""
    wanted = np.eye(20, 5) * 2.5
    vectors = [
        {"type": 0, "size": 5, "indices": np.flatnonzero(row).tolist(), "values": row[row != 0].tolist()}
        if number % 2
        else {"type": 1, "size": None, "indices": None, "values": row.tolist()}
        for number, row in enumerate(wanted)
    ]
    prices = pa.array([Decimal(f"{number}.25") for number in range(20)], pa.decimal128(10, 2))
    made = pa.table({"v": pa.array(vectors, VECTOR), "price": prices})
    pq.write_table(made, tmp_path / "t.parquet", row_group_size=7)
    files = gp.read_parquet(tmp_path / "t.parquet")
    shards = files.stream(2) if streamed else files
    x, y = zip(*shards.to_torch(8, feature_cols="v", label_cols="price"), strict=True)
    assert np.array_equal(torch.cat(x), wanted.astype("f4"))
    assert np.array_equal(torch.cat(y), np.arange(20, dtype="f4") + 0.25)


def estimator(workers):
    return gp.Estimator.from_torch(
        model=lambda config: nn.Linear(5, 2),
        optimizer=lambda model, config: torch.optim.SGD(model.parameters(), lr=0.1),
        loss=nn.CrossEntropyLoss(),
        workers=workers,
        lanes=2,
        seed=1,
    )


CHOSEN = [[Normalize("age", mean=40, std=10), OneHot("colour", 4)]]


@pytest.mark.parametrize("streamed", [False, True])
def test_the_estimator_trains_alike_on_one_worker_and_two(file, streamed):
    shards = gp.read_parquet(file).stream(2) if streamed else gp.read_parquet(file)
    digests = set()
    for workers in (1, 2):
        model = estimator(workers)
        model.fit(shards, epochs=2, batch_size=8, feature_cols=CHOSEN, label_cols="label")
        digests.add(model.digest())
    assert len(digests) == 1
    assert model.evaluate(shards, feature_cols=CHOSEN, label_cols="label")["num_samples"] == ROWS


def test_frames_of_pandas_have_steps_too(file):
    frame = table().select(["age", "colour", "label"]).to_pandas()
    models = estimator(2), estimator(2)
    for model, data in zip(models, (frame, file), strict=True):
        model.fit(data, batch_size=8, feature_cols=CHOSEN, label_cols="label")
    assert models[0].digest() == models[1].digest()
    found = models[0].predict(frame, feature_cols=CHOSEN)
    assert isinstance(found, pd.DataFrame) and list(found.columns) == [*frame.columns, "prediction"]
    wanted = models[1].predict(file, feature_cols=CHOSEN)["prediction"].to_pylist()
    assert np.array_equal(np.stack(found["prediction"]), np.array(wanted, dtype="float32"))
    out = models[1].predict(file, feature_cols=CHOSEN, out=file.with_name("out.parquet"))
    assert pq.read_table(out)["prediction"].to_pylist() == wanted
    with pytest.raises(TypeError, match=r"feature_cols has OneHot.*gp.Shards.from_pandas"):
        models[0].predict({"age": column("age")}, feature_cols=[OneHot("age", 3)])


def test_rows_that_a_step_cannot_take(file):
    shards = gp.read_parquet(file)
    first = column("colour").tolist().index(3)
    place = (
        rf't\.parquet, row group {first // 17}, row {first % 17}, column "colour": its value 3 is no class'
    )
    with pytest.raises(gp.DataError, match=place):
        list(shards.to_torch(7, feature_cols=OneHot("colour", 3)))
    batches = shards.to_torch(7, feature_cols=OneHot("colour", 3), label_cols="colour", on_error="skip")
    assert sum(len(y) for _, y in batches) == (column("colour") < 3).sum()
    assert len(batches.skipped) == (column("colour") == 3).sum()
    with pytest.raises(gp.DataError, match='its value "Lima" is none of the 2 classes'):
        list(shards.to_torch(7, feature_cols=OneHot("city", ["Rome", "Oslo"])))
    with pytest.raises(gp.DataError, match=r"a list of 4 values, where 3 have room.*truncate=True"):
        list(shards.to_torch(7, feature_cols=Pad("words", 3)))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (OneHot("color", 4), 'there is no column "color": do you mean "colour"'),
        (Normalize("city", mean=0, std=1), 'column "city" holds text'),
        (OneHot("city", 3), 'column "city": it holds text: name its classes'),
        (OneHot("age", ["Rome"]), 'column "age": it holds Int64, and the classes are texts'),
        (Pad("age", 3), 'column "age": it holds Int64, and only lists are padded'),
        (Pad("words", 9, value=0.5), 'column "words": it holds Int64, and 0.5 is none'),
        ([OneHot("colour", 4), "pixels"], 'column "pixels": it holds lists'),
        (["age", Pad("words", 4)], 'column "words": it holds lists'),
    ],
)
def test_steps_over_the_wrong_column(columns, message):
    with pytest.raises(gp.DataError, match=message):
        next(iter(gp.Shards.from_arrow(table(), 2).to_torch(10, feature_cols=columns)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Normalize("age", mean=1, std=0), "column='age'.*std is 0"),
        (lambda: Normalize("age", mean=float("nan"), std=1), "column='age'.*mean must be finite"),
        (lambda: Scale("age", by="much"), "column='age'.*by takes numbers"),
        (lambda: OneHot("age", 0), "column='age'.*classes is a whole number of at least 1"),
        (lambda: OneHot("age", []), "column='age'.*classes is empty"),
        (lambda: OneHot("age", ["a", 1]), "column='age'.*classes takes numbers"),
        (lambda: OneHot("age", "abc"), "column='age'.*classes is a number, or a list"),
        (lambda: OneHot("age", [1, 2, 1.0]), "column='age'.*classes names 1.0 twice"),
        (lambda: Pad("age", 0), "column='age'.*length is a whole number of at least 1"),
        (lambda: Cast("age", "float"), "column='age'.*dtype is one of 'float32'"),
        (lambda: Cast(["age"], "float32"), "column is the name of a column"),
        (lambda: gp.Shards.from_arrow(table()).to_torch(2, feature_cols=[3]), "columns are names.*not 3"),
        (lambda: gp.Shards.from_arrow(table()).to_torch(2, feature_cols=3), "columns are names.*not 3"),
    ],
)
def test_wrong_steps_are_found_where_they_are_written(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()
