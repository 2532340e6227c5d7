"""How fast Grampus starts, beside torchrun, Ray and multiprocessing.

All contenders run in one go, in turns, after one round that is not counted; a figure is the median of its
rounds. A contender is a whole fresh process, timed from outside. CPU seconds are those of its whole tree of
processes. `make bench` runs this file in an environment that has all of them; what is not installed is left
out, aloud.
"""

import argparse
import functools
import os
import shutil
import statistics
import sys
from collections.abc import Callable

from harness import Failed, Sample, example, is_smoke, leave_out, machine, parse, run, save, version
from turns import Contender, figures_in, interleaved, middle, script, torchrun

WORKERS = 2


NOOP = (
    Contender("grampus", script("noop_grampus.py"), "grampus"),
    Contender("torchrun --nproc-per-node 2", torchrun(WORKERS, "noop_rank.py"), "torch", 0.2),
    Contender("ray, two actors", script("noop_ray.py"), "ray", 0.06),
    Contender("multiprocessing spawn, pool of 2", script("noop_pool.py")),
    Contender("python -c pass, the floor", (sys.executable, "-c", "pass")),
    Contender("python -c 'import grampus'", (sys.executable, "-c", "import grampus"), "grampus"),
)
TORCH = (
    Contender('grampus, preload=["torch"]', script("torch_grampus.py", "preload"), "grampus"),
    Contender("grampus, no preload", script("torch_grampus.py"), "grampus"),
    Contender("torchrun --nproc-per-node 2", torchrun(WORKERS, "torch_rank.py"), "torch", 0.6),
)


def cost(sample: Sample, _: str) -> Sample:
    return sample


def row(name: str, samples: list[Sample], ratio: float | None = None, asked: str = "") -> None:
    walls = [sample.wall for sample in samples]
    figures = (
        f"{middle(samples).wall:9.3f}  {min(walls):7.3f} … {max(walls):7.3f}  {middle(samples).cpu:7.2f}"
    )
    print(f"  {name:34}{figures}  {'' if ratio is None else f'{ratio:8.3f}':>8}   {asked}")


def heading(title: str, ratio: str) -> None:
    print(f"\n{title}")
    print(f"  {'':34}{'median s':>9}  {'min … max':>17}  {'CPU s':>7}  {ratio:>8}   asked")


def processes(title: str, contenders: tuple[Contender, ...], rounds: int) -> dict:
    """Time whole processes; the first contender is the one that the others are compared with."""
    print(f"\n{title}: running")
    samples = interleaved(contenders, rounds, cost)
    heading(title, "grampus÷")
    ours = samples.get(contenders[0].name)
    for contender in contenders:
        if theirs := samples.get(contender.name):
            ratio = middle(ours).wall / middle(theirs).wall if ours and theirs is not ours else None
            asked = f"at most {contender.ratio_asked}" if contender.ratio_asked else ""
            row(contender.name, theirs, ratio, asked)
    return samples


def phases(rounds: int) -> dict:
    """Where the time of the first row goes, seen from inside the process."""
    title = "phases of starting 2 workers, a no-op, and the end"
    print(f"\n{title}")
    runs = [taken for _ in range(rounds) if (taken := figures_of(script("phases.py")))]
    results = {name: [taken[name] for taken in runs] for name in (runs[0] if runs else {})}
    for name, seconds in results.items():
        milliseconds = [1000 * second for second in seconds]
        spread = f"{min(milliseconds):7.1f} … {max(milliseconds):7.1f}"
        print(f"  {name:34}{statistics.median(milliseconds):9.1f}  {spread}  ms")
    return results


def figures_of(command: tuple[str, ...]) -> dict | None:
    """Run a script that measures inside and prints JSON."""
    try:
        if not version("grampus"):
            raise Failed("grampus is not installed")
        return figures_in(run(command, limit=600)[1])
    except Failed as failure:
        print("  " + leave_out("grampus", failure))
        return None


def warm_rate(rounds: int) -> dict:
    """Calls a second on workers that are already there."""
    title = "warm no-op calls on 2 workers, in turns of 0.5 s"
    print(f"\n{title}")
    results = figures_of(script("warm_rate.py", str(rounds if is_smoke() else max(rounds, 5)))) or {}
    if results:
        print(f"  {'':34}{'calls/s':>9}  {'min … max':>17}  {'CPU s/s':>7}")
    for name, samples in results.items():
        rates = [rate for rate, _ in samples]
        cpu = statistics.median(cpu for _, cpu in samples)
        asked = "   asked: at least 2000" if name.startswith("gp.run") else ""
        spread = f"{min(rates):7.0f} … {max(rates):7.0f}"
        print(f"  {name:34}{statistics.median(rates):9.0f}  {spread}  {cpu:7.2f}{asked}")
    return results


def big_array(rounds: int, mebibytes: int) -> dict:
    """A large argument against one copy of it."""
    title = f"float array of {mebibytes} MiB to 2 workers"
    print(f"\n{title}: running")
    if not version("numpy"):
        print("  left out, numpy is not installed")
        return {}
    if machine()["available_mib"] < 4 * mebibytes:
        print(f"  left out, fewer than {4 * mebibytes} MiB of memory are free; choose less with --array-mib")
        return {}
    results = figures_of(script("big_array.py", str(rounds), str(mebibytes))) or {}
    samples = {name: [Sample(*pair) for pair in pairs] for name, pairs in results.items()}
    if samples:
        heading(title, "÷ copy")
        copy = middle(next(iter(samples.values()))).wall
        for name, taken in samples.items():
            ours = name.startswith("gp.run")
            row(name, taken, middle(taken).wall / copy if ours else None, "at most 2.5" if ours else "")
    return samples


def coordinator(rounds: int) -> dict:
    """The coordinator alone, with simulated workers, on one core."""
    title = "simulated coordinator: 1,000 workers join, 10 % die, on one core"
    print(f"\n{title}: running")
    if not shutil.which("cargo"):
        print("  left out, cargo is not installed")
        return {}
    program = str(example("grampus-chaos", "thousand"))
    core = str(min(os.sched_getaffinity(0)))
    samples = interleaved(
        [Contender("whole process", ("taskset", "--cpu-list", core, program), ours=True)], rounds, cost
    )
    for name, taken in samples.items():
        heading(title, "")
        row(name, taken, None, "under 2 s")
        print(f"  it says: {run((program,))[1].strip().splitlines()[-1]}")
    return samples


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="counted rounds (7)")
    parser.add_argument("--array-mib", type=int, default=1024, help="size of the array in MiB (1024)")
    parser.add_argument("--save", action="store_true", help="append a line to bench/results/startup.jsonl")
    sections: dict[str, Callable[[int], dict]] = {
        "noop": functools.partial(processes, "start 2 workers, no-op, stop", NOOP),
        "phases": phases,
        "torch": functools.partial(processes, "the same, every worker imports torch", TORCH),
        "rate": warm_rate,
        "array": lambda rounds: big_array(rounds, options.array_mib),
        "coordinator": coordinator,
    }
    parser.add_argument("--only", nargs="+", choices=sections, metavar="SECTION", help=", ".join(sections))
    options = parse(parser, rounds=1, array_mib=1)
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    facts = machine()
    print(f"{facts['cpu']}, {facts['cores']} cores, load {facts['load']}, Python {facts['python']}")
    results = {
        name: section(options.rounds)
        for name, section in sections.items()
        if name in (options.only or sections)
    }
    if options.save:
        save("startup", ("grampus", "torch", "ray", "numpy"), results=results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
