"""Collectives between the workers of a task: what they return, what they refuse, and what ends them."""

import contextlib
import os
import re
import signal
import time

import collective_calls as calls
import numpy as np
import pytest
from processes import PATIENCE, finish, read_line, start

import grampus as gp
from grampus import _native
from grampus.errors import CallMismatch, CollectiveError, PeerLost, WorkerDied

HOST = os.uname().nodename


@pytest.fixture(params=[2, 3])
def workers(request):
    gp.init(workers=request.param)
    return request.param


def test_every_type_and_operation_gives_what_numpy_gives(workers):
    assert gp.run(calls.reductions) == [[]] * workers


def test_sums_of_any_size_private_or_shared(workers):
    gp.run(calls.sizes)


def test_arrays_are_gathered_scattered_exchanged_and_broadcast(workers):
    gp.run(calls.movements)


def test_sums_for_one_and_in_parts(workers):
    gp.run(calls.partial_sums)


def test_lanes_give_equal_bits_whoever_drives_them():
    """CL-1."""
    dealings = [
        [[0, 1, 2, 3, 4]],
        [[0, 1, 2], [3, 4]],
        [[4, 0], [3, 1, 2]],
        [[], [0, 1, 2, 3, 4]],
        [[0], [1, 2], [3, 4]],
        [[1, 3], [], [0, 2, 4]],
    ]
    gp.init(workers=3)
    found = {bits for dealing in dealings for bits in gp.run(calls.lane_sums, dealing, workers=len(dealing))}
    assert len(found - {None}) == 1


def test_the_bits_of_a_norm_do_not_depend_on_the_number_of_workers():
    """CL-2."""
    gp.init(workers=3)
    found = {value for workers in (1, 2, 3) for value in gp.run(calls.norms, workers=workers)}
    (first,) = {value[0] for value in found}
    assert float.fromhex(first) > 0
    assert {value[1] for value in found} == {0.0}
    assert all(np.isnan(value[2]) for value in found)


def test_shared_arrays_are_summed_in_place_and_freed(workers):
    kinds = [((2, 3), "int64"), ((0,), "float32"), ((), "bool")]
    assert gp.run(calls.shared_arrays) == [kinds] * workers


def test_infinities_and_nan_are_kept(workers):
    sums = ["nan", "inf", "nan", "-0.0"]
    assert gp.run(calls.special_numbers) == [(sums, ["nan", "2.0"])] * workers


def test_empty_arrays(workers):
    gp.run(calls.nothing)


def test_calls_in_flight(workers):
    gp.run(calls.in_flight)


def test_a_wait_that_times_out_leaves_the_call_on_its_way(tmp_path):
    told, other = gp.run(calls.late_comer, tmp_path, workers=2)
    assert told == ("the call was not through after 0.1 s; it goes on", False, [2.0] * 3, True)
    assert other == [2.0] * 3


def test_send_and_recv_in_a_ring(workers):
    expected = [[[(rank - 1) % workers, value] for value in (7, 7.1, 8, 8.1)] for rank in range(workers)]
    assert gp.run(calls.ring) == expected


def test_groups_of_some_workers():
    even, first = {"even": (2, 0, 2)}, {"first": (10, 0, 2)}
    assert gp.run(calls.groups, workers=3) == [
        ({**even, **first}, 3),
        ({"first": (10, 1, 2)}, 3),
        ({"even": (2, 1, 2)}, 3),
    ]


def one_worker():
    whole, part = gp.collective.all_reduce(np.ones(3), "mean"), gp.collective.reduce_scatter(np.ones(2))
    gathered, group = gp.collective.all_gather(np.ones((2, 2))), gp.collective.world()
    shared = gp.collective.all_reduce(gp.collective.empty(3))
    assert group.rank == 0 and group.size == 1 and "rank 0 of 1" in repr(group)
    return whole.tolist(), part.tolist(), len(gathered), shared.tolist()


def test_one_worker_is_a_group_too():
    assert gp.run(one_worker, workers=1) == [([1.0] * 3, [1.0] * 2, 1, [0.0] * 3)]


def test_a_process_without_a_cluster_is_a_group_of_its_own():
    driver = start("""
        import grampus as gp, numpy as np
        print(gp.collective.all_reduce(np.arange(3)).tolist(), gp.collective.world())
        print(gp.collective.all_reduce({0: np.ones(1), 1: np.ones(1)})[1].tolist())
        print(gp.collective.scatter([np.ones(2)]).tolist(), gp.collective.norm(np.array([3.0, 4.0])))
        print(gp.collective.form().generation)
    """)
    lines = ["[0, 1, 2] <grampus.collective.Group: rank 0 of 1>", "[2.0]", "[1.0, 1.0] 5.0", "2"]
    assert finish(driver)[:2] == (0, "\n".join([*lines, ""]))


def test_a_rank_of_another_launcher_is_told_what_to_do():
    script = "import grampus as gp; gp.collective.barrier()"
    code, _, err = finish(start(script, env={**os.environ, "RANK": "1", "WORLD_SIZE": "2"}))
    assert code == 1
    assert 'or torch.distributed with init_process_group("grampus")' in err


def test_a_group_belongs_to_its_task(workers):
    def number(value):
        old = getattr(gp, "kept", None)
        gp.kept = gp.collective.world()
        refused = ""
        if old is not None:
            try:
                old.barrier()
            except CollectiveError as error:
                refused = str(error)
        return int(gp.collective.all_reduce(np.array([value]))[0]), gp.kept.generation, refused

    assert gp.run(number, 5) == [(5 * workers, 1, "")] * workers
    ended = "the group has ended: it was closed here; form a new one"
    assert gp.run(number, 6) == [(6 * workers, 1, ended)] * workers


def read_only():
    array = np.ones(3)
    array.flags.writeable = False
    return array


WRONG = {
    "not contiguous": (lambda c: c.all_reduce(np.ones((4, 4))[:, 1]), ValueError, "ascontiguousarray"),
    "fortran": (lambda c: c.broadcast(np.ones((4, 4), order="F")), ValueError, "not contiguous"),
    "read-only": (lambda c: c.all_reduce(read_only()), ValueError, "pass a copy"),
    "complex": (lambda c: c.all_reduce(np.ones(2, complex)), TypeError, "use float16"),
    "uint16": (lambda c: c.all_gather(np.ones(2, "uint16")), TypeError, "use float16"),
    "objects": (lambda c: c.gather(np.array([None])), TypeError, "use float16"),
    "big-endian": (lambda c: c.all_reduce(np.ones(2, ">f4")), TypeError, "use float16"),
    "no array": (lambda c: c.all_reduce([1.0, 2.0]), TypeError, "pass a numpy array"),
    "number": (lambda c: c.all_reduce(np.float64(3)), TypeError, "pass a numpy array"),
    "no array to cut": (lambda c: c.reduce_scatter([1.0, 2.0]), TypeError, "pass a numpy array"),
    "no array to gather": (lambda c: c.all_gather([1.0, 2.0]), TypeError, "pass a numpy array"),
    "no arrays to exchange": (lambda c: c.all_to_all([1] * gp.world_size()), TypeError, "pass a numpy array"),
    "gathered stride": (lambda c: c.all_gather(np.ones((4, 4))[:, 1]), ValueError, "ascontiguousarray"),
    "no operation": (lambda c: c.all_reduce(np.ones(2), "average"), ValueError, "use sum, mean"),
    "mean of integers": (lambda c: c.all_reduce(np.ones(2, int), "mean"), ValueError, "convert to a float"),
    "or of floats": (lambda c: c.reduce(np.ones(2), op="or"), ValueError, "no or of f64"),
    "norm of integers": (lambda c: c.norm(np.ones(2, int)), ValueError, "convert to a float"),
    "root of reduce": (lambda c: c.reduce(np.ones(2), root=9), ValueError, "no root 9"),
    "root of broadcast": (lambda c: c.broadcast(np.ones(2), root=-1), ValueError, "no root -1"),
    "root of gather": (lambda c: c.gather(np.ones(gp.rank()), root=9), ValueError, "no root 9"),
    "root of scatter": (lambda c: c.scatter(root=9), ValueError, "no root 9"),
    "uneven": (lambda c: c.reduce_scatter(np.ones(7)), ValueError, "pad it"),
    "no axis": (lambda c: c.reduce_scatter(np.ones(())), ValueError, "pad it"),
    "small out": (lambda c: c.reduce_scatter(np.ones(6), out=np.ones(6)), ValueError, "let the sizes fit"),
    "out of another type": (
        lambda c: c.reduce_scatter(np.ones(6), out=np.ones(6 // gp.world_size(), int)),
        ValueError,
        "pass one type",
    ),
    "too few parts": (lambda c: c.all_to_all([np.ones(2)]), ValueError, "pass one for each"),
    "mixed parts": (
        lambda c: c.all_to_all([np.ones(2, "int8"), *[np.ones(2)] * (gp.world_size() - 1)]),
        ValueError,
        "pass one type",
    ),
    "to itself": (lambda c: c.send(np.ones(2), gp.rank()), ValueError, "name another rank"),
    "to nobody": (lambda c: c.send(np.ones(2), 9), ValueError, "name another rank"),
    "from nobody": (lambda c: c.recv(np.ones(2), -1), ValueError, "name another rank"),
    "odd tag": (lambda c: c.send(np.ones(2), (gp.rank() + 1) % 2, tag=-1), ValueError, "tag"),
    "unequal lanes": (
        lambda c: c.all_reduce({2 * gp.rank(): np.ones(2), 2 * gp.rank() + 1: np.ones(3)}),
        ValueError,
        "lanes differ",
    ),
    "no lane": (lambda c: c.all_reduce({-1: np.ones(2)}), ValueError, "lane"),
    "strangers": (lambda c: c.new_group([0, 9]), ValueError, "ranks"),
    "negative": (lambda c: c.empty(-1), ValueError, "shape"),
}


def misuse():
    """Make every wrong call on all ranks; after each one the group still adds up."""
    found = {}
    for name, (call, kind, words) in WRONG.items():
        try:
            call(gp.collective)
            found[name] = "nothing"
        except Exception as error:
            if type(error) is not kind or words not in str(error):
                found[name] = f"{type(error).__name__}: {error}"
        if int(gp.collective.all_reduce(np.array([1]))[0]) != gp.world_size():
            found[name] = "a wrong sum afterwards"
    return found, gp.collective.world().generation


def test_wrong_arguments_are_told_and_cost_nothing(workers):
    """CL-12."""
    assert gp.run(misuse) == [({}, 1)] * workers


ALONE = {
    "gathered stride": lambda c: c.all_gather(np.ones((4, 4))[:, 1]),
    "gathered type": lambda c: c.gather(np.ones(2, complex)),
    "scattered number": lambda c: c.scatter([np.ones(2)] * 9),
    "scattered types": lambda c: c.scatter([np.ones(2), *[np.ones(2, "int8")] * (gp.world_size() - 1)]),
    "scattered stride": lambda c: c.scatter([np.ones((4, 4))[:, 1]] * gp.world_size()),
    "exchanged types": lambda c: c.all_to_all([np.ones(2), *[np.ones(2, "int8")] * (gp.world_size() - 1)]),
    "exchanged stride": lambda c: c.all_to_all([np.ones((4, 4))[:, 1]] * gp.world_size()),
}


def misuse_by_one():
    """Rank 0 makes a wrong call first; nobody else has heard of it when it makes the right one."""
    call, workers = gp.collective, gp.world_size()
    refused = []
    for name, wrong in ALONE.items():
        if gp.rank() == 0:
            try:
                wrong(call)
            except (TypeError, ValueError):
                refused.append(name)
        array = np.full(2, float(gp.rank()))
        assert len(call.all_gather(array)) == workers
        assert call.scatter([array] * workers).tolist() == [0, 0]
        assert call.all_to_all([array] * workers)[workers - 1].tolist() == [workers - 1] * 2
    return len(refused)


def test_a_wrong_call_of_one_worker_can_be_made_again(workers):
    """CL-12."""
    assert gp.run(misuse_by_one) == [len(ALONE)] + [0] * (workers - 1)


def differ(variant):
    rank, call = gp.rank(), gp.collective
    variants = {
        "size": lambda: call.all_reduce(np.ones(2 + rank)),
        "type": lambda: call.all_reduce(np.ones(2, ["float32", "float64"][rank % 2])),
        "operation": lambda: call.all_reduce(np.ones(2), ["sum", "max"][rank % 2]),
        "root": lambda: call.broadcast(np.ones(2), rank % 2),
        "call": lambda: call.barrier() if rank else call.all_reduce(np.ones(2)),
        "gathered type": lambda: call.all_gather(np.ones(2, ["float32", "float64"][rank % 2])),
        "started": lambda: call.all_reduce(np.ones(2 + rank), block=False).wait(),
    }
    first = call.form()
    try:
        variants[variant]()
        return "nothing was raised"
    except CallMismatch as error:
        text = str(error)
    try:
        first.barrier()
    except CollectiveError as error:
        again = str(error)
    second = call.form()
    total = int(call.all_reduce(np.array([1]))[0])
    return text, again, second.generation - first.generation, total


@pytest.mark.parametrize("variant", ["size", "type", "operation", "root", "call", "gathered type", "started"])
def test_calls_that_differ_are_named_on_all_and_a_new_group_works(variant):
    """CL-3, CL-7, CL-13."""
    (first, *others) = gp.run(differ, variant, workers=2)
    assert others == [first]
    text, again, generations, total = first
    assert "rank 0 called" in text and "but rank 1 called" in text and "same calls in the same order" in text
    assert again.startswith("the group has ended") and "form it again" in again
    assert (generations, total) == (1, 2)


def test_lanes_that_make_no_whole_are_named():
    def sum_lanes():
        with pytest.raises(CollectiveError, match="lane 0 was passed by rank 0 and by rank 1"):
            gp.collective.all_reduce({0: np.ones(2)})

    gp.run(sum_lanes, workers=2)


@pytest.mark.parametrize("count", [10, 10_000_000])
def test_a_worker_that_is_killed_in_a_collective_is_the_first_cause(workers, count):
    """CL-6, and CO-8 of the coordinator."""

    def work():
        array = np.ones(count, "float32")
        gp.collective.all_reduce(array)
        if gp.rank() == 1:
            gp.collective.all_reduce(array, block=False)
            os.kill(os.getpid(), signal.SIGKILL)
        while True:
            gp.collective.all_reduce(array)

    with pytest.raises(WorkerDied, match="SIGKILL") as caught:
        gp.run(work)
    assert caught.value.rank == 1
    assert gp.run(one_sum) == [workers] * workers


def one_sum():
    return int(gp.collective.all_reduce(np.array([1]))[0])


def test_the_error_of_a_worker_is_the_first_cause_while_others_wait(workers):
    def work():
        gp.collective.barrier()
        if gp.rank() == 1:
            raise ValueError("no such column")
        gp.collective.barrier()

    before = gp.run(os.getpid)
    with pytest.raises(ValueError, match="no such column") as caught:
        gp.run(work)
    assert caught.value.__cause__.rank == 1
    assert gp.run(one_sum) == [workers] * workers
    assert gp.run(os.getpid) == before


def test_what_the_others_do_about_a_death_is_not_the_cause():
    def work():
        gp.collective.barrier()
        if gp.rank() == 1:
            # Long enough for the others to fail before the driver knows.
            gp.collective.world().close()
            with contextlib.suppress(KeyboardInterrupt):
                time.sleep(0.3)
            os._exit(3)
        try:
            gp.collective.barrier()
        finally:
            # The group has ended, so this is a CollectiveError.
            gp.collective.barrier()

    with pytest.raises(WorkerDied, match="code 3"):
        gp.run(work, workers=2)


def test_an_error_before_the_group_has_formed_leaves_the_others_warm(workers):
    def work():
        if gp.rank() == 1:
            raise ValueError("no such file")
        gp.collective.barrier()

    before = gp.run(os.getpid)
    with pytest.raises(ValueError, match="no such file"):
        gp.run(work)
    assert gp.run(os.getpid) == before
    assert gp.run(one_sum) == [workers] * workers


def test_a_worker_that_returns_early_is_named(workers):
    def work():
        gp.collective.barrier()
        if gp.rank() != 1:
            gp.collective.all_reduce(np.ones(3))

    with pytest.raises(PeerLost, match="it left the group") as caught:
        gp.run(work)
    error = caught.value
    assert (error.rank, error.host) == (1, HOST)
    assert 0 <= error.last_seen < PATIENCE
    assert "all_reduce(sum) of 3 f64" in str(error)


def test_a_lost_peer_can_be_caught_and_the_rest_goes_on():
    def work():
        gp.collective.barrier()
        if gp.rank() == 1:
            return None
        try:
            gp.collective.barrier()
        except PeerLost as error:
            lost = error.rank
        rest = gp.collective.new_group([0, 2])
        return lost, int(rest.all_reduce(np.array([gp.rank()]))[0])

    assert gp.run(work, workers=3) == [(1, 2), None, (1, 2)]


def test_a_worker_that_does_something_else_is_named_after_the_deadline():
    """CL-6."""

    def work():
        group = gp.collective.form(deadline=0.3)
        if gp.rank() == 1:
            time.sleep(1.5)
            return None
        began = time.monotonic()
        with pytest.raises(PeerLost, match="did not make the call in time") as caught:
            group.barrier()
        return caught.value.rank, 0.3 <= time.monotonic() - began < PATIENCE

    assert gp.run(work, workers=2) == [(1, True), None]


def test_a_group_of_some_waits_for_as_long_as_its_deadline():
    """CL-6."""

    def work():
        # The deadline holds for forming, too: they come together.
        gp.collective.barrier()
        group = gp.collective.new_group([0, 1], deadline=1.5)
        if gp.rank() == 1:
            time.sleep(4)
            return None
        began = time.monotonic()
        with pytest.raises(PeerLost, match="did not make the call in time"):
            group.barrier()
        return 1.5 <= time.monotonic() - began < PATIENCE

    assert gp.run(work, workers=2) == [True, None]


def test_a_group_that_is_closed_is_left(workers):
    def work():
        group = gp.collective.new_group(list(range(gp.world_size())))
        if gp.rank() == 1:
            group.close()
        try:
            group.barrier()
        except CollectiveError as error:
            return type(error).__name__, str(error), one_sum()

    left, closed, *rest = gp.run(work)
    assert left[0] == "PeerLost" and "lost rank 1" in left[1] and "it left the group" in left[1]
    assert closed[:2] == ("CollectiveError", "the group has ended: it was closed here; form a new one")
    assert {total for _, _, total in (left, closed, *rest)} == {workers}


def test_a_group_that_is_closed_is_left_whatever_refers_to_it(workers):
    """An exception that is kept holds frames, and with them the gradients of a model."""

    def work():
        group = gp.collective.new_group(list(range(gp.world_size())))
        group.barrier()
        mine = (gp.rank(), gp.rank() + 1)
        gradients = _native.Gradients(group._native, mine, gp.world_size(), [(0, 10)])
        if gp.rank() != 1:
            began = time.monotonic()
            with pytest.raises(PeerLost, match="it left the group") as caught:
                group.barrier()
            return caught.value.rank, time.monotonic() - began < 5
        group.close()
        group.close()
        gradients.skip(0)
        with pytest.raises(CollectiveError, match=r"the group has ended \(this member closed it\)"):
            gradients.finish()
        time.sleep(6)
        return None

    found = gp.run(work)
    assert found == [None if rank == 1 else (1, True) for rank in range(workers)]


@pytest.mark.parametrize(
    ("before", "wait", "warm"),
    [
        ("gp.collective.world()", "gp.collective.barrier()", True),
        ("gp.collective.world()", "gp.collective.barrier(block=False).wait()", True),
        ("gp.collective.world()", "gp.collective.barrier(block=False).wait(600)", True),
        ("exchange()", "gp.collective.recv(np.ones(3), 1)", True),
        ("pass", "gp.collective.barrier()", True),
        ("gp.collective.world()", "gp.collective.recv(np.ones(3), 1)", True),
    ],
    ids=["blocking", "handle", "limit", "recv", "forming", "first recv"],
)
def test_ctrl_c_ends_a_wait_for_others(before, wait, warm):
    driver = start(
        f"""
        import os, sys, time
        import numpy as np
        import grampus as gp

        def exchange():
            move = gp.collective.recv if gp.rank() == 0 else gp.collective.send
            move(np.ones(3), 1 - gp.rank())

        def work():
            {before}
            if gp.rank() == 0:
                print("waits", flush=True)
                {wait}
            time.sleep(600)

        gp.init(workers=2)
        before = gp.run(os.getpid)
        try:
            gp.run(work)
        except KeyboardInterrupt:
            print("interrupted", gp.run(os.getpid) == before, flush=True)
        raise KeyboardInterrupt
        """,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert read_line(driver) == "[rank 0] waits"
    time.sleep(0.3)
    began = time.monotonic()
    driver.send_signal(signal.SIGINT)
    code, out, err = finish(driver)
    assert (code, out) == (-signal.SIGINT, f"interrupted {warm}\n"), err
    assert time.monotonic() - began < 3


def test_a_letter_from_a_worker_that_has_left_is_not_waited_for(workers):
    def work():
        gp.collective.barrier()
        if gp.rank() == 1:
            return None
        began = time.monotonic()
        with pytest.raises(gp.PeerLost, match="it left the group") as caught:
            gp.collective.recv(np.ones(3), 1)
        return caught.value.rank, time.monotonic() - began < 5

    found = gp.run(work)
    assert found == [None if rank == 1 else (1, True) for rank in range(workers)]


def test_an_error_survives_its_way_to_the_driver():
    def work():
        gp.collective.all_reduce(np.ones(1 + gp.rank()))

    with pytest.raises(CallMismatch, match=re.escape("all_reduce(sum) of 2 f64")) as caught:
        gp.run(work, workers=2)
    assert isinstance(caught.value, CollectiveError) and isinstance(caught.value, gp.GrampusError)


def test_torch_tensors():
    def work():
        import torch

        call, rank = gp.collective, gp.rank()
        tensor = torch.full((3,), rank + 1, dtype=torch.bfloat16)
        assert call.all_reduce(tensor) is tensor
        parts = call.all_gather(torch.full((rank + 1,), rank))
        got = call.scatter([torch.ones(1), torch.ones(2)] if rank == 0 else None)
        shared = torch.from_numpy(call.empty(4))
        shared += rank + 1
        call.all_reduce(shared)
        with pytest.raises(ValueError, match=re.escape("tensor.contiguous()")):
            call.all_reduce(torch.ones(4, 4).T)
        with pytest.raises(ValueError, match=re.escape("tensor.contiguous()")):
            call.all_gather(torch.ones(4, 4).T)
        return tensor.tolist(), [part.tolist() for part in parts], tuple(got.shape), shared.tolist()

    first, second = gp.run(work, workers=2)
    assert first == ([3.0] * 3, [[0], [1, 1]], (1,), [3.0] * 4)
    assert second == (*first[:2], (2,), first[3])
