"""How much work gets done while workers are killed, beside torchrun with checkpoints and restarts.

Both train LeNet on Fashion-MNIST on the same number of workers. From the first step on, one worker that is
drawn from a seed is killed (SIGKILL) every so many seconds, for as long as the window lasts; rows that are
trained count once, however often they are computed. Goodput is that rate as a share of the contender's own
without kills.
"""

import argparse
import contextlib
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from harness import has_fashion_mnist, parse, version
from ranks import show_machine
from train import DATA, workload
from turns import Contender, script, taking_part, torchrun

sys.path.insert(0, str(Path(__file__).resolve().parent / "contenders"))
from victims import has_signed_in, trained

# Seconds between two kills; none in the first row, which the others are shares of.
INTERVALS = (None, 60, 15, 5)
START_WITHIN = 60.0
RESTARTS = 1_000
# More than any window has time for.
EPOCHS = 10_000

# Of each round, by contender and seconds between two kills.
Rates = dict[tuple[str, float | None], list[float]]


def contenders(options: argparse.Namespace, folder: str) -> list[Contender]:
    work = (folder, *workload(options, options.procs, EPOCHS))
    program, *arguments = torchrun(options.procs, "goodput_rank.py", *work)
    return [
        Contender("grampus", script("goodput_grampus.py", *work), "grampus"),
        Contender("torchrun", (program, "--max-restarts", str(RESTARTS), *arguments), "torch"),
    ]


def check_runs(name: str, process: subprocess.Popen, folder: Path) -> None:
    if process.poll() is not None:
        words = (folder / "output").read_text().strip().splitlines()[-1:]
        raise RuntimeError(f"{name} ended: {words}")


def wait_for_start(name: str, process: subprocess.Popen, folder: Path) -> None:
    end = time.monotonic() + START_WITHIN
    while trained(folder) == 0:
        check_runs(name, process, folder)
        if time.monotonic() > end:
            raise TimeoutError(f"{name} trained nothing within {START_WITHIN:.0f} s")
        time.sleep(0.05)


def kill_one(folder: Path, draw: random.Random) -> bool:
    """Kill one of those that have signed in and live."""
    pids = sorted(int(path.name) for path in (folder / "pids").iterdir())
    alive = [pid for pid in pids if has_signed_in(folder, pid)]
    if not alive:
        return False
    chosen = draw.choice(alive)
    try:
        process = os.pidfd_open(chosen)
    except ProcessLookupError:
        return False
    try:
        # Looked at again, now that the number cannot become that of another process.
        if has_signed_in(folder, chosen):
            signal.pidfd_send_signal(process, signal.SIGKILL)
            return True
        return False
    finally:
        os.close(process)


def rate(contender: Contender, folder: Path, interval: float | None, options: argparse.Namespace) -> float:
    """Rows a second over the window, with a kill every `interval` seconds."""
    draw = random.Random(options.seed)
    (folder / "pids").mkdir()
    with open(folder / "output", "w", encoding="utf-8") as output:
        process = subprocess.Popen(
            contender.command, cwd=folder, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        wait_for_start(contender.name, process, folder)
        time.sleep(options.warm)
        before, began = trained(folder), time.monotonic()
        due = interval / 2 if interval else options.seconds + 1
        while (passed := time.monotonic() - began) < options.seconds:
            if passed >= due and kill_one(folder, draw):
                due += interval
            check_runs(contender.name, process, folder)
            time.sleep(0.05)
        return (trained(folder) - before) / (time.monotonic() - began)
    finally:
        # Whoever has ended by itself is told of as an error.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def rates_of(options: argparse.Namespace) -> Rates:
    rates: Rates = {}
    for _ in range(options.rounds):
        for interval in options.intervals:
            for name in [one.name for one in taking_part(contenders(options, ""))]:
                with tempfile.TemporaryDirectory() as folder:
                    chosen = next(one for one in contenders(options, folder) if one.name == name)
                    found = rate(chosen, Path(folder), interval, options)
                rates.setdefault((name, interval), []).append(found)
    return rates


def show(rates: Rates, intervals: Sequence[float | None]) -> None:
    names = list(dict.fromkeys(name for name, _ in rates))
    ratio = "  grampus ÷ torchrun" if len(names) > 1 else ""
    print(f"  {'a kill every':14}" + "".join(f"{name:>20}" for name in names) + ratio)
    for interval in intervals:
        middles = {name: statistics.median(rates[name, interval]) for name in names}
        shares = {name: middles[name] / statistics.median(rates[name, None]) for name in names}
        cells = "".join(f"{middles[name]:10,.0f}/s {shares[name]:6.0%}  " for name in names)
        words = "no kill" if interval is None else f"{interval} s"
        ratio = f"{middles['grampus'] / middles['torchrun']:8.2f}" if len(names) > 1 else ""
        print(f"  {words:14}{cells}{ratio}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--procs", type=int, default=2, help="workers (2)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds (3)")
    parser.add_argument("--seconds", type=float, default=60, help="length of a window (60)")
    parser.add_argument(
        "--warm", type=float, default=2, help="seconds that are not counted after the first step (2)"
    )
    parser.add_argument("--rows", type=int, default=60_000, help="rows of an epoch (60,000)")
    parser.add_argument("--seed", type=int, default=1, help="of who is killed (1)")
    parser.add_argument("--data", default=DATA, metavar="DIR", help=f"Fashion-MNIST's files ({DATA})")
    parser.set_defaults(intervals=INTERVALS)
    options = parse(parser, rounds=1, seconds=3, warm=0, rows=1_024, intervals=(None, 1))
    options.data = str(Path(options.data).absolute())
    if not has_fashion_mnist(options.data):
        return 0
    show_machine()
    versions = ", ".join(f"{name} {version(name)}" for name in ("grampus", "torch"))
    print(f"{versions}; windows of {options.seconds:g} s, seed {options.seed}")
    show(rates_of(options), options.intervals)
    return 0


if __name__ == "__main__":
    sys.exit(main())
