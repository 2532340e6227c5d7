"""PyTorch: how a torch model does what the loop asks of a model."""

from __future__ import annotations

import copy
import importlib
import pickle
import random
from collections.abc import Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import cloudpickle
import torch
from torch.nn.utils.rnn import PackedSequence

from grampus import _native, _report
from grampus._training import creator, trees
from grampus._training.cleanup import uninterrupted
from grampus._training.feed import Batch
from grampus._training.leaving import wants_to_stop
from grampus._training.means import Means, as_number
from grampus._training.metering import Tally
from grampus._training.model import LoopModel
from grampus._training.repeated import Repeated
from grampus.frameworks import (
    _torch_datasets,
    _torch_divided,
    _torch_feed,
    _torch_formats,
    _torch_losses,
    _torch_making,
    _torch_outputs,
    _torch_reduction,
    _torch_schedules,
    _torch_state,
    _torch_trial,
)
from grampus.frameworks._torch_devices import Late, Precision, settle
from grampus.frameworks._torch_gradients import (
    LaneBuffers,
    LaneGradients,
    PlainGradients,
    ProcessGroupGradients,
    SummedGradients,
    mark_sparse,
)
from grampus.frameworks._torch_horovod import HorovodGradients
from grampus.frameworks._torch_inputs import Inputs, split
from grampus.frameworks._torch_lane_check import LaneCheck, is_first_warning
from grampus.frameworks._torch_memory import keep_freed_memory, packed, unpacked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from grampus._training.job import Spec
    from grampus._training.lanes import Lanes
    from grampus._training.model import Reduction
    from grampus.operators import Timers

Tensor = Any
# What sums the gradients of several lanes.
_BACKENDS: dict[str, Any] = {
    "grampus": LaneGradients,
    "torch_distributed": ProcessGroupGradients,
    "horovod": HorovodGradients,
}

# Around what is done in each step where there is nothing to do besides: one for all.
_PLAINLY = nullcontext()


class Model(LoopModel):
    """A torch module with its loss, and for training its optimizer and scheduler."""

    def __init__(self, spec: Spec, lanes: Lanes, state: dict[str, Any] | None, training: bool) -> None:
        """Make it from what the user passed, alike on every worker; `state` is what was trained before."""
        super().__init__()
        self.spec = spec
        self.lanes = lanes
        self._threads = torch.get_num_threads()
        torch.set_num_threads(lanes.threads)
        keep_freed_memory()
        if training:
            # The first optimizer of a process imports it, for seconds: here all workers do so at once.
            importlib.import_module("torch._dynamo")
        made = creator.in_turn(lanes, lambda: self._make(training))
        self.module, self.device, self.optimizers, self.schedules, self.loss = made
        # As users know them.
        self.schedulers = [each.scheduler for each in self.schedules]
        self.optimizer = self.optimizers[0] if self.optimizers else None
        self._inputs = Inputs.of(self.module)
        self.reduction = _torch_reduction.reduction_of(self.loss, spec.loss_weight, self._target)
        precision = self.spec.precision
        self.precision = None if precision is None else Precision(precision, self.device, self.optimizers)
        self._prepare()
        if state is not None:
            _torch_state.load(self, state)
        else:
            _torch_state.spread(self.module, lanes.group)
        # Whether what the optimizer remembers is divided among workers.
        self.sharded = isinstance(self.optimizer, _torch_divided.Divided) and self.optimizer.divide()
        # The loss of the last step, once it was applied here, until the next one begins.
        self.applied: float | None = None
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
        # State that cannot be saved, of which the user has been told.
        self.left_out: set[str] = set()
        # Whether a worker wants to stop after the step that was done last.
        self.stops = False
        self._frozen: list[tuple[str, Any]] = []
        self._generator = torch.default_generator
        # Whether lanes come to the result of one process, which one lane does.
        self._check = self._checked_by(self.trained_by) if training else None
        self._evaluation_check = self._checked_by(self.reduction)
        # Whether it has trained yet, and whether the loss is still to be looked at for a broadcast.
        self._is_new = self._may_broadcast = True
        # Losses that a GPU is still computing, where nobody asks for each.
        self._late: Late | None = None

    def _make(self, training: bool) -> tuple[Any, Any, list[Any], list[Any], Any]:
        spec, seed = self.spec, self.lanes.seed
        creator.seed_all(creator.make_seed(seed, 0))
        module = _torch_making.make_module(spec)
        device = settle(module, spec.device)
        creator.seed_all(creator.make_seed(seed, 3))
        loss = _torch_making.make_loss(spec)
        if isinstance(loss, torch.nn.Module):
            loss.to(device)
        if not training:
            return module, device, [], [], loss
        creator.seed_all(creator.make_seed(seed, 1))
        optimizers = _torch_making.make_optimizers(spec, module, self.lanes.group)
        return module, device, optimizers, _torch_schedules.make_schedulers(spec, optimizers), loss

    def _checked_by(self, reduction: Reduction) -> LaneCheck | None:
        is_half = self.precision is not None
        return None if self.lanes.alone else LaneCheck(self.spec, self.lanes, reduction, is_half)

    def _prepare(self) -> None:
        """What has to be there before states are loaded."""

    def besides(self) -> dict[str, Any]:
        """What is saved beside weights, optimizers and schedulers."""
        return {} if self.precision is None else {"precision": self.precision.state()}

    def load_besides(self, state: dict[str, Any]) -> None:
        """Take up what `besides` returned."""
        if self.precision is not None:
            self.precision.load(state.get("precision", {}))

    def hurry(self) -> None:
        """Nobody asks for the loss of each step: do not wait for it."""
        if self.device.type == "cuda" and self.lanes.alone:
            self._late = Late()

    def _timed(self, name: str) -> AbstractContextManager[None]:
        """Count the time of what is done inside, where somebody asks for it."""
        return _PLAINLY if self.timers is None else self._recorded(self.timers, name)

    @contextmanager
    def _recorded(self, timers: Timers, name: str) -> Iterator[None]:
        with timers.record(name):
            yield
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)

    def close(self) -> None:
        """Leave the process as it was."""
        if hasattr(self._gradients, "close"):
            self._gradients.close()
        torch.set_num_threads(self._threads)

    # Training

    def epoch_begins(self, epoch: int = 0, batch: int = 0) -> None:  # noqa: ARG002 - operators know where they are
        """Get ready to train; code of the user may have frozen parameters or freed others since."""
        self.module.train()
        trained = [p for p in self.module.parameters() if p.requires_grad]
        if not trained:
            raise ValueError("the model has no parameter that can be trained: none has requires_grad")
        self.own = Means()
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
        elif self.lanes.group.size == 1 and self.device.type == "cuda":
            self._gradients = SummedGradients(list(self.module.parameters()))
        else:
            self._gradients = _BACKENDS[self.spec.backend](trained, self.lanes)

    def train(self, lane: int, rows: int, share: float, seed: int, part: Batch | None) -> None:
        """Forward and backward of one lane's rows."""
        self.applied = None
        gradients = self._gradients
        if part is None:
            gradients.skip(lane)
            return
        check = self._check
        if check is not None and self.loss is None and check.tries(lane):
            self._try(check, lane, self._here(part.values), rows)
        self._seed(seed)
        self._buffers.begin(lane)  # type: ignore[union-attr]
        gradients.begin(lane)
        try:
            with self._timed("fwd"), self._refusing():
                loss, output, target = self._forward(part.values)
            _native.enter("backward")
            self._check_frozen()
            if share != 1.0:
                loss = loss * share
            with gradients.arm(share), self._timed("bwd"):
                # Rows that count for nothing have no gradient, even where their mean is not a number.
                if share:
                    (loss if self.precision is None else self.precision.scaled(loss)).backward()
        except Exception as error:
            _torch_outputs.note(error, lane, rows, part, f" at step {self.step + 1} of the run")
            raise
        self.rows += rows
        self._look_for_broadcast(lane, output, target)
        judged = (_torch_outputs.judged(output), target) if self.meters.get(lane) else None
        if self._late is not None:
            self._late.add(loss, (part.numbers, rows), judged)
            gradients.end(0.0, 0.0, wants_to_stop())
            return
        value = loss.item() if share else 0.0
        if check is not None and share:
            check.add_size(lane, rows, self._measured(part.values), part.values)
            if check.tries(lane):
                self._try_loss(check, lane, rows, (output, target), value / share, part.values)
        self.repeated.add(lane, value / share if share else value)
        self._heard(lane, value / share if share else value, part.numbers, rows)
        gradients.end(value, self._buffers.end(lane), wants_to_stop())  # type: ignore[union-attr]
        if judged is not None:
            self._unmetered.append((lane, *judged))

    def _try(self, check: LaneCheck, lane: int, values: Any, rows: int) -> None:
        """Look whether the loss of forward is a mean over rows."""
        kept = nullcontext() if self._buffers is None else self._buffers.kept()
        with kept, _torch_trial.undisturbed(self.module):
            check.try_loss(lane, rows, self._loss_of_rows, values)

    def _try_loss(
        self, check: LaneCheck, lane: int, rows: int, seen: tuple[Any, Any], whole: float, values: Any
    ) -> None:
        """Look whether the loss of an output and a target is a mean over rows."""
        check.add_loss(lane, whole)
        if self.loss is None:
            return
        if not _torch_trial.can_be_cut(seen, rows):
            # As where the model returns a number for the batch beside its rows.
            self._try(check, lane, self._here(values), rows)
            return
        with torch.no_grad(), self._casting():
            check.try_loss(lane, rows, lambda part: self._loss_again(*part), seen, whole)

    def _loss_again(self, output: Any, target: Any) -> Any:
        """The loss of a copy, since it may count its calls."""
        return _torch_outputs.loss_of(copy.deepcopy(self.loss), output, target)

    def _loss_of_rows(self, values: Any) -> Any:
        """The loss of some rows, of a copy: it may count its calls."""
        criterion = self.loss
        try:
            self.loss = copy.deepcopy(criterion)
            return self._forward(values)[0]
        finally:
            self.loss = criterion

    def _measured(self, values: Any) -> Any:
        """What tells how long rows are: the target, or the only input of a model that takes no target."""
        try:
            target = self._target(values)
        except (TypeError, ValueError):
            # A Lightning module knows by itself what is the target.
            return None
        inputs = trees.leaves(values)
        return inputs[0] if target is None and len(inputs) == 1 else target

    def _look_for_broadcast(self, lane: int, output: Any, target: Any) -> None:
        """Warn once where a loss of the user's own compares each row with all others."""
        if not self._may_broadcast or not _torch_losses.may_broadcast(self.loss, output, target):
            return
        self._may_broadcast = False
        # What a loss draws would come from the batches that follow.
        with torch.no_grad(), self._casting(), creator.seeded(0):
            found = _torch_losses.broadcast_of(lambda: self._loss_again(output, target), output, target)
        if found is not None and lane == 0 and is_first_warning(self.spec, "broadcast"):
            _report.note(found)

    def _refusing(self) -> AbstractContextManager[None]:
        """In the first step shapes show that do not fit."""
        return _torch_losses.refusing_broadcasts() if self._is_new else _PLAINLY

    def _heard(self, lane: int, loss: float, which: Any, rows: int) -> None:
        """The loss of a lane is known."""
        self.own.add({"loss": loss}, rows)
        # Neither infinite nor NaN; cheaper than asking for both.
        if loss - loss != 0.0:
            self.odd_losses.append((lane, loss, which, ""))

    def late(self, wait: bool) -> list[float]:
        """Losses that have come from the GPU by now; metrics count their rows."""
        if self._late is None:
            return []
        losses = []
        for loss, (which, rows), judged in self._late.come(wait):
            losses.append(loss)
            self._heard(0, loss, which, rows)
            for meter in [] if judged is None else self.meters[0].values():
                meter.update(*judged)
        return losses

    def _check_frozen(self) -> None:
        """The gradient of a parameter that has become free in the meantime would not be summed."""
        for name, parameter in self._frozen:
            if parameter.requires_grad:
                raise ValueError(
                    f"{name} was frozen as the epoch began and is not now: free parameters in the model's "
                    "train(), which is called on all workers as an epoch begins, or before another fit"
                )

    def commit(self) -> float | None:
        """Sum over all lanes, and apply the step."""
        with self._timed("sync"):
            loss, said, self.stops = self._gradients.finish()
        if self._check is not None and self._check.step_ends():
            self._check.share()
        if self.tally.shares:
            # The sum is there: what follows is this worker's own.
            _native.enter("update")
            self._measure()
        self._buffers.finish(said)  # type: ignore[union-attr]
        _native.enter("update")
        # From here on nothing can fail for another worker: the step is done as a whole.
        with uninterrupted():
            self._torn = True
            with self._timed("apply"):
                self._apply(self.optimizer, self.module.parameters())
            # The weights are those of after the step, even where a schedule or a metric fails now.
            self._torn, self.applied = False, float(loss)
            self._stepped()
            if self._unmetered:
                self._measure()
            self.tally.commit()
            self.repeated.done()
        if self.sharded:
            self.optimizer.spread()  # type: ignore[union-attr]
        return None if self._late is not None else float(loss)

    def _apply(self, optimizer: Any, parameters: Iterable[Any]) -> None:
        """Let an optimizer take a step with the gradients that are there."""
        if self.precision is not None:
            self.precision.unscale(optimizer)
        if self.spec.clipping is not None:
            _torch_outputs.clip(parameters, self.spec.clipping)
        if not self.lanes.alone:
            # An optimizer that draws must draw alike on all workers: for a lane that none of them drives.
            self._seed(_native.lane_seed("model", self.lanes.seed, 0, self.step, self.lanes.total))
        if self.precision is None:
            optimizer.step()
        else:
            self.precision.step(optimizer)

    def _stepped(self) -> None:
        """A step is done."""
        self.step += 1
        self._is_new = False
        for each in self.schedules:
            each.step_ends()

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
        if self.sharded and self.optimizer.ready:  # type: ignore[union-attr]
            # All have the sum: this worker can apply it later, if others have.
            self._buffers.step_back()  # type: ignore[union-attr]
            return True
        if not self._torn and self._buffers is not None:
            self._buffers.roll_back()
        return not self._torn

    def agree(self, parts: list[tuple[int, int, float]]) -> tuple[float, float]:
        """Rows and weight of a batch over all lanes of all workers."""
        import numpy as np

        told = {lane: np.array([rows, weight], np.float64) for lane, rows, weight in parts}
        rows, weight = map(float, next(iter(self.lanes.group.all_reduce(told).values())))
        return rows, weight

    def epoch_ends(self, record: dict[str, float]) -> None:
        """Move the schedulers on."""
        for each in self.schedules:
            each.epoch_ends(record)

    @property
    def learning_rate(self) -> float:
        """That of the first group of parameters."""
        return float(self.optimizer.param_groups[0]["lr"])  # type: ignore[union-attr]

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
        positional, named, target = split(self._here(values), self.loss is not None, self._inputs)
        with self._casting():
            output = self.module(*positional, **named)
            return _torch_outputs.loss_of(self.loss, output, target), output, target

    def _target(self, values: Any) -> Any:
        return split(values, self.loss is not None, self._inputs)[2]

    def _casting(self) -> AbstractContextManager[Any]:
        return _PLAINLY if self.precision is None else self.precision.autocast()

    def said(self) -> dict[str, float]:
        """Nothing but the loss; lanes are compared once more as an epoch ends."""
        if self._check is not None and self._check.is_due:
            self._check.share()
        return {}

    def _said_by_all(self) -> dict[str, float]:
        """Numbers beside the loss that each worker has about its rows, over all of them."""
        Model.said(self)
        whole = self.own.over_all(self.lanes.group)
        said = {name: value for name, value in whole.values().items() if name != "loss"}
        numbers = {name: as_number(value) for name, value in said.items()}
        self.words = {name: value for name, value in said.items() if numbers[name] is None}
        return {name: value for name, value in numbers.items() if value is not None}

    def _here(self, values: Any) -> Any:
        """A batch where the model is."""
        return values if self.device.type == "cpu" else trees.mapped(self._moved, values)

    def _moved(self, leaf: Any) -> Any:
        return (
            leaf.to(self.device, non_blocking=True)
            if isinstance(leaf, torch.Tensor | PackedSequence)
            else leaf
        )

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
            with torch.no_grad(), self._timed("eval_fwd"):
                loss, output, target = self._forward(part.values)
        except Exception as error:
            _torch_outputs.note(error, lane, len(part.rows), part)
            raise
        value = float(loss.item())
        self._check_evaluated(lane, part.values, (output, target), value)
        for meter in meters.values():
            meter.update(_torch_outputs.judged(output), target, range(part.first, part.first + part.size))
        return value

    def _check_evaluated(self, lane: int, values: Any, seen: tuple[Any, Any], loss: float) -> None:
        """Look whether the lanes of an evaluation come to the result of one process."""
        check, rows = self._evaluation_check, self.rows_there
        if check is not None:
            check.add_size(lane, rows, self._measured(values), values, self.place)
            if check.tries(lane):
                if self.loss is None:
                    self._try(check, lane, self._here(values), rows)
                self._try_loss(check, lane, rows, seen, loss, values)
            check.add_loss(lane, loss)
        self._look_for_broadcast(lane, *seen)

    def found(self) -> Any:
        """What the lanes of this worker have found out in an evaluation."""
        return None if self._evaluation_check is None else self._evaluation_check.take()

    def tell(self, found: list[Any]) -> None:
        """Warn where lanes do not come to the result of one process."""
        if self._evaluation_check is not None:
            self._evaluation_check.tell(found)

    def predict(self, lane: int, part: Batch) -> Any:
        """The model's output for some rows, as arrays."""
        self._seed_answer(lane, part)
        try:
            with torch.no_grad():
                output = _torch_outputs.plain(self._answer(self._here(part.values)))
                _torch_outputs.check_rows(output, len(part.rows))
        except Exception as error:
            _torch_outputs.note(error, lane, len(part.rows), part)
            raise
        return trees.mapped(packed, output)

    def _answer(self, values: Any) -> Any:
        positional, named, _ = split(values, self.loss is not None, self._inputs, predicting=True)
        with self._casting():
            return self.module(*positional, **named)


feed = _torch_feed.feed
take = _torch_state.take
portable = _torch_datasets.portable
joined = _torch_state.joined
predictions = _torch_state.predictions
digest = _torch_state.digest
save_weights = _torch_formats.save_weights
save_as = _torch_formats.save_as
weights_of = _torch_formats.weights_of
weights_from = _torch_formats.weights_from


def model(spec: Spec, lanes: Lanes, state: dict[str, Any] | None, training: bool) -> Model:
    """What the loop asks: by itself, or by an operator of the user's."""
    from grampus.frameworks._torch_operator import Operated

    if spec.training_operator_cls is not None:
        return Operated(spec, lanes, state, training)
    found = Model(spec, lanes, state, training)
    if any(map(_torch_making.needs_closure, found.optimizers)):
        found.close()
        return Operated(spec, lanes, state, training)
    return found


def platform() -> dict[str, str]:
    """What the bits of torch depend on besides the processor: versions, and the kernels it chose."""
    kernels = torch.backends.cpu.get_cpu_capability()
    found = {"torch": torch.__version__, "torch kernels": kernels}
    for line in torch.__config__.show().splitlines():
        for name, mark in (("mkl", "Math Kernel Library"), ("onednn", "MKL-DNN")):
            if mark in line:
                found[name] = line.strip(" -")
    return found


def made(spec: Spec, state: dict[str, Any] | None, seed: int) -> Any:
    """The module in this process, with these weights."""
    spec = pickle.loads(cloudpickle.dumps(spec))
    with creator.seeded(creator.make_seed(seed, 0)):
        module = _torch_making.make_module(spec)
    if state is not None:
        weights = {name: unpacked(value) for name, value in state["model"].items()}
        _torch_state.load_weights(module, weights)
    return module.eval()
