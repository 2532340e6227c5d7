"""Training operators: a training step, or a whole epoch, of the user's own.

Write a class with the methods that differ from what an Estimator does by itself, and pass it as
`training_operator_cls`:

>>> import torch, grampus as gp
>>> class Smoothed(gp.TrainingOperator):
...     def train_batch(self, batch, batch_info):
...         output = self.model(batch["x"])
...         loss = torch.nn.functional.huber_loss(output, batch["y"])
...         self.optimizer.zero_grad()
...         loss.backward()
...         self.optimizer.step()
...         return {"train_loss": loss.item(), "num_samples": len(output)}
>>> x = torch.linspace(-1, 1, 64).unsqueeze(1)
>>> est = gp.Estimator.from_torch(
...     model=torch.nn.Linear(1, 1), optimizer="sgd", config={"lr": 0.1},
...     loss=torch.nn.MSELoss(), training_operator_cls=Smoothed, workers=2,
... )
>>> est.fit({"x": x, "y": 3 * x}, epochs=5, batch_size=16)["loss"][-1] < 1.0
True
>>> est.shutdown()
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from grampus._arguments import suggest
from grampus._training.means import Means
from grampus._training.trees import is_one

__all__ = ["Timers", "TrainingOperator"]


class Timers:
    """Seconds of parts of the work, by name; what `profile=True` shows.

    >>> timers = Timers()
    >>> with timers.record("fwd"):
    ...     pass
    >>> list(timers.means())
    ['mean_fwd_s']
    """

    def __init__(self) -> None:
        self._spent: dict[str, tuple[float, int]] = {}

    @contextmanager
    def record(self, name: str) -> Iterator[None]:
        """Count what is done inside."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.add(name, time.perf_counter() - began)

    def add(self, name: str, seconds: float) -> None:
        """Count something that took so long."""
        spent, times = self._spent.get(name, (0.0, 0))
        self._spent[name] = spent + seconds, times + 1

    def means(self) -> dict[str, float]:
        """How long each took on average: `mean_<name>_s`."""
        return {f"mean_{name}_s": spent / times for name, (spent, times) in self._spent.items()}

    def reset(self) -> None:
        """Begin anew."""
        self._spent.clear()


class TrainingOperator:
    """What is done with a batch, on every worker. Override the methods that you need.

    `step()` of an optimizer takes effect when all lanes have arrived: gradients are summed over all workers
    first, each weighed by its rows. An operator with several optimizers, with several steps for a batch, or
    with a `train_epoch` of its own, needs a worker for each lane.

    Models and optimizers are on every worker alike; what else an operator keeps is its worker's own, apart
    from what `state_dict` returns, which is saved and loaded with the rest.
    """

    def __init__(
        self,
        config: dict[str, Any],
        models: list[Any],
        optimizers: list[Any],
        world_rank: int = 0,
        criterion: Any = None,
        schedulers: list[Any] | None = None,
        device: Any = None,
        precision: Any = None,
        timers: Timers | None = None,
    ) -> None:
        """Called by Grampus. Write `setup` instead."""
        self._config = config
        self._models = models
        self._optimizers = optimizers
        self._world_rank = world_rank
        self._criterion = criterion
        self._schedulers = schedulers or []
        self._device = device
        self._precision = precision
        self._move: Callable[[float | None], None] | None = None
        self.timers = Timers() if timers is None else timers

    # What to override

    def setup(self, config: dict[str, Any]) -> None:
        """Called once on every worker, before anything else."""

    def train_epoch(self, iterator: Iterator[Any], info: dict[str, Any]) -> dict[str, Any]:
        """Train on all batches of this worker in an epoch; return its numbers.

        By default `train_batch` is called for each, and Grampus looks after all else: override that one
        unless batches are to be seen together. `info` has `epoch_idx`, `num_epochs`, `scheduler_step`,
        `global_step`, and what was passed as `fit(info=…)`.
        """
        return self._of_each(iterator, info, self.train_batch)

    def train_batch(self, batch: Any, batch_info: dict[str, Any]) -> dict[str, Any]:
        """Train on one batch, and return its numbers: `train_loss`, `num_samples`, and any others.

        `batch_info` is `info` with `batch_idx` and `global_step`. Numbers are averaged over all rows.
        """
        from grampus.frameworks._torch_making import needs_closure

        del batch_info
        inputs, named, target = self.split(batch)

        def closure() -> Any:
            with self.timers.record("fwd"), self.autocast():
                found = self.loss_of(self.model(*inputs, **named), target)
            self.optimizer.zero_grad()
            with self.timers.record("bwd"):
                self.backward(found)
            return found

        if needs_closure(self.optimizer):
            loss = self.optimizer.step(closure)
        else:
            loss = closure()
            with self.timers.record("apply"):
                self.optimizer.step()
        return {"train_loss": loss.item(), "num_samples": rows_of(batch)}

    def validate(self, val_iterator: Iterator[Any], info: dict[str, Any]) -> dict[str, Any]:
        """Judge the model on all batches of this worker; return its numbers, as `validate_batch` does."""
        return self._of_each(val_iterator, info, self.validate_batch)

    def validate_batch(self, batch: Any, batch_info: dict[str, Any]) -> dict[str, Any]:
        """Judge the model on one batch; return its numbers, with `num_samples`.

        By default they are the loss, called from code of your own, and the Estimator's metrics besides where
        neither this nor `validate` is overridden.
        """
        del batch_info
        inputs, named, target = self.split(batch)
        with self.autocast():
            loss = self.loss_of(self.model(*inputs, **named), target)
        return {"val_loss": loss.item(), "num_samples": rows_of(batch)}

    def predict_batch(self, batch: Any) -> Any:
        """The model's output for a batch, one row for each of its rows."""
        from grampus.frameworks._torch_inputs import Inputs, split

        takes = Inputs.of(self.model)
        inputs, named, _ = split(batch, self._criterion is not None, takes, predicting=True)
        with self.autocast():
            return self.model(*inputs, **named)

    def state_dict(self) -> dict[str, Any]:
        """What else is to be saved: numbers, texts, tensors, and dicts and lists of these."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up what `state_dict` returned."""

    def _of_each(
        self, batches: Iterator[Any], info: dict[str, Any], work: Callable[[Any, dict[str, Any]], Any]
    ) -> dict[str, Any]:
        """What is said about all batches, as means over their rows."""
        means = Means()
        first = info.get("global_step", 0)
        for place, batch in enumerate(batches):
            told = work(batch, {**info, "batch_idx": place, "global_step": first + place})
            said = dict(checked(told, work.__name__))
            rows = said.pop("num_samples", None)
            means.add(said, rows_of(batch) if rows is None else int(rows))
        return {**means.values(), "num_samples": means.rows}

    # What to use

    def update_schedulers(self, metric: float | None = None) -> None:
        """Let all schedulers take a step, with `scheduler_step_freq="manual"`; plateaus need the metric.

        They move on all workers alike, if any of them asks: after the batch in `train_batch`, at once in
        `train_epoch`, at the end in `validate`. A metric is the mean of those that workers pass.
        """
        if self._move is not None:
            self._move(metric)
            return
        for scheduler in self._schedulers:
            scheduler.step() if metric is None else scheduler.step(metric)

    update_scheduler = update_schedulers

    def autocast(self) -> AbstractContextManager[Any]:
        """Inside, forward computes with the Estimator's `precision`."""
        return nullcontext() if self._precision is None else self._precision.autocast()

    def backward(self, loss: Any) -> None:
        """`loss.backward()`, scaled where `precision="fp16"` needs that."""
        if self._precision is not None:
            loss = self._precision.scaled(loss)
        loss.backward()

    def split(self, batch: Any) -> tuple[tuple[Any, ...], dict[str, Any], Any]:
        """Arguments of the model, by place and by name, and the target: as an Estimator does it."""
        from grampus.frameworks._torch_inputs import Inputs, split

        return split(batch, self._criterion is not None, Inputs.of(self.model))

    def loss_of(self, output: Any, target: Any) -> Any:
        """The loss of an output: by `criterion`, or the model's own."""
        from grampus.frameworks._torch_outputs import loss_of

        return loss_of(self._criterion, output, target)

    @property
    def config(self) -> dict[str, Any]:
        """The Estimator's `config`."""
        return self._config

    @property
    def model(self) -> Any:
        """The first model."""
        return self._models[0]

    @property
    def models(self) -> list[Any]:
        """All models."""
        return self._models

    @property
    def optimizer(self) -> Any:
        """The first optimizer; `None` in `evaluate` and `predict`."""
        return self._optimizers[0] if self._optimizers else None

    @property
    def optimizers(self) -> list[Any]:
        """All optimizers."""
        return self._optimizers

    @property
    def scheduler(self) -> Any:
        """The first scheduler; `None` where there is none."""
        return self._schedulers[0] if self._schedulers else None

    @property
    def schedulers(self) -> list[Any]:
        """All schedulers."""
        return self._schedulers

    @property
    def criterion(self) -> Any:
        """The Estimator's loss."""
        return self._criterion

    @property
    def world_rank(self) -> int:
        """Which worker this is, from 0."""
        return self._world_rank

    @property
    def device(self) -> Any:
        """Where models and batches are."""
        return self._device

    @property
    def use_gpu(self) -> bool:
        """Whether that is a GPU."""
        return getattr(self._device, "type", "cpu") == "cuda"

    @property
    def use_fp16(self) -> bool:
        """Whether `precision="fp16"` was asked for."""
        return self._precision is not None and bool(self._precision.scales)


def overrides(operator: type[TrainingOperator] | None, *names: str) -> bool:
    """Whether an operator has one of these methods of its own."""
    if operator is None:
        return False
    return any(getattr(operator, name) is not getattr(TrainingOperator, name) for name in names)


def checked(said: Any, method: str) -> dict[str, Any]:
    """What a method of an operator has returned, if it is what it should be."""
    if not isinstance(said, dict):
        loss = "train_loss" if method.startswith("train") else "val_loss"
        raise TypeError(
            f"{method} of the operator returned a {type(said).__name__}: return a dict of numbers, such as "
            f"{{'{loss}': loss.item(), 'num_samples': len(batch)}}"
        )
    return said


def rows_of(batch: Any) -> int:
    """Rows of a batch: the length of its first array."""
    if is_one(batch):
        # The first of its steps has all rows.
        return int(batch.batch_sizes[0])
    if isinstance(batch, Mapping):
        return rows_of(next(iter(batch.values())))
    return rows_of(batch[0]) if isinstance(batch, list | tuple) else len(batch)


suggest(globals())
