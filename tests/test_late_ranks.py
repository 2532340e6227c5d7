"""A rank that is late in user code: all wait for it, and where a deadline was set, no longer than that.

Two hosts in network namespaces, with one or two ranks each. Programs (`scripts/late.py`) run side by side
and mostly sleep; each test looks at what one of them wrote about one size.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from clusters import no_cluster
from namespaces import make_hosts, remove_hosts

runtime = no_cluster()

SCRIPT = str(Path(__file__).parent / "scripts" / "late.py")
GRAMPUS = str(Path(sys.executable).with_name("grampus"))
# A group gives up a process that shows no sign of life for so long; a late rank shows one.
SILENCE = 15.0
# What one call may take beside the waiting, and what starting may, on a busy machine.
SLACK, START = 30.0, 240.0
CALLS = ("fit", "run", "ranks")


@dataclass(frozen=True)
class Program:
    """Calls of one kind, by as many ranks on each of two hosts: late without a deadline, and beyond one.

    A rank comes so long after the deadline that waiting for it would be seen.
    """

    call: str
    each: int
    sizes: tuple[int, ...]
    late: float
    deadline: float
    late_beyond: float

    def __str__(self):
        return f"{self.call}-{self.each}"

    def longest(self):
        """How long all its calls may take."""
        return START + len(self.sizes) * (self.late + self.late_beyond + 2 * SLACK)


@dataclass
class Runs:
    """Programs that run at the same time on the same hosts, and what they wrote."""

    hosts: list
    folder: Path
    started: dict[Program, list[subprocess.Popen]] = field(default_factory=dict)

    def start(self, program):
        place = self.place(program)
        place.mkdir()
        words = [sys.executable, SCRIPT, program.call, "--results", str(place / "results")]
        words += ["--sizes", ",".join(map(str, program.sizes))]
        words += ["--late", str(program.late), "--deadline", str(program.deadline)]
        words += ["--late-beyond", str(program.late_beyond)]
        driver, *others = self.hosts
        if program.call in ("fit", "run"):
            names = [host.name for host in others]
            words += ["--each", str(program.each), "--address", driver.address, "--hosts", *names]
            commands = [driver.command(*words)]
        else:
            endpoint = f"{others[0].address}:{29400 + 20 * len(self.started)}"
            commands = [
                host.command(
                    GRAMPUS, "run", "--nnodes", "2", "--node-rank", str(rank), "--rdzv-endpoint", endpoint,
                    "-n", str(program.each), "--start-timeout", str(START), *words,
                )
                for rank, host in enumerate(others)
            ]  # fmt: skip
        self.started[program] = [self._popen(place, number, words) for number, words in enumerate(commands)]

    def _popen(self, place, number, words):
        # The nodes of `grampus run` share a key, which lies in the home of the user.
        environment = {**os.environ, "HOME": str(self.folder), "XDG_CONFIG_HOME": str(self.folder / "config")}
        environment |= {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_CACHE_DIR": str(self.folder / "inductor")}
        with open(place / f"said-{number}", "w") as said:
            return subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=said, stderr=said, cwd=place, env=environment
            )

    def finish(self):
        """Wait for all; what does not end in time is ended, and missing in the results."""
        end = time.monotonic() + max(program.longest() for program in self.started)
        for process in self.processes():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, end - time.monotonic()))

    def end(self):
        for process in self.processes():
            process.kill()
            process.wait()

    def processes(self):
        return [process for processes in self.started.values() for process in processes]

    def place(self, program):
        return self.folder / str(program)

    def of(self, program, size, deadline):
        """What a program wrote about a size, with a deadline or without, and all that it said."""
        place = self.place(program)
        said = "\n".join(path.read_text() for path in sorted(place.glob("said-*")))
        results = place / "results"
        lines = results.read_text().splitlines() if results.exists() else []
        told = [
            line for line in map(json.loads, lines) if (line["size"], line["deadline"]) == (size, deadline)
        ]
        return told, said


def finished(programs, folder):
    """Run all of these programs beside each other."""
    hosts = make_hosts(3)
    runs = Runs(hosts, folder)
    try:
        for program in programs:
            runs.start(program)
        runs.finish()
    finally:
        runs.end()
        remove_hosts(hosts)
    return runs


def check_waited(runs, program, size):
    """All have the sum, and the right one; it took as long as the late rank did."""
    results, said = runs.of(program, size, None)
    writers = 1 if program.call in ("fit", "run") else 2 * program.each
    assert [line["error"] for line in results] == [None] * writers, f"{results}\n{said}"
    assert max(line["seconds"] for line in results) >= program.late, results


def check_ended(runs, program, size):
    """Those who wait are told of the late rank at the deadline: not before, and not because it has come."""
    results, said = runs.of(program, size, program.deadline)
    last = 2 * program.each - 1
    waiting = [line for line in results if line["rank"] != last]
    assert len(waiting) == (1 if program.call in ("fit", "run") else last), f"{results}\n{said}"
    for line in waiting:
        error = line["error"] or "none"
        assert f"rank {last} on " in error, f"{line}\n{said}"
        why = (
            "StepTimeout: no step was finished for"
            if program.call == "fit"
            else "did not make the call in time"
        )
        assert why in error, error
        assert line["seconds"] >= program.deadline, line


CHECKS = {"no deadline": check_waited, "deadline": check_ended}
SHORT = [
    Program(call, 2, (20_000_000,), late=SILENCE + 3, deadline=SILENCE + 2, late_beyond=SILENCE + 14)
    for call in CALLS
]


@pytest.fixture(scope="module")
def short(runtime, tmp_path_factory):
    return finished(SHORT, tmp_path_factory.mktemp("short"))


@pytest.mark.timeout(max(map(Program.longest, SHORT)) + SLACK)
@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
@pytest.mark.parametrize("program", SHORT, ids=str)
def test_a_rank_that_is_late_for_longer_than_silence_is_waited_for(short, program, check):
    check(short, program, *program.sizes)


SIZES = (20_000, 8_000_000, 64_000_000)
FULL = [
    Program(call, each, SIZES, late=60.0, deadline=20.0, late_beyond=60.0)
    for call in CALLS
    for each in (1, 2)
]
# Its ranks meet once: what comes after a call that failed is not to be had.
TORCH = Program("torch", 2, (8_000_000,), late=60.0, deadline=20.0, late_beyond=60.0)


@pytest.fixture(scope="module")
def full(runtime, tmp_path_factory):
    return finished([*FULL, TORCH], tmp_path_factory.mktemp("full"))


@pytest.mark.slow
@pytest.mark.timeout(max(map(Program.longest, FULL)) + SLACK)
@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
@pytest.mark.parametrize(
    ("program", "size"),
    [(program, size) for program in (*FULL, TORCH) for size in program.sizes],
    ids=lambda value: f"{value}",
)
def test_a_rank_that_is_late_for_a_minute_is_waited_for(full, program, size, check):
    check(full, program, size)
