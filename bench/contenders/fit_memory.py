"""Train on a table, kept or streamed, while a process outside adds up the memory that it takes."""

import argparse
import json
import multiprocessing
import os
from pathlib import Path

import pyarrow.parquet as pq
import torch
from torch import nn

import grampus as gp
from tree import family

BATCH = 1024


def taken(root, without):
    """Return bytes: private memory of the family, and all shared memory of the machine."""
    total = 0
    for pid in family(root) - {without}:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss_Anon:"))
    lines = Path("/proc/meminfo").read_text().splitlines()
    shared = next(int(line.split()[1]) for line in lines if line.startswith("Shmem:"))
    return 1024 * (total + shared)


def watch(root, told):
    """Say what was taken at most, when asked, and begin anew."""
    most = 0
    while True:
        most = max(most, taken(root, os.getpid()))
        if told.poll(0.02):
            if told.recv() is None:
                return
            told.send(most)
            most = 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("--procs", type=int, default=1)
    parser.add_argument("--window", type=int, help="stream, with windows of so many row groups")
    options = parser.parse_args()
    footer = pq.ParquetFile(options.path).metadata
    names = [footer.schema.column(at).name for at in range(footer.num_columns)]
    columns = {"feature_cols": [[name for name in names if name != "label"]], "label_cols": "label"}
    ours, theirs = multiprocessing.Pipe()
    watcher = multiprocessing.Process(target=watch, args=(os.getpid(), theirs), daemon=True)
    watcher.start()
    estimator = gp.Estimator.from_torch(
        model=nn.Linear(len(names) - 1, 2),
        optimizer="sgd",
        config={"lr": 1e-6},
        loss=nn.CrossEntropyLoss(),
        workers=options.procs,
    )
    few = torch.zeros(BATCH, len(names) - 1), torch.zeros(BATCH, dtype=torch.long)
    estimator.fit({"x": few[0], "y": few[1]}, batch_size=BATCH)
    ours.send("what was there before")
    ours.recv()
    ours.send("what is there now")
    before = ours.recv()
    shards = gp.read_parquet(options.path)
    if options.window:
        shards = shards.stream(options.window)
    estimator.fit(shards, batch_size=BATCH, **columns)
    ours.send("at most")
    most = ours.recv()
    ours.send(None)
    row = 4 * (len(names) - 1) + 8
    group = footer.num_rows // footer.num_row_groups
    sizes = [Path(options.path).stat().st_size, footer.num_rows * row]
    # Each worker keeps the window that is read and the next one, and batches that are ready.
    window = options.procs * 2 * (options.window or 0) * group * row + 16 * BATCH * row
    figures = {"more": most - before, "file": sizes[0], "packed": sizes[1], "window": window}
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
