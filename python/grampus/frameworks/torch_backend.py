"""Grampus' collectives under `torch.distributed`.

    import grampus.frameworks.torch_backend
    torch.distributed.init_process_group("grampus")

Nothing else in a script changes. Newer versions of torch find the backend by its name, without the import.
What the processes need to find each other travels through torch's store, so the key of the group is as secret
as that store.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
import socket
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from grampus import _native
from grampus.frameworks._torch_memory import CODES, Loan, buffer, cut, is_plain
from grampus.frameworks._torch_work import Completion, Done, Pending

__all__ = ["NAME", "ProcessGroup", "register"]

NAME = "grampus"

KEY_BYTES = 32

Tensor = Any
Work = Any

_OPERATIONS = {
    dist.ReduceOp.SUM: "sum",
    dist.ReduceOp.AVG: "mean",
    dist.ReduceOp.MIN: "min",
    dist.ReduceOp.MAX: "max",
    dist.ReduceOp.PRODUCT: "product",
    dist.ReduceOp.BAND: "and",
    dist.ReduceOp.BOR: "or",
}


def register() -> None:
    """Make the backend known to torch; again does nothing."""
    if not hasattr(dist.Backend, NAME.upper()):
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])


def _create(options: Any, _own_options: object) -> ProcessGroup:
    """Form a group with all who read the same store; torch gives every group a part of its own."""
    store, rank, size = options.store, options.group_rank, options.group_size
    if rank == 0:
        store.set("group", secrets.token_hex(8).encode() + secrets.token_bytes(KEY_BYTES))
    told = store.get("group")
    name, key = told[:-KEY_BYTES].decode(), told[-KEY_BYTES:]
    address, own = _address()
    lobby = _native.Lobby(key, socket.gethostname(), own)
    store.set(f"address/{rank}", address.encode())
    store.set(f"card/{rank}", lobby.card())
    cards = [(store.get(f"address/{other}").decode(), store.get(f"card/{other}")) for other in range(size)]
    # Errors name ranks as the whole job knows them; torch says nothing for the group of all.
    labels = options.global_ranks_in_group or list(range(size))
    deadline = options.timeout.total_seconds()
    group = lobby.form(name, 1, rank, cards, labels, deadline)
    return ProcessGroup(group, rank, size)


def _address() -> tuple[str, str | None]:
    """Under which other hosts reach this one, and the address of this host that they reach, if that is known.

    It is the address from which this host reaches torch's store.
    """
    master = os.environ.get("MASTER_ADDR")
    if master is None:
        return socket.gethostname(), None
    family, kind, *_, store = socket.getaddrinfo(master, 1, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        # This sends nothing; it only chooses the way.
        probe.connect(store)
        own = str(probe.getsockname()[0])
    if not ipaddress.ip_address(own).is_loopback:
        # An address with a zone is one of several networks.
        return own, None if "%" in own else own
    # On the store's own host that may be an address for itself alone; others know it by the store's.
    return master, own if master in ("localhost", own) else None


class ProcessGroup(dist.ProcessGroup):  # type: ignore[misc]
    """Some processes that call collectives together; what `torch.distributed` calls."""

    # What torch asks a backend.
    supports_splitting = False
    supports_coalescing = False

    def __init__(self, group: _native.Group, rank: int, size: int) -> None:
        super().__init__(rank, size)
        self._native = group
        self._size = size
        self._rank = rank
        self._name = ""
        self._completion = Completion()

    def allreduce(self, tensors: Sequence[Tensor], opts: Any = None) -> Work:
        """Make every process's tensor the sum of all."""
        tensor = tensors[0]
        if len(tensors) == 1 and is_plain(tensor):
            # The way of DDP: as little as can be.
            code = CODES.get(tensor.dtype)
            if code is not None:
                memory = (tensor.data_ptr(), tensor.numel(), code, tensor)
                handle = self._native.all_reduce(memory, _operation(opts), _blocks(opts))
                return Done(tensors) if handle is None else Pending(handle, tensors, None, self._completion)
        return self.allreduce_coalesced(tensors, opts)

    def allreduce_coalesced(self, tensors: Sequence[Tensor], opts: Any = None) -> Work:
        """Make every process's tensors the sums of all."""
        loan, operation = Loan(), _operation(opts)
        calls = [(_summed(loan.change(tensor)), operation) for tensor in tensors]
        return self._make(self._native.all_reduce, calls, opts, tensors, loan)

    def reduce(self, tensors: Sequence[Tensor], opts: Any) -> Work:
        """Make the root's tensor the sum of all."""
        loan, operation = Loan(), _operation(opts)
        calls = [(_summed(loan.change(tensor)), opts.rootRank, operation) for tensor in tensors]
        return self._make(self._native.reduce, calls, opts, tensors, loan)

    def broadcast(self, tensors: Sequence[Tensor], opts: Any) -> Work:
        """Make every process's tensor the root's."""
        loan = Loan()
        lend = loan.read if self._rank == opts.rootRank else loan.write
        calls = [(buffer(lend(tensor)), opts.rootRank) for tensor in tensors]
        return self._make(self._native.broadcast, calls, opts, tensors, loan)

    def allgather(self, outputs: Sequence[list[Tensor]], inputs: Sequence[Tensor], opts: Any = None) -> Work:
        """Fill each list with the tensors of all processes."""
        loan = Loan()
        calls = [
            (buffer(loan.read(tensor)), [buffer(loan.write(part)) for part in parts])
            for parts, tensor in zip(outputs, inputs, strict=True)
        ]
        written = [part for parts in outputs for part in parts]
        return self._make(self._native.all_gather, calls, opts, written, loan)

    def allgather_coalesced(
        self, outputs: Sequence[list[Tensor]], inputs: Sequence[Tensor], opts: Any = None
    ) -> Work:
        """The same, with the lists of `outputs` in order of rank."""
        by_tensor = [[parts[index] for parts in outputs] for index in range(len(inputs))]
        return self.allgather(by_tensor, inputs, opts)

    def allgather_into_tensor_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> Work:
        """Make each output the tensors of all processes in a row."""
        loan = Loan()
        calls = [
            (buffer(loan.read(tensor)), cut(loan.write(output), [tensor.numel()] * self._size))
            for output, tensor in zip(outputs, inputs, strict=True)
        ]
        return self._make(self._native.all_gather, calls, opts, outputs, loan)

    def _allgather_base(self, output: Tensor, tensor: Tensor, opts: Any = None) -> Work:
        return self.allgather_into_tensor_coalesced([output], [tensor], opts)

    def gather(self, outputs: Sequence[list[Tensor]], inputs: Sequence[Tensor], opts: Any) -> Work:
        """Fill the root's list with the tensors of all processes."""
        loan, written = Loan(), outputs[0] if outputs else []
        parts = [buffer(loan.write(part)) for part in written]
        call = (buffer(loan.read(inputs[0])), parts, opts.rootRank)
        return self._make(self._native.gather, [call], opts, written, loan)

    def gather_single(self, output: Tensor, tensor: Tensor, opts: Any) -> Work:
        """Make the root's output the tensors of all processes in a row."""
        loan, at_root = Loan(), self._rank == opts.rootRank
        parts = cut(loan.write(output), [tensor.numel()] * self._size) if at_root else []
        call = (buffer(loan.read(tensor)), parts, opts.rootRank)
        return self._make(self._native.gather, [call], opts, [output] if at_root else [], loan)

    def scatter(self, outputs: Sequence[Tensor], inputs: Sequence[list[Tensor]], opts: Any) -> Work:
        """Make every process's output its tensor of the root's list."""
        loan = Loan()
        parts = [buffer(loan.read(part)) for part in (inputs[0] if inputs else [])]
        call = (parts, buffer(loan.write(outputs[0])), opts.rootRank)
        return self._make(self._native.scatter, [call], opts, outputs, loan)

    def reduce_scatter(
        self, outputs: Sequence[Tensor], inputs: Sequence[list[Tensor]], opts: Any = None
    ) -> Work:
        """Make every process's output the sum of all processes' tensors at its place in the lists."""
        for output, parts in zip(outputs, inputs, strict=True):
            if any(part.numel() != output.numel() for part in parts):
                raise ValueError(
                    f"reduce_scatter of parts of {[part.numel() for part in parts]} elements into one of "
                    f"{output.numel()}: pass parts of one size"
                )
        rows = [torch.cat([part.detach().reshape(-1) for part in parts]) for parts in inputs]
        return self.reduce_scatter_tensor_coalesced(outputs, rows, opts)

    def reduce_scatter_tensor_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> Work:
        """Make every process's output its part of the sum of all processes' tensors."""
        loan, operation = Loan(), _operation(opts)
        calls = [
            (_summed(loan.read(tensor)), _summed(loan.write(output)), operation)
            for output, tensor in zip(outputs, inputs, strict=True)
        ]
        return self._make(self._native.reduce_scatter, calls, opts, outputs, loan)

    def _reduce_scatter_base(self, output: Tensor, tensor: Tensor, opts: Any = None) -> Work:
        return self.reduce_scatter_tensor_coalesced([output], [tensor], opts)

    def alltoall(self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None) -> Work:
        """Send one tensor to each process, and receive one from each."""
        loan = Loan()
        sources = [buffer(loan.read(tensor)) for tensor in inputs]
        targets = [buffer(loan.write(output)) for output in outputs]
        return self._make(self._native.all_to_all, [(sources, targets)], opts, outputs, loan)

    def alltoall_base(
        self,
        output: Tensor,
        tensor: Tensor,
        output_splits: Sequence[int],
        input_splits: Sequence[int],
        opts: Any = None,
    ) -> Work:
        """Send some rows of the tensor to each process, and receive some from each."""
        loan = Loan()
        sources = cut(loan.read(tensor), self._rows(tensor, input_splits))
        targets = cut(loan.write(output), self._rows(output, output_splits))
        return self._make(self._native.all_to_all, [(sources, targets)], opts, [output], loan)

    def barrier(self, opts: Any = None) -> Work:
        """Wait for all processes."""
        limit = getattr(opts, "timeout", timedelta(0)).total_seconds()
        if _blocks(opts) and limit > 0 and (handle := self._native.barrier(False)) is not None:
            handle.wait(limit)
            return Done([])
        return self._make(self._native.barrier, [()], opts, [], Loan())

    def send(self, tensors: Sequence[Tensor], to: int, tag: int = 0) -> Work:
        """Send a tensor to a process, which must receive it."""
        loan = Loan()
        return self._make(self._native.send, [(buffer(loan.read(tensors[0])), to, tag)], None, tensors, loan)

    def recv(self, tensors: Sequence[Tensor], source: int, tag: int = 0) -> Work:
        """Receive a tensor that a process sends here."""
        loan = Loan()
        return self._make(
            self._native.recv, [(buffer(loan.write(tensors[0])), source, tag)], None, tensors, loan
        )

    def recv_anysource(self, tensors: Sequence[Tensor], tag: int = 0) -> Work:
        """Not supported."""
        raise NotImplementedError(
            "grampus cannot receive from just anyone: pass the rank of the sender as src"
        )

    # Newer versions of torch call some of these by other names.
    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    gather_into_tensor = gather_single
    reduce_scatter_single = _reduce_scatter_base
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced
    all_to_all_single = alltoall_base

    def shutdown(self) -> None:
        """Leave the group; calls on their way are given up."""
        self._native.close()
        self._completion.close()

    abort = shutdown

    # The names are torch's.
    def getBackendName(self) -> str:  # noqa: N802
        """The name of the backend."""
        return NAME

    def setGroupName(self, name: str) -> None:  # noqa: N802
        """Take the name that torch gives the group."""
        self._name = name

    def getGroupName(self) -> str:  # noqa: N802
        """The name that torch gave the group."""
        return self._name

    def _get_backend(self, device: Any) -> ProcessGroup:
        # One backend for all devices: the group itself.
        del device
        return self

    def _make(
        self,
        call: Callable[..., _native.Handle | None],
        calls: Sequence[tuple[Any, ...]],
        opts: Any,
        value: Sequence[Tensor],
        loan: Loan,
    ) -> Work:
        """Make calls in order. The last says how it ends: an error ends the group and all that follows."""
        block, handle = _blocks(opts), None
        for arguments in calls:
            handle = call(*arguments, block)
        if handle is None:
            loan.give_back()
            return Done(value)
        return Pending(handle, value, loan if loan.has_copies() else None, self._completion)

    def _rows(self, tensor: Tensor, splits: Sequence[int]) -> list[int]:
        """How many elements each process's part has; equal parts where nothing is said."""
        length = tensor.size(0) if tensor.dim() else 1
        if not splits:
            if length % self._size:
                raise ValueError(
                    f"{length} rows cannot be cut into {self._size} equal parts: pass the sizes of the parts"
                )
            splits = [length // self._size] * self._size
        if sum(splits) != length or len(splits) != self._size:
            raise ValueError(
                f"parts of {list(splits)} rows do not make up the tensor's {length}: let them fit"
            )
        width = tensor.numel() // length if length else 0
        return [rows * width for rows in splits]


def _blocks(opts: Any) -> bool:
    """Whether the caller waits for the end anyway. Older versions of torch do not say."""
    return opts is not None and not getattr(opts, "asyncOp", True)


def _operation(opts: Any) -> str:
    if opts is None:
        return "sum"
    operation = _OPERATIONS.get(opts.reduceOp.op)
    if operation is None:
        raise ValueError(
            f"grampus has no reduction {opts.reduceOp.op}: use SUM, AVG, MIN, MAX, PRODUCT, BAND, BOR"
        )
    return operation


def _summed(host: Tensor) -> tuple[int, int, int, Any]:
    if host.dtype not in CODES:
        names = ", ".join(str(dtype).removeprefix("torch.") for dtype in CODES)
        raise TypeError(f"grampus cannot reduce {host.dtype}: convert the tensor to one of {names}")
    return buffer(host)


register()
