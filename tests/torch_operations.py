"""What every process of a test calls on a group; the results of two backends must be equal."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from leftovers import more, open_descriptors
from torch.nn.parallel import DistributedDataParallel

import grampus.frameworks.torch_backend  # noqa: F401 - makes the backend known


def numbers(*shape, dtype=torch.float32, seed=0):
    """Numbers that differ between processes, small enough for every type."""
    generator = torch.Generator().manual_seed(1000 * seed + dist.get_rank())
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    return torch.randint(0, 4, shape, generator=generator).to(dtype)


def parts(size, *shape):
    return [numbers(*shape, seed=place) for place in range(size)]


def room(size, *shape):
    return [torch.zeros(shape) for _ in range(size)]


def reduced(group, dtype, op, shape=(5, 7)):
    tensor = numbers(*shape, dtype=dtype)
    dist.all_reduce(tensor, op, group=group)
    return [tensor]


def broadcast(group, root):
    tensor = numbers(4, 3)
    dist.broadcast(tensor, group=group, group_src=root)
    return [tensor]


def reduce(group, root):
    tensor = numbers(9)
    dist.reduce(tensor, group=group, group_dst=root)
    return [tensor] if group.rank() == root else []


def all_gather(group):
    out = room(group.size(), 3, 2)
    dist.all_gather(out, numbers(3, 2), group=group)
    return out


def all_gather_into_tensor(group):
    out = torch.zeros(group.size() * 3, 2)
    dist.all_gather_into_tensor(out, numbers(3, 2), group=group)
    return [out]


def gather(group, root):
    out = room(group.size(), 4) if group.rank() == root else None
    dist.gather(numbers(4), out, group=group, group_dst=root)
    return out or []


def scatter(group, root):
    out = torch.zeros(4)
    dist.scatter(out, parts(group.size(), 4) if group.rank() == root else None, group=group, group_src=root)
    return [out]


def reduce_scatter(group):
    out = torch.zeros(3)
    dist.reduce_scatter(out, parts(group.size(), 3), group=group)
    return [out]


def reduce_scatter_tensor(group):
    out = torch.zeros(3, 2)
    dist.reduce_scatter_tensor(out, numbers(3 * group.size(), 2), group=group)
    return [out]


def all_to_all(group):
    out = room(group.size(), 3)
    dist.all_to_all(out, parts(group.size(), 3), group=group)
    return out


def all_to_all_single(group):
    out = torch.zeros(2 * group.size(), 3)
    dist.all_to_all_single(out, numbers(2 * group.size(), 3), group=group)
    return [out]


def all_to_all_split(group):
    # Rank r sends r + p rows to rank p, none to itself if it is the first.
    rank, size = group.rank(), group.size()
    splits = [rank + place for place in range(size)]
    out = torch.zeros(sum(splits), 3)
    dist.all_to_all_single(out, numbers(sum(splits), 3), splits, splits, group=group)
    return [out]


def coalesced(group):
    tensors = [numbers(4), numbers(2, 3, seed=1)]
    with dist._coalescing_manager(group):
        for tensor in tensors:
            dist.all_reduce(tensor, group=group)
    return tensors


def objects(group):
    found = [None] * group.size()
    dist.all_gather_object(found, {"rank": dist.get_rank(), "text": "x" * dist.get_rank()}, group=group)
    told = [{"from": dist.get_rank()}]
    dist.broadcast_object_list(told, group=group, group_src=group.size() - 1)
    mine = [None]
    dist.scatter_object_list(
        mine, [f"for {place}" for place in range(group.size())], group=group, group_src=0
    )
    return [found, told, mine]


def not_contiguous(group):
    tensor = numbers(6, 4).t()
    dist.all_reduce(tensor, group=group)
    wide = torch.zeros(3, 2 * group.size())
    out = [wide[:, 2 * place : 2 * place + 2] for place in range(group.size())]
    dist.all_gather(out, numbers(2, 3).t(), group=group)
    return [tensor, wide]


def empty(group):
    tensor, out = torch.zeros(0, 3), room(group.size(), 0)
    dist.all_reduce(tensor, group=group)
    dist.broadcast(tensor, group=group, group_src=0)
    dist.all_gather(out, torch.zeros(0), group=group)
    return [tensor, *out]


def several_on_their_way(group):
    tensors = [numbers(1000, seed=place) for place in range(6)]
    works = [dist.all_reduce(tensor, group=group, async_op=True) for tensor in tensors]
    for work in reversed(works[3:]):
        work.wait()
    futures = [work.get_future() for work in works[:3]]
    for future in reversed(futures):
        future.wait()
    # The future of Gloo is done a moment before its work is.
    for work in works[:3]:
        work.wait()
    assert all(work.is_completed() for work in works)
    return tensors


def ring(group):
    """Everyone sends to the next and receives from the one before, all at once."""
    rank, size = group.rank(), group.size()
    out = torch.zeros(5)
    after, before = (rank + 1) % size, (rank - 1) % size
    sent = dist.isend(numbers(5), group=group, group_dst=after, tag=7)
    received = dist.irecv(out, group=group, group_src=before, tag=7)
    received.wait()
    sent.wait()
    swapped = torch.zeros(5)
    for work in dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, numbers(5, seed=1), group=group, group_peer=after),
            dist.P2POp(dist.irecv, swapped, group=group, group_peer=before),
        ]
    ):
        work.wait()
    return [out, swapped]


CALLS = {
    "sum": lambda group: reduced(group, torch.float32, dist.ReduceOp.SUM),
    "sum of doubles": lambda group: reduced(group, torch.float64, dist.ReduceOp.SUM),
    "sum of halves": lambda group: reduced(group, torch.float16, dist.ReduceOp.SUM),
    "sum of brain floats": lambda group: reduced(group, torch.bfloat16, dist.ReduceOp.SUM),
    "sum of integers": lambda group: reduced(group, torch.int64, dist.ReduceOp.SUM),
    "sum of bytes": lambda group: reduced(group, torch.uint8, dist.ReduceOp.SUM),
    "sum of one number": lambda group: reduced(group, torch.float32, dist.ReduceOp.SUM, ()),
    "largest": lambda group: reduced(group, torch.float32, dist.ReduceOp.MAX),
    "smallest": lambda group: reduced(group, torch.int32, dist.ReduceOp.MIN),
    "product": lambda group: reduced(group, torch.int64, dist.ReduceOp.PRODUCT),
    "and": lambda group: reduced(group, torch.int32, dist.ReduceOp.BAND),
    "or": lambda group: reduced(group, torch.int64, dist.ReduceOp.BOR),
    "broadcast": lambda group: broadcast(group, group.size() - 1),
    "reduce": lambda group: reduce(group, group.size() - 1),
    "all_gather": all_gather,
    "all_gather_into_tensor": all_gather_into_tensor,
    "gather": lambda group: gather(group, 1),
    "scatter": lambda group: scatter(group, 1),
    "reduce_scatter": reduce_scatter,
    "reduce_scatter_tensor": reduce_scatter_tensor,
    "all_to_all": all_to_all,
    "all_to_all_single": all_to_all_single,
    "all_to_all_single with splits": all_to_all_split,
    "coalesced": coalesced,
    "objects": objects,
    "not contiguous": not_contiguous,
    "empty": empty,
    "several on their way": several_on_their_way,
    "ring": ring,
}


def beyond_gloo():
    """What gloo cannot do: check the results themselves."""
    dist.init_process_group("grampus")
    try:
        rank, size = dist.get_rank(), dist.get_world_size()
        mean = torch.full((3,), float(rank))
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        assert mean.tolist() == [(size - 1) / 2] * 3
        one, all_but_one = torch.tensor([rank == 1]), torch.tensor([rank != 1])
        dist.all_reduce(one, dist.ReduceOp.BOR)
        dist.all_reduce(all_but_one, dist.ReduceOp.BAND)
        assert (one.item(), all_but_one.item()) == (True, False)
        for dtype in (torch.int16, torch.complex64, torch.float8_e4m3fn):
            moved = torch.full((4,), rank + 1).to(dtype)
            dist.broadcast(moved, 1)
            assert torch.equal(moved.to(torch.complex64), torch.full((4,), 2, dtype=torch.complex64))
        # gloo broadcasts what lies between the elements of such a tensor too.
        every_other = torch.arange(8)[::2] + 10 * rank
        every_other = torch.stack([every_other, every_other], 1)[:, 0]
        dist.broadcast(every_other, 1)
        assert every_other.tolist() == [10, 12, 14, 16]
        with pytest.raises(TypeError, match=r"cannot reduce torch\.int16: convert the tensor"):
            dist.all_reduce(torch.ones(2, dtype=torch.int16))
        with pytest.raises(ValueError, match=r"no reduction .*BXOR: use SUM"):
            dist.all_reduce(torch.ones(2, dtype=torch.int32), dist.ReduceOp.BXOR)
        with pytest.raises(NotImplementedError, match="pass the rank of the sender"):
            dist.recv(torch.zeros(1))
        # A mistake that all make leaves the group whole.
        dist.barrier()
    finally:
        dist.destroy_process_group()


def sub_groups():
    dist.init_process_group("grampus")
    try:
        rank = dist.get_rank()
        even, odd = dist.new_group([0, 2]), dist.new_group([1, 3])
        mine = odd if rank % 2 else even
        value, told, total = (torch.tensor([rank]) for _ in range(3))
        dist.all_reduce(value, group=mine)
        dist.broadcast(told, src=3 if rank % 2 else 2, group=mine)
        dist.destroy_process_group(mine)
        dist.all_reduce(total)
        return value.item(), told.item(), total.item()
    finally:
        dist.destroy_process_group()


def joined(backend):
    """Train with more batches on one process than on the other; return the weights."""
    dist.init_process_group(backend)
    try:
        torch.manual_seed(0)
        model = DistributedDataParallel(torch.nn.Linear(4, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with model.join():
            for batch in range(3 + 2 * dist.get_rank()):
                optimizer.zero_grad()
                model(numbers(8, 4, seed=batch)).square().mean().backward()
                optimizer.step()
        return [weight.tolist() for weight in model.parameters()]
    finally:
        dist.destroy_process_group()


def mismatch():
    dist.init_process_group("grampus")
    try:
        dist.all_reduce(torch.ones(3 + dist.get_rank()))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        dist.destroy_process_group()


def left_behind():
    """Threads and descriptors that are there after a process group and were not before."""
    before = threads(), open_descriptors()
    use_futures()
    return [name for name in threads() if name not in before[0]] + more(open_descriptors(), before[1])


def use_futures():
    dist.init_process_group("grampus")
    model = DistributedDataParallel(torch.nn.Linear(4, 2))
    for _ in range(20):
        model(torch.ones(1, 4)).sum().backward()
        dist.all_reduce(torch.ones(1), async_op=True).get_future().wait()
    dist.destroy_process_group()


def threads():
    names = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    return [name for name in names if name.startswith("grampus")]


def differences():
    """Call everything on a group of gloo and on one of Grampus, and tell which results differ."""
    dist.init_process_group("gloo")
    try:
        gloo, ours = dist.group.WORLD, dist.new_group(backend="grampus")
        exact = dist.get_world_size() == 2
        found = {}
        for name, call in CALLS.items():
            expected, got = call(gloo), call(ours)
            if not same(expected, got, exact):
                found[name] = (expected, got)
        return found
    finally:
        dist.destroy_process_group()


def same(expected, got, exact):
    if len(expected) != len(got):
        return False
    for one, other in zip(expected, got, strict=True):
        if not isinstance(one, torch.Tensor):
            if one != other:
                return False
        elif one.dtype != other.dtype or one.shape != other.shape:
            return False
        elif exact or not one.dtype.is_floating_point:
            if not torch.equal(one, other):
                return False
        elif not torch.allclose(one.double(), other.double(), rtol=2e-2, atol=2e-2):
            # More than two numbers are added in another order.
            return False
    return True
