"""The table that bench/spark.py and bench/ray.py train on and ask, and how their figures are laid out."""

import argparse
import os
import shutil
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from harness import ROOT, machine, miss, parse, save, version
from turns import Contender, figures_in, interleaved

FEATURES = 35
# A contender stops itself after 180 s of what is timed; its session comes on top.
LIMIT = 300.0
PREDICTED = 1_000_000
SMOKE_ROWS = 2_000


def make_table(folder: Path, rows: int) -> Path:
    """Write the same rows twice, unless they are there: as 35 columns of doubles, and as arrays of floats."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    where = folder / f"rows-{rows}"
    draw = np.random.default_rng(1)
    for part in range(2):
        paths = [where / kind / f"part-{part}.parquet" for kind in ("columns", "arrays")]
        numbers = draw.normal(size=(rows // 2, FEATURES))
        if all(path.exists() for path in paths):
            continue
        label = (numbers.sum(axis=1) > 0).astype(np.int64)
        columns = {f"x{at}": np.ascontiguousarray(numbers[:, at]) for at in range(FEATURES)}
        lists = pa.FixedSizeListArray.from_arrays(numbers.astype(np.float32).reshape(-1), FEATURES)
        arrays = {"features": lists.cast(pa.list_(pa.float32())), "label": label}
        for path, table in zip(paths, ({**columns, "label": label}, arrays), strict=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.table(table), path, row_group_size=100_000)
    return where


def compare(
    title: str,
    contenders: Sequence[Contender],
    options: argparse.Namespace,
    others: Mapping[str, str],
    *,
    at_least: bool,
) -> dict[str, list[dict]]:
    """Run contenders in turns and print the seconds of each; the first one is compared with the others.

    `others` are further figures that they print, with the heads of their columns. The ratio that is asked is
    the least of `it ÷ grampus`, or the most of `grampus ÷ it`.
    """
    print(f"\n{title}: running, load {os.getloadavg()[0]:.1f}")
    taken = turns(contenders, options)
    heads = "".join(f"{head:>10}" for head in others.values())
    ratio_head = "it ÷ grampus" if at_least else "grampus ÷ it"
    print(f"  {'':26}{'median s':>9}  {'min … max':>17}{heads}  {ratio_head}")
    ours = taken.get(contenders[0].name)
    for contender in contenders:
        if not (runs := taken.get(contender.name)):
            continue
        seconds = [one["seconds"] for one in runs]
        spread = f"{min(seconds):7.2f} … {max(seconds):7.2f}"
        more = "".join(f"{statistics.median(one[name] for one in runs):10.2f}" for name in others)
        words = _ratio(ours, runs, contender.ratio_asked, at_least) if ours and runs is not ours else ""
        if any(one.get("capped") for one in runs):
            words = f"more than {words}: stopped after 180 s"
        print(f"  {contender.name:26}{statistics.median(seconds):9.2f}  {spread}{more}  {words}".rstrip())
    print(f"  load at the end {os.getloadavg()[0]:.1f}")
    return taken


def turns(contenders: Sequence[Contender], options: argparse.Namespace) -> dict[str, list[dict]]:
    return interleaved(
        contenders,
        options.rounds,
        lambda _, output: figures_in(output),
        limit=LIMIT,
        uncounted=options.uncounted,
    )


def _ratio(ours: list[dict], theirs: list[dict], asked: float | None, at_least: bool) -> str:
    # Turn by turn: what slows the machine for a while slows all of a turn.
    both = list(zip(ours, theirs, strict=False))
    ratio = statistics.median(it["seconds"] / mine["seconds"] for mine, it in both)
    ratio = ratio if at_least else 1 / ratio
    if asked is None:
        return f"{ratio:.2f}"
    met = ratio >= asked if at_least else ratio <= asked
    return f"{ratio:.2f}  {'≥' if at_least else '≤'} {asked:g} {'met' if met else 'missed'}"


def run_sections(
    name: str,
    parser: argparse.ArgumentParser,
    sections: Mapping[str, Callable[[argparse.Namespace], dict]],
    packages: Sequence[str],
    program: str | None = None,
) -> None:
    """Run what is asked for, and append a line of figures where that is wanted.

    `program` is what all of it needs beside packages of Python.
    """
    parser.add_argument("--rounds", type=int, default=5, help="counted rounds (5)")
    parser.add_argument("--uncounted", type=int, default=1, help="rounds before them (1)")
    parser.add_argument("--scratch", type=Path, default=ROOT / "target" / "bench", metavar="DIR")
    parser.add_argument("--save", action="store_true", help=f"append a line to bench/results/{name}.jsonl")
    parser.add_argument("--only", nargs="+", choices=sections, metavar="SECTION", help=", ".join(sections))
    options = parse(parser, rounds=1, rows=SMOKE_ROWS)
    options.predicted = SMOKE_ROWS if options.smoke else PREDICTED
    if program and not shutil.which(program):
        miss(f"all of bench/{name}.py", f"{program} is not installed", f"GRAMPUS_REQUIRE_{program.upper()}")
        return
    facts = machine()
    print(f"{facts['cpu']}, {facts['cores']} cores, load {facts['load']}, {facts['when']}")
    print(", ".join(f"{package} {version(package)}" for package in packages if version(package)))
    print(f"median of {options.rounds} rounds")
    results = {one: made(options) for one, made in sections.items() if one in (options.only or sections)}
    if options.save:
        save(name, packages, results=results)
