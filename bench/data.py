"""How fast Grampus reads, beside what people read with today.

Every contender is a whole fresh process that prints rows, seconds and CPU seconds of one pass over the data,
its imports not counted; contenders take turns, after one round that is not counted, and a figure is the
median.

images: JPEG in Parquet to shuffled, normalised batches. table: a Parquet table of 35 columns of numbers to
shuffled batches. csv: the same table as CSV into memory. first: the first batch of 1,000 Parquet files.
memory: what `fit` takes beside what its processes had before, seen from outside, with the table kept and
streamed.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from harness import ROOT, parse
from ranks import show_machine
from turns import Contender, figures_in, interleaved, script

PACKAGES = ("grampus", "torch", "torchvision", "pandas", "polars", "pyarrow", "ray")


def images(options: argparse.Namespace) -> list[Contender]:
    where = (str(Path(options.images) / "train*.parquet"), "--batch", "256")
    return [
        Contender("grampus", script("images_grampus.py", *where), "grampus"),
        *[
            Contender(
                f"pillow, {procs} processes",
                script("images_pillow.py", *where, "--procs", procs),
                "pillow",
                4,
            )
            for procs in ("0", "2")
        ],
        Contender("torchvision", script("images_torchvision.py", *where), "torchvision", 1.5),
    ]


def table(options: argparse.Namespace) -> list[Contender]:
    path = str(Path(options.scratch) / "table.parquet")
    return [
        Contender("grampus", script("table_grampus.py", path), "grampus"),
        Contender("pandas, DataLoader", script("table_pandas.py", path), "pandas", 10),
        Contender("ray data", script("table_ray.py", path), "ray", 3),
        Contender("pyarrow, in order", script("table_pyarrow.py", path), "pyarrow", 1 / 1.5),
    ]


def csv(options: argparse.Namespace) -> list[Contender]:
    path = str(Path(options.scratch) / "table.csv")
    return [
        Contender("grampus", script("csv_grampus.py", path), "grampus"),
        Contender("polars", script("csv_polars.py", path), "polars", 0.7),
        Contender("pandas", script("csv_pandas.py", path), "pandas", 4),
    ]


def first(options: argparse.Namespace) -> None:
    """Print how long the first batch of many files takes."""
    make_files(Path(options.scratch) / "files", options.files)
    ours = Contender(
        "grampus", script("first_batch.py", str(Path(options.scratch) / "files" / "*.parquet")), "grampus"
    )
    print(f"\nfirst batch of {options.files:,} Parquet files, shuffled: running")
    runs = interleaved([ours], options.rounds, lambda _, output: figures_in(output))["grampus"]
    seconds = statistics.median(run["seconds"] for run in runs)
    print(f"  {seconds:.3f} s  < 0.5 {'met' if seconds < 0.5 else 'missed'}")


def memory(options: argparse.Namespace) -> None:
    """Print what `fit` takes of memory."""
    path = make_table(Path(options.scratch), options.rows * 3 // 2, "large")
    print(f"\nmemory of fit, MB beside what was there before: running ({path.name})")
    print(f"  {'':24}{'at most':>9}{'file':>8}{'packed':>8}{'windows':>9}")
    ways = [
        ("kept, 1 worker", 1, None),
        ("streamed, 1 worker", 1, 8),
        ("kept, 2 workers", 2, None),
        ("streamed, 2 workers", 2, 8),
    ]
    for name, procs, window in ways[2:] if options.smoke else ways:
        asked = ["--procs", str(procs), *(["--window", str(window)] if window else [])]
        ours = Contender(name, script("fit_memory.py", str(path), *asked), "grampus")
        runs = interleaved([ours], options.rounds, lambda _, output: figures_in(output)).get(name)
        if runs is None:
            continue
        middle = {what: statistics.median(run[what] for run in runs) for what in runs[0]}
        limit, asked_for = (1.3, "window") if window else (1.2, "file")
        ratio = middle["more"] / middle[asked_for]
        costs = "".join(
            f"{middle[what] / 1e6:{width},.0f}"
            for what, width in [("more", 9), ("file", 8), ("packed", 8), ("window", 9)]
        )
        words = f"{ratio:.2f} of the {'windows' if window else 'file'}"
        print(f"  {name:24}{costs}  {words}  ≤ {limit} {'met' if ratio <= limit else 'missed'}")


# Which figure counts: images are decoded by as many threads as one likes, so the work is what is compared.
COMPARED = {"images": (images, "cpu"), "table": (table, "seconds"), "csv": (csv, "seconds")}
ALONE = {"first": first, "memory": memory}


def compare(name: str, options: argparse.Namespace) -> dict:
    make, counts = COMPARED[name]
    contenders = make(options)
    print(f"\n{name}, by {'CPU seconds' if counts == 'cpu' else 'seconds'}: running")
    taken = interleaved(contenders, options.rounds, lambda _, output: figures_in(output))
    middles = {
        who: {what: statistics.median(run[what] for run in runs) for what in ("rows", "seconds", "cpu")}
        for who, runs in taken.items()
    }
    ours = middles.get("grampus")
    print(f"  {'':24}{'rows':>11}{'seconds':>9}{'CPU s':>8}  it ÷ grampus")
    for contender in contenders:
        found = middles.get(contender.name)
        if found is None:
            continue
        words = ""
        if ours is not None and found is not ours:
            ratio = found[counts] / ours[counts]
            asked = contender.ratio_asked
            words = f"{ratio:.2f}" + (
                f"  ≥ {asked:.3g} {'met' if ratio >= asked else 'missed'}" if asked else ""
            )
        costs = f"{found['rows']:11,.0f}{found['seconds']:9.2f}{found['cpu']:8.2f}"
        print(f"  {contender.name:24}{costs}  {words}".rstrip())
    return taken


def make_table(folder: Path, rows: int, name: str = "table") -> Path:
    """Write a table, once: 34 features of which 8 are whole numbers, and a label."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder / f"{name}.parquet"
    if not path.exists():
        draw = np.random.default_rng(1)
        columns = {f"f{at}": draw.normal(size=rows).round(6) for at in range(26)}
        columns |= {f"i{at}": draw.integers(0, 1000, rows) for at in range(8)}
        columns["label"] = draw.integers(0, 2, rows)
        pq.write_table(pa.table(columns), path, row_group_size=100_000)
    return path


def make_csv(folder: Path) -> None:
    import pyarrow.csv
    import pyarrow.parquet as pq

    if not (folder / "table.csv").exists():
        pyarrow.csv.write_csv(pq.read_table(folder / "table.parquet"), folder / "table.csv")


def make_files(folder: Path, count: int) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(exist_ok=True)
    draw = np.random.default_rng(1)
    for number in range(count):
        columns = {"a": draw.normal(size=1000), "b": draw.normal(size=1000), "y": draw.integers(0, 2, 1000)}
        pq.write_table(pa.table(columns), folder / f"{number:04}.parquet")


def make_pictures(folder: str, count: int) -> None:
    """Draw pictures of 32 x 32, as JPEG in Parquet."""
    sys.path.append(str(ROOT / "examples"))
    from cifar10 import draw_pictures

    draw_pictures(folder, count)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="counted rounds (5)")
    parser.add_argument("--rows", type=int, default=5_000_000, help="rows of the table (5,000,000)")
    parser.add_argument(
        "--images",
        metavar="DIR",
        help="train*.parquet with columns `image` (JPEG) and `label` (20,000 that are drawn)",
    )
    parser.add_argument(
        "--scratch", metavar="DIR", help="where the table is written, and kept (a temporary folder)"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        choices=[*COMPARED, *ALONE],
        metavar="SECTION",
        help=", ".join([*COMPARED, *ALONE]),
    )
    parser.set_defaults(files=1_000, pictures=20_000)
    options = parse(parser, rounds=1, rows=2_000, files=4, pictures=16, images=None, scratch=None)
    names = options.only or [*COMPARED, *ALONE]
    show_machine()
    with tempfile.TemporaryDirectory() as scratch:
        options.scratch = options.scratch or scratch
        if "images" in names and options.images is None:
            options.images = scratch
            make_pictures(scratch, options.pictures)
        if {"table", "csv"} & set(names):
            make_table(Path(options.scratch), options.rows)
        if "csv" in names:
            make_csv(Path(options.scratch))
        for name in names:
            if name in COMPARED:
                compare(name, options)
            else:
                ALONE[name](options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
