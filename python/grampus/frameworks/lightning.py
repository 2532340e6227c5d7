"""Lightning modules: their steps, optimizers and schedulers, on Grampus's workers instead of a Trainer."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from grampus import _report
from grampus._training import creator
from grampus._training.means import Means, as_number
from grampus.frameworks import _torch_devices, _torch_making, _torch_outputs, _torch_schedules
from grampus.frameworks import torch as plain
from grampus.metrics import is_torchmetrics

if TYPE_CHECKING:
    from grampus._training.feed import Batch
    from grampus._training.job import Spec
    from grampus._training.lanes import Lanes
    from grampus.frameworks._torch_lane_check import LaneCheck

feed = plain.feed
take = plain.take
portable = plain.portable
joined = plain.joined
predictions = plain.predictions
digest = plain.digest
save_weights = plain.save_weights
save_as = plain.save_as
weights_of = plain.weights_of
weights_from = plain.weights_from
made = plain.made
platform = plain.platform


class _Trainer:
    """What steps of users ask a Trainer for."""

    def __init__(self, lanes: Lanes) -> None:
        self.world_size = lanes.group.size
        self.global_rank = self.local_rank = lanes.group.rank
        self.is_global_zero = lanes.group.rank == 0
        self.current_epoch = self.global_step = 0
        self.training = self.validating = self.sanity_checking = False
        self.max_epochs: int | None = None
        self.logger = None
        self.loggers: list[Any] = []
        self.callbacks: list[Any] = []
        self.lr_scheduler_configs: list[Any] = []
        self.optimizers: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"the module asks its trainer for {name!r}, and there is none: Grampus trains it; what it can "
            f"ask for is {', '.join(vars(self))}"
        )


class Model(plain.Model):
    """A Lightning module; what its steps log goes into the records."""

    judges = True

    def _make(self, training: bool) -> tuple[Any, Any, list[Any], list[Any], Any]:
        spec, seed = self.spec, self.lanes.seed
        creator.seed_all(creator.make_seed(seed, 0))
        module = _torch_making.make_module(spec)
        _check(module)
        device = _torch_devices.settle(module, spec.device)
        self._attend(module)
        if not training:
            return module, device, [], [], None
        creator.seed_all(creator.make_seed(seed, 1))
        optimizer, schedulers = configured(module.configure_optimizers())
        self.trainer.optimizers = [optimizer]
        scheduled = _torch_schedules.scheduled(map(_attentive, schedulers), [optimizer], "epoch", {})
        module.optimizers = lambda *_, **__: optimizer
        found = [each.scheduler for each in scheduled]
        module.lr_schedulers = lambda: found[0] if len(found) == 1 else found or None
        return module, device, [optimizer], scheduled, None

    def _attend(self, module: Any) -> None:
        """Hear what steps log."""
        self.trainer = _Trainer(self.lanes)
        self._logged: dict[str, Any] = {}
        # What is logged with another reduce_fx than a mean, by its name and whether the module trains.
        self._reduced: dict[tuple[str, bool], Any] = {}
        self.judgement = Means()
        self._batch = 0
        self._has_begun = False
        module._trainer = self.trainer
        module.log = self._log
        module.print = print if self.trainer.is_global_zero else lambda *_, **__: None
        module.log_dict = self._log_all

    def _log(self, name: str, value: Any, *_: Any, reduce_fx: Any = "mean", **__: Any) -> None:
        how = getattr(reduce_fx, "__name__", reduce_fx)
        if how != "mean" and not is_torchmetrics(value):
            place = name, self.trainer.training
            if place not in self._reduced:
                self._reduced[place] = _reducing(how).to(self.device)
            self._reduced[place].update(value)
            value = self._reduced[place]
        self._logged[name] = value

    def _log_all(self, values: Mapping[str, Any], *_: Any, **options: Any) -> None:
        for name, value in values.items():
            self._log(name, value, **options)

    def epoch_begins(self, epoch: int = 0, batch: int = 0) -> None:
        """Get ready to train."""
        self.own.reset()
        super().epoch_begins(epoch, batch)
        self.trainer.max_epochs = self.info.get("num_epochs")
        self.trainer.current_epoch, self.trainer.global_step = epoch, self.step
        self._batch = batch
        if not self._has_begun:
            self._has_begun = True
            self.module.on_train_start()
        self.module.on_train_epoch_start()

    def epoch_ends(self, record: dict[str, float]) -> None:
        """Tell the module, and move the schedulers on."""
        self._logged = {}
        self.trainer.global_step = self.step
        self.module.on_train_epoch_end()
        super().epoch_ends(record)
        # After the schedulers, which must see the same on all workers.
        for name, value in self._logged.items():
            number = as_number(value)
            if number is None:
                raise TypeError(
                    f"on_train_epoch_end logged a {type(value).__name__} as {name!r}: log numbers there, and "
                    "metrics of torchmetrics in training_step"
                )
            record[name] = number

    def warn(self, saved: bool) -> None:
        """Name what the module has written for a Trainer, and nobody calls."""
        super().warn(saved)
        if unheard := _never_called(type(self.module)):
            _report.note(
                f"the module's {', '.join(unheard)} will not be called: without a Trainer only "
                f"{', '.join(sorted(_CALLED))} are"
            )

    def _forward(self, values: Any) -> tuple[Any, Any, Any]:
        values = self._here(values)
        self.trainer.training, self.trainer.validating = True, False
        self.trainer.global_step = self.step
        self._logged = {}
        with self._casting():
            said = _step(self.module.training_step, values, self._batch)
        loss = said.get("loss") if isinstance(said, Mapping) else said
        if loss is None:
            raise ValueError("training_step returned no loss: return a tensor, or a dict with one as 'loss'")
        return _torch_outputs.loss_of(lambda output: output, loss, None), None, None

    def train(self, lane: int, rows: int, share: float, seed: int, part: Batch | None) -> None:
        """Forward and backward of one lane's rows; what was logged counts for them."""
        super().train(lane, rows, share, seed, part)
        if part is not None:
            self.own.join(self._logged, rows)

    def commit(self) -> float | None:
        """Sum over all lanes, and apply the step."""
        self._batch += 1
        return super().commit()

    def skip(self) -> None:
        """Count the batch, and change nothing."""
        self._batch += 1
        super().skip()

    def _try(self, check: LaneCheck, lane: int, values: Any, rows: int) -> None:
        """What is logged in a trial is not heard."""
        super()._try(check, lane, values, rows)
        self._reduced = {}

    def hurry(self) -> None:
        """What steps log is asked for with each."""

    def said(self) -> dict[str, float]:
        """What was logged in the epoch, over all workers."""
        return self._said_by_all()

    # Evaluation and prediction

    def judge_all(self, batches: Any) -> bool:
        """The module judges batch by batch."""
        del batches
        if _is_base(type(self.module), "validation_step"):
            raise ValueError("the module has no validation_step: write one, or leave validation_data out")
        self.judgement.reset()
        self.judgement = Means()
        with torch.no_grad():
            self.module.on_validation_start()
            self.module.on_validation_epoch_start()
        return False

    def judged(self) -> None:
        """All rows of this worker are judged; what the module logs now is about them."""
        self._logged = {}
        with torch.no_grad():
            # Where there were none, code of users could make no mean.
            if self.judgement.rows:
                self.module.on_validation_epoch_end()
                self.judgement.join(self._logged, self.judgement.rows)
            self.module.on_validation_end()

    def evaluate(self, lane: int, part: Batch, meters: Mapping[str, Any]) -> float:
        """Let the module judge some rows."""
        del meters
        self._seed_answer(lane, part)
        self._logged = {}
        self.trainer.training, self.trainer.validating = False, True
        self.trainer.global_step = self.step
        try:
            with torch.no_grad(), self._timed("eval_fwd"), self._casting():
                said = _step(self.module.validation_step, self._here(part.values), self.place)
        except Exception as error:
            _torch_outputs.note(error, lane, len(part.rows), part)
            raise
        loss = said.get("loss") if isinstance(said, Mapping) else said
        found = dict(self._logged)
        if loss is not None and "val_loss" not in found:
            found["val_loss"] = loss
        self.judgement.add(found, len(part.rows))
        return 0.0

    def _answer(self, values: Any) -> Any:
        with self._casting():
            return _step(self.module.predict_step, values, self.place)


def model(spec: Spec, lanes: Lanes, state: dict[str, Any] | None, training: bool) -> Model:
    """What the loop asks."""
    return Model(spec, lanes, state, training)


def _step(step: Any, values: Any, place: int) -> Any:
    """What a step of the module returns; it need not ask for the number of the batch."""
    itself = int(hasattr(step, "__self__"))
    alone = _arguments(getattr(step, "__func__", step)) == itself + 1
    return step(values) if alone else step(values, place)


@functools.cache
def _arguments(function: Any) -> float:
    """How many it takes."""
    takes = inspect.signature(function).parameters.values()
    return math.inf if any(each.kind is each.VAR_POSITIONAL for each in takes) else len(takes)


def _attentive(scheduler: Any) -> Any:
    """A scheduler, and what it looks at: Lightning passes over that of one that looks at nothing."""
    if not isinstance(scheduler, Mapping) or _torch_schedules.looks(scheduler.get("scheduler")):
        return scheduler
    return {name: value for name, value in scheduler.items() if name != "monitor"}


def _reducing(how: str) -> Any:
    """What Lightning has for another `reduce_fx` than a mean."""
    import torchmetrics

    kinds = {
        "max": torchmetrics.MaxMetric,
        "min": torchmetrics.MinMetric,
        "sum": torchmetrics.SumMetric,
    }
    if how not in kinds:
        raise ValueError(f"self.log knows 'mean', 'max', 'min' and 'sum' as reduce_fx, and not {how!r}")
    return kinds[how]()


def _check(module: Any) -> None:
    if not hasattr(module, "training_step") or not hasattr(module, "configure_optimizers"):
        raise TypeError(f"a {type(module).__name__} is no LightningModule: use Estimator.from_torch")
    if not getattr(module, "automatic_optimization", True):
        raise ValueError(
            "the module has automatic_optimization=False: write its step as a gp.TrainingOperator, and use "
            "Estimator.from_torch"
        )


_CALLED = {
    "on_train_start",
    "on_train_epoch_start",
    "on_train_epoch_end",
    "on_validation_start",
    "on_validation_epoch_start",
    "on_validation_epoch_end",
    "on_validation_end",
}
_OTHER_HOOKS = {"configure_gradient_clipping", "lr_scheduler_step", "optimizer_step", "optimizer_zero_grad"}


def _never_called(kind: type) -> list[str]:
    """Hooks of a Trainer that a module's class has of its own."""
    hooks = {name for name in dir(_base(kind)) if name.startswith("on_")} | _OTHER_HOOKS
    return [name for name in sorted(hooks - _CALLED) if not _is_base(kind, name)]


def _base(kind: type) -> type:
    return next((each for each in kind.__mro__ if each.__name__ == "LightningModule"), kind)


def _is_base(kind: type, name: str) -> bool:
    """Whether a method is that of LightningModule itself."""
    return getattr(kind, name, None) is getattr(_base(kind), name, None)


def configured(found: Any) -> tuple[Any, list[Any]]:
    """The optimizer and the schedulers that `configure_optimizers` has returned, in whichever form.

    >>> configured({"optimizer": "adam", "lr_scheduler": {"scheduler": "step", "interval": "step"}})
    ('adam', [{'scheduler': 'step', 'interval': 'step'}])
    >>> configured({"optimizer": "adam", "lr_scheduler": "plateau", "monitor": "val_acc"})
    ('adam', [{'scheduler': 'plateau', 'monitor': 'val_acc'}])
    """
    schedulers: Any = []
    if isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], list | tuple):
        found, schedulers = found
    if isinstance(found, Sequence) and not isinstance(found, str):
        if len(found) != 1:
            raise ValueError(
                f"configure_optimizers returned {len(found)} optimizers: write the step as a "
                "gp.TrainingOperator, and use Estimator.from_torch"
            )
        [found] = found
    if isinstance(found, Mapping):
        schedulers = found.get("lr_scheduler", schedulers)
        if schedulers and "monitor" in found and not isinstance(schedulers, Mapping):
            schedulers = {"scheduler": schedulers, "monitor": found["monitor"]}
        found = found["optimizer"]
    if found is None:
        raise ValueError("configure_optimizers returned no optimizer: return one that is to train the module")
    if not isinstance(schedulers, list | tuple):
        schedulers = [schedulers]
    return found, list(schedulers)
