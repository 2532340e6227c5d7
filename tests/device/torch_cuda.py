"""Check the torch backend on a GPU that two processes share: `python tests/device/torch_cuda.py`."""

from __future__ import annotations

import os
import socket
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch.nn.parallel import DistributedDataParallel

import grampus.frameworks.torch_backend  # noqa: F401 - makes the backend known

WORLD = 2


def collectives(rank, device):
    tensor = torch.full((1000, 3), rank + 1.0, device=device)
    dist.all_reduce(tensor)
    assert torch.equal(tensor, torch.full_like(tensor, 3.0)), "all_reduce"

    tensor = torch.full((5, 4), float(rank), device=device).t()
    dist.broadcast(tensor, 1)
    assert torch.equal(tensor, torch.ones_like(tensor)), "broadcast of a tensor that is not contiguous"

    out = [torch.zeros(7, device=device) for _ in range(WORLD)]
    dist.all_gather(out, torch.full((7,), float(rank), device=device))
    assert [part.sum().item() for part in out] == [0.0, 7.0], "all_gather"

    # Calls on the way, each after work of its own on the GPU, waited for on another stream.
    tensors = [torch.full((300, 300), float(rank), device=device) + place for place in range(4)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    with torch.cuda.stream(torch.cuda.Stream()):
        for place, (work, tensor) in enumerate(zip(works, tensors, strict=True)):
            (work.get_future() if place % 2 else work).wait()
            assert torch.equal(tensor, torch.full_like(tensor, 1.0 + 2 * place)), "async all_reduce"

    half = torch.full((9,), 0.5, dtype=torch.bfloat16, device=device)
    dist.all_reduce(half, dist.ReduceOp.AVG)
    assert half.tolist() == [0.5] * 9, "mean of bfloat16"

    if rank == 0:
        dist.send(torch.arange(6, device=device), 1)
    else:
        received = torch.zeros(6, dtype=torch.int64, device=device)
        dist.recv(received, 0)
        assert received.tolist() == list(range(6)), "send and recv"


def train(rank, device, backend):
    group = dist.new_group(backend=backend)
    torch.manual_seed(0)
    layers = torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4)
    net = torch.nn.Sequential(*layers).to(device)
    model = DistributedDataParallel(net, process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(rank)
    for _ in range(20):
        inputs = torch.randn(8, 16, generator=generator).to(device)
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
    return [weight.detach().cpu() for weight in net.parameters()]


def work(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    torch.backends.cuda.matmul.allow_tf32 = False
    dist.init_process_group("grampus", rank=rank, world_size=WORLD)
    collectives(rank, device)
    ours = train(rank, device, "grampus")
    gloo = train(rank, torch.device("cpu"), "gloo")
    for one, other in zip(ours, gloo, strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-5), "DDP on the GPU and on the CPU"
    dist.destroy_process_group()
    print(f"rank {rank}: all is well", flush=True)


def main():
    if not torch.cuda.is_available():
        sys.exit("no GPU: run this on a machine that has one")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    multiprocessing.spawn(work, (port,), nprocs=WORLD)


if __name__ == "__main__":
    main()
