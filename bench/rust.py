"""How fast a program in Rust trains LeNet on Fashion-MNIST, beside PyTorch DDP and itself without sync.

program: from a cold start to the end, 5 epochs on 2 workers, everything included; ours also measures 10,000
test rows after each epoch. scaling: rows a second of N workers in step, and of N processes at once that know
nothing of each other: what the machine can do. 64 rows a step and worker, one thread each. Contenders take
turns; a figure is the median over rounds, without the first epoch of a run in `scaling`.
"""

import argparse
import re
import statistics
from pathlib import Path

from harness import Sample, example, has_fashion_mnist, machine, parse
from turns import Contender, interleaved, script, torchrun

DATA = "/usr/share/datasets/fashion-mnist"
BATCH = 64
PROGRAM_ASKED = 3.0
SCALING_ASKED = {2: 0.9, 16: 0.85}


def ours(options: argparse.Namespace, program: Path, workers: int, epochs: int) -> tuple[str, ...]:
    words = (program, "--data", options.data, "--epochs", epochs, "--workers", workers, "--threads", 1)
    return tuple(str(word) for word in (*words, "--rows", options.rows, "--batch-size", BATCH * workers))


def programs(options: argparse.Namespace, program: Path) -> None:
    work = ("--data", options.data, "--rows", str(options.rows), "--procs", "2", "--epochs", "5")
    found = interleaved(
        [
            Contender("grampus", ours(options, program, 2, 5), ours=True),
            Contender("PyTorch DDP", torchrun(2, "train_rank.py", "ddp", *work), "torch"),
        ],
        options.rounds,
        lambda sample, _: sample,
        limit=600,
    )
    print(f"whole program, 5 epochs on 2 workers (rounds {options.rounds}); median s, CPU s, it ÷ grampus")
    mine = statistics.median(sample.wall for sample in found["grampus"])
    for name, samples in found.items():
        wall = statistics.median(sample.wall for sample in samples)
        cpu = statistics.median(sample.cpu for sample in samples)
        print(
            f"  {name:<14} {wall:8.2f} {cpu:8.2f}  {_verdict(wall / mine, PROGRAM_ASKED, name != 'grampus')}"
        )


def scaling(options: argparse.Namespace, program: Path) -> None:
    work = (program, options.data, options.procs, options.rows, BATCH, 3)
    apart = script("apart.py", *(str(word) for word in work))
    found = interleaved(
        [
            Contender("in step", ours(options, program, options.procs, 3), ours=True),
            Contender("apart", apart, ours=True),
        ],
        options.rounds,
        rate,
        limit=600,
    )
    print(f"rows a second of {options.procs} workers (rounds {options.rounds}), in step ÷ apart")
    medians = {name: statistics.median(rates) for name, rates in found.items()}
    for name, value in medians.items():
        print(f"  {name:<14} {value:10,.0f}")
    ratio = medians["in step"] / medians["apart"]
    print(f"  {_verdict(ratio, SCALING_ASKED.get(options.procs), True)}")


def rate(_: Sample, printed: str) -> float:
    """Rows a second without the first epoch, in which much happens once."""
    told = [float(found) for found in re.findall(r"(\d+) rows/s", printed)]
    if not told:
        raise ValueError(f"no rates in {printed!r}")
    return statistics.mean(told[1:] or told)


def _verdict(ratio: float, asked: float | None, judged: bool) -> str:
    if not judged:
        return ""
    if asked is None:
        return f"{ratio:.2f}"
    return f"{ratio:.2f}  ≥ {asked} {'met' if ratio >= asked else 'missed'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=("program", "scaling"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--procs", type=int, default=2, help="workers of `scaling`")
    parser.add_argument("--rows", type=int, default=60_000, help="rows of an epoch (60,000)")
    parser.add_argument("--data", default=DATA)
    options = parse(parser, rounds=1, rows=2 * BATCH)
    if not has_fashion_mnist(options.data):
        return
    program = example("grampus", "fashion_mnist")
    print(machine())
    if options.only != "scaling":
        programs(options, program)
    if options.only != "program":
        scaling(options, program)


if __name__ == "__main__":
    main()
