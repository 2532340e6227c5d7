"""What looks on while a model is trained: callbacks, reports, validation, checkpoints."""

from __future__ import annotations

import json
import pickle
import time
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from grampus import _notice, _report
from grampus._training import kept, metering, parcel, saved
from grampus._training.cleanup import uninterrupted
from grampus._training.feed import listed
from grampus._training.leaving import Yielded
from grampus._training.pace import Stopwatch
from grampus._training.picture import pictured
from grampus._training.repeated import Repeated
from grampus.errors import CollectiveError, FeedLost
from grampus.operators import Timers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from grampus._training.job import Fit

# Rows that an error names.
# How a worker learns that another is lost: by itself, or by being told to end.
_BLAMES_OTHERS = (CollectiveError, FeedLost, KeyboardInterrupt)


class NotANumber(FloatingPointError):
    """A loss that is NaN or infinite, after a step that has spoilt the weights."""


class Run:
    """What a callback sees of a run. It is there to be read; only `stop` and what logs do something."""

    def __init__(self, model: Any, config: dict[str, Any]) -> None:
        self.model = model.module
        self.optimizer = model.optimizer
        self.config = config
        self.epoch = 0
        self.step = 0
        self.loss: float | None = None
        self.record: dict[str, float] | None = None
        self.records: list[dict[str, Any]] = []
        self.reason: str | None = None
        self.logged: dict[str, float] = {}
        # What the driver has not been told yet.
        self._values: list[tuple[int, str, float]] = []
        self._shown: list[tuple[dict[str, Any], bytes]] = []

    def stop(self, reason: str = "a callback asked for it") -> None:
        """End the run after this step or epoch."""
        self.reason = reason

    def log(self, name: str, value: float) -> None:
        """Add a value to the record of the epoch."""
        self.logged[name] = float(value)

    def log_step(self, name: str, value: float) -> None:
        """Add a point to a curve, at the present step."""
        self._values.append((self.step, name, float(value)))

    def image(self, name: str, array: Any) -> None:
        """Show a picture, at the present step."""
        png, width, height, channels = pictured(array)
        size = {"width": width, "height": height, "channels": channels}
        self._shown.append(({"kind": "image", "name": name, "step": self.step, **size}, png))

    def graph(self, graph: bytes) -> None:
        """Show the model."""
        self._shown.append(({"kind": "graph"}, graph))

    def tell(self) -> None:
        """Tell the driver what was logged since the last time."""
        if self._values:
            for report in parcel.scalars(self._values):
                _report.send(report)
        for event, body in self._shown:
            parcel.send(event, body)
        self._values, self._shown = [], []


class Watcher:
    """One a worker; callbacks, reports and checkpoints are the first worker's."""

    def __init__(
        self, job: Fit, model: Any, feed: Any, validation: Any, take: Callable[[Any], dict[str, Any]]
    ) -> None:
        """Watch a run of this job; `take` gives the state of the model."""
        self._job = job
        self._model = model
        self._feed = feed
        self._validation = validation
        self._take = take
        self._group = model.lanes.group
        # Whether what the optimizer remembers is divided among the workers.
        self._sharded = getattr(model, "sharded", False)
        self._leads = self._group.rank == 0
        self.callbacks = job.callbacks
        self.records: list[dict[str, Any]] = [] if job.saved is None else list(job.saved["records"])
        self._run = Run(model, job.spec.config)
        self._run.records = self.records
        at_steps = ("on_step_begin", "on_step_end")
        self._asks_at_steps = any(_overrides(each, hook) for each in self.callbacks for hook in at_steps)
        self._begins_steps = self._leads and any(_overrides(c, "on_step_begin") for c in self.callbacks)
        self._metrics = metering.trainable(job.spec.metrics) if model.measures else {}
        # Other backends do not outlive a loss.
        shares = bool(self._metrics) and job.spec.backend == "grampus"
        self._tally = model.tally = metering.Tally(self._group, shares)
        if job.saved is not None:
            model.repeated = Repeated(job.saved.get("begun"), job.at["step"], strict=job.audit is not None)
        self._store = saved.Store(job) if job.saving is not None and self._leads else None
        self._callbacks_now: bytes | None = None
        # The last epoch in which a loss was no number.
        self._odd_epoch: int | None = None
        self._began = time.perf_counter()
        self._stopwatch = Stopwatch(len(model.lanes.mine), job.at["step"])
        # What each epoch was on this worker alone, where that is asked for.
        self.own_records: list[dict[str, Any]] = []
        model.info = {**job.info, "num_epochs": job.epochs, "scheduler_step": job.spec.scheduler_step_freq}
        self._lags(model)
        # Asked for once, by every worker: a sampler may keep a state.
        self._samples = feed.samples(0)

    def _lags(self, model: Any) -> None:
        """Let the host run ahead of a GPU, unless somebody looks at each loss or measures parts."""
        job = self._job
        if job.profile:
            model.timers = Timers()
        saves = "" if job.saving is None else job.saving.every or ""
        looked_at = self._asks_at_steps or job.stop_on_nan or job.audit is not None or job.end is not None
        if not looked_at and not job.profile and "loss" not in saves:
            model.hurry()

    # What the loop calls

    def run_begins(self) -> None:
        """Tell the driver and the callbacks."""
        job, at = self._job, self._job.at
        self._fresh_meters()
        if job.saved is not None:
            self._go_on(job.saved)
        if at["step_in_epoch"]:
            self._model.epoch_begins(at["epoch"], at["step_in_epoch"])
        self._run.epoch, self._run.step = at["epoch"], at["step"]
        if job.losses:
            self._tell(kind="recovered", epoch=at["epoch"], step=at["step"], workers=self._group.size)
            self._agreed()
            return
        self._tell(
            kind="begin",
            epochs=None if job.epochs is None else job.first["epoch"] + job.epochs,
            epoch=at["epoch"],
            steps=self._feed.steps(at["epoch"]),
            samples=self._feed.samples(at["epoch"]),
            workers=self._group.size,
            lanes=job.layout.lanes,
            batch_size=self._feed.batch_size,
            threads=job.layout.threads,
            resumed_from=job.resumed_from,
            directions=metering.directions(job.spec.metrics),
            run=job.run,
            saved_in=None if job.saving is None else job.saving.url,
        )
        size, lanes = self._feed.batch_size, job.layout.lanes
        if self._leads and size < lanes:
            _report.note(f"batch_size={size} leaves some of the {lanes} lanes without rows: they wait")
        if self._leads:
            self._model.warn(job.saving is not None)
        self._call("on_run_begin")
        self._agreed()

    def _go_on(self, told: dict[str, Any]) -> None:
        """Take up an epoch where it was saved; the rows must be the same."""
        for name, now in (("batch_size", self._feed.batch_size), ("samples", self._samples)):
            if told.get(name) == now:
                continue
            if told["at"]["step_in_epoch"]:
                raise ValueError(
                    f"the run was saved within an epoch, with {name}={told.get(name)}, and goes on with "
                    f"{now}: the rows that are left would be others; use the same data and batch_size"
                )
            if self._leads and name in told:
                _report.note(
                    f"the run was saved with {name}={told[name]}, and goes on with {now}: from here on it is "
                    "another run than the one that was saved"
                )
        known = saved.read_meters(told["meters"])
        self._tally.begin(known)
        for lane, states in known.items():
            meters = self._model.meters.get(lane, {})
            for name, state in states.items():
                if name in meters:
                    meters[name].load(state)

    def run_ends(self, at: dict[str, Any], reason: str) -> None:
        """Tell the callbacks, and wait for what is being written."""
        self._run.reason, self._run.record = reason, None
        self._call("on_run_end")
        self._run.tell()
        self._wait_for_store()
        self._tell(kind="end", reason=reason, step=at["step"])

    def fails(self, at: str, error: BaseException) -> None:
        """Keep what was committed: the run may go on without the worker that is to blame, or come home."""
        try:
            if isinstance(error, Yielded):
                self._yields(at)
        finally:
            # What failed here is what the user is to see, not what follows from it.
            follows = nullcontext() if isinstance(error, _BLAMES_OTHERS) else suppress(Exception)
            with uninterrupted(), follows:
                whole = self._model.roll_back()
                # What is torn is better than nothing, but not than what the run went on from.
                if whole or not (self._sharded or kept.holds(self._job.id)):
                    self.keep(at, torn=not whole)

    def keep(self, at: str, torn: bool = False) -> None:
        """Keep the run as it stands, for the case that it has to go on without another worker."""
        kept.keep(
            kept.Kept(
                run=self._job.id,
                state=self._model.held() if self._sharded else self._take(self._model),
                meta=self._meta(json.loads(at)),
                meters=self._tally.states(self._model.meters),
                callbacks=self._callbacks_now if self._group.size > 1 else _attributes(self.callbacks),
                begun=dict(self._model.repeated.losses),
                torn=torn,
            )
        )

    def _yields(self, at: str) -> None:
        """Find out who wants the run to end, and save it where the driver wants that."""
        mine = (_report.asked_to_yield(), _notice.is_given())
        # Peers of the group have proved the key of the job.
        told = [pickle.loads(each) for each in self._group._native.gather_bytes(pickle.dumps(mine))]
        ranks = [rank for rank, (_, goes) in enumerate(told) if goes]
        if ranks:
            self._tell(kind="preempted", ranks=ranks)
        if self._job.saving is not None and any(save for save, _ in told):
            self.save(at, "the driver ends")
            self._wait_for_store()
            # When the first worker leaves, the others have a minute: a save may take longer.
            self._group.barrier()
            self._tell(kind="saved")

    @contextmanager
    def _saving(self) -> Iterator[None]:
        """Inside, the driver lets a run that the user interrupts take as long as a save may."""
        self._tell(kind="saving", within=saved.WITHIN)
        try:
            yield
        finally:
            self._tell(kind="saving", within=0.0)

    def _wait_for_store(self) -> None:
        """Wait until all is written that the first worker saves."""
        if self._store is not None:
            with self._saving():
                self._store.wait()

    def close(self) -> None:
        """End what goes on in the background."""
        if self._store is not None:
            self._store.close()

    def epoch_begins(self, epoch: int, step: int) -> None:
        """An epoch begins."""
        self._run.epoch, self._run.step, self._run.record = epoch, step, None
        self._model.epoch_begins(epoch)
        self._fresh_meters()
        self._began = time.perf_counter()
        self._call("on_epoch_begin")
        self._agreed()

    def step_begins(self) -> None:
        """A step begins."""
        if self._begins_steps:
            self._call("on_step_begin")

    def step_ends(self, epoch: int, step_in_epoch: int, step: int, loss: float | None) -> str | None:
        """A step is done; callbacks may end the run."""
        # Until now the state from which the run goes on may have been nowhere else.
        kept.let_go()
        if self._model.odd_losses or (loss is not None and loss - loss != 0.0):
            self._odd_loss(epoch, step_in_epoch, 0.0 if loss is None else loss)
        run = self._run
        run.epoch, run.step = epoch, step
        run.loss = run.loss if loss is None else loss
        if self._asks_at_steps:
            self._call("on_step_end")
            return self._agreed()[1]
        return None

    def may_yield(self, step: int) -> None:
        """End the run after this step, to go on later, where any worker or the driver wants that."""
        if self._model.stops:
            raise Yielded(f"the run was asked to end after step {step}")

    def validate(self, epoch: int) -> list[tuple[str, float]]:
        """Measure on the validation data; the values that go into the epoch's record."""
        if self._model.timers is not None:
            self._model.timers.add("train_epoch", time.perf_counter() - self._began)
        found = list((self._trained_metrics() | self._model.said()).items())
        if self._validation is not None:
            from grampus._training.worker import judged

            self._tell(kind="validate", epoch=epoch, done=0, samples=self._validation.samples(0))
            began = time.perf_counter()
            values = judged(self._model, self._validation)
            if self._model.timers is not None:
                self._model.timers.add("validation", time.perf_counter() - began)
            numbers = {name: value for name, value in values.items() if isinstance(value, int | float)}
            found += [(f"val_{name.removeprefix('val_')}", float(value)) for name, value in numbers.items()]
        found.append(("learning_rate", self._model.learning_rate))
        return found

    def epoch_ends(self, epoch: int, step: int, record: dict[str, float]) -> str | None:
        """An epoch is done; callbacks may end the run."""
        record = _tidy(record)
        if not record["samples"]:
            raise ValueError(
                f"there were no rows to train on in epoch {epoch}: the data is empty, or makes less than "
                "one batch of a loader with drop_last=True"
            )
        run = self._run
        run.epoch, run.step, run.record, run.logged = epoch, step, record, {}
        self._call("on_epoch_end")
        logged, reason = self._agreed()
        # From here on nothing can fail for another worker: the end of an epoch is done as a whole.
        record.update({name: _told(value) for name, value in record.items()} | logged)
        self._model.epoch_ends(record)
        self._add_profile(record)
        record.update({name: _told(value) for name, value in self._model.words.items()})
        if self._job.apart:
            self.own_records.append(self._own(record))
        self.records.append(record)
        self._run.tell()
        self._tell(kind="epoch", epoch=epoch - 1, record=record)
        return reason

    def _add_profile(self, record: dict[str, Any]) -> None:
        """How long parts of the work took, where that is asked for."""
        timers = self._model.timers
        if timers is not None:
            from grampus._training.worker import shared_means

            record["profile"] = shared_means(timers, self._group)
            timers.reset()

    def _own(self, record: dict[str, Any]) -> dict[str, Any]:
        """The epoch as this worker has seen it."""
        own = self._model.own
        measured = metering.numbers(self._metrics, list(self._meter_states().values()))
        return {"epoch": record["epoch"], **own.values(), **measured, "samples": own.rows}

    def save(self, at: str, why: str) -> None:
        """Write a checkpoint, in the background."""
        with self._saving():
            self._save(at, why)

    def _save(self, at: str, why: str) -> None:
        # Whoever goes on from here will not tell of it again.
        self._run.tell()
        # Peers of the group have proved the key of the job.
        told = self._group._native.gather_bytes(pickle.dumps(self._meter_states()))
        # Parts of the state may be with those who do not save.
        state = self._take(self._model) if self._leads or self._sharded else {}
        if self._store is None:
            return
        job = self._job
        by_lane = dict(sorted(item for part in told for item in pickle.loads(part).items()))
        meta = {**self._meta(json.loads(at)), "meters": saved.written_meters(by_lane), "why": why}
        name = self._store.save(state, meta, self._score())
        if name is not None:
            self._tell(kind="checkpoint", name=name, path=f"{job.saving.url}/{name}")  # type: ignore[union-attr]

    def _meta(self, at: dict[str, Any]) -> dict[str, Any]:
        """What a run needs to go on, beside states and what metrics have counted."""
        job = self._job
        return {
            "at": at,
            "first": job.first,
            "layout": asdict(job.layout),
            "batch_size": self._feed.batch_size,
            "samples": self._samples,
            "backend": job.spec.backend,
            "records": self.records,
            "platforms": job.platforms,
        }

    def _score(self) -> float | None:
        """By which checkpoints are compared: larger is better."""
        best = self._job.saving.best if self._job.saving is not None else None
        record = self._run.record
        if best is None or record is None:
            return None
        if best not in record:
            raise ValueError(
                f"there is no {best!r} to choose the best checkpoint by: there are {', '.join(record)}"
            )
        return record[best] if self._job.saving.mode == "max" else -record[best]  # type: ignore[union-attr]

    def report(self, at: str, losses: list[tuple[int, float]]) -> None:
        """Tell the driver how far it is."""
        position = json.loads(at)
        self._tell_pace(position["step"])
        if not self._leads:
            return
        rate = self._model.learning_rate
        self._tell(
            kind="steps",
            epoch=position["epoch"],
            steps=[[step, loss, rate] for step, loss in losses],
            step=position["step_in_epoch"],
            samples=position["rows"],
            seconds=position["seconds"],
            waited=position["waited"],
            metrics=metering.numbers(self._metrics, list(self._meter_states().values())),
        )
        # After the steps: with them TensorBoard begins.
        self._run.tell()

    # What it is made of

    def _tell_pace(self, step: int) -> None:
        """Tell the driver how long this worker takes: others may be quicker."""
        if self._group.size > 1 and (told := self._stopwatch.read(step)) is not None:
            _report.send(json.dumps({"kind": "pace", **told}).encode())

    def _tell(self, **event: Any) -> None:
        if self._leads:
            _report.send(json.dumps(event).encode())

    def _call(self, hook: str) -> None:
        if self._leads:
            for callback in self.callbacks:
                getattr(callback, hook)(self._run)

    def _agreed(self) -> tuple[dict[str, Any], str | None]:
        """What the first worker's callbacks have logged, and why they want to end the run, on every worker.

        All keep the attributes of the callbacks, too: any of them may be the first after a loss.
        """
        if not self.callbacks:
            return {}, None
        logged: dict[str, Any] = self._run.logged
        if self._group.size == 1:
            return logged, self._run.reason
        told = (logged, self._run.reason, _attributes(self.callbacks)) if self._leads else None
        # Peers of the group have proved the key of the job.
        answer = pickle.loads(self._group._native.gather_bytes(pickle.dumps(told))[0])
        logged, reason, self._callbacks_now = answer
        return logged, reason

    def _odd_loss(self, epoch: int, step: int, loss: float) -> None:
        """Name the rows of a loss that is no number; end the run where that was asked for."""
        odd, self._model.odd_losses = self._model.odd_losses, []
        where = f"at epoch {epoch + 1}, step {step}"
        for lane, value, rows, hint in odd:
            which = "" if rows is None else f": rows {listed(rows)}"
            text = f"the loss is {value} {where}, lane {lane}{which}{hint}"
            if self._job.stop_on_nan:
                raise NotANumber(f"{text}; look at these rows, or lower the learning rate")
            # One bad step spoils the weights, and so all steps after it.
            if self._odd_epoch != epoch:
                _report.note(text)
        if odd:
            self._odd_epoch = epoch
        if not odd and self._job.stop_on_nan and self._group.size == 1 and loss - loss != 0.0:
            raise NotANumber(f"the loss is {loss} {where}")

    def _fresh_meters(self) -> None:
        lanes = self._model.lanes
        self._model.meters = {lane: metering.meters(self._metrics) for lane in lanes.mine}
        self._tally.begin({})

    def _meter_states(self) -> dict[int, Any]:
        return metering.by_lane(self._model.meters)

    def cut_off(self, at: dict[str, Any]) -> list[dict[str, float]]:
        """A record of the epoch within which the run has ended, if so: its rows so far, no validation."""
        if not at["step_in_epoch"]:
            return []
        # JSON has no word for what is not a number.
        loss_sum = float("nan") if at["loss_sum"] is None else at["loss_sum"]
        record = {
            "epoch": at["epoch"] + 1,
            # Where all of its steps were skipped, nothing has a loss.
            "loss": loss_sum / at["weight"] if at["weight"] else float("nan"),
            **self._trained_metrics(),
            "learning_rate": self._model.learning_rate,
            "samples": at["rows"],
            "steps": at["step_in_epoch"],
            "seconds": at["seconds"],
            "samples_per_second": at["rows"] / at["seconds"],
            "data_wait": at["waited"] / at["seconds"],
        }
        return [_tidy(record)]

    def _trained_metrics(self) -> dict[str, float]:
        """Metrics of the epoch's own rows, over all lanes."""
        if not self._metrics:
            return {}
        told = self._group._native.gather_bytes(pickle.dumps(self._meter_states()))
        by_lane = dict(sorted(item for part in told for item in pickle.loads(part).items()))
        return metering.numbers(self._metrics, list(by_lane.values()))


def _told(value: Any) -> Any:
    """Anything as a record can hold it, which travels as JSON."""
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError):
        # Numbers of numpy and torch have a method that gives them as Python's.
        return value.item() if hasattr(value, "item") and not getattr(value, "shape", ()) else str(value)


def _attributes(callbacks: list[Any]) -> bytes | None:
    """The attributes of callbacks, if they can travel; those of one that holds a file cannot."""
    try:
        return pickle.dumps([vars(callback) for callback in callbacks])
    except Exception:
        return None


def _overrides(callback: Any, hook: str) -> bool:
    from grampus.callbacks import Callback

    method: Callable[..., Any] | None = getattr(type(callback), hook, None)
    return method is not None and method is not getattr(Callback, hook)


def _tidy(record: dict[str, float]) -> dict[str, float]:
    """Counts as whole numbers, and the losses and metrics before the sizes and times."""
    counts = {"epoch", "samples", "steps", "val_num_samples"}
    last = (
        "learning_rate",
        "samples",
        "val_num_samples",
        "steps",
        "seconds",
        "samples_per_second",
        "data_wait",
    )
    ordered = {name: value for name, value in record.items() if name not in last}
    ordered |= {name: record[name] for name in last if name in record}
    return {name: int(value) if name in counts else value for name, value in ordered.items()}
