"""How fast Grampus reads, beside what people read with today.

Every contender is a whole fresh process that prints rows, seconds and CPU seconds of one pass over the data,
its imports not counted; contenders take turns, after one round that is not counted, and a figure is the
median.

images: JPEG in Parquet to shuffled, normalised batches. table: a Parquet table of 35 columns of numbers to
shuffled batches. csv: the same table as CSV into memory.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from ranks import show_machine
from turns import Contender, figures_in, interleaved, script

PACKAGES = ("grampus", "torch", "torchvision", "pandas", "polars", "pyarrow", "ray")


def images(options: argparse.Namespace) -> list[Contender]:
    where = (str(Path(options.images) / "train-*.parquet"), "--batch", "256")
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


# Which figure counts: images are decoded by as many threads as one likes, so the work is what is compared.
SECTIONS = {"images": (images, "cpu"), "table": (table, "seconds"), "csv": (csv, "seconds")}


def compare(name: str, options: argparse.Namespace) -> dict:
    make, counts = SECTIONS[name]
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


def make_table(folder: Path, rows: int, also_csv: bool) -> None:
    """Write the table, once: 34 features of which 8 are whole numbers, and a label."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet as pq

    if not (folder / "table.parquet").exists():
        draw = np.random.default_rng(1)
        columns = {f"f{at}": draw.normal(size=rows).round(6) for at in range(26)}
        columns |= {f"i{at}": draw.integers(0, 1000, rows) for at in range(8)}
        columns["label"] = draw.integers(0, 2, rows)
        pq.write_table(pa.table(columns), folder / "table.parquet", row_group_size=100_000)
    if also_csv and not (folder / "table.csv").exists():
        pyarrow.csv.write_csv(pq.read_table(folder / "table.parquet"), folder / "table.csv")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="counted rounds (5)")
    parser.add_argument("--rows", type=int, default=5_000_000, help="rows of the table (5,000,000)")
    parser.add_argument(
        "--images", metavar="DIR", help="Parquet files with columns `image` (JPEG) and `label`"
    )
    parser.add_argument(
        "--scratch", metavar="DIR", help="where the table is written, and kept (a temporary folder)"
    )
    parser.add_argument("--only", nargs="+", choices=SECTIONS, metavar="SECTION", help=", ".join(SECTIONS))
    options = parser.parse_args()
    names = options.only or list(SECTIONS)
    if "images" in names and options.images is None:
        print("images: left out, --images names no folder")
        names = [name for name in names if name != "images"]
    show_machine()
    with tempfile.TemporaryDirectory() as scratch:
        options.scratch = options.scratch or scratch
        if {"table", "csv"} & set(names):
            make_table(Path(options.scratch), options.rows, "csv" in names)
        for name in names:
            compare(name, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
