"""What synchronizing costs a small model: LeNet-5 under DDP with Gloo and with Grampus, and without any.

Everyone trains the same model from the same seed on the same rows, 64 a step and process, with one thread a
process. `alone` is as many processes at once that know nothing of each other: what the machine can do, 100 %.
Contenders take turns, in another order each round, after one round that is not counted, and all are started
anew some times; a figure is the median over rounds. Gloo and Grampus must come to the same losses.
"""

import argparse
import statistics
import sys
from pathlib import Path

from harness import HERE, parse, save
from ranks import Contest, Group, need, rank_environments, rounds_of, show_machine, show_progress

NAMES = ("alone", "gloo", "grampus")
# What is asked of Grampus, by processes: against `alone`, and against Gloo.
ASKED = {2: {"alone": 0.9, "gloo": 1.5}, 16: {"alone": 0.85, "gloo": 2.5}}
# The sum of two numbers has no order; of more, the last bit depends on it, and training carries it on.
TOLERANCE = 1e-3

Rounds = dict[str, list[float]]


def start(kind: str, procs: int, data: str | None) -> Group:
    need("torch", *(["grampus"] if kind == "grampus" else []))
    command = [sys.executable, str(HERE / "contenders" / "lenet_rank.py"), kind, *([data] if data else [])]
    environments = rank_environments(procs, "127.0.0.1", GLOO_SOCKET_IFNAME="lo")
    return Group(procs, [command] * procs, environments)


def trained(contest: Contest, options: argparse.Namespace) -> tuple[Rounds, dict[str, list[float]]]:
    """Start everybody some times; return rows a second of all ranks together, and each rank's last loss."""
    rates: Rounds = {}
    losses: dict[str, list[float]] = {}
    plan = rounds_of(options.starts, options.rounds)
    for begun, rounds in enumerate(plan, 1):
        show_progress(f"  start {begun} of {len(plan)}")
        with contest:
            for name in [one for one in NAMES if one in (options.only or NAMES)]:
                contest.enter(name, lambda: start(name, options.procs, options.data))  # noqa: B023
            take_turns(contest, rates, losses, rounds, options.steps, begun)
    show_progress("")
    return rates, losses


def take_turns(
    contest: Contest, rates: Rounds, losses: dict[str, list[float]], rounds: int, steps: int, begun: int
) -> None:
    for number in range(rounds + 1):
        show_progress(f"  start {begun}, round {number} of {rounds}")
        for name in contest.in_turn(begun + number):
            answers = contest.attempt(name, lambda group: group.ask(do="train", steps=steps))
            if answers is None:
                losses.pop(name, None)
                continue
            losses[name] = [answer["loss"] for answer in answers]
            if number > 0:
                # Each rank by its own clock: nobody waits for the slowest but where its collectives do.
                rates.setdefault(name, []).append(
                    sum(answer["rows"] / answer["seconds"] for answer in answers)
                )


def verdict(value: float, asked: float | None) -> str:
    if asked is None:
        return f"{value:.2f}"
    return f"{value:.2f}  ≥ {asked:g} {'met' if value >= asked else 'missed'}"


def show(rates: Rounds, procs: int) -> None:
    asked = ASKED.get(procs, {})
    middles = {name: statistics.median(values) for name, values in rates.items() if values}
    print(f"  {'':10}{'samples/s':>10}  {'min … max':>19}  {'÷ alone':<20}{'÷ gloo':<20}".rstrip())
    for name in NAMES:
        if name not in middles:
            print(f"  {name:10}{'—':>10}")
            continue
        cells = (
            verdict(middles[name] / middles[other], asked.get(other) if name == "grampus" else None)
            if other in middles and other != name
            else ""
            for other in ("alone", "gloo")
        )
        spread = f"{min(rates[name]):8,.0f} … {max(rates[name]):8,.0f}"
        row = f"  {name:10}{middles[name]:10,.0f}  {spread}  " + "".join(f"{text:<20}" for text in cells)
        print(row.rstrip())


def compare_losses(losses: dict[str, list[float]], procs: int) -> bool:
    """Say whether both came to the same; False where they did not."""
    pair = [losses.get(name) for name in ("gloo", "grampus")]
    if not all(pair):
        print(f"\n  losses not compared: {' and '.join(NAMES[1:])} must both run")
        return True
    furthest = max(abs(one - other) / abs(one) for one, other in zip(*pair, strict=True))
    equal = furthest == 0.0 if procs == 2 else furthest <= TOLERANCE
    word = "equal to the last bit" if furthest == 0.0 else f"apart by at most {furthest:.1e} of the value"
    print(f"\n  last losses of gloo and grampus: {word}{'' if equal else ', which is WRONG'}")
    for name, values in zip(("gloo", "grampus"), pair, strict=True):
        shown = ", ".join(f"{value:.6f}" for value in values[:4])
        print(f"  {name:10}{shown}{', …' if len(values) > 4 else ''}")
    return equal


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--procs", type=int, default=2, help="processes (2)")
    parser.add_argument("--rounds", type=int, default=9, help="counted rounds, in all (9)")
    parser.add_argument("--starts", type=int, default=3, help="how often all processes are started (3)")
    parser.add_argument("--steps", type=int, default=100, help="steps a round (100)")
    parser.add_argument(
        "--data", metavar="FOLDER", help="MNIST's files train-*-ubyte, also as .gz; else made rows"
    )
    parser.add_argument("--save", action="store_true", help="append a line to bench/results/ddp_lenet.jsonl")
    parser.add_argument("--only", nargs="+", choices=NAMES, metavar="CONTENDER", help=", ".join(NAMES))
    options = parse(parser, rounds=1, starts=1, steps=2, only=["grampus"])
    if min(options.rounds, options.starts, options.steps) < 1 or options.procs < 2:
        parser.error("--rounds, --starts and --steps must be at least 1, --procs at least 2")
    if options.data and not list(Path(options.data).glob("train-images-idx3-ubyte*")):
        parser.error(f"{options.data} holds no train-images-idx3-ubyte")
    show_machine()
    contest = Contest()
    rates, losses = trained(contest, options)
    contest.show_versions()
    what = Path(options.data).name if options.data else "made rows"
    starts = len(rounds_of(options.starts, options.rounds))
    counts = f"{options.rounds} rounds in {starts} start{'s' * (starts > 1)}"
    print(f"\nLeNet-5 on {what}, {options.procs} processes, batch 64 each; median of {counts}")
    show(rates, options.procs)
    equal = compare_losses(losses, options.procs)
    contest.show_notes()
    if options.save:
        save("ddp_lenet", ("grampus", "torch"), procs=options.procs, results=rates, losses=losses)
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
