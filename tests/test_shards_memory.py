"""Where shards live: anonymous memory, files past a limit, and nothing once they are gone."""

import contextlib
import gc
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from clusters import one_cluster
from leftovers import open_descriptors, shared_memory

import grampus as gp
from grampus.shards import segments

runtime = one_cluster(workers=2, preload=("numpy", "pandas", "pyarrow"))

MEGABYTE = 1_000_000


@pytest.fixture
def limited(tmp_path):
    """A megabyte of memory, and a folder for the rest."""
    gp.shards.set_memory_limit("1MB", spill=tmp_path)
    yield tmp_path
    gp.shards.set_memory_limit(None)


def spilled(folder):
    return [entry for entry in open_descriptors() if f"{folder}/" in entry and "(deleted)" in entry]


def tables(shards):
    return gp.Shards.from_arrow(pa.table({"a": np.arange(1_250_000), "b": np.arange(1_250_000) % 7}), shards)


def grown(shards):
    return shards.transform_shard(lambda part: part.append_column("c", part["a"])).sort_values(["b", "a"])


def test_what_is_past_the_limit_goes_to_disk_and_is_equal(limited):
    gc.collect()
    assert segments._budget.used == 0
    gp.shards.set_memory_limit(None)
    expected = grown(tables(20)).to_arrow()
    assert not spilled(limited)
    gp.shards.set_memory_limit("1MB", spill=limited)
    found = grown(tables(20)).compute()
    assert spilled(limited)
    assert segments._budget.used <= MEGABYTE
    assert found.to_arrow().equals(expected)
    assert not list(limited.iterdir()), "a file has a name"
    del found, expected
    gc.collect()
    assert not spilled(limited)
    assert segments._budget.used == 0


def test_what_fits_into_the_limit_stays_in_memory(limited):
    shards = gp.Shards.partition(np.zeros(10_000), 2).transform_shard(lambda part: part + 1).compute()
    assert not spilled(limited)
    assert 0 < segments._budget.used < MEGABYTE
    assert sum(part.sum() for part in shards) == 10_000


def test_a_result_of_workers_shares_the_limit_among_them(limited):
    made = gp.Shards.from_objects(range(10)).transform_shard(lambda n: np.full(100_000, n)).compute()
    assert segments._budget.used <= MEGABYTE
    assert len(spilled(limited)) == 2
    assert [part[-1] for part in made] == list(range(10))


@pytest.mark.parametrize(
    ("limit", "size"), [(5, 5), ("5", 5), ("8GB", 8 * 10**9), ("1.5 MiB", 3 * 2**19), ("2k", 2000), ("0", 0)]
)
def test_limits_are_read(limit, size, tmp_path):
    gp.shards.set_memory_limit(limit, tmp_path)
    assert segments._budget.limit == size
    gp.shards.set_memory_limit(None)


@pytest.mark.parametrize("limit", ["much", "8 parsecs", -1, True, "-5GB", 1.5j])
def test_limits_that_are_none(limit):
    with pytest.raises(ValueError, match="a number of bytes or a text such as '8GB'"):
        gp.shards.set_memory_limit(limit)


def test_a_folder_that_cannot_be_used_is_refused_at_once(tmp_path):
    with pytest.raises(gp.DataError, match="cannot hold files without names"):
        gp.shards.set_memory_limit("1GB", spill=tmp_path / "missing")
    assert segments._budget.limit is None


def test_a_thousand_collections_leave_nothing(limited):
    def cycle(number):
        shards = gp.Shards.partition({"x": np.arange(1000) + number}, 4)
        assert shards.first()["x"][0] == number
        frame = gp.Shards.from_pandas(pd.DataFrame({"a": [3, 1, 2]}), 2).sort_values("a")
        assert frame.to_pandas()["a"].tolist() == [1, 2, 3]
        assert gp.SharedValue(number).value == number
        if number % 20 == 0:
            assert sum(shards.transform_shard(lambda part: len(part["x"]))) == 1000

    cycle(0)
    gc.collect()
    before = len(open_descriptors()), threading.active_count(), shared_memory(), mappings()
    for number in range(1000):
        cycle(number)
    gc.collect()
    assert len(open_descriptors()) == before[0]
    assert threading.active_count() == before[1]
    assert shared_memory() == before[2]
    assert mappings() <= before[3]
    assert not list(limited.iterdir())
    assert segments._budget.used == 0
    assert gp.run(mappings) == [0, 0]


def mappings():
    return sum("grampus-shards" in line for line in Path("/proc/self/maps").read_text().splitlines())


def test_what_fails_leaves_no_memory():
    def fail(part):
        raise ValueError("no")

    before = len(open_descriptors())
    for _ in range(5):
        with pytest.raises(ValueError, match="no"):
            gp.Shards.partition(np.arange(4), 2).transform_shard(fail).compute()
    gc.collect()
    assert len(open_descriptors()) == before
    assert segments._budget.used == 0


def test_a_shard_that_is_held_outlives_its_collection():
    shard = gp.Shards.partition(np.arange(100_000), 2).first()
    gc.collect()
    assert segments._budget.used == 0
    assert shard.sum() == sum(range(50_000))


def test_what_a_collection_was_made_of_goes_when_nobody_needs_it():
    shards = gp.Shards.partition(np.zeros(1_000_000), 2)
    for _ in range(5):
        shards = shards.transform_shard(lambda part: part + 1).compute()
    gc.collect()
    assert segments._budget.used < 1.5 * shards.first().nbytes * 2
    assert shards.first()[0] == 5


def test_a_driver_that_is_killed_leaves_no_file(tmp_path):
    text = f"""
import os, signal, numpy as np, grampus as gp
gp.shards.set_memory_limit(0, spill={str(tmp_path)!r})
shards = gp.Shards.partition(np.zeros(1_000_000), 2)
print(os.readlink(shards._parts[0].segment._path), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert done.stdout.startswith(f"{tmp_path}/") and done.stdout.endswith("(deleted)\n")
    assert not list(tmp_path.iterdir())


def test_a_worker_holds_only_its_own_room_while_a_function_runs():
    def held(part):
        found = []
        for entry in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):  # the one that reads the folder
                found.append(str(entry.readlink()))
        return sum("grampus-shards" in target for target in found)

    assert gp.Shards.partition(np.zeros(1000), 4).transform_shard(held).collect() == [1, 1, 1, 1]
