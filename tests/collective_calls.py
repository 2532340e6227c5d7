"""What workers call in the tests of collectives, and what numpy says must come out."""

from __future__ import annotations

import functools
import gc
import os

import numpy as np

import grampus as gp

TYPES = ["float16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool"]
FLOATS = {"float16", "float32", "float64"}


def operations(kind):
    """The operations that a type has, with what they do to two numpy arrays."""
    both = {"min": np.minimum, "max": np.maximum}
    if kind in FLOATS:
        return {"sum": np.add, "mean": np.add, "product": np.multiply, **both}
    bits = {"and": np.bitwise_and, "or": np.bitwise_or}
    return {"sum": np.add, "product": np.multiply, **bits, **both}


def sample(rank, kind, count=1000):
    """Small numbers, so that no order of additions and no width of a float changes the sum."""
    numbers = np.random.default_rng(rank).integers(0, 4, count)
    return (numbers > 1) if kind == "bool" else numbers.astype(kind)


def expected(kind, operation, workers, count=1000):
    combined = functools.reduce(
        operations(kind)[operation], [sample(rank, kind, count) for rank in range(workers)]
    )
    if operation == "mean":
        # As documented: half floats are added and divided in single precision, and rounded once.
        combined = combined.astype("float32" if kind == "float16" else kind)
        combined = combined / combined.dtype.type(workers)
    return combined.astype(kind)


def reductions():
    """Which pairs of type and operation give something else than numpy."""
    wrong = []
    for kind in TYPES:
        for operation in operations(kind):
            array = sample(gp.rank(), kind)
            same = gp.collective.all_reduce(array, operation)
            right = expected(kind, operation, gp.world_size())
            if same is not array or array.dtype != right.dtype or array.tobytes() != right.tobytes():
                wrong.append((kind, operation))
    return wrong


def sizes():
    """Sums of every way that the code has: little, more than a slot, shared memory, two dimensions."""
    rank, workers = gp.rank(), gp.world_size()
    total = workers * (workers + 1) / 2
    for shape in [(), (1,), (7, 3), (100_000,), (600_001,)]:
        array = np.full(shape, rank + 1.0, dtype="float32")
        gp.collective.all_reduce(array)
        assert (array == total).all(), shape
        shared = gp.collective.empty(shape)
        shared[...] = rank + 1.0
        gp.collective.all_reduce(shared)
        assert (shared == total).all(), shape


def movements():
    """Everything that moves arrays, with parts of equal and of unequal shape."""
    rank, workers, call = gp.rank(), gp.world_size(), gp.collective
    mine = np.full((rank + 1, 2), rank, dtype="int32")
    gathered = call.all_gather(mine)
    assert [part.shape for part in gathered] == [(other + 1, 2) for other in range(workers)]
    assert all((part == other).all() for other, part in enumerate(gathered))

    for array in (mine, np.full(3, rank, dtype="int32")):
        parts = call.gather(array, root=1)
        assert (parts is None) == (rank != 1)
        for other, part in enumerate(parts or []):
            assert part.dtype == array.dtype and (part == other).all()
            assert part.shape == (array.shape if array is not mine else (other + 1, 2))

    for lengths in ([2] * workers, range(workers)):
        arrays = [np.full(length, other + 0.5) for other, length in enumerate(lengths)]
        got = call.scatter(arrays if rank == 1 else None, root=1)
        assert got.dtype == "float64" and got.tolist() == [rank + 0.5] * lengths[rank]

    arrays = [np.full((other, rank), 10 * rank + other, dtype="uint8") for other in range(workers)]
    got = call.all_to_all(arrays)
    assert [part.shape for part in got] == [(rank, other) for other in range(workers)]
    assert all((part == 10 * other + rank).all() for other, part in enumerate(got))

    array = np.arange(5.0) * (rank == 1)
    assert call.broadcast(array, root=1) is array and array.tolist() == [0, 1, 2, 3, 4]


def partial_sums():
    """What gives the sum to some, or in parts."""
    rank, workers, call = gp.rank(), gp.world_size(), gp.collective
    total = workers * (workers + 1) // 2
    array = np.full(4, rank + 1)
    assert call.reduce(array, root=1) is array
    assert array.tolist() == [total if rank == 1 else rank + 1] * 4

    whole = np.arange(workers * 2.0).reshape(workers * 2, 1) * (rank + 1)
    part = call.reduce_scatter(whole)
    assert part.tolist() == [[2 * rank * total], [(2 * rank + 1) * total]]
    out = np.zeros((2, 1))
    assert call.reduce_scatter(whole, "max", out=out) is out
    assert out.tolist() == [[2 * rank * workers], [(2 * rank + 1) * workers]]
    assert whole.tolist() == (np.arange(workers * 2.0).reshape(-1, 1) * (rank + 1)).tolist()


def lane_sums(dealing):
    """The bits of a sum over lanes, of which each rank drives those that it is dealt."""
    rng = np.random.default_rng(5)
    lanes = (rng.standard_normal((5, 5000)) * 10.0 ** rng.integers(-6, 6, (5, 5000))).astype("float32")
    mine = {lane: lanes[lane].copy() for lane in dealing[gp.rank()]}
    assert gp.collective.all_reduce(mine) is mine
    bits = {array.tobytes() for array in mine.values()}
    assert len(bits) <= 1
    return bits.pop() if bits else None


def norms():
    array = np.random.default_rng(1).standard_normal(100_000).astype("float32")
    value = gp.collective.norm(array)
    assert np.isclose(value, np.linalg.norm(array.astype("float64")), rtol=1e-12)
    return value.hex(), gp.collective.norm(np.zeros(0)), gp.collective.norm(np.full(3, np.nan))


def mapped():
    """Bytes of shared memory that this process has touched."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssShmem")) * 1024


def shared_arrays():
    """Memory of `empty` is summed in place, and free again when nobody has it."""
    gp.collective.barrier()
    before, length = mapped(), 16 << 20
    for _ in range(3):
        array = gp.collective.empty(length // 4)
        address = array.ctypes.data
        assert not array.any()
        array[:] = gp.rank() + 1
        view = array[10:20]
        gp.collective.all_reduce(array)
        assert array.ctypes.data == address
        assert (view == gp.world_size() * (gp.world_size() + 1) / 2).all()
        assert mapped() - before >= length
        del array
        # A view keeps all of it.
        assert view[0] > 0 and mapped() - before >= length
        del view
        gc.collect()
        gp.collective.barrier()
        assert mapped() - before < length // 4
    kinds = gp.collective.empty((2, 3), "int64"), gp.collective.empty(0), gp.collective.empty((), bool)
    return [(array.shape, str(array.dtype)) for array in kinds]


def special_numbers():
    rank = gp.rank()
    array = np.array([np.nan if rank else 1.0, np.inf, np.inf if rank else -np.inf, -0.0])
    gp.collective.all_reduce(array)
    first = [str(value) for value in array]
    array = np.array([np.nan if rank else 1.0, -np.inf if rank else 2.0])
    gp.collective.all_reduce(array, "max")
    return first, [str(value) for value in array]


def nothing():
    """Empty arrays go through every call."""
    call, workers = gp.collective, gp.world_size()
    empty = np.zeros((0, 3), dtype="float32")
    assert call.all_reduce(empty) is empty
    assert call.broadcast(empty) is empty
    assert [part.shape for part in call.all_gather(empty)] == [(0, 3)] * workers
    assert [part.shape for part in call.all_to_all([empty] * workers)] == [(0, 3)] * workers
    assert call.scatter([empty] * workers).shape == (0, 3)
    assert call.reduce_scatter(empty).shape == (0, 3)
    assert call.all_reduce({gp.rank(): empty})[gp.rank()].shape == (0, 3)
    if gp.rank() == 0:
        call.send(empty, 1)
    elif gp.rank() == 1:
        call.recv(empty, 0)


def in_flight(calls=20):
    """Several calls at once, waited for out of order, between blocking ones."""
    rank, workers = gp.rank(), gp.world_size()
    arrays = [np.full(1000 * (index + 1), rank + index, dtype="int64") for index in range(calls)]
    handles = [gp.collective.all_reduce(array, block=False) for array in arrays]
    gathered = gp.collective.all_gather(np.array([rank]), block=False)
    gp.collective.barrier()
    for index in reversed(range(calls)):
        total = workers * (workers - 1) // 2 + workers * index
        assert handles[index].wait() is arrays[index]
        assert handles[index].done() and (arrays[index] == total).all()
        assert handles[index].wait(0) is arrays[index]
    assert [part.tolist() for part in gathered.wait(timeout=10)] == [[other] for other in range(workers)]
    assert gp.collective.barrier(block=False).wait() is None


def late_comer(folder):
    """A handle times out, and its call goes on."""
    go = folder / "go"
    # Forming a group waits for all, whatever the call.
    gp.collective.world()
    if gp.rank() == 0:
        handle = gp.collective.all_reduce(np.ones(3), block=False)
        try:
            handle.wait(timeout=0.1)
            return "no timeout"
        except TimeoutError as error:
            text, done = str(error), handle.done()
        go.touch()
        return text, done, handle.wait(10).tolist(), handle.done()
    while not go.exists():
        os.sched_yield()
    return gp.collective.all_reduce(np.ones(3)).tolist()


def ring():
    """Every rank sends to the next one and hears from the last, with two tags, heard the other way round."""
    rank, workers, call = gp.rank(), gp.world_size(), gp.collective
    after, before = (rank + 1) % workers, (rank - 1) % workers
    got = {tag: [np.zeros(2), np.zeros(2)] for tag in (7, 8)}
    sends = [
        call.send(np.array([rank, tag + number / 10]), after, tag, block=False)
        for number in (0, 1)
        for tag in (7, 8)
    ]
    for tag in (8, 7):
        for array in got[tag]:
            assert call.recv(array, before, tag) is array
    for handle in sends:
        assert handle.wait() is None
    return [array.tolist() for tag in (7, 8) for array in got[tag]]


def groups():
    """Groups of some ranks, beside each other and beside that of all."""
    rank, workers = gp.rank(), gp.world_size()
    evens = [other for other in range(workers) if other % 2 == 0]
    sums = {}
    if rank in evens:
        group = gp.collective.new_group(evens)
        sums["even"] = int(group.all_reduce(np.array([rank]))[0]), group.rank, group.size
        group.close()
    if rank < 2:
        group = gp.collective.new_group([0, 1], deadline=30)
        sums["first"] = int(group.all_reduce(np.array([10 * rank]))[0]), group.rank, group.size
    return sums, int(gp.collective.all_reduce(np.array([rank]))[0])
