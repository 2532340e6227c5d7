"""Every option of a collective call, passed by its name, changes what comes out: a flip against numpy."""

import numpy as np
from clusters import one_cluster

import grampus as gp

runtime = one_cluster(workers=2, preload=("numpy",))


def of_module():
    return gp.collective


def of_group():
    return gp.collective.new_group(range(gp.world_size()))


def flipped(calls):
    """What comes of each call without an option and with it, on this rank."""
    call, rank = calls(), gp.rank()
    other, mine = 1 - rank, np.array([1.0, 5.0]) + rank

    def list_of(arrays):
        return None if arrays is None else [array.tolist() for array in arrays]

    def scattered(**root):
        return call.scatter(arrays=[mine, mine * 10], **root).tolist()

    def reduced_into(**out):
        return call.reduce_scatter(mine.copy(), **out).tolist()

    out = np.zeros(1)
    reduced_into(out=out)
    found = {
        "sum": call.all_reduce(mine.copy()).tolist(),
        "max": call.all_reduce(mine.copy(), op="max").tolist(),
        "to 0": call.reduce(mine.copy()).tolist(),
        "to 1": call.reduce(mine.copy(), root=1).tolist(),
        "max to 0": call.reduce(mine.copy(), op="max").tolist(),
        "parts": reduced_into(),
        "max of parts": reduced_into(op="max"),
        "out": out.tolist(),
        "gathered at 0": list_of(call.gather(mine)),
        "gathered at 1": list_of(call.gather(mine, root=1)),
        "scattered by 0": scattered(),
        "scattered by 1": scattered(root=1),
        "broadcast by 0": call.broadcast(mine.copy()).tolist(),
        "broadcast by 1": call.broadcast(mine.copy(), root=1).tolist(),
        "empty": str(call.empty(1).dtype),
        "empty of another type": str(call.empty(1, dtype="int16").dtype),
    }
    # The second message is taken first.
    sent = [
        call.send(mine, other, block=False),
        call.send(mine * 10, other, tag=7, block=False),
    ]
    found["tag 7"] = call.recv(np.zeros(2), other, tag=7).tolist()
    found["no tag"] = call.recv(np.zeros(2), other).tolist()
    for handle in sent:
        handle.wait()
    return found


def unblocked(calls):
    """Kinds of what calls return that do not wait."""
    call, array = calls(), np.ones(2)
    other = 1 - gp.rank()
    handles = [
        call.all_reduce(array.copy(), block=False),
        call.reduce(array.copy(), block=False),
        call.reduce_scatter(array.copy(), block=False),
        call.all_gather(array, block=False),
        call.gather(array, block=False),
        call.scatter([array, array], block=False),
        call.broadcast(array.copy(), block=False),
        call.all_to_all([array, array], block=False),
        call.barrier(block=False),
        call.send(array, other, block=False),
        call.recv(array.copy(), other, block=False),
    ]
    for handle in handles:
        handle.wait(timeout=20)
    return {type(handle).__name__ for handle in handles}


def expected(rank):
    """By numpy."""
    both = np.array([[1.0, 5.0], [2.0, 6.0]])
    total, most, mine, other = both.sum(0), both.max(0), both[rank], both[1 - rank]
    return {
        "sum": total.tolist(),
        "max": most.tolist(),
        "to 0": (mine if rank else total).tolist(),
        "to 1": (total if rank else mine).tolist(),
        "max to 0": (mine if rank else most).tolist(),
        "parts": total[[rank]].tolist(),
        "max of parts": most[[rank]].tolist(),
        "out": total[[rank]].tolist(),
        "gathered at 0": None if rank else both.tolist(),
        "gathered at 1": both.tolist() if rank else None,
        "scattered by 0": (both[0] * [1, 10][rank]).tolist(),
        "scattered by 1": (both[1] * [1, 10][rank]).tolist(),
        "broadcast by 0": both[0].tolist(),
        "broadcast by 1": both[1].tolist(),
        "empty": "float32",
        "empty of another type": "int16",
        "tag 7": (other * 10).tolist(),
        "no tag": other.tolist(),
    }


def test_each_option_changes_what_comes_out():
    for calls in (of_module, of_group):
        assert gp.run(flipped, calls) == [expected(0), expected(1)]


def test_calls_that_do_not_block_return_handles():
    for calls in (of_module, of_group):
        assert gp.run(unblocked, calls) == [{"Handle"}] * 2
