"""How fast Grampus trains, beside torchrun, Lightning, Ray Train and Spark's TorchDistributor.

Everyone trains LeNet on Fashion-MNIST: the same rows in memory, batches of 64 a worker, SGD with momentum,
one thread a worker. A contender is a whole fresh process; contenders take turns, after one round that is not
counted, and a figure is the median of its rounds. What is not installed is left out, aloud.

steady: rows a second after the first epoch, by the workers' own clocks; `alone` is as many processes at once
that train without synchronizing: what the machine can do. overhead: CPU seconds of `fit` on one worker
against the same loop by hand, in turns. safety: CPU seconds of `fit` on two workers with all that is kept for
the case that one is lost, and without. cold: one epoch from the start of a process to its end.

gpu, only if it is asked for: ResNet-18 in bfloat16 on the pictures of `--images`, by hand and by `fit` with
all rows on the GPU, and by `fit` from JPEG in Parquet with crops and flips, in turns in one process.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence

from data import make_pictures
from harness import Failed, Sample, has_fashion_mnist, leave_out, parse, run, save, version
from ranks import show_machine
from turns import Contender, figures_in, interleaved, middle, script, torchrun

DATA = "/usr/share/datasets/fashion-mnist"
COLD_WORKERS = 2
# The least that is asked of Grampus, as a share of `alone`, by workers.
STEADY_ASKED = {2: 0.9, 16: 0.85}
OVERHEAD_ASKED = 1.03
# On a GPU: as a share of the loop by hand, and JPEG as a share of rows that are on the GPU.
RESIDENT_ASKED, JPEG_ASKED = 0.98, 0.95
# Rows of a batch on a GPU: one with which the host that feeds it is the limit, and one with which it is not.
GPU_BATCHES = (512, 2048)
SAFETY_ASKED = 1.02
PACKAGES = ("grampus", "torch", "lightning", "ray", "pyspark")


def workload(options: argparse.Namespace, procs: int, epochs: int) -> tuple[str, ...]:
    figures = {"data": options.data, "rows": options.rows, "procs": procs, "epochs": epochs}
    return tuple(word for name, value in figures.items() for word in (f"--{name}", str(value)))


def steady_contenders(options: argparse.Namespace) -> list[Contender]:
    procs = options.procs
    work = workload(options, procs, options.epochs)
    return [
        Contender(
            "alone", torchrun(procs, "train_rank.py", "alone", *work), "torch", STEADY_ASKED.get(procs)
        ),
        Contender("grampus", script("train_grampus.py", *work), "grampus"),
        Contender("torchrun", torchrun(procs, "train_rank.py", "ddp", *work), "torch"),
        Contender("lightning", script("train_lightning.py", *work), "lightning"),
        Contender("ray train", script("train_ray.py", *work), "ray"),
    ]


def cold_contenders(options: argparse.Namespace) -> list[Contender]:
    work = workload(options, COLD_WORKERS, epochs=1)
    return [
        Contender("grampus", script("train_grampus.py", *work), "grampus"),
        Contender("torchrun", torchrun(COLD_WORKERS, "train_rank.py", "ddp", *work), "torch", 1.5),
        Contender("ray train", script("train_ray.py", *work), "ray", 4),
        Contender("torchdistributor", script("train_spark.py", *work), "pyspark", 4),
    ]


def verdict(ratio: float, least: float | None) -> str:
    if least is None:
        return f"{ratio:.2f}"
    return f"{ratio:.2f}  ≥ {least:g} {'met' if ratio >= least else 'missed'}"


def steady(options: argparse.Namespace) -> dict:
    contenders = steady_contenders(options)
    print(f"\nsteady state, {options.procs} workers: running")
    taken = interleaved(contenders, options.rounds, lambda _, output: figures_in(output))
    rates = {name: [one["samples_per_second"] for one in runs] for name, runs in taken.items()}
    middles = {name: statistics.median(values) for name, values in rates.items()}
    print(f"  {'':18}{'samples/s':>10}  {'min … max':>19}  {'loss':>6}  grampus ÷ it")
    for contender in contenders:
        name = contender.name
        if name not in middles:
            continue
        spread = f"{min(rates[name]):8,.0f} … {max(rates[name]):8,.0f}"
        ours = middles.get("grampus") if name != "grampus" else None
        ratio = verdict(ours / middles[name], contender.ratio_asked) if ours else ""
        loss = taken[name][-1]["loss"]
        print(f"  {name:18}{middles[name]:10,.0f}  {spread}  {loss:6.3f}  {ratio}".rstrip())
    return rates


def overhead(options: argparse.Namespace) -> dict:
    print("\noverhead on one worker, blocks of one epoch in turns: running")
    command = script("train_overhead.py", str(options.rounds), *workload(options, procs=1, epochs=1))
    return pairs(command, "grampus", "by hand", OVERHEAD_ASKED)


def safety(options: argparse.Namespace) -> dict:
    print("\nwhat is kept for the case of a loss, two workers, blocks of one epoch in turns: running")
    command = script("train_safety.py", str(options.rounds), *workload(options, procs=2, epochs=1))
    return pairs(command, "safe", "unsafe", SAFETY_ASKED)


def pairs(command: Sequence[str], ours: str, plain: str, asked: float) -> dict:
    """Compare the CPU seconds of two that take turns in one process."""
    try:
        seconds = figures_in(run(command, limit=600.0)[1])
    except Failed as failure:
        print("  " + leave_out(ours, failure))
        return {}
    for name, values in seconds.items():
        print(f"  {name:18}{statistics.median(values):10.2f}  {min(values):8.2f} … {max(values):8.2f}  CPU s")
    # Pair by pair: what slows the machine for a while slows both of a pair.
    both = zip(seconds[ours], seconds[plain], strict=True)
    ratio = statistics.median(one / other for one, other in both)
    met = "met" if ratio <= asked else "missed"
    print(f"  {f'{ours} ÷ {plain}':18}{ratio:10.3f}  ≤ {asked} {met}")
    return seconds


def cold(options: argparse.Namespace) -> dict[str, Sequence[Sample]]:
    contenders = cold_contenders(options)
    print(f"\none epoch on {COLD_WORKERS} workers from a cold start: running")
    samples = interleaved(contenders, options.rounds, lambda sample, _: sample)
    ours = samples.get("grampus")
    print(f"  {'':18}{'median s':>10}  {'min … max':>17}  {'CPU s':>7}  it ÷ grampus")
    for contender in contenders:
        if theirs := samples.get(contender.name):
            walls = [sample.wall for sample in theirs]
            spread = f"{min(walls):7.2f} … {max(walls):7.2f}"
            compared = ours if ours and theirs is not ours else None
            ratio = middle(theirs).wall / middle(compared).wall if compared else None
            words = verdict(ratio, contender.ratio_asked) if ratio else ""
            figures = f"{middle(theirs).wall:10.2f}  {spread}  {middle(theirs).cpu:7.2f}"
            print(f"  {contender.name:18}{figures}  {words}".rstrip())
    return samples


def gpu(options: argparse.Namespace) -> dict:
    if not options.smoke:
        return trained_on_gpu(options.images, GPU_BATCHES, "--rounds", str(options.rounds))
    with tempfile.TemporaryDirectory() as folder:
        make_pictures(folder, 16)
        least = ("--rounds", "1", "--epochs", "1", "--times", "1", "--width", "4", "--ours")
        return trained_on_gpu(folder, (8,), *least)


def trained_on_gpu(images: str, batches: Sequence[int], *flags: str) -> dict:
    results = {}
    for batch in batches:
        print(f"\nResNet-18 on a GPU, batches of {batch}: running")
        words = ("--images", images, "--batch", str(batch), *flags)
        try:
            found = figures_in(run(script("train_gpu.py", *words), limit=900.0)[1])
        except Failed as failure:
            print("  " + leave_out("grampus", failure))
            continue
        results[batch] = found
        rates = {name: [each[0] for each in runs] for name, runs in found.items()}
        print(f"  {'':20}{'rows/s':>10}  {'min … max':>19}  {'loss':>6}")
        for name, values in rates.items():
            spread = f"{min(values):8,.0f} … {max(values):8,.0f}"
            print(f"  {name:20}{statistics.median(values):10,.0f}  {spread}  {found[name][-1][1]:6.3f}")
        for words, ours, theirs, least in (
            ("resident ÷ by hand", "grampus, resident", "by hand, resident", RESIDENT_ASKED),
            ("jpeg ÷ resident", "grampus, jpeg", "grampus, resident", JPEG_ASKED),
        ):
            if theirs in rates:
                # Round by round: what slows the machine for a while slows all of a round.
                both = zip(rates[ours], rates[theirs], strict=True)
                ratio = statistics.median(one / other for one, other in both)
                print(f"  {words:20}{verdict(ratio, least):>10}")
    return results


def main() -> int:
    sections = {"steady": steady, "overhead": overhead, "safety": safety, "cold": cold, "gpu": gpu}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--procs", type=int, default=2, help="workers in the steady state (2)")
    parser.add_argument("--rounds", type=int, default=5, help="counted rounds (5)")
    parser.add_argument("--epochs", type=int, default=3, help="epochs of a run in the steady state (3)")
    parser.add_argument("--rows", type=int, default=60_000, help="rows of an epoch (60,000)")
    parser.add_argument(
        "--data", default=DATA, metavar="DIR", help=f"Fashion-MNIST's files, also as .gz ({DATA})"
    )
    parser.add_argument("--images", metavar="DIR", help="train*.parquet with JPEG, for the section gpu")
    parser.add_argument("--save", action="store_true", help="append a line to bench/results/train.jsonl")
    parser.add_argument("--only", nargs="+", choices=sections, metavar="SECTION", help=", ".join(sections))
    options = parse(parser, rounds=1, epochs=2, rows=256)
    if min(options.procs, options.rounds) < 1 or options.epochs < 2:
        parser.error("--procs and --rounds must be at least 1, --epochs at least 2: the first is not counted")
    chosen = options.only or [name for name in sections if name != "gpu" or options.smoke]
    if chosen != ["gpu"] and not has_fashion_mnist(options.data):
        chosen = [name for name in chosen if name == "gpu"]
    if "gpu" in chosen and options.images is None and not options.smoke:
        parser.error("the section gpu needs --images DIR")
    show_machine()
    print(", ".join(f"{name} {version(name)}" for name in PACKAGES if version(name)))
    if chosen != ["gpu"]:
        print(f"LeNet on {options.rows:,} rows of Fashion-MNIST, median of {options.rounds} rounds")
    results = {name: section(options) for name, section in sections.items() if name in chosen}
    if options.save:
        save("train", PACKAGES, options=vars(options), results=results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
