"""Gradients summed by Horovod, which is started on the workers of a run without its launcher."""

from __future__ import annotations

import json
import os
import random
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from grampus import context
from grampus.frameworks._torch_gradients import FlatGradients

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from grampus._training.lanes import Lanes
    from grampus.collective import Group

Parameter = Any
Tensor = Any


class HorovodGradients(FlatGradients):
    """Gradients summed by Horovod, over its own connections. One lane a worker."""

    def __init__(self, parameters: Sequence[Parameter], lanes: Lanes) -> None:
        """Of these parameters; with the Horovod of the user's own code, if there is one."""
        import horovod.torch as hvd

        super().__init__(parameters, lanes)
        self._hvd = hvd
        self._made = not hvd.is_initialized()
        if self._made:
            try:
                _start(hvd, lanes.group)
            except BaseException:
                # Another worker has failed meanwhile; this process is used again.
                hvd.shutdown()
                raise
        elif hvd.size() != lanes.group.size:
            raise RuntimeError(
                f"hvd.init() was called before training began and found {hvd.size()} of {lanes.group.size} "
                "workers: leave it out, backend='horovod' calls it"
            )

    def close(self) -> None:
        """Leave Horovod, and let the parameters be as they were."""
        if self._made:
            self._hvd.shutdown()
        super().close()

    def _sum(self, tensor: Tensor) -> None:
        # Horovod has no sum of bfloat16.
        known = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
        # Horovod remembers a call by its name; one without a name is agreed on anew in every step.
        self._hvd.allreduce_(known, name=f"grampus.{known.dtype}.{known.numel()}", op=self._hvd.Sum)
        if known is not tensor:
            tensor.copy_(known)


def _start(hvd: Any, group: Group) -> None:
    """Let the workers of a group find each other; then Horovod needs nothing but its connections."""
    from horovod.runner.gloo_run import create_run_env_vars, create_slot_env_vars
    from horovod.runner.http.http_server import RendezvousServer

    slots = _slots(group)
    if len({slot.hostname for slot in slots}) > 1:
        _check_own_name()
    server, port = None, 0
    if group.rank == 0:
        server = RendezvousServer()
        with _draws_kept():
            port = server.start()
        server.init(slots)
    try:
        port = int(group._native.gather_bytes(str(port).encode())[0])
        address = os.environ["MASTER_ADDR"]
        interface = os.environ.get("HOROVOD_GLOO_IFACE") or _interface(address, port)
        found = create_run_env_vars(address, [interface], port) | create_slot_env_vars(slots[group.rank])
        with _environment(found):
            hvd.init()
        # The others may not have left the server yet.
        group.barrier()
    finally:
        if server is not None:
            server.stop()


def _slots(group: Group) -> list[Any]:
    """Where each worker stands, in the order of their ranks."""
    from horovod.runner.common.util.hosts import SlotInfo

    mine = (os.environ["GROUP_RANK"], context.local_rank(), context.local_world_size())
    told = [json.loads(place) for place in group._native.gather_bytes(json.dumps(mine).encode())]
    slots = []
    for rank, (host, local, locals_) in enumerate(told):
        # Those in the same position on their hosts.
        across = [other for other, (_, position, _) in enumerate(told) if position == local]
        slots.append(
            SlotInfo(
                hostname=f"host-{host}",
                rank=rank,
                local_rank=local,
                cross_rank=across.index(rank),
                size=group.size,
                local_size=locals_,
                cross_size=len(across),
            )
        )
    return slots


def _check_own_name() -> None:
    """Whatever interface it is told, Horovod listens where the name of its host leads."""
    name = socket.gethostname()
    address = socket.gethostbyname(name)
    if address.startswith("127."):
        raise RuntimeError(
            f"Horovod cannot be reached on host {name!r}, whose name leads to {address}: let it lead to an "
            "address that the other hosts reach, in /etc/hosts, or use backend='grampus'"
        )


def _interface(address: str, port: int) -> str:
    """The name of the network interface from which an address is reached; empty where it has none."""
    import psutil  # Horovod needs it too

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Nothing is sent: this only asks for the way.
        probe.connect((address, port))
        own = probe.getsockname()[0]
    names = (name for name, known in psutil.net_if_addrs().items() if own in [each.address for each in known])
    return next(names, "")


@contextmanager
def _draws_kept() -> Iterator[None]:
    """Horovod draws its port from the generator that is seeded for the user's code."""
    before = random.getstate()
    try:
        yield
    finally:
        random.setstate(before)


@contextmanager
def _environment(variables: Mapping[str, Any]) -> Iterator[None]:
    """Inside, these variables are set."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update({name: str(value) for name, value in variables.items()})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
