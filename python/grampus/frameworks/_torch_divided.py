"""Optimizers of Grampus for torch models: what they remember is divided among the workers.

The parameters of one type become views of one tensor, as their gradients are. Each worker updates its own
part of it, and that of its neighbour in case that one is lost; then all send each other their own parts.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch

from grampus import _native
from grampus._training.cleanup import interruptible
from grampus._training.kept import NothingKept
from grampus.frameworks import _torch_state
from grampus.frameworks._torch_memory import CODES, packed, unpacked

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from grampus.collective import Group
    from grampus.optim import Optimizer

Parameter = Any
Tensor = Any
# Bytes at whose multiples parameters begin: gradients do so too, and are read where they lie.
_ALIGNMENT = 64


class Divided(torch.optim.Optimizer):  # type: ignore[misc]
    """An optimizer of `gp.optim` as torch knows optimizers.

    After `step` a worker has its own parts of the weights, and `spread` gives it those of the others.
    """

    def __init__(self, described: Optimizer, module: Any, group: Group) -> None:
        """Of all parameters that can be trained now."""
        names = {id(p): name for name, p in module.named_parameters()}
        parameters = [p for p in module.parameters() if p.requires_grad]
        for parameter in parameters:
            if parameter.dtype not in (torch.float32, torch.float64):
                raise TypeError(
                    f"{names[id(parameter)]} is of {parameter.dtype}, and optimizers of gp.optim take "
                    "float32 and float64: convert it, or use one of torch.optim"
                )
        if not parameters:
            raise ValueError("the model has no parameter that can be trained: none has requires_grad")
        super().__init__(parameters, {"lr": float(described.lr)})
        self._group = group
        self._names = names
        self._parameters = parameters
        self._others = [p for p in module.parameters() if not p.requires_grad]
        self._flats = [
            _Flat(described, [p for p in parameters if p.dtype == dtype])
            for dtype in dict.fromkeys(p.dtype for p in parameters)
        ]
        self.divided = False
        # Whether the sum of a step is there, all may know of it, and it was not applied here.
        self.ready = False
        # Whether a step was done since the weights were spread: scaled gradients that overflow make none.
        self._stepped = False

    def divide(self) -> bool:
        """Forget what other workers keep; say whether there are any."""
        self.divided = self._group.size > 1
        if self.divided:
            for flat in self._flats:
                flat.native.divide(self._group.size, self._group.rank)
        return self.divided

    @property
    def remembered(self) -> int:
        """Bytes of what this worker remembers."""
        return sum(flat.native.remembered() for flat in self._flats)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Apply the gradients to the parts that this worker keeps."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._check()
        for flat in self._flats:
            flat.take_in()
        if self.divided:
            # Who goes on from here knows that all others have what they need to do so, too.
            self.ready = True
            with interruptible():
                self._group.barrier()
            self.ready = False
        rate = float(self.param_groups[0]["lr"])
        for flat in self._flats:
            flat.update(rate, self._group)
        self._stepped = True
        if not self.divided:
            self._put_out()
        return loss

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def spread(self) -> None:
        """Give all workers the weights that each has updated."""
        if not self._stepped:
            return
        self._stepped = False
        for flat in self._flats:
            flat.native.spread(flat.memory, self._group._native)
        self._put_out()

    def _put_out(self) -> None:
        for flat in self._flats:
            flat.put_out()

    def _check(self) -> None:
        for parameter in self._others:
            if parameter.grad is not None:
                raise ValueError(
                    f"{self._names[id(parameter)]} was frozen when the optimizer was made, and has a "
                    "gradient now: let it be free from the start, or use an optimizer of torch.optim"
                )
        for parameter in self._parameters:
            if parameter.grad is not None and parameter.grad.is_sparse:
                raise TypeError(
                    f"the gradient of {self._names[id(parameter)]} is sparse, and optimizers of gp.optim "
                    "take dense ones: leave sparse=True out, or use torch.optim.SparseAdam"
                )

    # What is saved

    def state_dict(self) -> dict[str, Any]:
        """All that it remembers, by parameter; all workers ask at once, and the first is told."""
        places = {id(p): place for place, p in enumerate(self._parameters)}
        state: dict[int, dict[str, Any]] = {}
        for flat in self._flats:
            for slot, name in enumerate(flat.native.slots()):
                whole = torch.zeros_like(flat.memory)
                flat.native.slot(slot, whole, self._group._native)
                if self._group.rank:
                    continue
                for parameter, view in zip(flat.parameters, flat.views_of(whole), strict=True):
                    state.setdefault(places[id(parameter)], {})[name] = view
            for parameter, steps in zip(flat.parameters, flat.native.steps(), strict=True):
                state.setdefault(places[id(parameter)], {})["step"] = steps
        return {"state": state, "param_groups": super().state_dict()["param_groups"]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on with what `state_dict` gave, if it says anything of it, and with its rate."""
        state = state_dict["state"]
        if state:
            places = {id(p): place for place, p in enumerate(self._parameters)}
            for flat in self._flats:
                flat.load([state.get(places[id(p)], {}) for p in flat.parameters])
        (saved,) = state_dict["param_groups"]
        self.param_groups[0].update({name: value for name, value in saved.items() if name != "params"})

    def held(self) -> dict[str, bytes]:
        """What this worker has, without asking the others."""
        rate = float(self.param_groups[0]["lr"])
        return {
            str(flat.memory.dtype): flat.native.held(flat.memory, (flat.sum, rate) if self.ready else None)
            for flat in self._flats
        }

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def heal(self, held: Sequence[dict[str, bytes]]) -> None:
        """Take what all workers that are left have; raise `NothingKept` where a part is lost."""
        for flat in self._flats:
            flat.take_in()
            parts = [each[str(flat.memory.dtype)] for each in held if str(flat.memory.dtype) in each]
            try:
                flat.native.heal(parts, flat.memory)
            except ValueError as error:
                # All workers find the same.
                raise NothingKept(str(error)) from None
        self._put_out()


class _Flat:
    """Parameters of one type, one behind the other."""

    def __init__(self, described: Optimizer, parameters: list[Parameter]) -> None:
        # Gradients lie in this order, since the last are ready first.
        self.parameters = parameters[::-1]
        width = parameters[0].element_size()
        self._starts: list[int] = []
        end = 0
        for parameter in self.parameters:
            start = -(-end * width // _ALIGNMENT) * _ALIGNMENT // width
            self._starts.append(start)
            end = start + parameter.numel()
        tensors = [(a, a + p.numel()) for a, p in zip(self._starts, self.parameters, strict=True)]
        double = parameters[0].dtype == torch.float64
        self.native = _native.FlatOptimizer(json.dumps(described.description()), tensors, end, double)
        self.memory = torch.zeros(end, dtype=parameters[0].dtype)
        self._views = self.views_of(self.memory)
        # A copy of gradients that do not lie as the parameters do.
        self._copies: Tensor = None
        # Gradients of all parameters, and which have one.
        self.sum: tuple[Any, list[int]] = (self.memory, [])

    def views_of(self, whole: Tensor) -> list[Tensor]:
        """The part of each parameter, in the order in which that has its own numbers."""
        views = []
        for start, parameter in zip(self._starts, self.parameters, strict=True):
            part = whole[start : start + parameter.numel()]
            dense = parameter.is_contiguous() or parameter.is_contiguous(memory_format=torch.channels_last)
            if dense and parameter.dim():
                views.append(part.as_strided(parameter.shape, parameter.stride()))
            else:
                views.append(part.view(parameter.shape))
        return views

    def take_in(self) -> None:
        """Let parameters lie here, those of other devices as copies; find their gradients."""
        for parameter, view in zip(self.parameters, self._views, strict=True):
            if parameter.data_ptr() == view.data_ptr():
                continue
            view.copy_(parameter)
            if parameter.is_cpu:
                parameter.data = view
        used = [place for place, p in enumerate(self.parameters) if p.grad is not None]
        self.sum = (self._lying(used) or self._copied(used), used)

    def _lying(self, used: list[int]) -> Any:
        """The memory of gradients that lie as the parameters do, if they do."""
        if not used:
            return None
        width = self.memory.element_size()
        first = self.parameters[used[0]].grad
        begin = first.data_ptr() - self._starts[used[0]] * width
        storage = first.untyped_storage()
        end = begin + self.memory.numel() * width
        if not first.is_cpu or begin < storage.data_ptr() or end > storage.data_ptr() + storage.nbytes():
            return None
        for place in used:
            grad, view = self.parameters[place].grad, self._views[place]
            if grad.data_ptr() != begin + self._starts[place] * width or grad.stride() != view.stride():
                return None
        return begin, self.memory.numel(), CODES[self.memory.dtype], first

    def _copied(self, used: list[int]) -> Tensor:
        if self._copies is None:
            self._copies = torch.zeros_like(self.memory)
        views = self.views_of(self._copies)
        kept = self.native.kept()
        for place in used:
            begin, end = self._starts[place], self._starts[place] + views[place].numel()
            if any(begin < stop and start < end for start, stop in kept):
                views[place].copy_(self.parameters[place].grad)
        return self._copies

    def update(self, rate: float, group: Group) -> None:
        """Apply the gradients that were found."""
        self.native.update(self.memory, self.sum, rate, group._native)

    def put_out(self) -> None:
        """Copy to parameters of other devices."""
        for parameter, view in zip(self.parameters, self._views, strict=True):
            if not parameter.is_cpu:
                parameter.copy_(view)

    def load(self, saved: list[dict[str, Any]]) -> None:
        """Go on with what was remembered of each parameter; torch remembers nothing of those never used."""
        if not any(saved):
            return
        own = self.native.slots()
        found = dict.fromkeys(name for each in saved for name in each if name != "step")
        if set(own) != set(found):
            raise ValueError(
                f"the saved optimizer remembers {', '.join(found) or 'nothing'}, this one "
                f"{', '.join(own) or 'nothing'}: build it as the saved one was"
            )
        slots = []
        for name in own:
            whole = torch.zeros_like(self.memory)
            for each, view in zip(saved, self.views_of(whole), strict=True):
                if name in each:
                    view.copy_(each[name])
            slots.append((name, whole))
        # Where torch does not count, it only matters whether there was one.
        self.native.set_state([int(each.get("step", bool(each))) for each in saved], slots)


def held(model: Any) -> dict[str, Any]:
    """What this worker has of a run whose memory is divided: its parts, and what is no part of them."""
    optimizer = model.optimizer
    divided = {id(p) for p in optimizer.param_groups[0]["params"]}
    rest = _torch_state.uncompiled(model.module).state_dict(keep_vars=True)
    groups = torch.optim.Optimizer.state_dict(optimizer)
    return {
        **_torch_state.described(model, [groups]),
        "model": {name: packed(value) for name, value in rest.items() if id(value) not in divided},
        "parts": [optimizer.held()],
    }


def heal(model: Any, state: dict[str, Any]) -> None:
    """Put together what all workers have that are left."""
    model.optimizer.heal(state["parts"])
    rest = {name: unpacked(value) for name, value in state["model"].items()}
    module = _torch_state.uncompiled(model.module)
    _torch_state.load_weights(module, {**module.state_dict(), **rest})
