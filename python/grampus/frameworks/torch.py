"""PyTorch: how a torch model does what the loop asks of a model."""

from __future__ import annotations

import importlib
import inspect
import pickle
import random
from collections.abc import Mapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import cloudpickle
import torch
from torch.utils import data as torch_data

from grampus import _exception, _native
from grampus._training import creator, trees
from grampus._training.feed import Batch, StreamFeed, TableFeed
from grampus._training.leaving import wants_to_stop
from grampus._training.metering import Tally
from grampus._training.repeated import Repeated
from grampus.frameworks import _torch_batches, _torch_data, _torch_state
from grampus.frameworks._torch_gradients import (
    LaneBuffers,
    LaneGradients,
    PlainGradients,
    ProcessGroupGradients,
    mark_sparse,
)
from grampus.frameworks._torch_horovod import HorovodGradients
from grampus.frameworks._torch_memory import keep_freed_memory, packed, unpacked
from grampus.shards import batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from grampus._training.job import Clipping, Data, Spec
    from grampus._training.lanes import Lanes

Tensor = Any
_PLATEAU = torch.optim.lr_scheduler.ReduceLROnPlateau
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
        self._needed = _needed(self.module)
        if state is not None:
            _torch_state.load(self, state)
        else:
            _torch_state.spread(self.module, lanes.group)
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
        module = _make_module(spec)
        creator.seed_all(creator.make_seed(seed, 3))
        loss = _make_loss(spec)
        if not training:
            return module, None, None, loss
        creator.seed_all(creator.make_seed(seed, 1))
        optimizer = _make_optimizer(spec, module)
        return module, optimizer, _make_scheduler(spec, optimizer), loss

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
            _note(error, lane, rows, part, f" at step {self.step + 1} of the run")
            raise
        self.rows += rows
        value = loss.item() if share else 0.0
        self.repeated.add(lane, value / share if share else value)
        # Neither infinite nor NaN; cheaper than asking for both.
        if value - value != 0.0:
            self.odd_losses.append((lane, value / share, part.rows, ""))
        gradients.end(value, self._buffers.end(lane), wants_to_stop())  # type: ignore[union-attr]
        if self.meters.get(lane):
            self._unmetered.append((lane, _judged(output), target))

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
            _clip(self.module, self.spec.clipping)
        if not self.lanes.alone:
            # An optimizer that draws must draw alike on all workers: for a lane that none of them drives.
            self._seed(_native.lane_seed("model", self.lanes.seed, 0, self.step, self.lanes.total))
        self.optimizer.step()
        self.step += 1
        if self.scheduler is not None and self.spec.scheduler_step_freq == "batch":
            self.scheduler.step()
        if self._unmetered:
            self._measure()
        self.tally.commit()
        self.repeated.done()
        self._torn = False
        return float(loss)

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
        if self.scheduler is None or self.spec.scheduler_step_freq != "epoch":
            return
        if isinstance(self.scheduler, _PLATEAU):
            self.scheduler.step(record.get("val_loss", record["loss"]))
        else:
            self.scheduler.step()

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
            loss = _own_loss(output)
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
            _note(error, lane, len(part.rows), part)
            raise
        for meter in meters.values():
            meter.update(_judged(output), target, range(part.first, part.first + len(part.rows)))
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
                output = _plain(self.module(*positional, **named))
                _check_rows(output, len(part.rows))
        except Exception as error:
            _note(error, lane, len(part.rows), part)
            raise
        return trees.mapped(packed, output)


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
        module = _make_module(spec)
    if state is not None:
        weights = {name: unpacked(value) for name, value in state["model"].items()}
        _torch_state.load_weights(module, weights)
    return module.eval()


def feed(data: Data, lanes: Lanes, spec: Spec, training: bool) -> TableFeed | StreamFeed:
    """What reads the user's data."""
    value = _torch_data.restored(data.value)
    if _is_creator(value):
        size = data.batch_size or 32
        creator.seed_all(creator.make_seed(lanes.seed, 2))
        value = creator.in_turn(
            lanes,
            lambda: creator.call(
                value, "data creator", "f(config) or f(config, batch_size)", spec.config, size
            ),
        )
    loader = value if isinstance(value, torch_data.DataLoader) else None
    size = _batch_size(data, loader)
    weigh = spec.loss_weight if training else None
    if isinstance(value, batches.Packed | batches.Carried):
        bad = [row for row, _ in value.bad]
        return TableFeed(_torch_data.Arrays(value.load(), training, bad), lanes, size, weigh)
    if isinstance(value, batches.Loadable):
        table = _torch_batches.LoadedTable(value, lanes.seed, lanes.threads, training)
        return TableFeed(table, lanes, size, weigh)
    if loader is not None:
        return _loaded(loader, lanes, size, weigh, training)
    if isinstance(value, torch_data.IterableDataset):
        return StreamFeed(_torch_data.Rows(value), lanes, size, weigh)
    if isinstance(value, Mapping) or hasattr(value, "columns"):
        arrays = _selected(value, data)
        return TableFeed(_torch_data.Arrays(arrays, shuffled=training), lanes, size, weigh)
    if (
        isinstance(value, torch.Tensor)
        or type(value).__module__ == "numpy"
        or isinstance(value, list | tuple)
    ):
        return TableFeed(_torch_data.Arrays(value, shuffled=training), lanes, size, weigh)
    if hasattr(value, "__getitem__") and hasattr(value, "__len__"):
        return TableFeed(_torch_data.Dataset(value, training, lanes.seed), lanes, size, weigh)
    raise TypeError(
        f"a {type(value).__name__} is no data: pass arrays as {{'x': …, 'y': …}}, a Dataset, a DataLoader, "
        "or a function that returns one of these"
    )


def _loaded(
    loader: Any, lanes: Lanes, size: int, weigh: Callable[[Any], float] | None, training: bool
) -> TableFeed | StreamFeed:
    if isinstance(loader.dataset, torch_data.IterableDataset):
        return StreamFeed(_torch_data.Rows(loader.dataset, loader), lanes, size, weigh)
    if loader.batch_sampler is None:
        raise ValueError("the loader has batch_size=None over a map-style data set: give it a batch_size")
    table = _torch_data.Dataset(loader.dataset, training, lanes.seed, loader)
    return TableFeed(table, lanes, size, weigh)


def _selected(value: Any, data: Data) -> Any:
    """The columns that were asked for."""
    if data.feature_cols is None:
        if hasattr(value, "columns"):
            raise ValueError("a data frame needs feature_cols, and for training label_cols")
        return dict(value)
    chosen = {"x": _torch_data.columns(value, data.feature_cols, "feature_cols")}
    if data.label_cols is not None:
        chosen["y"] = _torch_data.columns(value, data.label_cols, "label_cols")
    return chosen


def _batch_size(data: Data, loader: Any) -> int:
    own = None
    if loader is not None:
        own = loader.batch_size
        if own is None and loader.batch_sampler is not None:
            own = getattr(loader.batch_sampler, "batch_size", None)
    if own is None:
        return data.batch_size or 32
    if data.given and data.batch_size is not None and data.batch_size != own:
        raise ValueError(
            f"batch_size={data.batch_size} was asked for and the loader makes batches of {own}: pass "
            "batch_size=None to take the loader's, which counts the rows of all workers together"
        )
    return int(own)


def _is_creator(value: Any) -> bool:
    return callable(value) and not hasattr(value, "__getitem__") and not isinstance(value, torch_data.Dataset)


def _make_module(spec: Spec) -> Any:
    module = spec.model
    if not isinstance(module, torch.nn.Module):
        if not callable(module):
            raise TypeError(
                f"model is a {type(module).__name__}: pass a module, its class, or a function f(config)"
            )
        module = creator.call(module, "model creator", "f(config)", spec.config)
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"the model creator returned a {type(module).__name__}, not a torch.nn.Module")
    return module


def _make_optimizer(spec: Spec, module: Any) -> Any:
    optimizer = spec.optimizer
    if isinstance(optimizer, str):
        optimizer = _named_optimizer(optimizer)
    if inspect.isclass(optimizer) and issubclass(optimizer, torch.optim.Optimizer):
        kind: Any = optimizer
        settings = inspect.signature(kind).parameters.keys() & spec.config.keys()
        optimizer = kind(module.parameters(), **{name: spec.config[name] for name in settings})
    elif not isinstance(optimizer, torch.optim.Optimizer):
        if not callable(optimizer):
            raise TypeError(
                f"optimizer is a {type(optimizer).__name__}: pass a torch optimizer, a function f(model, "
                "config), or a name such as 'adam'"
            )
        optimizer = creator.call(optimizer, "optimizer creator", "f(model, config)", module, spec.config)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"the optimizer creator returned a {type(optimizer).__name__}, not a torch optimizer")
    own = {id(parameter) for parameter in module.parameters()}
    held = [p for group in optimizer.param_groups for p in group["params"]]
    foreign = sum(id(parameter) not in own for parameter in held)
    if foreign:
        raise ValueError(
            f"{foreign} of the optimizer's {len(held)} parameters are not the model's: it was built for "
            "another model; build it from this one's parameters"
        )
    return optimizer


def _named_optimizer(name: str) -> Any:
    known: dict[str, Any] = {
        kind.__name__.lower(): kind
        for kind in vars(torch.optim).values()
        if inspect.isclass(kind)
        and issubclass(kind, torch.optim.Optimizer)
        and kind is not torch.optim.Optimizer
    }
    kind = known.get(name.lower())
    if kind is None:
        raise ValueError(f"there is no optimizer {name!r}: use one of {', '.join(sorted(known))}")
    return kind


def _make_scheduler(spec: Spec, optimizer: Any) -> Any:
    scheduler = spec.scheduler
    if scheduler is None:
        return None
    if not hasattr(scheduler, "step"):
        if not callable(scheduler):
            raise TypeError(
                f"scheduler is a {type(scheduler).__name__}: pass a torch scheduler or a function "
                "f(optimizer, config)"
            )
        scheduler = creator.call(
            scheduler, "scheduler creator", "f(optimizer, config)", optimizer, spec.config
        )
    if not hasattr(scheduler, "step"):
        raise TypeError(f"the scheduler creator returned a {type(scheduler).__name__}, not a torch scheduler")
    if getattr(scheduler, "optimizer", optimizer) is not optimizer:
        raise ValueError("the scheduler was built for another optimizer: build it from this one")
    return scheduler


def _make_loss(spec: Spec) -> Callable[..., Any] | None:
    loss = spec.loss
    if loss is None or isinstance(loss, torch.nn.Module):
        return loss
    if inspect.isclass(loss):
        made: Callable[..., Any] = loss()  # type: ignore[assignment]
        return made
    if not callable(loss):
        raise TypeError(
            f"loss is a {type(loss).__name__}: pass a module, a function f(output, target) or f(config)"
        )
    bounds = creator.required(loss)
    if bounds is not None and bounds[0] > 2:
        name = getattr(loss, "__qualname__", repr(loss))
        raise TypeError(
            f"the loss {name} needs {bounds[0]} arguments: write it as f(output, target) or f(config)"
        )
    if bounds is None or bounds[0] >= 2 or bounds[1] >= 2:
        return loss  # type: ignore[no-any-return]
    made = creator.call(loss, "loss creator", "f(config)", spec.config)
    if not callable(made):
        raise TypeError(f"the loss creator returned a {type(made).__name__}, not a module or a function")
    return made


def _needed(module: Any) -> int:
    bounds = creator.required(module.forward)
    return 1 if bounds is None else bounds[0]


def _own_loss(output: Any) -> Any:
    """The loss that a model makes by itself, as those of transformers do."""
    loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if loss is None:
        raise ValueError(
            f"no loss was given, and the model's output, a {type(output).__name__}, has none: pass loss=…"
        )
    return loss


def _plain(output: Any) -> Any:
    """Outputs that are dicts, as those of transformers, without their class and the loss of the batch."""
    if not isinstance(output, Mapping):
        return output
    return {name: value for name, value in output.items() if name != "loss"}


def _check_rows(output: Any, rows: int) -> None:
    for leaf in trees.leaves(output):
        # The output for a single row may have lost its first axis.
        found = rows if not isinstance(leaf, torch.Tensor) else len(leaf) if leaf.dim() else 1
        if found != rows:
            raise ValueError(
                f"the model's output has {found} {'row' if found == 1 else 'rows'} for a batch of {rows}: "
                "let it return one for each"
            )


def _judged(output: Any) -> Any:
    """What metrics see: the output itself, or the logits of a model that says more."""
    logits = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", output)
    return logits.detach() if isinstance(logits, torch.Tensor) else logits


def _clip(module: Any, clipping: Clipping) -> None:
    parameters = [p for p in module.parameters() if p.grad is not None]
    if clipping.norm is not None:
        torch.nn.utils.clip_grad_norm_(parameters, clipping.norm)
    if clipping.least is not None or clipping.most is not None:
        for parameter in parameters:
            parameter.grad.clamp_(clipping.least, clipping.most)


def _note(error: Exception, lane: int, rows: int, part: Batch, when: str = "") -> None:
    """Say where it was, without changing what it is."""
    shapes = ", ".join(
        f"{str(leaf.dtype).removeprefix('torch.')} {list(leaf.shape)}"
        for leaf in trees.leaves(part.values)
        if isinstance(leaf, torch.Tensor)
    )
    text = f"grampus: in lane {lane}, a batch of {rows} {'row' if rows == 1 else 'rows'} ({shapes}){when}"
    _exception.note(error, text)
