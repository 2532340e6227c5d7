"""Operations on tables give what pandas gives."""

import datetime
import math

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from clusters import one_cluster
from shard_tables import lines, random_table, without_nan

import grampus as gp

runtime = one_cluster(workers=2, preload=("numpy", "pandas", "pyarrow"))

SEEDS = range(12)
KEYS = ["key", "small", "real", "flag", "kind", "day", "moment"]


def shards_of(table, seed=0):
    return gp.Shards.from_arrow(table, min(table.num_rows, 1 + seed % 4))


def plain(table):
    """As pandas with nulls that equal nulls: objects, with categories as texts."""
    return table.set_column(table.schema.get_field_index("kind"), "kind", table["kind"].cast(pa.string()))


def pandas_of(table):
    return pd.DataFrame({name: plain(table)[name].to_pylist() for name in table.column_names}, dtype=object)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("by", [["key"], ["small", "key"], ["real"], ["kind", "flag"], ["day", "moment"]])
@pytest.mark.parametrize("ascending", [True, False])
def test_sorting(seed, by, ascending):
    table = random_table(seed)
    found = shards_of(table, seed).sort_values(by=by, ascending=ascending).to_arrow()
    order = list(range(table.num_rows))
    columns = plain(table)
    for name in reversed(by):  # pandas sorts several columns of objects with nulls only one by one
        held = columns[name].to_pylist()
        there = [place for place in order if held[place] is not None]
        there.sort(key=lambda place, held=held: held[place], reverse=not ascending)
        order = there + [place for place in order if held[place] is None]
    assert found["row"].to_pylist() == order
    if len(by) == 1 and by != ["kind"]:
        frame = pandas_of(table).sort_values(by[0], ascending=ascending, kind="stable")
        assert found["row"].to_pylist() == frame["row"].tolist()


@pytest.mark.parametrize("seed", SEEDS)
def test_deduplicating(seed):
    table = random_table(seed).drop(["row", "wide", "real", "day", "moment"])
    found = shards_of(table, seed).deduplicate().to_arrow()
    expected = list(dict.fromkeys(repr(row) for row in lines(table)))
    assert [repr(row) for row in lines(found)] == expected


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", KEYS)
def test_different_values(seed, name):
    table = random_table(seed)
    found = shards_of(table, seed)[name].unique()
    expected = pandas_of(table)[name].drop_duplicates().tolist()
    if name in ("day", "moment"):
        found = pa.array(found, table.schema.field(name).type).to_pylist()
    assert without_nan(list(found)) == without_nan(expected)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("how", ["inner", "left", "right", "outer"])
@pytest.mark.parametrize("on", [["key"], ["small", "flag"], ["kind"], ["day", "real"]])
def test_merging(seed, how, on):
    left = random_table(seed).select([*on, "row", "list"])
    right = random_table(seed + 1000).select([*on, "row", "wide"]).rename_columns([*on, "row", "other"])
    found = shards_of(left, seed).merge(shards_of(right, seed + 1), how=how, on=on).to_arrow()
    assert found.column_names == [*on, "row_x", "list", "row_y", "other"]
    tables = [
        pd.DataFrame({n: t[n].to_pylist() for n in t.column_names}, dtype=object) for t in (left, right)
    ]
    expected = tables[0].merge(tables[1], how, on=on)
    rows = [tuple(without_nan(row)) for row in expected[["row_x", "row_y"]].itertuples(index=False)]
    # The order of the left side, then of the right one; those of the right side alone last.
    end = left.num_rows + right.num_rows
    rows.sort(key=lambda row: tuple(end if place is None else place for place in row))
    assert lines(found, ["row_x", "row_y"]) == rows
    for one, other, *shared in lines(found, ["row_x", "row_y", *on, "list", "other"]):
        *values, listed, wide = shared
        for side, place in ((left, one), (right, other)):
            if place is not None:
                assert [side[name][place].as_py() for name in on] == values
        assert listed == (None if one is None else left["list"][one].as_py())
        assert wide == (None if other is None else right["other"][other].as_py())


NUMERIC = {
    "max": "max",
    "min": "min",
    "count": "count",
    "mean": "mean",
    "avg": "mean",
    "stddev": "std",
    "variance": "var",
    "first": "first",
    "last": "last",
    "approx_count_distinct": "nunique",
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("by", [["key"], ["kind", "small"], ["real"]])
def test_groups(seed, by):
    table = random_table(seed)
    values = table["row"].to_numpy() % 5 / 4
    values = pa.array(values, mask=np.random.default_rng(seed).random(len(values)) < 0.3)
    table = table.append_column("value", values)
    found = shards_of(table, seed).group_by(columns=by, agg={"value": [*NUMERIC, "sum"]}).to_pandas()
    frame = pandas_of(table).assign(value=table["value"].to_pandas())
    grouped = frame.groupby(by, sort=False, dropna=False)["value"]
    keys = grouped.agg("size").reset_index()[by]
    assert [without_nan(row) for row in found[by].astype(object).to_numpy().tolist()] == [
        without_nan(row) for row in keys.astype(object).to_numpy().tolist()
    ]
    for ours, theirs in NUMERIC.items():
        expected = grouped.agg(theirs).to_numpy(dtype=float)
        np.testing.assert_allclose(found[f"{ours}(value)"].to_numpy(dtype=float), expected, rtol=1e-12)
    expected = grouped.sum(min_count=1).to_numpy(dtype=float)
    np.testing.assert_allclose(found["sum(value)"].to_numpy(dtype=float), expected, rtol=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_functions_of_groups_that_pandas_has_under_no_name(seed):
    table = random_table(seed)
    functions = [
        "sumDistinct",
        "stddev_pop",
        "var_pop",
        "skewness",
        "kurtosis",
        "collect_list",
        "collect_set",
    ]
    found = shards_of(table, seed).group_by("kind", {"small": functions}).to_arrow().to_pylist()
    for row in found:
        group = table.filter(pa.array([kind == row["kind"] for kind in table["kind"].to_pylist()]))
        values = [value for value in group["small"].to_pylist() if value is not None]
        assert row["collect_list(small)"] == values
        assert row["collect_set(small)"] == list(dict.fromkeys(values))
        assert row["sumDistinct(small)"] == (sum(set(values)) if values else None)
        if not values:
            assert row["var_pop(small)"] is None
            continue
        array = np.array(values, float)
        middle, variance = array.mean(), array.var()
        assert math.isclose(row["var_pop(small)"], variance, abs_tol=1e-12)
        assert math.isclose(row["stddev_pop(small)"], math.sqrt(variance), abs_tol=1e-12)
        if variance > 0:
            skew = ((array - middle) ** 3).mean() / variance**1.5
            assert math.isclose(row["skewness(small)"], skew, abs_tol=1e-9)
            tails = ((array - middle) ** 4).mean() / variance**2 - 3
            assert math.isclose(row["kurtosis(small)"], tails, abs_tol=1e-9)


def test_groups_of_any_type_keep_their_values():
    table = random_table(3, rows=40)
    functions = ["first", "last", "collect_list", "collect_set", "count", "approx_count_distinct"]
    found = shards_of(table, 2).group_by("flag", functions).to_arrow().to_pylist()
    for row in found:
        group = [line for line in table.to_pylist() if line["flag"] == row["flag"]]
        for name in table.column_names:
            if name == "flag":
                continue
            values = [line[name] for line in group if line[name] is not None]
            assert row[f"collect_list({name})"] == values
            assert row[f"first({name})"] == (values[0] if values else None)
            assert row[f"last({name})"] == (values[-1] if values else None)
            assert row[f"count({name})"] == len(values)
            assert row[f"approx_count_distinct({name})"] == len({repr(v if v != 0 else 0) for v in values})


def test_groups_joined_to_all_rows():
    frame = pd.DataFrame({"city": ["a", "b", "a", None], "price": [1, 2, 3, 4]}, index=[9, 8, 7, 6])
    found = gp.Shards.from_pandas(frame, 2).group_by("city", {"price": "sum"}, join=True).to_pandas()
    assert found["sum(price)"].tolist() == [4, 2, 4, 4]
    assert found["price"].tolist() == [1, 2, 3, 4]


def test_groups_joined_twice_replace_their_figures():
    frame = pd.DataFrame({"k": ["a", "b", "a"], "s": [1, 2, 3]})
    shards = gp.Shards.from_pandas(frame, 2).group_by("k", {"s": "sum"}, join=True)
    changed = shards.transform_shard(lambda part: part.assign(s=part["s"] * 10))
    found = changed.group_by("k", {"s": ["max", "sum"]}, join=True).to_pandas()
    wanted = frame.assign(s=frame["s"] * 10, **{"sum(s)": [40, 20, 40], "max(s)": [30, 20, 30]})
    pd.testing.assert_frame_equal(found, wanted)
    counted = gp.Shards.from_pandas(frame, 2).group_by("k", join=True).group_by("s", join=True)
    assert counted.to_pandas()["count"].tolist() == [1, 1, 1]
    for join in (False, True):
        with pytest.raises(gp.DataError, match='"count" is a key and the name of a figure: rename the key'):
            gp.Shards.from_pandas(frame.rename(columns={"k": "count"}), 1).group_by(
                "count", join=join
            ).to_pandas()
    gp.stop()


def test_all_rows_are_one_group_without_columns():
    frame = pd.DataFrame({"price": [1, 2, 3, 4]})
    shards = gp.Shards.from_pandas(frame, 2)
    assert shards.group_by().to_pandas()["count"].tolist() == [4]
    assert shards.group_by(agg="max").to_pandas()["max(price)"].tolist() == [4]


@pytest.mark.parametrize("seed", SEEDS)
def test_describing(seed):
    table = random_table(seed).drop(["wide", "real"])
    found = shards_of(table, seed).describe()
    expected = table.select(["small", "row"]).to_pandas().astype(float).describe()
    pd.testing.assert_frame_equal(found, expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_extremes_and_missing_values(seed):
    table = random_table(seed)
    shards = shards_of(table, seed)
    for name in KEYS:
        if table[name].null_count < table.num_rows:
            held = [value for value in plain(table)[name].to_pylist() if value is not None]
            assert shards.max_values(name) == max(held)
            assert shards.min_values(name) == min(held)
    counts = shards.null_counts()
    assert dict(zip(counts["col"], counts["total"], strict=True)) == pandas_of(table).isna().sum().to_dict()
    kept = shards.drop_missing_columns().to_arrow()
    assert kept.column_names == [name for name in table.column_names if table[name].null_count == 0]
    assert shards.get_null_sum().equals(counts)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("by", [["key"], ["real", "flag"], ["kind"], ["day"], ["list"]])
def test_equal_keys_meet_in_one_shard(seed, by):
    table = random_table(seed)
    made = shards_of(table, seed).partition_by(by, 3)
    assert made.num_partitions() == 3
    where = {}
    for number, shard in enumerate(made):
        assert shard["row"].to_pylist() == sorted(shard["row"].to_pylist())
        for *key, _ in lines(shard, [*by, "row"]):
            # Both zeros are one key.
            found = where.setdefault(repr([value or 0 if value == 0 else value for value in key]), number)
            assert found == number
    assert sorted(made.to_arrow()["row"].to_pylist()) == list(range(table.num_rows))


def test_the_shard_of_a_key_is_the_same_in_every_version():
    table = pa.table({"key": ["a", "b", "c", "d", None, "日本"], "number": [1, 2, 3, 4, 5, 6]})
    parts = gp.Shards.from_arrow(table, 2).partition_by("key", 4).collect()
    assert [part["key"].to_pylist() for part in parts] == [["c"], [], ["a", "d", "日本"], ["b", None]]
    parts = gp.Shards.from_arrow(table, 3).partition_by(["number"], 2).collect()
    assert [part["number"].to_pylist() for part in parts] == [[1, 2, 6], [3, 4, 5]]


def test_a_frame_keeps_its_types_and_its_index():
    frame = pd.DataFrame(
        {
            "when": pd.to_datetime(["2024-01-03", "2024-01-01", "2024-01-02"]).tz_localize("Europe/Berlin"),
            "size": pd.Categorical(["s", "l", "m"], categories=["s", "m", "l"], ordered=True),
            "maybe": pd.array([1, None, 3], dtype="Int16"),
        },
        index=["x", "y", "z"],
    )
    shards = gp.Shards.from_pandas(frame, 2)
    pd.testing.assert_frame_equal(shards.to_pandas(), frame)
    pd.testing.assert_frame_equal(shards.sort_values("size").to_pandas(), frame.sort_values("size"))
    pd.testing.assert_frame_equal(shards.sort_values("when").to_pandas(), frame.sort_values("when"))
    pd.testing.assert_frame_equal(shards.deduplicate().to_pandas(), frame)


def test_polars_frames_stay_polars_frames():
    frame = pl.DataFrame(
        {"key": ["b", None, "a", "b"], "kind": pl.Series(["x", "y", "x", "x"], dtype=pl.Categorical)}
    )
    shards = gp.Shards.from_polars(frame, 2)
    assert shards.to_polars().equals(frame)
    assert shards.sort_values("key").to_polars()["key"].to_list() == ["a", "b", "b", None]
    assert isinstance(shards.group_by("kind").first(), pl.DataFrame)
    assert shards.group_by("kind").to_polars()["count"].to_list() == [3, 1]
    assert shards.deduplicate().to_polars()["key"].to_list() == ["b", None, "a"]
    assert shards.transform_shard(lambda part: part.height).collect() == [2, 2]


def test_results_are_equal_at_any_number_of_shards():
    table = random_table(7, rows=200)
    answers = []
    for count in (1, 3, 50):
        shards = gp.Shards.from_arrow(table, count)
        grouped = shards.group_by("key", {"real": ["sum", "mean", "stddev"], "list": "collect_list"})
        answers.append(
            (grouped.to_arrow().to_pydict(), shards.sort_values(["flag", "key"]).to_arrow().to_pydict())
        )
    assert repr(answers[0]) == repr(answers[1]) == repr(answers[2])


def test_a_group_with_no_values_has_no_figures():
    table = pa.table({"key": ["a", "b"], "value": pa.array([None, 2.0])})
    found = gp.Shards.from_arrow(table, 2).group_by("key", {"value": ["sum", "max", "count", "first"]})
    assert found.to_arrow().to_pylist()[0] == {
        "key": "a",
        "sum(value)": None,
        "max(value)": None,
        "count(value)": 0,
        "first(value)": None,
    }


def test_keys_of_different_types_are_compared_where_they_can_be():
    left = gp.Shards.from_arrow(pa.table({"key": pa.array([1, 2, 3], pa.int32()), "a": [1, 2, 3]}), 2)
    right = gp.Shards.from_arrow(pa.table({"key": pa.array([3, 1], pa.int64()), "b": ["x", "y"]}), 1)
    assert left.merge(right).to_arrow()["b"].to_pylist() == ["y", "x"]
    text = gp.Shards.from_arrow(pa.table({"key": ["1"]}), 1)
    with pytest.raises(gp.DataError, match=r'merge cannot compare column "key": it is int32 .* string'):
        left.merge(text).compute()


def test_a_date_is_a_key_like_any_other():
    days = [datetime.date(2024, 1, 1), None, datetime.date(2024, 1, 1)]
    table = pa.table({"day": days, "n": [1, 2, 3]})
    assert gp.Shards.from_arrow(table, 3).group_by("day").to_arrow()["count"].to_pylist() == [2, 1]


ODD = pa.table(
    {
        "half": pa.array(np.array([1.5, -0.0, 1.5], np.float16)),
        "bytes": [b"\xff", b"", b"\xff"],
        "fixed": pa.array([b"ab", None, b"ab"], pa.binary(2)),
        "time": pa.array([3, 1, 3], pa.time64("us")),
        "span": pa.array([3, None, 3], pa.duration("ms")),
        "exact": pa.array([3, 1, 3]).cast(pa.decimal128(24, 2)),
        "pair": [{"a": 1}, {"a": None}, {"a": 1}],
        "nothing": pa.nulls(3),
    }
)


@pytest.mark.parametrize("name", ODD.column_names)
def test_columns_of_rare_types_are_keys_too(name):
    shards = gp.Shards.from_arrow(ODD.append_column("row", pa.array([0, 1, 2])), 2)
    same = [[0, 2], [1]] if name != "nothing" else [[0, 1, 2]]
    assert shards.group_by(name, {"row": "collect_list"}).to_arrow()["collect_list(row)"].to_pylist() == same
    assert len(shards.select(name).deduplicate()) == len(same)
    parts = [part["row"].to_pylist() for part in shards.partition_by(name, 2)]
    assert sorted(map(len, parts)) in ([0, 3], [1, 2])
    assert len(shards.merge(shards, on=name)) == sum(len(group) ** 2 for group in same)


@pytest.mark.parametrize("kind", ["table", "frame"])
def test_tables_without_rows_go_through_every_operation(kind):
    table = random_table(1)
    made = gp.Shards.from_arrow(table, 2)
    if kind == "frame":
        made = gp.Shards.from_pandas(table.to_pandas(), 2)
    empty = made.transform_shard(lambda part: part[:0])
    columns = table.drop(["list"]).column_names
    assert len(empty) == len(empty.sort_values(columns)) == len(empty.deduplicate()) == 0
    assert len(empty.group_by(["key", "kind"], {"small": ["sum", "collect_list", "first"]})) == 0
    assert len(empty.merge(empty, "outer", on=["key", "day"])) == len(empty.partition_by("key", 3)) == 0
    assert len(empty.sample(0.5)) == len(empty.repartition(3)) == len(empty.head()) == 0
    assert empty["key"].unique().tolist() == [] and empty.max_values("small") is None
    assert empty.describe()["small"]["count"] == 0
    assert empty.assemble(["small"], ["row"]).first()["x"].shape == (0, 1)
    assert empty.get_schema() == made.get_schema()


def test_lists_have_no_order():
    shards = gp.Shards.from_arrow(pa.table({"list": [[1], [2]], "key": ["a", "a"]}), 2)
    for use in (
        lambda: shards.max_values("list"),
        lambda: shards.group_by("key", {"list": "max"}).compute(),
        lambda: shards.sort_values("list").compute(),
    ):
        with pytest.raises(gp.DataError, match=r'column "list".* holds list'):
            use()
    wider = gp.Shards.from_arrow(pa.table({"list": pa.array([[2]], pa.list_(pa.int32())), "b": [7]}), 1)
    assert shards.merge(wider, on="list").to_arrow()["list"].to_pylist() == [[2]]


def test_sums_are_exact_or_an_error():
    """Python's own integers are the oracle."""
    signed, unsigned = [2**62, 2**62 - 1, -5, 2**62], [2**63, 2**63 - 1, 7, 1]
    table = pa.table({"key": [0, 0, 1, 1], "s": signed, "u": pa.array(unsigned, pa.uint64())})
    found = gp.Shards.from_arrow(table, 2).group_by("key", {"s": ["sum", "sumDistinct"], "u": "sum"})
    found = found.to_arrow()
    assert found["sum(s)"].to_pylist() == [2**63 - 1, 2**62 - 5]
    assert found["sumDistinct(s)"].to_pylist() == [2**63 - 1, 2**62 - 5]
    assert found["sum(u)"].to_pylist() == [2**64 - 1, 8]
    assert found["sum(s)"].type == pa.int64() and found["sum(u)"].type == pa.uint64()
    for column, values in {"s": [2**62, 2**62], "u": [2**63, 2**63]}.items():
        large = pa.table({"key": ["a", "a"], column: pa.array(values, table[column].type)})
        with pytest.raises(gp.DataError, match=f'the sum of column "{column}" does not fit into'):
            gp.Shards.from_arrow(large, 2).group_by("key", {column: "sum"}).to_arrow()
    means = gp.Shards.from_arrow(table, 2).group_by("key", {"s": "mean"}).to_arrow()["mean(s)"].to_pylist()
    assert means == [sum(signed[:2]) / 2, sum(signed[2:]) / 2]


def test_figures_of_large_integers():
    values = [2**60 + 1, 2**60 + 3, 5]
    shards = gp.Shards.from_arrow(pa.table({"x": values}), 2)
    expected = pd.DataFrame({"x": values}).describe()
    np.testing.assert_allclose(shards.describe()["x"], expected["x"], rtol=1e-12)
    scaled = gp.shards.MinMaxScaler(inputCol="x", outputCol="y").fit_transform(shards).to_arrow()
    np.testing.assert_allclose(scaled["y"], [1, 1, 0])
