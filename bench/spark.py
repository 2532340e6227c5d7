"""How fast Grampus trains, starts and predicts on Spark, beside what people use there today.

A contender is a whole fresh process with a warm session of Spark; contenders take turns, after one round that
is not counted, and a figure is the median of its rounds, a ratio that of its turns. What is not installed is
left out, aloud.

feed: seconds of one epoch over a DataFrame, 35 numbers and a label, with a small network on two workers, from
a warm session to trained. A frame is a plain scan of Parquet, or goes through a filter of Spark. The others
get the features as one column of arrays of floats, made before, in as many partitions as there are workers:
what suits them best. CPU seconds are those of the whole tree of processes, the JVM included.
memory: what that takes at most beside what was there just before, in a run of its own, looked at every 50 ms
from outside. All processes of the tree are counted, the JVM with its heap of up to 2 GB too. RSS counts a
page once for each process that has it, PSS once; real are private pages, and the machine's shared memory.
start: from a warm session to the first step of two workers; again: the same once more, right after.
barrier: two tasks as two jobs, as Grampus starts its workers, and as one barrier stage.
predict: answers for 1 M rows, written to nowhere, once all is warm.
"""

import argparse
import statistics
import sys

from engine_tables import LIMIT, compare, make_table, run_sections
from harness import ROOT, miss
from turns import CONTENDERS, Contender, figures_in, interleaved, script

# Orca and Petastorm need an older Spark.
SPARK3 = ROOT / ".venv-spark3" / "bin" / "python"
PACKAGES = ("grampus", "torch", "pyspark")
WAYS = {"a plain scan": (), "through Spark": ("--through",)}
MEMORY_ASKED = 1.5


def feed_contenders(options: argparse.Namespace, *flags: str) -> list[Contender]:
    rows = ("--rows", str(options.rows))
    work = (str(make_table(options.scratch, options.rows)), *rows, *flags)
    contenders = [
        Contender("grampus", script("feed_grampus.py", *work), "grampus"),
        Contender("TorchDistributor", script("feed_distributor.py", *work), "pyspark", 3),
    ]
    older = {"Petastorm and DDP": ("feed_petastorm.py", 3), "Orca": ("feed_orca.py", 5)}
    if SPARK3.exists():
        contenders += [
            Contender(name, (str(SPARK3), str(CONTENDERS / file), *work), ratio_asked=asked)
            for name, (file, asked) in older.items()
        ]
    else:
        print(f"  {', '.join(older)}: left out, there is no .venv-spark3 (make bench-spark makes it)")
    return [contender for contender in contenders if contender.name not in options.without]


def feed(options: argparse.Namespace) -> dict:
    return {
        name: compare(
            f"one epoch of {options.rows:,} rows, {name}",
            feed_contenders(options, *flags),
            options,
            {"cpu": "CPU s"},
            at_least=True,
        )
        # A smoke run takes each way once: this one here, the other in `memory`.
        for name, flags in list(WAYS.items())[: 1 if options.smoke else None]
    }


def memory(options: argparse.Namespace) -> dict:
    arrow = options.rows * 36 * 8 / 1e6
    results = {}
    for name, flags in list(WAYS.items())[1 if options.smoke else 0 :]:
        print(f"\nmemory of that in MB, {name}, beside {arrow:,.0f} MB of Arrow: running")
        contenders = feed_contenders(options, *flags, "--watch")
        taken = interleaved(contenders, 1, lambda _, output: figures_in(output), limit=LIMIT, uncounted=0)
        print(f"  {'':26}{'before':>9}{'RSS':>9}{'PSS':>9}{'real':>9}  RSS ÷ Arrow")
        for who, runs in taken.items():
            middle = {what: statistics.median(run[what] for run in runs) / 1e6 for what in runs[0]}
            figures = "".join(f"{middle[what]:9,.0f}" for what in ("before", "rss", "pss", "real"))
            ratio = middle["rss"] / arrow
            asked = f"  ≤ {MEMORY_ASKED} {'met' if ratio <= MEMORY_ASKED else 'missed'}"
            print(f"  {who:26}{figures}  {ratio:.2f}{asked if who == 'grampus' else ''}")
        results[name] = taken
    return results


def start(options: argparse.Namespace) -> dict:
    contenders = [
        Contender("grampus", script("start_spark.py", "grampus"), "grampus"),
        Contender("TorchDistributor", script("start_spark.py", "distributor"), "pyspark", 0.5),
    ]
    title = "from a session to the first step, 2 workers"
    heads = {"returned": "returned", "again": "again"}
    return compare(title, contenders, options, heads, at_least=False)


def barrier(options: argparse.Namespace) -> dict:
    contenders = [
        Contender("two jobs", script("barrier_spark.py", "jobs"), "pyspark"),
        Contender("one barrier stage", script("barrier_spark.py", "barrier"), "pyspark"),
    ]
    if options.smoke:
        miss("barrier", "Grampus has no part in it")
        return {}
    title = "two tasks that call back, and again after kill -9 of one"
    heads = {"first": "cold", "recovery": "recovery"}
    return compare(title, contenders, options, heads, at_least=True)


def predict(options: argparse.Namespace) -> dict:
    data = str(make_table(options.scratch, options.predicted))
    results = {}
    kinds = (("arrays", "one column of arrays"), ("columns", "35 columns"))
    # A smoke run has trained on columns.
    for kind, name in kinds[: 1 if options.smoke else None]:
        contenders = [
            Contender("grampus", script("predict_spark.py", "grampus", kind, data), "grampus"),
            Contender("predict_batch_udf", script("predict_spark.py", "udf", kind, data), "pyspark", 1.3),
        ]
        title = f"predict {options.predicted:,} rows, {name}"
        results[name] = compare(title, contenders, options, {"first": "first"}, at_least=True)
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=5_000_000, help="rows of feed and memory (5,000,000)")
    parser.add_argument("--without", nargs="+", default=[], metavar="NAME", help="who is too slow for these")
    sections = {"feed": feed, "memory": memory, "start": start, "barrier": barrier, "predict": predict}
    run_sections("spark", parser, sections, PACKAGES, "java")
    return 0


if __name__ == "__main__":
    sys.exit(main())
