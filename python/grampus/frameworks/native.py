"""Grampus's own engine: how a native model does what the loop asks of a model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from grampus import _exception, _native
from grampus._training import creator, trees
from grampus._training.cleanup import uninterrupted
from grampus._training.feed import Batch, StreamFeed, TableFeed, row_numbers
from grampus._training.kept import NothingKept
from grampus._training.leaving import wants_to_stop
from grampus._training.means import Means
from grampus._training.metering import Tally
from grampus._training.model import LoopModel, Reduction
from grampus._training.repeated import Repeated
from grampus._training.saved import Packed, tensors, weights_in
from grampus.frameworks import _native_data
from grampus.metrics import directions
from grampus.nn.graph import MODEL, Described
from grampus.shards import batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from grampus._training.job import Clipping, Data, Spec
    from grampus._training.lanes import Lanes

_TYPES = {"float32": np.float32, "float64": np.float64}


class Network:
    """A model with its weights, in this process: call it with arrays."""

    def __init__(self, spec: Spec, seed: int, threads: int, training: bool = False) -> None:
        """Weights are drawn from the seed."""
        described = spec.model
        if callable(described) and not isinstance(described, Described):
            described = creator.call(described, "model creator", "f(config)", spec.config)
        if not isinstance(described, Described):
            raise TypeError(
                f"model is a {type(described).__name__}: pass a gp.nn.Sequential, a gp.nn.Model or a file"
            )
        if training and (spec.loss is None or spec.optimizer is None):
            raise ValueError(
                "a native model is trained with a loss of gp.nn and an optimizer of gp.optim: pass both"
            )
        self.description = json.dumps(described.description())
        self.dtype = _TYPES[spec.config.get("dtype", "float32")]
        loss = None if spec.loss is None else json.dumps(_made(spec.loss).description())
        optimizer = json.dumps(_made(spec.optimizer).description()) if training else None
        self.native = _native.NativeModel(
            self.description,
            seed,
            threads,
            self.dtype is np.float64,
            loss,
            optimizer,
            _clipping(spec.clipping) if training else (None, None, None),
            json.dumps([group.description() for group in spec.config.get("groups", [])])
            if training
            else "[]",
        )

    def __call__(self, *inputs: Any) -> Any:
        """The model's output for some rows: an array, or a tuple where it has several."""
        arrays = [self.numbers(each) for each in inputs]
        return self.outputs(self.native.predict(arrays, len(arrays[0])))

    def numbers(self, values: Any) -> Any:
        """Values as the model computes with them."""
        return np.ascontiguousarray(values, self.dtype)

    def outputs(self, told: list[tuple[bytes, list[int]]]) -> Any:
        """What the engine gave as arrays."""
        found = tuple(np.frombuffer(data, self.dtype).reshape(shape) for data, shape in told)
        return found[0] if len(found) == 1 else found

    def state_dict(self) -> dict[str, Any]:
        """The weights by name."""
        return {name: self.outputs([told]) for name, told in self.native.weights()}

    def load_state_dict(self, weights: Mapping[str, Any]) -> None:
        """Take weights by name; those of PyTorch fit where the layers do."""
        self.native.set_weights([(name, self.numbers(value)) for name, value in weights.items()])


def _made(value: Any) -> Any:
    """An object, or one of the class that was given."""
    return value() if isinstance(value, type) else value


def _clipping(clipping: Clipping | None) -> tuple[float | None, float | None, float | None]:
    if clipping is None:
        return None, None, None
    return clipping.least, clipping.most, clipping.norm


class Model(LoopModel):
    """A native model with its loss, and for training its optimizer and schedule."""

    def __init__(self, spec: Spec, lanes: Lanes, state: dict[str, Any] | None, training: bool) -> None:
        """Make it from what the user passed, alike on every worker; `state` is what was trained before."""
        super().__init__()
        self.spec = spec
        self.reduction = Reduction(_weigh(spec))
        self.lanes = lanes
        self.module = Network(spec, creator.make_seed(lanes.seed, 0), lanes.threads, training)
        self.optimizer = _made(spec.optimizer) if training else None
        self._rates = None
        if training and spec.scheduler is not None:
            plain = (state or {}).get("plain") or {}
            seen = None if plain.get("plateau") is None else json.dumps(plain["plateau"])
            described = json.dumps(_made(spec.scheduler).description())
            self._rates = _native.Rates(described, directions(spec.metrics), seen)
        # Whether what the optimizer remembers is divided among workers.
        self.sharded = training and lanes.group.size > 1 and spec.config.get("sharded", False)
        # The loss of the last step, once it was applied here, until the next one begins; and of a step where
        # memory is divided, whether its sum is there and it was not applied.
        self.applied: float | None = None
        self._ready = False
        self._epoch = 0
        # Steps that were done before.
        self.step = 0
        if state is not None:
            self._load(state)
        if self.sharded:
            self.module.native.divide(lanes.group.size, lanes.group.rank)
        self.meters: dict[int, dict[str, Any]] = {}
        self.tally = Tally(lanes.group, shares=False)
        self.repeated = Repeated()
        self.rows = 0
        self.odd_losses: list[tuple[int, float, Any, str]] = []
        self.stops = False
        self._gradients: Any = None
        self._unmetered: list[tuple[int, Any, Any]] = []
        self._torn = False
        # What layers keep beside their parameters: a lane's own in a step, the first one's for all after it.
        self._buffers: bytes = self.module.native.buffers()
        self._first_buffers: bytes = self._buffers

    def close(self) -> None:
        """Nothing of the process was changed."""

    # Training

    def epoch_begins(self, epoch: int = 0, batch: int = 0) -> None:  # noqa: ARG002
        """Get ready to train."""
        self.own = Means()
        if self._gradients is None:
            mine = (self.lanes.mine.start, self.lanes.mine.stop)
            kinds = self.module.native.parameters()
            if not kinds:
                raise ValueError("the model has no parameter that can be trained")
            group = self.lanes.group._native
            self._gradients = _native.Gradients(group, mine, self.lanes.total, kinds)

    def train(self, lane: int, rows: int, share: float, seed: int, part: Batch | None) -> None:
        """Forward and backward of one lane's rows."""
        self.applied = None
        index = lane - self.lanes.mine.start
        if part is None:
            self._gradients.skip(index)
            return
        native = self.module.native
        if self._buffers:
            native.set_buffers(self._buffers)
        try:
            inputs, target = self._split(part.values)
            loss = native.train(self._gradients, index, (inputs, target, rows), share, seed)
        except Exception as error:
            self._note(error, lane, rows, part, f" at step {self.step + 1} of the run")
            raise
        self.rows += rows
        # The mean over rows that count for nothing is not a number.
        loss = loss if share else 0.0
        value = loss * share
        self.repeated.add(lane, loss)
        self.own.add({"loss": loss}, rows)
        if value - value != 0.0:
            first = native.first_not_finite()
            hint = "" if first is None else f"; layer {first[0]} ({first[1]}) is the first that is not finite"
            self.odd_losses.append((lane, loss, part.numbers, hint))
        if lane == 0 and self._buffers:
            self._first_buffers = native.buffers()
        self._gradients.end(value, 0.0, wants_to_stop())
        if self.meters.get(lane):
            self._unmetered.append((lane, self.module.outputs(native.last_outputs(inputs, rows)), target))

    def commit(self) -> float:
        """Sum over all lanes, and apply the step."""
        native, group = self.module.native, self.lanes.group
        self._ready = False
        loss, _, _, self.stops = self._gradients.finish()
        if self.tally.shares:
            _native.enter("update")
            self._measure()
        if self._buffers and group.size > 1:
            # All go on with what the first lane has kept.
            shared = np.frombuffer(bytearray(self._first_buffers), np.uint8)
            group.broadcast(shared, 0)
            self._first_buffers = shared.tobytes()
        if self.sharded:
            # Who goes on from here knows that all others have what they need to do so, too.
            self._ready = True
            group.barrier()
        _native.enter("update")
        with uninterrupted():
            self._torn = True
            if self._buffers:
                self._buffers = self._first_buffers
                native.set_buffers(self._buffers)
            native.update(self._gradients, self.learning_rate, group._native)
            # The weights are those of after the step, even where a metric fails now.
            self._torn = self._ready = False
            self.applied = float(loss)
            self.step += 1
            if self._unmetered:
                self._measure()
            self.tally.commit()
            self.repeated.done()
        if self.sharded:
            native.spread(group._native)
        return float(loss)

    def held(self) -> dict[str, Any]:
        """What this worker has of a run whose memory is divided, without asking the others."""
        soon = (self._gradients, self.learning_rate, self._first_buffers) if self._ready else None
        return {"parts": [self.module.native.held(self._buffers, soon)], "plain": self._plain()}

    def _plain(self) -> dict[str, Any]:
        """What is no array."""
        seen = None if self._rates is None else self._rates.seen()
        return {"epoch": self._epoch, "plateau": None if seen is None else json.loads(seen)}

    def _measure(self) -> None:
        for lane, output, target in self._unmetered:
            for meter in self.meters[lane].values():
                meter.update(output, target)
        self._unmetered.clear()
        self.tally.offer(self.meters)

    def roll_back(self) -> bool:
        """Forget what was begun of a step; false where a step was cut off in its midst."""
        self._unmetered.clear()
        if not self._torn and self._buffers:
            self.module.native.set_buffers(self._buffers)
        return not self._torn

    def agree(self, parts: list[tuple[int, int, float]]) -> tuple[float, float]:
        """Rows and weight of a batch over all lanes of all workers."""
        told = {lane: np.array([rows, weight]) for lane, rows, weight in parts}
        rows, weight = next(iter(self.lanes.group.all_reduce(told).values()))
        return float(rows), float(weight)

    def epoch_ends(self, record: dict[str, float]) -> None:
        """Count the epoch; a schedule may look at what came out of it."""
        if self._rates is not None:
            self._rates.observe(self.step, self._epoch, record)
        self._epoch += 1

    @property
    def learning_rate(self) -> float:
        """That of the next step."""
        base = float(self.optimizer.lr)  # type: ignore[union-attr]
        return base if self._rates is None else self._rates.at(base, self.step, self._epoch)

    def _split(self, values: Any) -> tuple[list[Any], Any]:
        """Inputs of the model, and the target: the convention for batches."""
        values, target = _parted(values, self.spec.loss is not None)
        if target is None:
            raise ValueError("a batch has no target: pass {'x': …, 'y': …}, or label_cols")
        numbers = self.module.numbers
        return [numbers(leaf) for leaf in trees.leaves(values)], numbers(target)

    # Evaluation and prediction

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """A model answers whenever it is asked."""
        yield

    def evaluate(self, lane: int, part: Batch, meters: Mapping[str, Any]) -> float:
        """The loss of some rows; their metrics go to the meters."""
        try:
            inputs, target = self._split(part.values)
            loss, told = self.module.native.evaluate(inputs, target, part.size)
        except Exception as error:
            self._note(error, lane, len(part.rows), part)
            raise
        output = self.module.outputs(told)
        for meter in meters.values():
            meter.update(output, target, range(part.first, part.first + part.size))
        return float(loss)

    def predict(self, lane: int, part: Batch) -> Any:
        """The model's output for some rows, as arrays."""
        try:
            values, _ = _parted(part.values, has_target=False)
            inputs = [self.module.numbers(leaf) for leaf in trees.leaves(values)]
            return self.module.outputs(self.module.native.predict(inputs, len(part.rows)))
        except Exception as error:
            self._note(error, lane, len(part.rows), part)
            raise

    def _note(self, error: Exception, lane: int, rows: int, part: Batch, when: str = "") -> None:
        """Say where it was, without changing what it is."""
        shapes = ", ".join(f"{leaf.dtype} {list(leaf.shape)}" for leaf in trees.leaves(part.values))
        where = ""
        if hasattr(error, "row") and part.numbers is not None:
            where = f", row {row_numbers(part.numbers)[error.row]} of the data"
        batch = f"a batch of {rows} {'row' if rows == 1 else 'rows'} ({shapes})"
        _exception.note(error, f"grampus: in lane {lane}, {batch}{when}{where}")

    def _load(self, state: dict[str, Any]) -> None:
        if "parts" in state:
            try:
                self.module.native.heal(state["parts"])
            except ValueError as error:
                # All workers find the same.
                raise NothingKept(str(error)) from None
            self._epoch = state["plain"]["epoch"]
            return
        self.module.load_state_dict(
            {name: _native_data.array(value) for name, value in state["model"].items()}
        )
        plain = state.get("plain")
        if self.optimizer is None or not plain:
            return
        slots = [(name, bytes(state["optimizer"][name].array)) for name in plain["slots"]]
        self.module.native.set_state(plain["steps"], slots)
        self._epoch = plain["epoch"]

    def taken(self) -> dict[str, Any]:
        """All that a run needs to go on; all workers ask at once where it is divided among them."""
        steps, slots = self.module.native.state(self.lanes.group._native)
        kind = np.dtype(self.module.dtype)
        kept = {name: _flat(np.frombuffer(data, kind)) for name, data in slots}
        return {
            "model": {name: _flat(value) for name, value in self.module.state_dict().items()},
            "optimizer": kept,
            "plain": {"steps": steps, "slots": [name for name, _ in slots], **self._plain()},
        }


def _flat(value: Any) -> Packed:
    """An array as it travels: its bytes."""
    return Packed(str(value.dtype), tuple(value.shape), np.frombuffer(value.tobytes(), np.uint8))


def _parted(values: Any, has_target: bool) -> tuple[Any, Any]:
    """What goes into the model, and the target."""
    if isinstance(values, Mapping) and "x" in values and set(values) <= {"x", "y"}:
        return values["x"], values.get("y")
    if isinstance(values, list | tuple) and has_target and len(values) > 1:
        features = list(values[:-1])
        return (features[0] if len(features) == 1 else tuple(features)), values[-1]
    return values, None


def take(model: Model) -> dict[str, Any]:
    """All that a run needs to go on: arrays by name, and plain values."""
    return model.taken()


def portable(value: Any) -> Any:
    """Data as it travels: arrays do so as they are."""
    return value


model = Model
# Columns of frames that are read where none are named, as by BigDL: of features, and of labels.
COLUMNS = ("features", "label")


def made(spec: Spec, state: dict[str, Any] | None, seed: int) -> Network:
    """The model in this process, with these weights."""
    network = Network(spec, creator.make_seed(seed, 0), threads=1)
    if state is not None:
        network.load_state_dict({name: _native_data.array(value) for name, value in state["model"].items()})
    return network


def joined(outputs: list[Any], given: Any) -> Any:
    """Outputs of parts as one array."""
    del given
    return _whole(outputs)


def predictions(outputs: list[Any]) -> dict[str, Any]:
    """Outputs of parts as columns of a table: `prediction`, or one for each output of the model."""
    whole = _whole(outputs)
    if not isinstance(whole, tuple):
        return {"prediction": whole}
    return {f"prediction_{number}": part for number, part in enumerate(whole)}


def _whole(outputs: list[Any]) -> Any:
    if not outputs:
        raise ValueError("there are no rows to predict")
    if isinstance(outputs[0], tuple):
        return tuple(np.concatenate(parts) for parts in zip(*outputs, strict=True))
    return np.concatenate(outputs)


def digest(network: Network) -> str:
    """A hash of all weights and buffers."""
    found = hashlib.sha256()
    for name, value in sorted(network.state_dict().items()):
        found.update(f"{name} {value.dtype} {value.shape}\n".encode())
        found.update(value.tobytes())
    return found.hexdigest()


def save_weights(network: Network, path: str) -> None:
    """Write a file of weights."""
    if not path.endswith(".safetensors"):
        raise ValueError(f"{path}: a native model is saved as .safetensors, or as a folder")
    kept = {name: _flat(value) for name, value in network.state_dict().items()}
    _native.write_tensors(path, tensors(kept), {"format": "pt", MODEL: network.description})


def save_as(network: Network, path: str, form: str | None, example: Any) -> None:  # noqa: ARG001
    """Formats of PyTorch's users are for its models."""
    raise ValueError(f"{path}: a native model is saved as .safetensors, or as a folder of its own format")


def weights_of(path: str, make: Callable[[], Network]) -> dict[str, Any]:  # noqa: ARG001
    """A file of weights; reading it runs no code."""
    if not path.endswith(".safetensors"):
        raise ValueError(f"{path}: a native model reads .safetensors: save PyTorch's state_dict as such")
    return {"model": weights_in(path)}


def weights_from(weights: Mapping[str, Any], make: Callable[[], Network]) -> dict[str, Any]:  # noqa: ARG001
    """Weights by name, as `state_dict` of a model returns them."""
    return {"model": {name: _flat(_native_data.array(value)) for name, value in weights.items()}}


def feed(
    data: Data,
    lanes: Lanes,
    spec: Spec,
    training: bool,
    model: Model | None = None,  # noqa: ARG001 - that of other frameworks knows how lanes are weighed
) -> TableFeed | StreamFeed:
    """What reads the user's data."""
    value = data.value
    if callable(value) and not hasattr(value, "__getitem__"):
        creator.seed_all(creator.make_seed(lanes.seed, 2))
        size = data.batch_size or 32
        value = creator.call(value, "data creator", "f(config) or f(config, batch_size)", spec.config, size)
    size = data.batch_size or 32
    weigh = _weigh(spec) if training else None
    if isinstance(value, batches.Packed):
        bad = [row for row, _ in value.bad]
        return TableFeed(_native_data.Arrays(value.load(), training, bad), lanes, size, weigh)
    if isinstance(value, batches.Loadable):
        table = _native_data.LoadedTable(value, lanes.seed, lanes.threads, training)
        return TableFeed(table, lanes, size, weigh)
    if isinstance(value, Mapping) or trees.is_frame(value):
        value = _selected(value, data)
    elif not (
        type(value).__module__.partition(".")[0] in ("numpy", "torch") or isinstance(value, list | tuple)
    ):
        raise TypeError(
            f"a {type(value).__name__} is no data for a native model: pass arrays as {{'x': …, 'y': …}}, "
            "shards, tables, paths, or a function that returns one of these"
        )
    return TableFeed(_native_data.Arrays(value, shuffled=training), lanes, size, weigh)


def _weigh(spec: Spec) -> Any:
    """What a batch counts for, where that is not the number of its rows."""
    loss = None if spec.loss is None else _made(spec.loss)
    told = {} if loss is None else loss.description()
    if spec.loss_weight is not None or not ({"weights", "ignore_index"} & told.keys()):
        return spec.loss_weight
    text = json.dumps(told)

    def weigh(values: Any) -> float:
        target = np.ascontiguousarray(_parted(values, has_target=True)[1], np.float64)
        return _native.loss_weight(text, target, len(target))

    return weigh


def _selected(value: Any, data: Data) -> Any:
    """The columns that were asked for."""
    if data.feature_cols is None:
        if trees.is_frame(value):
            raise ValueError("a data frame needs feature_cols, and for training label_cols")
        return dict(value)
    chosen = {"x": _columns(value, data.feature_cols, "feature_cols")}
    if data.label_cols is not None:
        chosen["y"] = _columns(value, data.label_cols, "label_cols")
    return chosen


def _columns(value: Any, names: Any, what: str) -> Any:
    def made(_: str, values: Any) -> Any:
        return _native_data.array(values)

    return trees.columns(value, names, what, made, _native_data.beside)
