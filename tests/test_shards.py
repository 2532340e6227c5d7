"""Shards: lazy, run on the workers, and no function can spoil what is stored."""

import os
import threading
import traceback

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from clusters import one_cluster
from processes import run_file

import grampus as gp

runtime = one_cluster(workers=2, preload=("numpy", "pandas", "pyarrow"))


def numbers(rows=6, shards=3):
    return gp.Shards.partition(np.arange(rows), shards)


def test_arrays_in_any_tree_are_cut_as_numpy_cuts_them():
    data = {"x": np.arange(20).reshape(10, 2), "more": (np.arange(10), [np.zeros((10, 0))])}
    parts = gp.Shards.partition(data, 3).collect()
    assert [len(part["x"]) for part in parts] == [4, 3, 3]
    for found, expected in zip(parts, np.array_split(data["x"], 3), strict=True):
        np.testing.assert_array_equal(found["x"], expected)
        assert isinstance(found["more"], tuple) and found["more"][1][0].shape == (len(expected), 0)


def test_by_default_there_is_a_shard_for_each_worker():
    assert gp.Shards.partition(np.arange(10)).num_partitions() == 2
    assert gp.Shards.partition(np.arange(1)).num_partitions() == 1


def test_functions_run_on_the_workers_in_turn_with_their_arguments():
    def where(shard, first, *, second):
        return os.getpid(), gp.rank(), first + second

    found = numbers(10, 5).transform_shard(where, 1, second=2).collect()
    assert [rank for _, rank, _ in found] == [0, 1, 0, 1, 0]
    assert os.getpid() not in {pid for pid, _, _ in found}
    assert {total for _, _, total in found} == {3}


def test_nothing_runs_before_it_is_asked_for_and_then_once(tmp_path):
    def note(shard, folder):
        (folder / f"{shard[0]}-{len(list(folder.iterdir()))}-{os.getpid()}").touch()
        return shard

    shards = numbers().transform_shard(note, tmp_path)
    assert repr(shards) == "<grampus.Shards: 3 shards, not computed yet>"
    assert shards.num_partitions() == 3
    assert not list(tmp_path.iterdir())
    assert len(shards) == 6
    assert len(list(tmp_path.iterdir())) == 3
    shards.collect()
    shards.transform_shard(len).collect()
    assert len(list(tmp_path.iterdir())) == 3
    assert repr(shards) == "<grampus.Shards: 3 shards of arrays, 6 rows>"


def test_a_chain_runs_in_one_go_and_leaves_its_middle_alone():
    start = numbers()
    middle = start.transform_shard(lambda shard: shard + 1)
    end = middle.transform_shard(lambda shard: shard * 10)
    np.testing.assert_array_equal(np.concatenate(end.collect()), np.arange(1, 7) * 10)
    assert "not computed" in repr(middle)


def test_what_is_cached_can_be_let_go_and_is_made_again():
    shards = numbers().transform_shard(lambda shard: os.urandom(8)).cache()
    assert shards.is_cached()
    before = shards.collect()
    assert shards.collect() == before
    assert not shards.uncache().is_cached()
    assert "not computed" in repr(shards)
    assert shards.collect() != before
    # Without `cache`, what was computed is simply there.
    kept = numbers().transform_shard(lambda shard: os.urandom(8)).compute()
    assert kept.uncache().collect() == kept.collect()


def test_a_function_that_changes_its_shard_does_not_change_what_is_stored():
    def spoil(shard):
        shard["x"][:] = -1
        shard["y"].iloc[:, 0] = -1
        return shard["x"].sum()

    objects = [{"x": np.arange(100_000), "y": pd.DataFrame({"a": np.arange(3)})} for _ in range(2)]
    shards = gp.Shards.from_objects(objects)
    assert shards.transform_shard(spoil).collect() == [-100_000, -100_000]
    mine = shards.first()
    mine["x"][:] = -2
    for shard in shards:
        np.testing.assert_array_equal(shard["x"], np.arange(100_000))
        assert shard["y"]["a"].tolist() == [0, 1, 2]


def test_arrays_and_tables_come_back_as_views_of_the_memory_they_were_written_to():
    shards = gp.Shards.partition(np.arange(100_000, dtype=np.float64), 2)
    array = shards.first()
    assert not array.flags.owndata
    assert array.ctypes.data % 64 == 0
    table = gp.Shards.from_arrow(pa.table({"a": np.arange(100_000)}), 2).first()
    before = pa.total_allocated_bytes()
    assert table["a"].to_numpy()[-1] == 49_999
    assert pa.total_allocated_bytes() - before < 1000


def test_every_kind_of_shard_goes_through_a_worker_and_back():
    values = [
        pa.table({"a": [1, None], "l": [["x"], None], "c": pa.array(["p", "q"]).dictionary_encode()}),
        pd.DataFrame({"a": [1.5, None], "t": ["ä", None]}, index=[5, 6]),
        pd.Series([1, 2], name="s"),
        {"x": np.zeros((2, 3), np.float16), "y": (np.array(["a", "b"]),)},
        [1, "two", None],
        "text",
        None,
        torch.arange(3),
        np.array([[1, None]], dtype=object),
    ]
    found = gp.Shards.from_objects(values).transform_shard(lambda value: value).collect()
    assert found[0].equals(values[0])
    pd.testing.assert_frame_equal(found[1], values[1])
    pd.testing.assert_series_equal(found[2], values[2])
    np.testing.assert_array_equal(found[3]["x"], values[3]["x"])
    np.testing.assert_array_equal(found[3]["y"][0], values[3]["y"][0])
    assert found[4:7] == values[4:7]
    assert torch.equal(found[7], values[7])
    assert found[8].tolist() == values[8].tolist()
    shown = repr(gp.Shards.from_objects(values))
    assert shown.startswith("<grampus.Shards: 9 shards of tables and pandas frames and pandas series")


def test_shards_of_shards_can_be_looked_at():
    shards = gp.Shards.from_arrow(pa.table({"a": range(10)}), 4)
    assert len(shards) == 10 and shards.num_partitions() == 4
    assert shards.first()["a"].to_pylist() == [0, 1, 2]
    assert [part.num_rows for part in shards.take(2)] == [3, 3]
    assert len(shards.take(100)) == 4 and shards.take(0) == []
    assert shards.head()["a"].to_pylist() == [0, 1, 2, 3, 4]
    assert shards.head(100).num_rows == 10 and shards.head(0).num_rows == 0
    assert shards.get_schema() == {"columns": ["a"], "dtypes": [pa.int64()]}
    assert [part.num_rows for part in shards] == [3, 3, 2, 2]
    assert gp.Shards.from_objects(["a", "b"]).head() == "a"
    assert bool(shards.transform_shard(lambda part: 1 / 0))


@pytest.mark.parametrize("count", [1, 2, 5, 9])
def test_rows_are_cut_anew_in_their_order(count):
    frame = pd.DataFrame({"a": np.arange(7), "b": list("abcdefg")})
    sizes = [len(part) for part in np.array_split(np.arange(7), count)]
    table = gp.Shards.from_arrow(pa.table(frame), 3).repartition(count)
    assert [part.num_rows for part in table] == sizes
    assert table.to_arrow()["b"].to_pylist() == list("abcdefg")
    frames = gp.Shards.from_pandas(frame, 2).repartition(count)
    assert [len(part) for part in frames] == sizes
    pd.testing.assert_frame_equal(frames.to_pandas(), frame)
    arrays = gp.Shards.partition({"x": np.arange(7), "y": (np.arange(14).reshape(7, 2),)}, 4).repartition(
        count
    )
    assert [part["y"][0].shape for part in arrays] == [(size, 2) for size in sizes]
    np.testing.assert_array_equal(np.concatenate([part["x"] for part in arrays]), np.arange(7))
    lists = gp.Shards.from_objects([[1, 2, 3], [4], [5, 6, 7]]).repartition(count)
    assert [len(part) for part in lists] == sizes
    assert [row for part in lists for row in part] == [1, 2, 3, 4, 5, 6, 7]


def test_objects_are_regrouped():
    assert gp.Shards.from_objects("abc").repartition(2).collect() == [["a", "b"], ["c"]]
    with pytest.raises(gp.DataError, match="number of shards"):
        gp.Shards.from_objects("abc").repartition(4).compute()


def test_tuples_are_split_and_zipped():
    one = numbers()
    two = one.transform_shard(lambda shard: shard.astype(np.float32))
    pairs = one.zip(two)
    assert all(left.dtype == np.int64 and right.dtype == np.float32 for left, right in pairs)
    first, second = pairs.split()
    np.testing.assert_array_equal(np.concatenate(first.collect()), np.arange(6))
    assert second.first().dtype == np.float32


def test_zipping_what_does_not_fit():
    with pytest.raises(gp.DataError, match="other should be a Shards, it is a list"):
        numbers().zip([1, 2, 3])
    with pytest.raises(gp.DataError, match="same number of partitions, they have 3 and 2"):
        numbers().zip(numbers(6, 2))
    with pytest.raises(
        gp.DataError, match=r"same number of elements in each partition, in shard 0 .* 2 and 3"
    ):
        numbers().zip(numbers(7, 3))
    with pytest.raises(gp.DataError, match="split needs shards that are tuples or lists"):
        numbers().transform_shard(lambda shard: tuple(shard[: 1 + shard[0] // 4])).split()


@pytest.mark.parametrize("make", ["table", "frame", "arrays", "list"])
def test_samples(make):
    rows = np.arange(100)
    shards = {
        "table": lambda: gp.Shards.from_arrow(pa.table({"a": rows}), 7),
        "frame": lambda: gp.Shards.from_pandas(pd.DataFrame({"a": rows}), 7),
        "arrays": lambda: gp.Shards.partition({"a": rows}, 7),
        "list": lambda: gp.Shards.from_objects([list(part) for part in np.array_split(rows, 7)]),
    }[make]()

    def values(sample):
        parts = [part if make == "list" else np.asarray(part["a"]).tolist() for part in sample]
        return [int(value) for part in parts for value in part]

    chosen = values(shards.sample(0.3, random_state=1))
    assert len(chosen) == 30 and chosen == sorted(set(chosen))
    assert chosen == values(shards.sample(0.3, random_state=1)) != values(shards.sample(0.3, random_state=2))
    assert values(shards.sample(1.0)) == rows.tolist()
    many = values(shards.sample(3.0, replace=True, random_state=1))
    assert len(many) == 300 and len(set(many)) > 80
    only = (rows % 10 == 3).astype(float)
    assert set(values(shards.sample(0.1, weights=only, random_state=1))) == set(range(3, 100, 10))
    with pytest.raises(ValueError, match="between 0 and 1"):
        shards.sample(1.5)
    with pytest.raises(gp.DataError, match="fewer have a weight above 0"):
        shards.sample(0.5, weights=only).compute()
    with pytest.raises(gp.DataError, match=r"one number for each of 100 rows, their shape is \(3,\)"):
        shards.sample(0.5, weights=[1, 2, 3]).compute()


def test_columns_are_chosen():
    frame = pd.DataFrame({"a": [1, 2], "b": ["x", "y"], "c": [0.5, 1.5]})
    for shards in (gp.Shards.from_pandas(frame, 2), gp.Shards.from_arrow(pa.table(frame), 2)):
        assert list(shards.select(["c", "a"]).to_pandas().columns) == ["c", "a"]
        assert list(shards[["b"]].to_pandas().columns) == ["b"]
        assert list(shards["b"].unique()) == ["x", "y"]
    assert isinstance(gp.Shards.from_pandas(frame, 2)["a"].first(), pd.Series)
    arrays = gp.Shards.partition({"x": np.arange(4), "y": np.ones(4)}, 2)
    assert list(arrays.select("y").first()) == ["y"]
    np.testing.assert_array_equal(arrays["x"].first(), [0, 1])
    assert arrays["x"].unique().tolist() == [0, 1, 2, 3]
    assert numbers()[0].collect() == [0, 2, 4]


def test_features_and_labels():
    frame = pd.DataFrame({"a": [1, 2, 3], "b": [0.5, 1.5, 2.5], "label": [True, False, True]})
    found = gp.Shards.from_pandas(frame, 2).assemble(["a", "b"], "label").collect()
    assert found[0]["x"].shape == (2, 2) and found[0]["y"].shape == (2, 1)
    np.testing.assert_array_equal(np.concatenate([part["x"] for part in found]), frame[["a", "b"]].to_numpy())
    pairs = gp.Shards.from_objects([[(np.zeros(3), 1), (np.ones(3), 0)], (np.ones((4, 3)), np.zeros(4))])
    stacked = pairs.stack_feature_labels().collect()
    assert [part["x"].shape for part in stacked] == [(2, 3), (4, 3)]
    assert all(part[name].dtype == np.float32 for part in stacked for name in "xy")


def test_data_of_other_libraries():
    rows = {"a": [1, 2, 3, 4], "b": ["p", "q", None, "s"]}
    dataset = torch.utils.data.TensorDataset(torch.arange(10), torch.ones(10, 2))
    found = gp.Shards.from_torch(dataset, 4)
    assert [tuple(part[1].shape) for part in found] == [(3, 2), (3, 2), (2, 2), (2, 2)]
    np.testing.assert_array_equal(np.concatenate([part[0] for part in found]), np.arange(10))
    reader = pa.RecordBatchReader.from_batches(
        pa.schema([("a", pa.int64())]), [pa.record_batch({"a": [1, 2]})]
    )
    assert gp.Shards.from_arrow(reader, 2).to_pandas()["a"].tolist() == [1, 2]
    later = gp.Shards._from_table_reader(lambda: pa.table(rows), 2)
    assert "not computed" in repr(later) and later.to_arrow()["b"].to_pylist() == rows["b"]


def test_datasets_of_hugging_face(tmp_path):
    # In a script of its own: what it imports does not slow the others down.
    text = """
import datasets, grampus as gp
data = datasets.Dataset.from_dict({"a": [1, 2, 3, 4], "b": ["p", "q", None, "s"]}).select([3, 1, 2])
shards = gp.Shards.from_huggingface(data, 2)
print(shards.num_partitions(), shards.to_arrow().to_pydict())
"""
    found = run_file(tmp_path / "script.py", text, 50)
    assert found.strip() == "2 {'a': [4, 2, 3], 'b': ['s', 'q', None]}"


def test_workers_see_shards_and_shared_values_that_they_are_given():
    shards = gp.Shards.from_arrow(pa.table({"a": range(10)}), 4)
    assert gp.run(lambda given: given.to_arrow()["a"].to_pylist(), shards) == [list(range(10))] * 2
    shared = gp.SharedValue({"weights": np.arange(100_000)})
    assert gp.run(lambda: int(shared.value["weights"][-1])) == [99_999] * 2
    used = numbers(2, 2).transform_shard(lambda shard: int(shard[0] + shared.value["weights"][7]))
    assert used.collect() == [7, 8]
    shared.unpersist()
    with pytest.raises(gp.DataError, match="unpersisted"):
        _ = shared.value


def test_memory_that_is_gone_is_not_mistaken_for_another():
    shards = gp.Shards.partition(np.arange(10), 2)
    segment = shards._parts[0].segment
    other = type(segment).__new__(type(segment))
    other.__dict__.update(segment.__getstate__())
    number = int(other._path.rsplit("/", 1)[1])
    del shards, segment
    with pytest.raises(gp.DataError, match="memory of these shards is not there"):
        other.open(os.O_RDONLY)
    taken = os.memfd_create("another")
    try:
        os.dup2(taken, number)
        with pytest.raises(gp.DataError, match="memory of these shards is not there"):
            other.open(os.O_RDONLY)
    finally:
        for descriptor in {taken, number}:
            os.close(descriptor)


class Broken(Exception):
    pass


def test_what_a_function_raises_is_raised_with_its_traceback_and_the_shard():
    def fail(shard):
        if shard[0] == 4:
            raise Broken("no such thing")
        return shard

    with pytest.raises(Broken, match="no such thing") as caught:
        numbers().transform_shard(fail).collect()
    assert isinstance(caught.value.__cause__, gp.WorkerTraceback)
    shown = "".join(traceback.format_exception(caught.value))
    assert "in fail" in shown and "grampus: in shard 2 of 3" in shown


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: gp.Shards.partition({"x": np.zeros(3), "y": [np.zeros(4)]}),
            r"data\['x'\] has 3, data\['y'\]\[0\] has 4",
        ),
        (
            lambda: gp.Shards.partition(np.zeros(3), 4),
            "number of shards, 4, is larger than the number of rows, 3",
        ),
        (lambda: gp.Shards.partition(np.zeros(0)), "there are no rows"),
        (lambda: gp.Shards.partition({"x": [1, 2]}), r"data\['x'\]\[0\] is a int"),
        (lambda: gp.Shards.partition({}), "there is none in the data"),
        (lambda: gp.Shards.partition(np.array(1.0)), "an array without rows"),
        (lambda: gp.Shards.from_objects([]), "there are no objects"),
        (lambda: gp.Shards.from_pandas(pd.DataFrame({"a": []})), "there are no rows"),
        (lambda: gp.Shards.from_arrow([1, 2]), "not a list"),
        (
            lambda: gp.Shards.from_huggingface({"train": 1, "test": 2}),
            r"2 datasets \(train, test\): choose one",
        ),
        (lambda: gp.Shards.from_huggingface([1]), "takes a datasets.Dataset, not a list"),
        (lambda: gp.Shards.from_torch(iter([])), "rows by number"),
    ],
)
def test_data_that_cannot_be_cut(make, words):
    with pytest.raises(gp.DataError, match=words) as caught:
        make()
    assert isinstance(caught.value, RuntimeError) and isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (lambda s: s.select(["incom"]), 'no column "incom": do you mean "income"?'),
        (lambda s: s["xyz"], 'no column "xyz": there are age, income, name, gap'),
        (lambda s: s.sort_values("Age"), 'do you mean "age"?'),
        (lambda s: s.group_by("agee"), 'do you mean "age"?'),
        (lambda s: s.group_by("age", {"incme": "sum"}), 'do you mean "income"?'),
        (lambda s: s.merge(s, on="agge"), 'do you mean "age"?'),
        (lambda s: s.partition_by("nme"), 'do you mean "name"?'),
        (lambda s: s.assemble(["age"], ["incomes"]), 'do you mean "income"?'),
    ],
)
def test_a_column_that_is_not_there(use, words):
    shards = gp.Shards.from_pandas(
        pd.DataFrame({"age": [1, 2], "income": [1.5, 2.5], "name": ["a", "b"], "gap": [1.0, None]}), 2
    )
    with pytest.raises(KeyError) as caught:
        use(shards).compute()
    assert isinstance(caught.value, gp.NoColumn) and isinstance(caught.value, gp.DataError)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (
            lambda s: s.assemble(["age", "name"], "income"),
            'column "name" holds .*string, and a model takes numbers',
        ),
        (lambda s: s.assemble(["gap"], "income"), 'row 0, column "gap" is null'),
        (lambda s: s.group_by("age", "sum"), 'cannot work out sum of column "name", which holds'),
        (lambda s: s.group_by("age", {"income": "summ"}), "no function 'summ'"),
        (lambda s: s.sort_values("age", [True, False]), "2 entries for 1 columns"),
        (lambda s: s.select(["age", "income"]).unique(), "unique needs one column"),
        (lambda s: s.partition_by([]), "at least one column"),
        (lambda s: s.merge(s.select("age"), on=[]), "columns that both sides have"),
        (lambda s: s.describe("name"), 'describe needs numbers, column "name"'),
        (lambda s: s.merge([1]), "right should be a Shards"),
        (lambda s: s.stack_feature_labels(), "pairs of features and labels"),
    ],
)
def test_operations_that_do_not_fit_the_columns(use, words):
    frame = pd.DataFrame({"age": [1, 2], "income": [1.5, 2.5], "name": ["a", "b"], "gap": [1.0, None]})
    with pytest.raises(gp.DataError, match=words):
        use(gp.Shards.from_pandas(frame, 2)).compute()


@pytest.mark.parametrize(
    "use",
    [
        lambda s: s.sort_values("x"),
        lambda s: s.deduplicate(),
        lambda s: s.merge(s),
        lambda s: s.group_by("x"),
        lambda s: s.describe(),
        lambda s: s.partition_by("x"),
        lambda s: s.to_arrow(),
        lambda s: s.null_counts(),
        lambda s: s.max_values("x"),
    ],
)
def test_operations_on_tables_say_what_they_were_given(use):
    shards = gp.Shards.partition({"x": np.arange(4)}, 2)
    with pytest.raises(gp.DataError, match=r"needs tables, these shards are arrays \(dict of arrays\): turn"):
        use(shards).compute()


def test_tables_that_differ_are_named():
    shards = gp.Shards.from_objects([pa.table({"a": [1]}), pa.table({"a": [1]}), pa.table({"a": ["x"]})])
    with pytest.raises(
        gp.DataError, match="tables of shards 0 and 2 differ: column 'a' is int64 in one and string"
    ):
        shards.to_arrow()
    mixed = gp.Shards.from_objects([pa.table({"a": [1]}), "text"])
    with pytest.raises(gp.DataError, match="needs tables, these shards are tables and objects"):
        mixed.sort_values("a").compute()


def test_wrong_arguments():
    with pytest.raises(TypeError, match="takes a function, not a int"):
        numbers().transform_shard(3)
    with pytest.raises(ValueError, match="how must be one of inner, left, right, outer"):
        numbers().merge(numbers(), how="cross")
    with pytest.raises(ValueError, match="must be at least 1"):
        numbers().repartition(0)
    with pytest.raises(gp.DataError, match="invalid key 'x'"):
        numbers()["x"].compute()


def test_what_cannot_be_pickled_is_named():
    lock = threading.Lock()
    with pytest.raises(gp.NotPicklable, match="variable 'lock' of the enclosing function"):
        numbers().transform_shard(lambda shard: lock).compute()
    with pytest.raises(gp.NotPicklable, match=r"argument 1 of .* is a lock"):
        numbers().transform_shard(lambda shard, more: shard, lock).compute()
    with pytest.raises(gp.NotPicklable, match=r"returned for shard \d -> \['a'\] is a lock"):
        numbers().transform_shard(lambda shard: {"a": threading.Lock()}).compute()


def test_a_worker_that_dies_is_reported_and_the_next_run_goes_on():
    with pytest.raises(gp.WorkerDied):
        numbers().transform_shard(lambda shard: os._exit(3)).compute()
    assert numbers().transform_shard(len).collect() == [2, 2, 2]


def test_workers_that_do_not_see_the_memory_of_the_driver_send_back_what_they_write(monkeypatch):
    from grampus import session

    monkeypatch.setattr(session._session.cluster, "shares_memory", False)
    found = numbers().transform_shard(lambda shard: shard * 2)
    assert [shard.tolist() for shard in found.collect()] == [[0, 2], [4, 6], [8, 10]]
    assert found.transform_shard(len).collect() == [2, 2, 2]
    with pytest.raises(gp.NotPicklable, match=r"returned for shard \d -> \['a'\] is a lock"):
        numbers().transform_shard(lambda shard: {"a": threading.Lock()}).compute()
    with pytest.raises(ZeroDivisionError):
        numbers().transform_shard(lambda shard: 1 / 0).compute()


def test_workers_are_started_where_none_run(tmp_path):
    text = """
import numpy as np, grampus as gp
if __name__ == "__main__":
    print(gp.Shards.partition(np.arange(4), 2).transform_shard(lambda shard: int(shard.sum())).collect())
"""
    assert run_file(tmp_path / "script.py", text, 50).split() == ["[1,", "5]"]
