"""Contenders that are whole fresh processes and take turns."""

import json
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from harness import Failed, Sample, is_smoke, leave_out, run, version

CONTENDERS = Path(__file__).resolve().parent / "contenders"

Figure = TypeVar("Figure")


@dataclass(frozen=True)
class Contender:
    """One row: what is run, which distribution it needs, and the ratio that is asked of Grampus.

    Ours, which takes part in a smoke run, is what needs Grampus, or is said to be.
    """

    name: str
    command: tuple[str, ...]
    needs: str | None = None
    ratio_asked: float | None = None
    ours: bool = False

    @property
    def is_ours(self) -> bool:
        return self.ours or self.needs == "grampus"


def script(name: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, str(CONTENDERS / name), *arguments)


def torchrun(procs: int, name: str, *arguments: str) -> tuple[str, ...]:
    program = str(Path(sys.executable).with_name("torchrun"))
    return (program, "--nproc-per-node", str(procs), str(CONTENDERS / name), *arguments)


def taking_part(contenders: Sequence[Contender]) -> list[Contender]:
    """Return those that are installed; in a smoke run those that are ours."""
    kept = []
    for contender in contenders:
        if is_smoke() and not contender.is_ours:
            continue
        if contender.needs and not version(contender.needs):
            print("  " + leave_out(contender.name, Failed(f"{contender.needs} is not installed")))
        else:
            kept.append(contender)
    return kept


def interleaved(
    contenders: Sequence[Contender],
    rounds: int,
    figure: Callable[[Sample, str], Figure],
    *,
    limit: float = 120.0,
    uncounted: int = 1,
) -> dict[str, list[Figure]]:
    """Run all that are installed in turns, after one round that is not counted.

    A figure is made of a run's cost and of what it printed. Who fails is named and left out of the rest.
    """
    contenders = taking_part(contenders)
    uncounted = 0 if is_smoke() else uncounted
    figures: dict[str, list[Figure]] = {contender.name: [] for contender in contenders}
    for number in range(uncounted + rounds):
        for contender in [one for one in contenders if one.name in figures]:
            try:
                made = figure(*run(contender.command, limit))
            except Failed as failure:
                print("  " + leave_out(contender.name, failure))
                del figures[contender.name]
                continue
            if number >= uncounted:
                figures[contender.name].append(made)
    return figures


def middle(samples: Sequence[Sample]) -> Sample:
    return Sample(*(statistics.median(values) for values in zip(*samples, strict=True)))


def figures_in(output: str) -> dict:
    """Return the last line that is JSON: libraries may have a word to say after it."""
    lines = [line for line in output.splitlines() if line.startswith("{")]
    if not lines:
        raise Failed("printed no figures")
    return json.loads(lines[-1])
