"""PyTorch: how a torch model does what the loop asks of a model."""

from __future__ import annotations

import importlib
import pickle
import random
from collections.abc import Mapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import cloudpickle
import torch

from grampus import _native
from grampus._training import creator, trees
from grampus._training.feed import Batch
from grampus._training.leaving import wants_to_stop
from grampus._training.metering import Tally
from grampus._training.repeated import Repeated
from grampus.frameworks import (
    _torch_data,
    _torch_divided,
    _torch_feed,
    _torch_making,
    _torch_outputs,
    _torch_schedules,
    _torch_state,
)
from grampus.frameworks._torch_gradients import (
    LaneBuffers,
    LaneGradients,
    PlainGradients,
    ProcessGroupGradients,
    mark_sparse,
)
from grampus.frameworks._torch_horovod import HorovodGradients
from grampus.frameworks._torch_memory import keep_freed_memory, packed, unpacked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from grampus._training.job import Spec
    from grampus._training.lanes import Lanes

Tensor = Any
# What sums the gradients of several lanes.
_BACKENDS: dict[str, Any] = {
    "grampus": LaneGradients,
    "torch_distributed": ProcessGroupGradients,
    "horovod": HorovodGradients,
}


class Model:
    """A torch module with its loss, and for training its optimizer and scheduler."""

    def __init__(self, spec: Spec, lanes: Lanes, state: dict[str, Any] | None, training: bool) -> None:
        """Make it from what the user passed, alike on every worker; `state` is what was trained before."""
        self.spec = spec
        self.lanes = lanes
        self._threads = torch.get_num_threads()
        torch.set_num_threads(lanes.threads)
        keep_freed_memory()
        if training:
            # The first optimizer of a process imports it, for seconds: here all workers do so at once.
            importlib.import_module("torch._dynamo")
        made = creator.in_turn(lanes, lambda: self._make(training))
        self.module, self.optimizer, self.scheduler, self.loss = made
        self._needed = _torch_making.needed(self.module)
        if state is not None:
            _torch_state.load(self, state)
        else:
            _torch_state.spread(self.module, lanes.group)
        # Whether what the optimizer remembers is divided among workers.
        self.sharded = isinstance(self.optimizer, _torch_divided.Divided) and self.optimizer.divide()
        # The loss of such a step, once it was applied here and before all know.
        self.applied: float | None = None
        self.device = next((p.device for p in self.module.parameters()), torch.device("cpu"))
        self.meters: dict[int, dict[str, Any]] = {}
        self.tally = Tally(lanes.group, shares=False)
        self.repeated = Repeated()
        self.rows = 0
        # Steps that were done before.
        self.step = 0
        self.odd_losses: list[tuple[int, float, Any, str]] = []
        self._buffers = LaneBuffers(self.module, lanes) if training else None
        self._gradients: Any = None
        self._trained: list[int] = []
        # What metrics have yet to count: they count a step when it is done.
        self._unmetered: list[tuple[int, Any, Any]] = []
        self._torn = False
        # Whether a worker wants to stop after the step that was done last.
        self.stops = False
        self._frozen: list[tuple[str, Any]] = []
        self._generator = torch.default_generator

    def _make(self, training: bool) -> tuple[Any, Any, Any, Any]:
        spec, seed = self.spec, self.lanes.seed
        creator.seed_all(creator.make_seed(seed, 0))
        module = _torch_making.make_module(spec)
        creator.seed_all(creator.make_seed(seed, 3))
        loss = _torch_making.make_loss(spec)
        if not training:
            return module, None, None, loss
        creator.seed_all(creator.make_seed(seed, 1))
        optimizer = _torch_making.make_optimizer(spec, module, self.lanes.group)
        return module, optimizer, _torch_schedules.make_scheduler(spec, optimizer), loss

    def close(self) -> None:
        """Leave the process as it was."""
        if hasattr(self._gradients, "close"):
            self._gradients.close()
        torch.set_num_threads(self._threads)

    # Training

    def epoch_begins(self) -> None:
        """Get ready to train; code of the user may have frozen parameters or freed others since."""
        self.module.train()
        trained = [p for p in self.module.parameters() if p.requires_grad]
        if not trained:
            raise ValueError("the model has no parameter that can be trained: none has requires_grad")
        if [id(p) for p in trained] == self._trained:
            return
        if hasattr(self._gradients, "close"):
            self._gradients.close()
        self._trained = [id(p) for p in trained]
        # One lane has nothing to prepare for each parameter.
        frozen = [] if self.lanes.alone else self.module.named_parameters()
        self._frozen = [(name, p) for name, p in frozen if not p.requires_grad]
        mark_sparse(self.module)
        if self.lanes.alone:
            self._gradients = PlainGradients(list(self.module.parameters()))
        else:
            self._gradients = _BACKENDS[self.spec.backend](trained, self.lanes)

    def train(self, lane: int, rows: int, share: float, seed: int, part: Batch | None) -> None:
        """Forward and backward of one lane's rows."""
        gradients = self._gradients
        if part is None:
            gradients.skip(lane)
            return
        self._seed(seed)
        self._buffers.begin(lane)  # type: ignore[union-attr]
        gradients.begin(lane)
        try:
            loss, output, target = self._forward(part.values)
            _native.enter("backward")
            self._check_frozen()
            if share != 1.0:
                loss = loss * share
            with gradients.arm(share):
                # Rows that count for nothing have no gradient, even where their mean is not a number.
                if share:
                    loss.backward()
        except Exception as error:
            _torch_outputs.note(error, lane, rows, part, f" at step {self.step + 1} of the run")
            raise
        self.rows += rows
        value = loss.item() if share else 0.0
        self.repeated.add(lane, value / share if share else value)
        # Neither infinite nor NaN; cheaper than asking for both.
        if value - value != 0.0:
            self.odd_losses.append((lane, value / share, part.rows, ""))
        gradients.end(value, self._buffers.end(lane), wants_to_stop())  # type: ignore[union-attr]
        if self.meters.get(lane):
            self._unmetered.append((lane, _torch_outputs.judged(output), target))

    def _check_frozen(self) -> None:
        """The gradient of a parameter that has become free in the meantime would not be summed."""
        for name, parameter in self._frozen:
            if parameter.requires_grad:
                raise ValueError(
                    f"{name} was frozen as the epoch began and is not now: free parameters in the model's "
                    "train(), which is called on all workers as an epoch begins, or before another fit"
                )

    def commit(self) -> float:
        """Sum over all lanes, and apply the step."""
        loss, said, self.stops = self._gradients.finish()
        if self.tally.shares:
            # The sum is there: what follows is this worker's own.
            _native.enter("update")
            self._measure()
        self._buffers.finish(said)  # type: ignore[union-attr]
        _native.enter("update")
        # From here on nothing can fail for another worker: the step is done as a whole.
        self._torn = True
        if self.spec.clipping is not None:
            _torch_outputs.clip(self.module, self.spec.clipping)
        if not self.lanes.alone:
            # An optimizer that draws must draw alike on all workers: for a lane that none of them drives.
            self._seed(_native.lane_seed("model", self.lanes.seed, 0, self.step, self.lanes.total))
        self.optimizer.step()
        self.step += 1
        if self.scheduler is not None:
            self.scheduler.step_ends()
        if self._unmetered:
            self._measure()
        self.tally.commit()
        self.repeated.done()
        self._torn = False
        if self.sharded:
            self.applied = float(loss)
            self.optimizer.spread()
            self.applied = None
        return float(loss)

    def held(self) -> dict[str, Any]:
        """What this worker has of a run whose memory is divided, without asking the others."""
        return _torch_divided.held(self)

    def heal(self, state: dict[str, Any]) -> None:
        """Put together what all workers have that are left."""
        _torch_divided.heal(self, state)

    def _measure(self) -> None:
        """Let metrics count the step; where all workers have it, before any of them has applied it."""
        for lane, output, target in self._unmetered:
            for meter in self.meters[lane].values():
                meter.update(output, target)
        self._unmetered.clear()
        self.tally.offer(self.meters)

    def roll_back(self) -> bool:
        """Forget what was begun of a step; false where a step was cut off in its midst."""
        self._unmetered.clear()
        if self.sharded and self.optimizer.ready:
            # All have the sum: this worker can apply it later, if others have.
            self._buffers.step_back()  # type: ignore[union-attr]
            return True
        if not self._torn and self._buffers is not None:
            self._buffers.roll_back()
        return not self._torn

    def agree(self, parts: list[tuple[int, int, float]]) -> tuple[float, float]:
        """Rows and weight of a batch over all lanes of all workers."""
        import numpy as np

        told = {lane: np.array([rows, weight]) for lane, rows, weight in parts}
        rows, weight = next(iter(self.lanes.group.all_reduce(told).values()))
        return float(rows), float(weight)

    def epoch_ends(self, record: dict[str, float]) -> None:
        """Move the scheduler on."""
        if self.scheduler is not None:
            self.scheduler.epoch_ends(record)

    @property
    def learning_rate(self) -> float:
        """That of the first group of parameters."""
        return float(self.optimizer.param_groups[0]["lr"])

    def _seed(self, seed: int) -> None:
        import numpy as np

        self._generator.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed & 0xFFFFFFFF)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)

    def _seed_answer(self, lane: int, part: Batch) -> None:
        """What a model draws for some rows does not depend on what its worker did before."""
        self._seed(_native.lane_seed("model", self.lanes.seed, 0, int(part.rows[0]), lane))

    def _forward(self, values: Any) -> tuple[Tensor, Any, Any]:
        if self.device.type != "cpu":
            values = trees.mapped(self._moved, values)
        positional, named, target = self._split(values)
        output = self.module(*positional, **named)
        if self.loss is None:
            loss = _torch_outputs.own_loss(output)
        elif target is None:
            loss = self.loss(output)
        else:
            loss = self.loss(output, target)
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            what = type(loss).__name__
            if isinstance(loss, torch.Tensor):
                what = f"tensor of shape {tuple(loss.shape)}"
            raise ValueError(
                f"the loss is a {what}, not a tensor of one number: reduce it, for example with "
                "reduction='mean'"
            )
        return loss, output, target

    def _moved(self, leaf: Any) -> Any:
        return leaf.to(self.device, non_blocking=True) if isinstance(leaf, torch.Tensor) else leaf

    def _split(self, values: Any, predicting: bool = False) -> tuple[tuple[Any, ...], dict[str, Any], Any]:
        """Arguments of the model, and the target: the convention for batches."""
        target = None
        if isinstance(values, Mapping):
            if "x" in values and set(values) <= {"x", "y"}:
                values, target = values["x"], values.get("y")
            elif self.loss is not None and not predicting:
                raise TypeError(
                    f"a batch has the keys {sorted(values)}: name the model's inputs with feature_cols and "
                    "the target with label_cols, use the keys 'x' and 'y', or pass loss=None where the model "
                    "makes its own loss"
                )
        elif isinstance(values, list | tuple):
            features = list(values)
            if len(features) > 1 and not (predicting and len(features) - 1 < self._needed):
                target = features.pop()
            values = features[0] if len(features) == 1 else tuple(features)
        if isinstance(values, Mapping):
            return (), dict(values), target
        if isinstance(values, list | tuple):
            return tuple(values), {}, target
        return (values,), {}, target

    # Evaluation and prediction

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Inside, the model only answers."""
        trains = self.module.training
        self.module.eval()
        try:
            with nullcontext() if self._buffers is None else self._buffers.kept():
                yield
        finally:
            self.module.train(trains)

    def evaluate(self, lane: int, part: Batch, meters: Mapping[str, Any]) -> float:
        """The loss of some rows; their metrics go to the meters."""
        self._seed_answer(lane, part)
        try:
            with torch.no_grad():
                loss, output, target = self._forward(part.values)
        except Exception as error:
            _torch_outputs.note(error, lane, len(part.rows), part)
            raise
        for meter in meters.values():
            meter.update(
                _torch_outputs.judged(output), target, range(part.first, part.first + len(part.rows))
            )
        return float(loss.item())

    def predict(self, lane: int, part: Batch) -> Any:
        """The model's output for some rows, as arrays."""
        self._seed_answer(lane, part)
        try:
            with torch.no_grad():
                values = part.values
                if self.device.type != "cpu":
                    values = trees.mapped(self._moved, values)
                positional, named, _ = self._split(values, predicting=True)
                output = _torch_outputs.plain(self.module(*positional, **named))
                _torch_outputs.check_rows(output, len(part.rows))
        except Exception as error:
            _torch_outputs.note(error, lane, len(part.rows), part)
            raise
        return trees.mapped(packed, output)


feed = _torch_feed.feed
take = _torch_state.take
portable = _torch_data.portable
joined = _torch_state.joined
predictions = _torch_state.predictions
digest = _torch_state.digest
save_weights = _torch_state.save_weights
weights_of = _torch_state.weights_of


def made(spec: Spec, state: dict[str, Any] | None, seed: int) -> Any:
    """The module in this process, with these weights."""
    spec = pickle.loads(cloudpickle.dumps(spec))
    with creator.seeded(creator.make_seed(seed, 0)):
        module = _torch_making.make_module(spec)
    if state is not None:
        weights = {name: unpacked(value) for name, value in state["model"].items()}
        _torch_state.load_weights(module, weights)
    return module.eval()
