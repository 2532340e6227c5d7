"""One rank of a contender of bench/collective.py: sums float32 arrays over all ranks when it is told to.

A contender is a class with `rank`, `world`, `versions`, `array(elements)`, which gives numpy an array to work
in, `reduce(array)`, `barrier()` and `close()`.
"""

import os
import platform
import socket
import sys
import threading
import time
from datetime import timedelta

import numpy

from rank_link import linked

# Large, and a prime: a slice that lands in a wrong place shows.
PERIOD = 1021
BLOCK = 1 << 20


class Torch:
    """torch.distributed with one of its backends."""

    def __init__(self, backend, version_of):
        import torch
        import torch.distributed

        torch.set_num_threads(1)
        torch.distributed.init_process_group(backend, timeout=timedelta(seconds=60))
        self.torch, self.distributed = torch, torch.distributed
        self.rank, self.world = torch.distributed.get_rank(), torch.distributed.get_world_size()
        self.versions = {"torch": str(torch.__version__), **version_of}
        self.tensors = {}

    def array(self, elements):
        tensor = self.torch.empty(elements, dtype=self.torch.float32)
        array = tensor.numpy()
        self.tensors[array.ctypes.data] = tensor
        return array

    def reduce(self, array):
        tensor, reduce = self.tensors[array.ctypes.data], self.distributed.all_reduce
        return lambda: reduce(tensor)

    def barrier(self):
        self.distributed.barrier()

    def close(self):
        self.distributed.destroy_process_group()


def gloo():
    return Torch("gloo", {})


def grampus_torch():
    import grampus.frameworks.torch_backend

    return Torch("grampus", {"grampus": grampus.__version__})


class OpenMpi:
    """MPI through mpi4py, in place."""

    def __init__(self):
        import mpi4py
        from mpi4py import MPI

        self.mpi, self.world_group = MPI, MPI.COMM_WORLD
        self.rank, self.world = self.world_group.Get_rank(), self.world_group.Get_size()
        library = MPI.Get_library_version().split(",")[0].strip("\0\n ")
        self.versions = {"mpi": library, "mpi4py": mpi4py.__version__}

    def array(self, elements):
        return numpy.empty(elements, numpy.float32)

    def reduce(self, array):
        # Made once: finding out an array's type costs mpi4py time in every call.
        message, reduce = [array, self.mpi.FLOAT], self.world_group.Allreduce
        return lambda: reduce(self.mpi.IN_PLACE, message)

    def barrier(self):
        self.world_group.Barrier()

    def close(self):
        self.mpi.Finalize()


class Grampus:
    """The product's own collectives, on shared arrays or on ordinary ones."""

    def __init__(self, shared):
        import grampus
        from grampus import collective

        self.rank, self.world = grampus.rank(), grampus.world_size()
        self.collective, self.shared = collective, shared
        self.versions = {"grampus": grampus.__version__}

    def array(self, elements):
        if self.shared:
            return self.collective.empty(elements, dtype="float32")
        return numpy.empty(elements, numpy.float32)

    def reduce(self, array):
        reduce = self.collective.all_reduce
        return lambda: reduce(array)

    def barrier(self):
        self.collective.barrier()

    def close(self):
        pass


class Copy:
    """The limit: every rank copies as many bytes as it would have to read and write, and waits for nobody.

    One half of the array is copied onto the other and back. So a call reads and writes the array once, as the
    share of one rank in a sum in place does, and works in as much memory.
    """

    def __init__(self):
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.versions = {"numpy": numpy.__version__}

    def array(self, elements):
        return numpy.empty(elements, numpy.float32)

    def reduce(self, array):
        half = array.size // 2
        low, high = array[:half], array[half : 2 * half]

        def both_ways():
            numpy.copyto(high, low)
            numpy.copyto(low, high)

        return both_ways

    def barrier(self):
        pass

    def close(self):
        pass


class Stream:
    """The limit between two hosts: each sends the other its array over one connection; nothing is added."""

    def __init__(self):
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.versions = {}
        endpoint = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        if self.rank == 0:
            with socket.create_server(endpoint) as server:
                server.settimeout(60)
                self.peer = server.accept()[0]
        else:
            self.peer = _connected(endpoint)
        self.peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.peer.settimeout(60)

    def array(self, elements):
        return numpy.empty(elements, numpy.float32)

    def reduce(self, array):
        incoming = memoryview(numpy.zeros_like(array)).cast("B")

        def both_ways():
            sender = threading.Thread(target=self.peer.sendall, args=(array,))
            sender.start()
            self._fill(incoming)
            sender.join()

        return both_ways

    def _fill(self, incoming):
        done = 0
        while done < len(incoming):
            count = self.peer.recv_into(incoming[done:])
            if not count:
                raise ConnectionError("the other rank is gone")
            done += count

    def barrier(self):
        self.peer.sendall(b"x")
        self._fill(memoryview(bytearray(1)))

    def close(self):
        self.peer.close()


def _connected(endpoint):
    deadline = time.monotonic() + 60
    while True:
        try:
            return socket.create_connection(endpoint, timeout=60)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


KINDS = {
    "gloo": gloo,
    "openmpi": OpenMpi,
    "grampus": lambda: Grampus(shared=True),
    "grampus-copy": lambda: Grampus(shared=False),
    "grampus-torch": grampus_torch,
    "copy": Copy,
    "stream": Stream,
}
SUMS = set(KINDS) - {"copy", "stream"}


class Orders:
    """What a rank can be told to do."""

    def __init__(self, kind):
        self.kind, self.contender = kind, KINDS[kind]()
        self.calls = {}

    def check(self, size):
        """Make the array of this size, and see that the sum of whole numbers comes out exactly."""
        array = self.contender.array(size // 4)
        call = self.calls[size] = self.contender.reduce(array)
        if self.kind in SUMS:
            _fill(array, lambda index: _pattern(index, self.contender.rank))
            call()
            _compare(array, lambda index: sum(_pattern(index, rank) for rank in range(self.contender.world)))
        # Zeros stay zeros however often they are summed, and are written, or there would be no memory behind.
        array.fill(0.0)
        return {}

    def time(self, size, calls):
        """Return the seconds of one call, on average, and what all of them cost this rank in CPU time."""
        call, numbers = self.calls[size], range(calls)
        for _ in range(max(1, calls // 10)):
            call()
        self.contender.barrier()
        cpu, began = time.process_time(), time.perf_counter()
        for _ in numbers:
            call()
        ended = time.perf_counter()
        return {"seconds": (ended - began) / calls, "cpu": (time.process_time() - cpu) / calls}


def _pattern(index, rank):
    return (index % PERIOD + 17 * rank) % 251


def _blocks(array):
    for first in range(0, array.size, BLOCK):
        part = array[first : first + BLOCK]
        yield part, numpy.arange(first, first + part.size)


def _fill(array, values):
    for part, index in _blocks(array):
        part[:] = values(index)


def _compare(array, values):
    for part, index in _blocks(array):
        wrong = numpy.flatnonzero(part != values(index))
        if wrong.size:
            at = int(wrong[0])
            raise ValueError(
                f"wrong sum: element {index[at]} is {part[at]}, not {values(index[at : at + 1])[0]}"
            )


def serve(kind, path=None):
    """Be one rank until there are no more orders."""
    with linked(path) as link:
        orders = Orders(kind)
        contender = orders.contender
        versions = {**contender.versions, "python": platform.python_version()}
        link.say(rank=contender.rank, versions=versions)
        link.serve({"check": orders.check, "time": orders.time})
        contender.close()


if __name__ == "__main__":
    serve(sys.argv[1])
