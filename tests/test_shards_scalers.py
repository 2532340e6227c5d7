"""Scalers and indexers learn from all rows and work on the workers."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from clusters import one_cluster

import grampus as gp
from grampus.shards.scalers import MinMaxScaler, StandardScaler, StringIndex, StringIndexer

runtime = one_cluster(workers=2, preload=("numpy", "pandas", "pyarrow"))

FRAME = pd.DataFrame({"a": [1, 5, 3, 2], "b": [0.5, None, 2.5, 1.0], "c": [7, 7, 7, 7], "t": list("abca")})


def of(kind):
    return {
        "frame": lambda: gp.Shards.from_pandas(FRAME, 3),
        "table": lambda: gp.Shards.from_arrow(pa.table(FRAME), 3),
        "polars": lambda: gp.Shards.from_polars(pl.from_pandas(FRAME), 3),
    }[kind]()


KINDS = pytest.mark.parametrize("kind", ["frame", "table", "polars"])


@KINDS
def test_smallest_and_largest(kind):
    shards = of(kind)
    found = MinMaxScaler(inputCol=["a", "b"]).fit_transform(shards).to_pandas()
    np.testing.assert_allclose(found["a"], [0, 1, 0.5, 0.25])
    np.testing.assert_allclose(found["b"].astype(float), [0, np.nan, 1, 0.25])
    assert found["t"].tolist() == list("abca")
    scaler = MinMaxScaler(-1.0, 3.0).setInputOutputCol("c", "scaled")
    added = scaler.fit_transform(shards).to_pandas()
    assert added["scaled"].tolist() == [1.0] * 4 and added["c"].tolist() == [7] * 4
    assert list(added.columns) == ["a", "b", "c", "t", "scaled"]


@KINDS
def test_mean_and_deviation(kind):
    shards = of(kind)
    found = StandardScaler(withMean=True, inputCol="a", outputCol="z").fit_transform(shards).to_pandas()
    np.testing.assert_allclose(found["z"], (FRAME["a"] - FRAME["a"].mean()) / FRAME["a"].std())
    plain = StandardScaler(inputCol=["a", "c"]).fit_transform(shards).to_pandas()
    np.testing.assert_allclose(plain["a"], FRAME["a"] / FRAME["a"].std())
    assert plain["c"].tolist() == [0.0] * 4


def test_what_was_learnt_is_applied_to_other_rows():
    scaler = MinMaxScaler(inputCol="a").fit(of("frame"))
    other = gp.Shards.from_pandas(pd.DataFrame({"a": [9]}, index=[4]), 1)
    found = scaler.transform(other).to_pandas()
    assert found["a"].tolist() == [2.0] and found.index.tolist() == [4]


@KINDS
def test_texts_become_numbers_the_most_frequent_first(kind):
    indexer = StringIndexer("t")
    found = indexer.fit_transform(of(kind)).to_pandas()
    assert found["t"].tolist() == [1, 2, 3, 1]
    other = gp.Shards.from_arrow(pa.table({"t": ["c", "new", None, "a"]}), 2)
    assert indexer.transform(other).to_arrow()["t"].to_pylist() == [3, 0, 0, 1]


def test_indices_by_appearance_with_a_limit_and_split():
    shards = gp.Shards.from_arrow(pa.table({"t": ["y,x", "x", None, "z,x,y"], "u": ["p", "q", "q", "q"]}), 2)
    first, second = StringIndexer.gen_string_idx(shards, ["t", "u"], freq_limit={"u": 2})
    assert first.to_dict() == {"y,x": 1, "x": 2, "z,x,y": 3} and second.to_dict() == {"q": 1}
    encoded, (index,) = StringIndexer.category_encode(shards, "t", order_by_freq=True, do_split=True)
    assert index.to_dict() == {"x": 1, "y": 2, "z": 3}
    assert encoded.to_arrow()["t"].to_pylist() == [[2, 1], [1], [], [3, 1, 2]]
    ordered = StringIndexer.encode_string(shards, "t", index, do_split=True, sort_for_array=True)
    assert ordered.to_arrow()["t"].to_pylist() == [[1, 2], [1], [], [1, 2, 3]]
    single = StringIndexer.encode_string(shards, "t", index, do_split=True, keep_most_frequent=True)
    assert single.to_arrow()["t"].to_pylist() == [1, 1, 0, 1]


def test_indices_made_elsewhere():
    index = StringIndex.from_dict({"b": 5}, "t")
    found = StringIndexer.encode_string(of("table"), "t", index, broadcast=False).to_arrow()
    assert found["t"].to_pylist() == [0, 5, 0, 0]
    assert index.broadcast().to_dict() == {"b": 5}
    with pytest.raises(ValueError, match="start at 1"):
        StringIndex.from_dict({"b": 0}, "t")


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (lambda s: MinMaxScaler().fit(s), "MinMaxScaler has no columns: give inputCol"),
        (lambda s: MinMaxScaler(inputCol="a").transform(s), "has learnt nothing yet"),
        (lambda s: MinMaxScaler(inputCol="t").fit(s), 'column "t" holds .*only numbers can be scaled'),
        (lambda s: StandardScaler(inputCol="aa").fit(s), 'do you mean "a"'),
        (lambda s: MinMaxScaler(1, 1), "min must be below max"),
        (lambda s: MinMaxScaler(inputCol=["a", "b"], outputCol="x"), "as many output columns"),
        (lambda s: StringIndexer().fit(s), "StringIndexer has no column"),
        (lambda s: StringIndexer("t").transform(s), "has learnt nothing yet"),
        (lambda s: StringIndexer.gen_string_idx(s, "a", do_split=True), "do_split needs texts"),
        (lambda s: StringIndexer.encode_string(s, ["t", "a"], []), "as many indices"),
    ],
)
def test_wrong_use(use, words):
    with pytest.raises(ValueError, match=words):
        use(of("frame"))
