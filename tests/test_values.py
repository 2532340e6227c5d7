"""Values on their way to workers and back: large, small, many, odd."""

import gc
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from processes import wait_until

import grampus as gp

MIB = 1 << 20


def random_array(mebibytes):
    return np.random.default_rng(0).integers(0, 256, mebibytes * MIB, dtype=np.uint8)


def test_a_large_array_arrives_writable_and_changes_nobody_elses():
    gp.init(workers=2)
    array = random_array(64)
    before = array.copy()

    def change(array):
        total = int(array.sum())
        array[:] = gp.rank()
        return total, int(array.max())

    assert gp.run(change, array) == [(int(before.sum()), 0), (int(before.sum()), 1)]
    assert np.array_equal(array, before)


def test_a_large_array_comes_back_writable():
    gp.init(workers=2)
    results = gp.run(lambda: np.full(8 * MIB, gp.rank() + 0.5))
    for rank, result in enumerate(results):
        assert result.nbytes == 64 * MIB
        assert (result == rank + 0.5).all()
        result[0] = 7.0
        assert result.flags.writeable
    assert results[0][1] != results[1][1]


def test_an_array_kept_by_a_worker_stays_as_it_was():
    gp.init(workers=2)

    def keep(array):
        import builtins

        builtins.kept_by_test = array

    def look():
        import builtins

        return float(builtins.kept_by_test.sum())

    for value in (1.0, 2.0):
        array = np.full(MIB, value)
        gp.run(keep, array)
        array[:] = 100.0
        gp.run(lambda x: x.sum(), np.full(MIB, 50.0))
        assert gp.run(look) == [value * MIB] * 2


def test_what_a_run_sent_is_given_back():
    gp.init(workers=2)
    count = lambda: len(list(Path("/proc/self/fd").iterdir()))  # noqa: E731
    gp.run(lambda array: array, np.zeros(MIB))
    # A worker exchanges its reserved port while a function runs: for a moment it may hold one socket more.
    here, there = count(), list(map(min, *(gp.run(count) for _ in range(20))))
    for _ in range(5):
        gp.run(lambda array: array, np.zeros(MIB))
    assert wait_until(lambda: (count(), gp.run(count)) == (here, there), 5)


def memory_files():
    links = [str(entry.readlink()) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    return sum("memfd" in link for link in links)


def test_an_exception_that_is_kept_keeps_no_memory():
    gp.init(workers=2)
    # What tests before have left in circles goes when Python likes, and must not go in between.
    gc.collect()
    before = memory_files()

    def fail(array):
        raise ValueError(array)

    with pytest.raises(ValueError) as caught:
        gp.run(fail, np.zeros(MIB))
    assert caught.value.args[0].shape == (MIB,)
    assert memory_files() == before


def test_results_that_are_kept_hold_no_descriptors():
    gp.init(workers=2)
    before = len(list(Path("/proc/self/fd").iterdir()))
    kept = [gp.run(lambda number: np.full(20_000, number), number) for number in range(20)]
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert [int(pair[1][-1]) for pair in kept] == list(range(20))


def test_more_arrays_than_one_call_of_the_kernel_takes():
    gp.init(workers=2)
    arrays = [np.full(100, number) for number in range(3000)]
    totals, back = zip(
        *gp.run(lambda arrays: (sum(int(a.sum()) for a in arrays), arrays), arrays), strict=True
    )
    assert totals == (sum(range(3000)) * 100,) * 2
    for result in back:
        assert len(result) == 3000
        assert all(np.array_equal(mine, theirs) for mine, theirs in zip(arrays, result, strict=True))


@pytest.mark.parametrize("size", [1, 100, 65_000, 65_536, 70_000])
def test_arrays_of_sizes_around_the_border_between_socket_and_memory(size):
    gp.init(workers=2)
    array = np.arange(size, dtype=np.uint8)
    for result in gp.run(lambda array: array + 1, array):
        assert np.array_equal(result, array + 1)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(10_000.0).reshape(100, 100)[::3, ::-2],
        np.asfortranarray(np.arange(200_000.0).reshape(400, 500)),
        np.arange(200_000.0).reshape(400, 500).T,
        np.broadcast_to(np.arange(1000), (300, 1000)),
        np.empty((0, 5)),
        np.empty(0, dtype="datetime64[s]"),
        np.array(3.5),
        np.array(["a", "béta"]),
        np.array([{"a": 1}, None], dtype=object),
        np.zeros(50_000, dtype=[("x", "<f4"), ("y", ">i8")]),
    ],
    ids=[
        "strided",
        "fortran",
        "transposed",
        "broadcast",
        "empty",
        "empty dates",
        "scalar",
        "text",
        "object",
        "record",
    ],
)
def test_arrays_of_any_kind_come_back_equal(array):
    gp.init(workers=2)
    for result in gp.run(lambda array: array, array):
        assert (result.dtype, result.shape) == (array.dtype, array.shape)
        assert np.array_equal(result, array)


def test_many_empty_arrays_beside_a_large_one():
    gp.init(workers=1)
    value = [np.empty(0), np.ones(MIB), np.empty((3, 0))] * 3
    (result,) = gp.run(lambda value: value, value)
    assert [each.shape for each in result] == [each.shape for each in value]
    assert all(np.array_equal(mine, theirs) for mine, theirs in zip(value, result, strict=True))


def test_one_array_twice_is_one_array_there():
    gp.init(workers=2)
    array = np.zeros(100_000)
    assert gp.run(lambda pair: pair[0] is pair[1], (array, array)) == [True, True]


def test_arrays_deep_inside_other_values():
    gp.init(workers=2)
    value = array = np.arange(100_000)
    for depth in range(100):
        value = {"depth": depth, "inner": [value]}

    def dig(value):
        while isinstance(value, dict):
            (value,) = value["inner"]
        return int(value.sum())

    assert gp.run(dig, value) == [int(array.sum())] * 2


def test_a_hundred_megabytes_of_bytes():
    gp.init(workers=2)
    data = os.urandom(1000) * 100_000
    for length, back in gp.run(lambda data: (len(data), data[::-1]), data):
        assert length == 100_000_000
        assert back == data[::-1]


def test_buffers_that_are_no_arrays():
    gp.init(workers=2)
    value = (b"", bytearray(b"x" * 100_000), pickle.PickleBuffer(bytearray(b"y" * 100_000)))
    for result in gp.run(lambda value: value, value):
        assert [bytes(part) for part in result] == [b"", b"x" * 100_000, b"y" * 100_000]


def test_values_that_are_equal_stay_apart_in_the_driver():
    gp.init(workers=2)
    first, second = gp.run(lambda: {"list": []})
    first["list"].append(1)
    assert second == {"list": []}


def test_nothing_and_every_plain_type_come_back():
    gp.init(workers=1)
    value = [
        None,
        True,
        10**100,
        1.5,
        2j,
        "text",
        b"bytes",
        (1,),
        {1},
        frozenset({2}),
        {"k": 1},
        range(3),
        Ellipsis,
    ]
    assert gp.run(lambda value: value, value) == [value]
    assert gp.run(lambda: None) == [None]
