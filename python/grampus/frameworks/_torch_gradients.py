"""Gradients of a torch model, summed over all lanes while backward runs.

Several ways with one interface: without any sum, for one lane; over Grampus' collectives; by
`torch.distributed`, or by Horovod. `begin` a lane, `arm` for the one backward that counts, `end` the lane;
then `finish`.
"""

from __future__ import annotations

import math
import pickle
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

import torch

from grampus import _native
from grampus.frameworks._torch_memory import CODES, packed, unpacked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from grampus._training.lanes import Lanes

Parameter = Any
Tensor = Any


class Gradients(Protocol):
    """How gradients become those of the whole batch."""

    def begin(self, lane: int) -> None:
        """Begin a lane's part of a step."""
        ...

    def arm(self, share: float) -> AbstractContextManager[None]:
        """Inside, backward makes the gradients that count; of those that are there already, a share does."""
        ...

    def end(self, loss: float, says: float, stops: bool) -> None:
        """End a lane's part of a step: its share of the loss, what lane 0 says, whether its worker stops."""
        ...

    def skip(self, lane: int) -> None:
        """A lane has no rows in this batch."""
        ...

    def finish(self) -> tuple[float, float, bool]:
        """Wait for the sums; return the loss of the batch, what lane 0 said, and whether a worker stops."""
        ...


class PlainGradients:
    """One lane: nothing to sum, and nothing that a loop without Grampus would not do."""

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        """Of these parameters."""
        self._parameters = parameters
        self._loss = 0.0
        self._stops = False
        self._armed = nullcontext()

    def begin(self, lane: int) -> None:  # noqa: ARG002
        """Forget the last step's gradients."""
        for parameter in self._parameters:
            parameter.grad = None

    def arm(self, share: float) -> AbstractContextManager[None]:  # noqa: ARG002
        """Nothing to do."""
        return self._armed

    def end(self, loss: float, says: float, stops: bool) -> None:  # noqa: ARG002
        """Keep the loss."""
        self._loss, self._stops = loss, stops

    def skip(self, lane: int) -> None:
        """A batch has at least one row, and this is the lane that gets it."""
        self.begin(lane)

    def finish(self) -> tuple[float, float, bool]:
        """The loss of the one lane."""
        return self._loss, 0.0, self._stops


class SummedGradients(PlainGradients):
    """Several lanes of one worker on a GPU: each adds to the gradients of those before."""

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        """Of these parameters."""
        super().__init__(parameters)
        self._sum, self._says = 0.0, 0.0

    def begin(self, lane: int) -> None:
        """Forget the last step's gradients with the first lane."""
        if lane == 0:
            super().begin(lane)
            self._sum, self._says = 0.0, 0.0

    def end(self, loss: float, says: float, stops: bool) -> None:
        """Add the loss up."""
        self._sum += loss
        self._says = self._says or says
        self._stops = stops

    def finish(self) -> tuple[float, float, bool]:
        """The loss of all lanes."""
        return self._sum, self._says, self._stops


class LaneGradients:
    """Gradients that lie in shared memory, in one buffer a lane, and are summed there.

    Each parameter's `grad` is a view of the buffer, into which autograd adds. A gradient that lies elsewhere,
    because code of the user has set it to `None` before or because it is on a GPU, is copied.
    """

    def __init__(self, parameters: Sequence[Parameter], lanes: Lanes) -> None:
        """Of these parameters, which become ready roughly from the last to the first."""
        sparse = [p for p in parameters if getattr(p, "_grampus_sparse", False)]
        self._dense = [p for p in reversed(parameters) if not getattr(p, "_grampus_sparse", False)]
        self._sparse = _SparseGradients(sparse, lanes) if sparse else None
        kinds = [(_code(p), p.numel()) for p in self._dense]
        mine = (lanes.mine.start, lanes.mine.stop)
        self._native = _native.Gradients(lanes.group._native, mine, lanes.total, kinds)
        self._first = lanes.mine[0]
        self._views = [self._of_lane(index) for index in range(len(lanes.mine))]
        self._at = -1
        self._on_host = all(p.is_cpu for p in self._dense)
        self._armed = False
        self._touched: set[int] = set()
        self._hooks = [p.register_post_accumulate_grad_hook(self._hook(i)) for i, p in enumerate(self._dense)]

    def close(self) -> None:
        """Let the parameters be as they were."""
        for hook in self._hooks:
            hook.remove()
        for parameter in self._dense:
            parameter.grad = None

    def _of_lane(self, index: int) -> list[Tensor]:
        import numpy as np

        memory = torch.from_numpy(np.asarray(self._native.memory(index)))
        views = []
        for parameter, place in zip(self._dense, self._native.places(), strict=True):
            size = parameter.numel() * parameter.element_size()
            flat = memory[place : place + size].view(parameter.dtype)
            # As the parameter lies in memory: a view in another order would be slower to add to.
            dense = parameter.is_contiguous() or parameter.is_contiguous(memory_format=torch.channels_last)
            if dense and parameter.dim():
                views.append(flat.as_strided(parameter.shape, parameter.stride()))
            else:
                views.append(flat.view(parameter.shape))
        return views

    def _hook(self, index: int) -> Any:
        ready, touched = self._native.ready, self._touched

        def hook(parameter: Parameter) -> None:
            if not self._armed:
                touched.add(index)
                return
            view = self._views[self._at][index]
            if parameter.grad is not view:
                self._take(parameter, view)
            ready(index)

        return hook

    def _take(self, parameter: Parameter, view: Tensor) -> None:
        # A backward of the user's own may have left a graph.
        view.copy_(parameter.grad.detach())
        if self._on_host:
            parameter.grad = view

    def _is_users(self, index: int) -> bool:
        """Whether a backward of the user's own has made a gradient, before the one that counts."""
        grad = self._dense[index].grad
        return grad is not None and (grad is not self._views[self._at][index] or index in self._touched)

    def begin(self, lane: int) -> None:
        """Let all gradients be zero."""
        index = lane - self._first
        self._native.begin(index)
        self._touched.clear()
        if self._on_host:
            for parameter, view in zip(self._dense, self._views[index], strict=True):
                if parameter.grad is not view:
                    parameter.grad = view
        else:
            for parameter in self._dense:
                parameter.grad = None
        if self._sparse is not None:
            self._sparse.begin()
        self._at = index

    @contextmanager
    def arm(self, share: float) -> Iterator[None]:
        """What backward adds inside is complete."""
        _scale([p for index, p in enumerate(self._dense) if self._is_users(index)], share)
        if self._sparse is not None:
            self._sparse.scale(share)
        self._armed = True
        try:
            yield
        finally:
            self._armed = False

    def end(self, loss: float, says: float, stops: bool) -> None:
        """Look after what backward has not reached."""
        for index in self._native.missing():
            if self._is_users(index):
                parameter, view = self._dense[index], self._views[self._at][index]
                if parameter.grad is not view:
                    self._take(parameter, view)
                self._native.ready(index)
        if self._sparse is not None:
            self._sparse.end(self._first + self._at)
        self._native.end(loss, says, stops)

    def skip(self, lane: int) -> None:
        """It counts as zero."""
        index = lane - self._first
        self._native.skip(index)
        if self._sparse is not None:
            self._sparse.begin()
            self._sparse.end(lane)
        self._at = index
        if self._on_host:
            for parameter, view in zip(self._dense, self._views[index], strict=True):
                parameter.grad = view

    def finish(self) -> tuple[float, float, bool]:
        """Wait for the sums; what no lane has used has no gradient."""
        loss, unused, said, stops = self._native.finish()
        for parameter, view in zip(self._dense, self._views[self._at], strict=True):
            # On this lane code of the user may have set it to `None`, and backward not have reached it.
            if parameter.grad is not view:
                parameter.grad = view.to(parameter.device)
        for index in unused:
            self._dense[index].grad = None
        if self._sparse is not None:
            self._sparse.finish()
        return loss, said, stops


class _SparseGradients:
    """Gradients that hold only the rows that were used: gathered from all lanes, in order of lanes."""

    def __init__(self, parameters: Sequence[Parameter], lanes: Lanes) -> None:
        self._parameters = parameters
        self._group = lanes.group
        self._parts: dict[int, list[tuple[Any, Any, bool] | None]] = {}

    def scale(self, share: float) -> None:
        _scale([p for p in self._parameters if p.grad is not None], share)

    def begin(self) -> None:
        for parameter in self._parameters:
            parameter.grad = None

    def end(self, lane: int) -> None:
        self._parts[lane] = [
            None if p.grad is None else self._part(p.grad.detach()) for p in self._parameters
        ]

    def _part(self, grad: Tensor) -> tuple[Any, Any, bool]:
        """Indices, values, and whether it is dense, since the parameter was used in another way too."""
        dense = not grad.is_sparse
        if dense:
            grad = grad.to_sparse(1)
        return packed(grad._indices()), packed(grad._values()), dense

    def finish(self) -> None:
        # Peers of the group have proved the key of the job.
        told = self._group._native.gather_bytes(pickle.dumps(self._parts))
        parts = dict(sorted(item for part in told for item in pickle.loads(part).items()))
        self._parts = {}
        for place, parameter in enumerate(self._parameters):
            found = [lane[place] for lane in parts.values() if lane[place] is not None]
            if not found:
                parameter.grad = None
                continue
            indices = torch.cat([unpacked(indices) for indices, _, _ in found], dim=1)
            values = torch.cat([unpacked(values) for _, values, _ in found])
            whole = torch.sparse_coo_tensor(
                indices, values, parameter.shape, device=parameter.device
            ).coalesce()
            parameter.grad = whole.to_dense() if any(dense for _, _, dense in found) else whole


# How other libraries say that a worker has gone, and do not say which.
_GONE = ("connection closed by peer", "connection reset by peer", "horovod has been shut down")


class FlatGradients(ABC):
    """Gradients summed after backward, all of a type in one tensor, by another library. One lane a worker."""

    def __init__(self, parameters: Sequence[Parameter], lanes: Lanes) -> None:
        """Of these parameters."""
        self._parameters = parameters
        self._group = lanes.group
        self._lane = lanes.mine[0]
        self._words: list[float] = []

    @abstractmethod
    def _sum(self, tensor: Tensor) -> None:
        """Put the sum over all workers into a tensor."""

    def _sum_of_all(self, tensor: Tensor) -> None:
        try:
            self._sum(tensor)
        except RuntimeError as error:
            # The group says who has left, once that worker has told its own error, which is the cause.
            if any(words in str(error).lower() for words in _GONE):
                self._group.barrier()
            raise

    def close(self) -> None:
        """Let the parameters be as they were."""
        for parameter in self._parameters:
            parameter.grad = None

    def begin(self, lane: int) -> None:  # noqa: ARG002
        """Forget the last step's gradients."""
        for parameter in self._parameters:
            parameter.grad = None

    def arm(self, share: float) -> AbstractContextManager[None]:
        """Take a share of what a backward of the user's own has made."""
        _scale([p for p in self._parameters if p.grad is not None], share)
        return nullcontext()

    def end(self, loss: float, says: float, stops: bool) -> None:  # noqa: ARG002 - such a run does not go on
        """Keep what is summed with the gradients."""
        used = [float(p.grad is not None) for p in self._parameters]
        self._words = [loss, says if self._lane == 0 else 0.0, *used]

    def skip(self, lane: int) -> None:
        """It counts as zero."""
        self.begin(lane)
        self.end(0.0, 0.0, False)

    def finish(self) -> tuple[float, float, bool]:
        """Sum all gradients of a type at once."""
        words = torch.tensor(self._words, dtype=torch.float32, device=self._parameters[0].device)
        self._sum_of_all(words)
        loss, said, *used = words.tolist()
        together = [p for p, lanes in zip(self._parameters, used, strict=True) if lanes]
        for parameter in together:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            elif parameter.grad.is_sparse:
                parameter.grad = parameter.grad.to_dense()
        for dtype in dict.fromkeys(p.dtype for p in together):
            grads = [p.grad for p in together if p.dtype == dtype]
            flat = torch.cat([grad.reshape(-1) for grad in grads])
            self._sum_of_all(flat)
            parts = flat.split([grad.numel() for grad in grads])
            for grad, part in zip(grads, parts, strict=True):
                grad.copy_(part.view(grad.shape))
        return loss, said, False


class ProcessGroupGradients(FlatGradients):
    """Gradients summed by `torch.distributed`: Gloo, or NCCL for a model on a GPU."""

    def __init__(self, parameters: Sequence[Parameter], lanes: Lanes) -> None:
        """Of these parameters; in the process group of the user's own code, if there is one."""
        from torch import distributed

        super().__init__(parameters, lanes)
        self._made = not distributed.is_initialized()
        if self._made:
            distributed.init_process_group("nccl" if any(p.is_cuda for p in parameters) else "gloo")

    def close(self) -> None:
        """Leave the process group, and let the parameters be as they were."""
        from torch import distributed

        if self._made:
            distributed.destroy_process_group()
        super().close()

    def _sum(self, tensor: Tensor) -> None:
        from torch import distributed

        distributed.all_reduce(tensor)


def _scale(parameters: Sequence[Parameter], share: float) -> None:
    if share != 1.0:
        for parameter in parameters:
            parameter.grad = parameter.grad.detach() * share


def _code(parameter: Parameter) -> int:
    if parameter.is_complex() or not parameter.is_floating_point() or parameter.dtype not in CODES:
        raise TypeError(
            f"a parameter of {parameter.dtype} cannot be trained on several lanes: use floats, or lanes=1"
        )
    return CODES[parameter.dtype]


def mark_sparse(model: Any) -> None:
    """Note the parameters whose gradients are sparse: they are known by their modules."""
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding | torch.nn.EmbeddingBag) and module.sparse:
            module.weight._grampus_sparse = True


# Larger buffers, mostly masks and tables, are compared in the first steps only. Those that have not changed
# by then are taken for changed only where torch's own count of changes says so.
_COMPARED = 1 << 20
_FIRST_STEPS = 3


class LaneBuffers:
    """Buffers, such as the statistics of batch norm: each lane's own in a step, lane 0's after it."""

    def __init__(self, model: Any, lanes: Lanes) -> None:
        """Of this model."""
        self._model = model
        self._lanes = lanes
        self._has_any = next(model.buffers(), None) is not None and not lanes.alone
        # Whether there are lanes here whose changes do not last.
        self._others = lanes.mine != range(1)
        # Names of those that lane 0 has been seen to change, in this order.
        self._changing: dict[str, None] = {}
        self._steps = 0
        self._news: list[str] = []
        # Those that lane 0 has made in a step, or of another shape: caches, mostly, which then stay.
        self._made: dict[str, Tensor] = {}
        self._committed: dict[str, Tensor] = {}
        self._versions: dict[str, tuple[int, int]] = {}
        self._of_lane_0: dict[str, Tensor] = {}
        self._before: dict[str, Tensor] = {}
        if self._has_any:
            buffers = self._buffers()
            self._committed = {name: buffer.detach().clone() for name, buffer in buffers.items()}
            self._commit(buffers)

    def _buffers(self) -> dict[str, Tensor]:
        return dict(self._model.named_buffers())

    def _commit(self, buffers: dict[str, Tensor]) -> None:
        self._versions = {name: _version(buffer) for name, buffer in buffers.items()}
        for name, buffer in buffers.items():
            if name in self._changing or self._is_made(name, buffer):
                self._committed[name] = buffer.detach().clone()

    def _is_made(self, name: str, buffer: Tensor) -> bool:
        return name not in self._committed or self._committed[name].shape != buffer.shape

    def _changed(self, buffers: dict[str, Tensor]) -> list[str]:
        """Those that are not as they were, besides those that always change.

        Batch norm does not count its changes, nor are those of `.data` counted, so values are compared.
        """
        compared = math.inf if self._steps < _FIRST_STEPS else _COMPARED
        return [
            name
            for name, buffer in buffers.items()
            if name in self._committed
            and name not in self._changing
            and (
                self._versions.get(name) != _version(buffer)
                if buffer.numel() * buffer.element_size() > compared
                else not torch.equal(buffer, self._committed[name])
            )
        ]

    def begin(self, lane: int) -> None:
        """Let a lane begin where the last step ended."""
        if self._has_any and lane != self._lanes.mine[0]:
            self._undo()

    def roll_back(self) -> None:
        """Let all be as the last step left them."""
        if self._has_any:
            self._undo()

    def _undo(self) -> None:
        buffers = self._buffers()
        names = [*self._changing, *self._changed(buffers)]
        _put({name: self._committed[name] for name in names}, buffers)

    def end(self, lane: int) -> float:
        """Whether lane 0 has changed some: 1, or 2 where it has made some, or changed others than before."""
        if not self._has_any or lane != 0:
            return 0.0
        buffers = self._buffers()
        self._made = {
            name: buffer.detach().clone() for name, buffer in buffers.items() if self._is_made(name, buffer)
        }
        self._news = [name for name in self._changed(buffers) if name not in self._made]
        if self._others:
            names = [*self._changing, *self._news]
            self._of_lane_0 = {name: buffers[name].detach().clone() for name in names}
        return 2.0 if self._news or self._made else float(bool(self._changing))

    def finish(self, said: float) -> None:
        """Take those of lane 0."""
        if not self._has_any:
            return
        self._before = dict(self._committed)
        if self._others:
            self._undo()
        buffers = self._buffers()
        if said == 2.0:
            made = {name: packed(value) for name, value in self._made.items()}
            # Peers of the group have proved the key of the job.
            news, made = pickle.loads(
                self._lanes.group._native.gather_bytes(pickle.dumps((self._news, made)))[0]
            )
            self._changing |= dict.fromkeys(news)
            # A worker whose lanes had no rows may be without some, and makes them later.
            _put({name: unpacked(value) for name, value in made.items() if name in buffers}, buffers)
        if said and self._others and self._lanes.mine[0] == 0:
            _put(self._of_lane_0, buffers)
        if said and self._changing and self._lanes.group.size > 1:
            self._spread([buffers[name] for name in self._changing])
        self._commit(buffers)
        self._steps += 1

    def take_own(self) -> bool:
        """Take those of lane 0 without the others, who are gone; false where they are not here."""
        if not self._has_any:
            return True
        if self._lanes.mine != range(1):
            return False
        self._changing |= dict.fromkeys(self._news)
        self._commit(self._buffers())
        return True

    def step_back(self) -> None:
        """Let all be as they were before the step that was finished last: it was not applied."""
        _put(self._before, self._buffers())

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Afterwards all are as they were before: workers evaluate different rows."""
        if not self._has_any:
            yield
            return
        before = {name: buffer.detach().clone() for name, buffer in self._buffers().items()}
        yield
        buffers = self._buffers()
        _put(
            {name: value for name, value in before.items() if not torch.equal(value, buffers[name])}, buffers
        )

    def _spread(self, buffers: list[Tensor]) -> None:
        """Lane 0 is the first worker's."""
        flat = torch.cat([buffer.detach().reshape(-1).view(torch.uint8).cpu() for buffer in buffers])
        self._lanes.group.broadcast(flat, 0)
        sizes = [buffer.numel() * buffer.element_size() for buffer in buffers]
        with torch.no_grad():
            for buffer, value in zip(buffers, flat.split(sizes), strict=True):
                # A copy begins at a multiple of any type's size, as a view must.
                buffer.copy_(value.clone().view(buffer.dtype).view(buffer.shape))


def _version(buffer: Tensor) -> tuple[int, int]:
    """What tells whether a buffer was written to, or another put in its place."""
    return id(buffer), buffer._version


def _put(values: dict[str, Tensor], buffers: dict[str, Tensor]) -> None:
    with torch.no_grad():
        for name, value in values.items():
            if buffers[name].shape == value.shape:
                buffers[name].copy_(value)
            else:
                buffers[name].data = value.clone().to(buffers[name].device)
