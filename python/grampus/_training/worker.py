"""What a worker does for `fit`, `evaluate` and `predict`."""

from __future__ import annotations

import importlib
import inspect
import itertools
import json
import math
import os
import pickle
import time
import warnings
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from grampus import _exception, _native, _report, collective
from grampus._training import attributes, kept, metering, platforms
from grampus._training.audit import recorded
from grampus._training.claim import shared
from grampus._training.cleanup import closing
from grampus._training.lanes import Lanes
from grampus._training.leaving import hearing, outliving
from grampus._training.watcher import Watcher
from grampus._training.whole import WholeEpochs
from grampus.operators import Timers
from grampus.shards.delivery import brought
from grampus.shards.feeding import renamed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from grampus._training.job import Fit, Layout, Pass, Spec
    from grampus.collective import Group


# Seconds that a worker waits for others when a run has ended and is brought home.
_HAND_OVER_WITHIN = 30.0
# Estimators whose hook this process has called.
_initialized: set[str] = set()


def fit(job: Fit) -> dict[str, Any]:
    """Train; every worker says who it is, the first one also what came out."""
    # The driver ends a step that hangs; who waits in vain for other reasons is told so later.
    group = collective.form(deadline=2 * job.step_timeout)
    lanes, framework = begin(job.spec, job.layout, goes_on=job.losses > 0, group=group, shares=job.shares)
    if job.losses:
        job = kept.gone_on(job, lanes.group)
    job.platforms = platforms.compare(job, lanes.group, framework)
    validated = [] if job.validation is None else job.validation.loads
    with (
        brought([*job.data.loads, *validated], lanes.group),
        closing(_model(framework, job, lanes)) as model,
        closing(framework.feed(job.data, lanes, job.spec, training=True, model=model)) as feed,
    ):
        if model.owns_epoch:
            feed = WholeEpochs(feed, lanes)
        model.step = job.at["step"]
        validation = None
        if job.validation is not None:
            validation = framework.feed(job.validation, lanes, job.spec, training=False, model=model)
        saves = job.saving if job.saving is not None and job.saving.on_driver_loss else None
        settings = {
            "seed": job.layout.seed,
            "first": job.first,
            "epochs": job.epochs,
            "max_steps": job.max_steps,
            "end": _trigger(job.end),
            "save": None if job.saving is None else _trigger(job.saving.every),
            "goes_on": job.losses > 0,
            "sums": model.trained_by.sums,
        }
        with (
            outliving(saves is not None),
            shared(None if saves is None or lanes.group.rank else saves.url),
            closing(Watcher(job, model, feed, validation, framework.take)) as looks_on,
            recorded(job, lanes, feed, looks_on) as (read, watcher),
        ):
            watcher.run_begins()
            with hearing() if job.spec.backend == "grampus" else nullcontext():
                at, reason = _native.fit(model, read, watcher, json.dumps(settings), json.dumps(job.at))
            # The first worker may be lost before its answer has arrived.
            looks_on.keep(at)
            ended = json.loads(at)
            records = [*watcher.records, *watcher.cut_off(ended)]
            watcher.run_ends(ended, reason)
        answer: dict[str, Any] = {"pid": os.getpid(), "rows": model.rows}
        # Parts of the state may be with others.
        state = framework.take(model) if lanes.group.rank == 0 or getattr(model, "sharded", False) else {}
        if lanes.group.rank == 0:
            answer["state"] = state
            answer |= {"at": ended, "reason": reason, "records": records}
            answer["callbacks"], left = attributes.packed(job.callbacks)
            for each in left:
                _report.note(f"an attribute stays on the worker, since it cannot be pickled: {each}")
        if job.apart:
            answer["own"] = looks_on.own_records
        return answer


def hand_over(job: Fit) -> dict[str, Any] | None:
    """What workers have kept of a run that has ended, from the first; nothing where none has any."""
    group = collective.form(deadline=_HAND_OVER_WITHIN)
    for torn in (False, True):
        with suppress(kept.NothingKept):
            job, _ = kept.agreed(job, group, torn)
            break
    else:
        return None
    if "parts" in job.state:
        # Each worker has some of it. Otherwise code of the user, which may fail, is not needed.
        lanes, framework = begin(job.spec, job.layout, goes_on=True, group=group)
        with closing(_model(framework, job, lanes)) as model:
            job.state = framework.take(model)
    # All keep it until the next run begins: the first worker may be lost before its answer has arrived.
    told: dict[str, Any] = job.saved or {}
    return (
        None if group.rank else {"state": job.state, "at": job.at, "records": told["records"], "torn": torn}
    )


def _model(framework: Any, job: Fit, lanes: Lanes) -> Any:
    try:
        return framework.model(job.spec, lanes, job.state, training=True)
    except ValueError as error:
        if job.resumed_from is not None:
            _exception.note(error, f"grampus: the run was to go on from {job.resumed_from}")
        raise


def _trigger(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def begin(
    spec: Spec,
    layout: Layout,
    goes_on: bool = False,
    group: Group | None = None,
    shares: dict[str, float] | None = None,
) -> tuple[Lanes, Any]:
    """The lanes of this worker, and the module of the framework.

    What is kept of another call is not needed any more, unless this one goes on from it.
    """
    if not goes_on:
        kept.let_go()
    framework = importlib.import_module(f"grampus.frameworks.{spec.framework}")
    if spec.initialization_hook is not None and spec.id not in _initialized:
        _initialized.add(spec.id)
        spec.initialization_hook()
    group = collective.world() if group is None else group
    return Lanes.of(group, layout.lanes, layout.seed, layout.threads, shares), framework


def parts(feed: Any, model: Any, num_steps: int | None = None) -> Iterator[tuple[int, int, int, float, Any]]:
    """All parts of this worker's lanes, from the first row to the last, each with the number of its batch.

    With `num_steps`, those of so many batches.
    """
    feed.open(0, 0)
    for number in itertools.count() if num_steps is None else range(num_steps):
        answer = feed.next()
        if answer is None:
            return
        total, _, found = answer
        if total is None:
            sizes = [(lane, rows, weight) for lane, rows, weight, _ in found]
            if model.agree(sizes)[0] == 0:
                return
        yield from ((number, *part) for part in found if part[1])


def evaluate(job: Pass) -> dict[str, Any]:
    """Loss and metrics over all rows."""
    lanes, framework = begin(job.spec, job.layout)
    with (
        brought(job.data.loads, lanes.group),
        closing(framework.model(job.spec, lanes, job.state, training=False)) as model,
    ):
        model.info = job.info
        model.timers = Timers() if job.profile else None
        feed = framework.feed(job.data, lanes, job.spec, training=False, model=model)
        began = time.perf_counter()
        found = judged(model, feed, job.num_steps)
        if model.timers is not None:
            model.timers.add("validation", time.perf_counter() - began)
            found["profile"] = shared_means(model.timers, lanes.group)
        return found


def shared_means(timers: Timers, group: Group) -> dict[str, float]:
    """How long parts of the work take, as a mean over all workers."""
    # Peers of the group have proved the key of the job.
    told = [pickle.loads(each) for each in group._native.gather_bytes(pickle.dumps(timers.means()))]
    names = dict.fromkeys(name for each in told for name in each)
    found = {}
    for name in names:
        known = [each[name] for each in told if name in each]
        found[name] = sum(known) / len(known)
    return found


def update_schedulers(spec: Spec, layout: Layout, state: Any, metric: float | None) -> dict[str, Any]:
    """The state of a run after a step of its schedulers."""
    lanes, framework = begin(spec, layout)
    with closing(framework.model(spec, lanes, state, training=True)) as model:
        with warnings.catch_warnings():
            # Steps of the optimizer were taken in other objects, which those of torch have not seen.
            warnings.filterwarnings("ignore", "Detected call of `lr_scheduler.step")
            for scheduler in model.schedulers:
                _step(scheduler, metric)
        found: dict[str, Any] = framework.take(model)
        return found


def _step(scheduler: Any, metric: float | None) -> None:
    """Other schedulers than plateaus would take the metric for an epoch."""
    name, looks = type(scheduler).__name__, "metrics" in inspect.signature(scheduler.step).parameters
    if looks and metric is None:
        raise ValueError(f"a {name} looks at a metric: pass it to update_schedulers")
    if metric is not None and not looks:
        raise ValueError(f"a {name} looks at no metric: leave it out")
    scheduler.step(metric) if looks else scheduler.step()


@dataclass
class _Sums:
    """Over the rows of a lane; the loss is multiplied by what they weigh."""

    loss: float = 0.0
    weight: float = 0.0
    rows: int = 0


def judged(model: Any, feed: Any, num_steps: int | None = None) -> dict[str, Any]:
    """Loss and metrics over all rows that a feed gives: the same on every worker."""
    if model.judges:
        return _judged_by_operator(model, feed, num_steps)
    lanes = model.lanes
    meters = {lane: metering.meters(model.spec.metrics) for lane in lanes.mine}
    sums = {lane: _Sums() for lane in lanes.mine}
    weigh, adds_up = model.reduction.weigh, model.reduction.sums
    with closing(feed), model.evaluating():
        for number, lane, rows, _, batch in parts(feed, model, num_steps):
            model.place, model.rows_there = number, rows
            loss = model.evaluate(lane, batch, meters[lane])
            _native.advance()
            weight = 1.0 if adds_up else rows if weigh is None else float(weigh(batch.values))
            # The mean over rows that count for nothing is not a number.
            if weight:
                sums[lane].loss += loss * weight
            sums[lane].weight += weight
            sums[lane].rows += rows
    # Peers of the group have proved the key of the job.
    told = lanes.group._native.gather_bytes(pickle.dumps((sums, model.found())))
    parted, found = zip(*map(pickle.loads, told), strict=True)
    model.tell(list(found))
    whole = _Sums()
    for _, lane_sums in sorted(item for part in parted for item in part.items()):
        whole.loss += lane_sums.loss
        whole.weight += lane_sums.weight
        whole.rows += lane_sums.rows
    if not adds_up:
        whole.loss = whole.loss / whole.weight if whole.weight else math.nan
    answer: dict[str, Any] = {"loss": whole.loss}
    # One worker computes them for all: functions of the user may take long, and need not always say the same.
    states = metering.gathered(lanes.group, metering.by_lane(meters))
    if states is not None:
        answer |= metering.values(model.spec.metrics, states)
    answer = pickle.loads(lanes.group._native.gather_bytes(pickle.dumps(answer))[0])
    answer["num_samples"] = whole.rows
    return answer


def _judged_by_operator(model: Any, feed: Any, num_steps: int | None) -> dict[str, Any]:
    """What an operator says about all rows."""
    with closing(feed), model.evaluating():
        found = parts(feed, model, num_steps)
        if not model.judge_all(part[4] for part in found):
            for number, lane, _, _, batch in found:
                model.place = number
                model.evaluate(lane, batch, {})
                _native.advance()
        model.judged()
    whole = model.judgement.over_all(model.lanes.group)
    said = {**whole.values(), "num_samples": whole.rows}
    missing = [n for n in metering.meters(model.spec.metrics) if not {n, f"val_{n}"} & said.keys()]
    if missing and model.lanes.group.rank == 0 and not model.has_told_metrics:
        model.has_told_metrics = True
        _report.note(
            f"the metrics {', '.join(missing)} are not measured: the operator's own validation says what is, "
            "and does not return them; let it return them, or leave them out"
        )
    return said


def predict(job: Pass) -> list[tuple[int, int, Any]]:
    """The outputs of this worker's lanes, with the batch and the lane of each, which order them."""
    lanes, framework = begin(job.spec, job.layout)
    with (
        brought(job.data.loads, lanes.group),
        closing(framework.model(job.spec, lanes, job.state, training=False)) as model,
    ):
        feed = framework.feed(job.data, lanes, job.spec, training=False, model=model)
        with closing(feed), model.evaluating():
            answers = []
            for number, lane, _, _, batch in parts(feed, model):
                model.place = number
                answers.append((number, lane, model.predict(lane, batch)))
                if job.output_names is not None and len(answers) == 1:
                    # Names that do not fit are said before the rest is predicted.
                    renamed(framework.predictions([answers[0][2]]), job.output_names)
            return answers
