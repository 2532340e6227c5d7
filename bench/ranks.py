"""Groups of processes that take orders: one group a contender, all there at once, one at work at a time.

A group that has nothing to do blocks in a read on a socket of ours, not inside its own library, where it
might spin. So contenders can take turns without being started again for every turn.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, TypeVar

from harness import Failed, leave_out, machine, version

Result = TypeVar("Result")

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
START_LIMIT = 60.0
END_LIMIT = 10.0
# A rank that uses more of a core than this while it waits is named: it slows whoever is measured.
IDLE_SHARE = 0.05


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def need(*distributions: str) -> None:
    """Fail where one of these is not installed."""
    for distribution in distributions:
        if not version(distribution):
            raise Failed(f"{distribution} is not installed")


def rank_environments(procs: int, address: str, **more: str) -> list[dict[str, str]]:
    """Return torchrun's variables for each rank."""
    port = str(free_port())
    shared = {"WORLD_SIZE": str(procs), "MASTER_ADDR": address, "MASTER_PORT": port, **ONE_THREAD, **more}
    return [{"RANK": str(rank), "LOCAL_RANK": str(rank), **shared} for rank in range(procs)]


def show_machine() -> None:
    """Print where and when, and say so where others use the machine too."""
    facts = machine()
    print(f"{facts['cpu']}, {facts['cores']} cores, load {facts['load']}, {facts['when']}")
    if facts["load"] > 0.5 * facts["cores"]:
        print("others use this machine: take these figures again when it is quiet")


def rounds_of(starts: int, rounds: int) -> list[int]:
    """Return how many rounds each start gets, none of them zero."""
    starts = min(starts, rounds)
    return [rounds // starts + (number < rounds % starts) for number in range(starts)]


def show_progress(words: str) -> None:
    """Show where it stands, or, without words, nothing again."""
    if sys.stderr.isatty():
        print(f"\r\033[K{words}", end="", file=sys.stderr, flush=True)


class Gone(Failed):
    """A rank has closed its connection without a word."""


class Rank:
    """One process at the other end of a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.file: IO[str] = connection.makefile("rw", encoding="utf-8")

    def order(self, order: Mapping[str, object]) -> None:
        self.file.write(json.dumps(order) + "\n")
        self.file.flush()

    def answer(self, limit: float) -> dict:
        self.socket.settimeout(limit)
        try:
            line = self.file.readline()
        except TimeoutError:
            raise Failed(f"no answer within {limit:.0f} s") from None
        except OSError:
            raise Gone from None
        if not line:
            raise Gone
        answer = json.loads(line)
        if "error" in answer:
            raise Failed(answer["error"].splitlines()[-1])
        return answer

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.file.close()
        self.socket.close()


class Group:
    """The ranks of one contender, in order, and the processes that started them."""

    def __init__(
        self,
        size: int,
        commands: Sequence[Sequence[str]],
        environments: Sequence[Mapping[str, str]],
    ) -> None:
        self.size = size
        self.ranks: list[Rank] = []
        self.facts: dict = {}
        self.idle_cpu = self.idle_wall = 0.0
        self.folder = tempfile.mkdtemp(prefix="bench-")
        self.output = Path(self.folder, "output")
        self.output.touch()
        self.processes: list[subprocess.Popen] = []
        path = f"{self.folder}/orders"
        try:
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(path)
                listener.listen(size)
                for command, environment in zip(commands, environments, strict=True):
                    self._start(command, {**os.environ, **environment, "BENCH_SOCKET": path})
                self._accept(listener, START_LIMIT + 5 * size)
        except BaseException:
            self.stop()
            raise

    def _start(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        with open(self.output, "a") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        self.processes.append(process)

    def _accept(self, listener: socket.socket, limit: float) -> None:
        """Wait until every rank has said which it is, or one process has ended."""
        deadline, arrived = time.monotonic() + limit, {}
        listener.settimeout(0.1)
        while len(arrived) < self.size:
            try:
                rank = Rank(listener.accept()[0])
            except TimeoutError:
                if ended := [one for one in self.processes if one.poll() is not None]:
                    raise Failed(self.reason() or f"exit status {ended[0].returncode}") from None
                if time.monotonic() > deadline:
                    raise Failed(
                        f"{len(arrived)} of {self.size} ranks are there after {limit:.0f} s"
                    ) from None
                continue
            # At once in the list, so that it is closed whatever happens next.
            self.ranks.append(rank)
            self.facts = self._answer(rank, max(deadline - time.monotonic(), 1.0))
            arrived[self.facts["rank"]] = rank
        self.ranks = [arrived[number] for number in range(self.size)]

    def _answer(self, rank: Rank, limit: float) -> dict:
        try:
            return rank.answer(limit)
        except Gone:
            # Whoever started it may need a moment to say why.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.processes[0].wait(2.0)
            raise Failed(f"a rank is gone: {self.reason() or 'it said nothing'}") from None

    def reason(self) -> str:
        """Return the last line of output that says something."""
        lines = [line.strip() for line in self.output.read_text(errors="replace").splitlines()]
        return next((line for line in reversed(lines) if any(mark.isalnum() for mark in line)), "")

    def ask(self, limit: float = 120.0, **order: object) -> list[dict]:
        """Give all ranks the same order, and return their answers, by rank."""
        for rank in self.ranks:
            with contextlib.suppress(OSError):
                rank.order(order)
        answers = self._answers(limit)
        self.idle_cpu += sum(answer["idle_cpu"] for answer in answers)
        self.idle_wall += sum(answer["idle_wall"] for answer in answers)
        return answers

    def _answers(self, limit: float) -> list[dict]:
        """Take answers as they come: the first rank that fails is the one to name, not the first in order."""
        deadline, answers = time.monotonic() + limit, {}
        with selectors.DefaultSelector() as selector:
            for number, rank in enumerate(self.ranks):
                selector.register(rank.socket, selectors.EVENT_READ, number)
            while len(answers) < len(self.ranks):
                left = deadline - time.monotonic()
                ready = selector.select(left) if left > 0 else []
                if not ready:
                    raise Failed(f"{len(answers)} of {self.size} ranks have answered after {limit:.0f} s")
                for key, _ in ready:
                    answers[key.data] = self._answer(self.ranks[key.data], max(left, 1.0))
                    selector.unregister(key.fileobj)
        return [answers[number] for number in range(len(self.ranks))]

    def spins(self) -> str | None:
        """Say how busy the ranks were while they had nothing to do, where that is worth a word."""
        share = self.idle_cpu / self.idle_wall if self.idle_wall else 0.0
        return f"its idle ranks used {share:.0%} of a core each" if share > IDLE_SHARE else None

    def stop(self) -> None:
        """End all of it: ranks end when their orders do, and the rest is ended here."""
        for rank in self.ranks:
            rank.close()
        # Those that never came so far as to take orders get no time to end by themselves.
        deadline = time.monotonic() + (END_LIMIT if len(self.ranks) == self.size else 0.5)
        for word in (None, signal.SIGTERM, signal.SIGKILL):
            for process in self.processes:
                if word and process.poll() is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, word)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(deadline - time.monotonic(), 0.0))
            deadline = time.monotonic() + 2.0
        shutil.rmtree(self.folder, ignore_errors=True)


class Contest:
    """All groups of one benchmark; whoever fails is named and does not take part in the rest.

    Used with `with` once for every start of the groups: what chance gives a process when it starts, such as
    the pages of its memory and the cores of its threads, stays with it, and would pass for its own merit.
    """

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.versions: dict[str, str] = {}
        self.out: set[str] = set()
        self.notes: list[str] = []

    def enter(self, name: str, start: Callable[[], Group]) -> None:
        if name in self.out:
            return
        try:
            self.groups[name] = start()
        except Failed as failure:
            self.drop(name, failure)
        else:
            self.versions.update(self.groups[name].facts["versions"])

    def drop(self, name: str, failure: Failed) -> None:
        self.out.add(name)
        self.note(leave_out(name, failure))
        if group := self.groups.pop(name, None):
            group.stop()

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def in_turn(self, first: int) -> list[str]:
        """Return who is still there, from another one on each time: nobody is always first."""
        names = list(self.groups)
        first %= max(len(names), 1)
        return names[first:] + names[:first]

    def attempt(self, name: str, action: Callable[[Group], Result]) -> Result | None:
        try:
            return action(self.groups[name])
        except Failed as failure:
            self.drop(name, failure)
            return None

    def show_versions(self) -> None:
        """Print what the ranks themselves said they run."""
        texts = (f"{name} {text}".replace("mpi Open", "Open") for name, text in self.versions.items())
        print(", ".join(texts))

    def show_notes(self) -> None:
        if self.notes:
            print()
        for note in self.notes:
            print(
                textwrap.fill(note, 98, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)
            )

    def __enter__(self) -> Contest:
        return self

    def __exit__(self, *_: object) -> None:
        for name, group in self.groups.items():
            if words := group.spins():
                self.note(f"{name}: {words}, which slowed the others")
            group.stop()
        self.groups = {}
