"""What is known of a run while it goes on, and how it is said: pure functions of the events so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from grampus._direction import better_way
from grampus._figures import best_of, columns, count, duration, figure, measures

# Columns of a bar: less says nothing, more says no more.
_LEAST_BAR, _MOST_BAR = 8, 24
_GAP = "  "
# Share of the time from which on waiting for data costs more than it should.
_MUCH_WAITING = 0.1


@dataclass
class RunView:
    """A run as its events tell it."""

    begin: Mapping[str, Any]
    #: When it began, by the clock of whoever watches.
    since: float
    now: float
    #: The epoch that is being trained or validated, from 0.
    epoch: int = 0
    #: The last `steps` of this epoch.
    steps: Mapping[str, Any] | None = None
    #: The last `validate` of this epoch.
    validation: Mapping[str, Any] | None = None
    records: list[Mapping[str, Any]] = field(default_factory=list)
    checkpoint: Mapping[str, Any] | None = None
    end: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        """Start where the run does."""
        self.epoch = self.begin.get("epoch") or 0

    def take(self, event: Mapping[str, Any], now: float) -> None:
        """Take the next event."""
        self.now = now
        kind = event["kind"]
        if kind in ("steps", "validate"):
            self.epoch = event["epoch"]
        if kind == "steps":
            self.steps = event
        elif kind == "validate":
            self.validation = event
        elif kind == "epoch":
            self.records.append(event["record"])
            self.epoch, self.steps, self.validation = event["epoch"] + 1, None, None
        elif kind == "checkpoint":
            self.checkpoint = event
        elif kind == "end":
            self.end = event

    def fraction(self) -> float | None:
        """How much of the epoch, or of its validation, is done; `None` where nobody knows."""
        if self.validation is not None:
            return _share(self.validation.get("done"), self.validation.get("samples"))
        done = self.steps or {}
        known = _share(done.get("step", 0), self.begin.get("steps"))
        return _share(done.get("samples", 0), self.begin.get("samples")) if known is None else known

    def latest(self) -> dict[str, Any]:
        """Loss of the last step and metrics of the epoch so far."""
        if self.steps is None:
            return {}
        losses = [{"loss": step[1]} for step in self.steps.get("steps", [])[-1:]]
        return {**(losses[0] if losses else {}), **self.steps.get("metrics", {})}

    def rate(self) -> float | None:
        """Samples per second in this epoch."""
        done = self.steps or {}
        return done["samples"] / done["seconds"] if done.get("samples") and done.get("seconds") else None

    def seconds_left(self) -> tuple[float, float | None] | None:
        """What is left of the epoch's steps, and of the steps of all epochs, as far as it can be known."""
        fraction = self.fraction()
        if self.validation is not None or self.steps is None or not fraction:
            return None
        whole = self.steps["seconds"] / fraction
        left = max(whole - self.steps["seconds"], 0.0)
        epochs = self.begin.get("epochs")
        after = None if epochs is None else max(epochs - self.epoch - 1, 0)
        # Earlier epochs know what validation costs.
        known = [record["seconds"] for record in self.records if record.get("seconds")]
        return left, None if not after else left + after * (max(known[-1], whole) if known else whole)


@dataclass(frozen=True)
class Part:
    """A piece of a line: where there is no room for all, those that matter least go first."""

    text: str
    matters: int
    style: str = ""


def live_line(view: RunView, width: int, bar: str, coloured: bool) -> str:
    """The epoch that goes on, in one line of at most `width` columns.

    `bar` are the letters for what is done and what is not; none where the bar is drawn elsewhere.
    """
    fraction = view.fraction()
    parts = _live_parts(view)
    # Before metrics, whose names may be long: the bar is what people look for.
    place = Part(" " * _LEAST_BAR, 88)
    if bar and fraction is not None:
        parts.insert(1, place)
    parts = fitting(parts, width)
    if place not in parts or fraction is None:
        return _joined(parts, coloured)
    room = min(_LEAST_BAR + width - _length(parts), _MOST_BAR)
    done = min(int(fraction * room), room)
    drawn = _styled(Part(bar[0] * done, 0, "36"), coloured) + _styled(
        Part(bar[1] * (room - done), 0, "2"), coloured
    )
    # The bar follows the name of the epoch.
    return _joined([parts[0], Part(drawn, 0), *parts[2:]], coloured)


def _live_parts(view: RunView) -> list[Part]:
    fraction, rate, left = view.fraction(), view.rate(), view.seconds_left()
    parts = [Part(_epoch_name(view, view.epoch + 1), 100, "1")]
    if fraction is not None:
        parts.append(Part(f"{min(fraction, 1):4.0%}", 90))
    elif view.steps is not None:
        parts.append(Part(f"step {view.steps.get('step', 0):,}", 90))
    if view.validation is not None:
        parts.append(Part("validating", 85))
    for place, (name, value) in enumerate(view.latest().items()):
        parts.append(Part(f"{name} {figure(value)}", 80 if name == "loss" else 77 - place))
    if left is not None:
        parts.append(Part(f"{duration(left[0])} left", 78))
    if rate is not None:
        parts.append(Part(f"{rate:,.0f}/s", 60, "2"))
    if view.steps is not None and view.steps.get("seconds"):
        share = view.steps.get("waited", 0.0) / view.steps["seconds"]
        # Where it is much, it is what to look at.
        much = share >= _MUCH_WAITING
        parts.append(Part(f"data wait {share:.0%}", 79 if much else 20, "33" if much else "2"))
    if left is not None and left[1] is not None:
        parts.append(Part(f"run {duration(left[1])} left", 10, "2"))
    return parts


def epoch_line(view: RunView, width: int, coloured: bool) -> str:
    """The epoch that ended last, in one line of at most `width` columns."""
    record = view.records[-1]
    parts = [Part(_epoch_name(view, record["epoch"]), 100, "1")]
    names = measures(record)
    for place, name in enumerate(names):
        matters = 90 if name == "loss" else (80 if name.startswith("val_") else 70) - place
        parts.append(Part(f"{name} {figure(record[name])}", matters))
    if record.get("seconds") is not None:
        parts.append(Part(duration(record["seconds"]), 40, "2"))
    if record.get("samples_per_second") is not None:
        parts.append(Part(f"{record['samples_per_second']:,.0f} samples/s", 30, "2"))
    if record.get("data_wait") is not None:
        parts.append(Part(f"data wait {record['data_wait']:.0%}", 20, "2"))
    if record.get("learning_rate") is not None:
        parts.append(Part(f"lr {record['learning_rate']:.3g}", 10, "2"))
    return _joined(fitting(parts, width), coloured)


def fitting(parts: Sequence[Part], width: int) -> list[Part]:
    """The first part and those others that fit into the width, in their order; the first may be cut.

    >>> parts = [Part("Epoch 1", 9), Part("loss 0.5", 5), Part("0:10", 7)]
    >>> [part.text for part in fitting(parts, 15)]
    ['Epoch 1', '0:10']
    """
    first, *others = parts
    kept = [replace(first, text=first.text[:width])]
    for part in sorted(others, key=lambda part: -part.matters):
        if _length([*kept, part]) <= width:
            kept.append(part)
    return [kept[0], *(part for part in others if part in kept)]


def summary(view: RunView) -> tuple[str, list[tuple[str, str]]]:
    """The run on one screen: a headline, and lines of a name and a text."""
    end = view.end or {}
    headline = (
        f"Training ended after {duration(view.now - view.since)}: {end.get('reason', 'it did not say why')}"
    )
    return headline, [
        ("trained", ", ".join(_amounts(view, end))),
        *_resources(view.begin),
        *_speed(view),
        *_results(view),
        *_places(view, end),
    ]


def _amounts(view: RunView, end: Mapping[str, Any]) -> Iterable[str]:
    yield count(len(view.records), "epoch")
    samples = sum(record.get("samples") or 0 for record in view.records) + (view.steps or {}).get(
        "samples", 0
    )
    if samples:
        yield count(samples, "sample")
    if end.get("step") is not None:
        yield f"up to step {end['step']:,}"


def _resources(begin: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    parts = [count(begin[f"{name}s"], name) for name in ("worker", "lane") if begin.get(f"{name}s")]
    if begin.get("threads"):
        parts.append(f"{count(begin['threads'], 'thread')} per lane")
    if parts:
        yield "on", ", ".join(parts)
    if begin.get("batch_size"):
        yield "batch size", f"{begin['batch_size']:,}"


def _speed(view: RunView) -> list[tuple[str, str]]:
    """Of all epochs together; of the one that goes on where none has ended."""
    timed = [record for record in view.records if record.get("seconds") and record.get("samples")]
    if timed:
        seconds = sum(record["seconds"] for record in timed)
        rate = sum(record["samples"] for record in timed) / seconds
        waited = sum(record["seconds"] * (record.get("data_wait") or 0.0) for record in timed) / seconds
        return [("speed", f"{rate:,.0f} samples/s, {waited:.0%} waiting for data")]
    now = view.rate()
    return [] if now is None else [("speed", f"{now:,.0f} samples/s")]


def _results(view: RunView) -> Iterable[tuple[str, str]]:
    if not view.records:
        yield from ((name, figure(value)) for name, value in view.latest().items())
    for name in columns(view.records):
        seen = [(record["epoch"], record[name]) for record in view.records if name in measures(record)]
        if not seen:
            continue
        last, way = seen[-1][1], better_way(name, view.begin.get("directions", {}))
        epoch, best = (0, last) if way is None else best_of(seen, 0.0, way)
        more = "" if best == last else f"  (best {figure(best)} in epoch {epoch})"
        yield name, f"{figure(last)}{more}"


def _places(view: RunView, end: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    if view.begin.get("resumed_from"):
        yield "resumed from", str(view.begin["resumed_from"])
    if view.begin.get("run"):
        yield "run", str(view.begin["run"])
    if view.checkpoint is not None:
        yield "checkpoint", str(view.checkpoint.get("path") or view.checkpoint.get("name"))
    yield from end.get("places", {}).items()


def _epoch_name(view: RunView, number: int) -> str:
    epochs = view.begin.get("epochs")
    return f"Epoch {number}" if epochs is None else f"Epoch {number:{len(str(epochs))}}/{epochs}"


def _share(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def _length(parts: Sequence[Part]) -> int:
    return sum(len(part.text) for part in parts) + len(_GAP) * max(len(parts) - 1, 0)


def _joined(parts: Sequence[Part], coloured: bool) -> str:
    return _GAP.join(_styled(part, coloured) for part in parts)


def _styled(part: Part, coloured: bool) -> str:
    return f"\x1b[{part.style}m{part.text}\x1b[0m" if coloured and part.style and part.text else part.text
