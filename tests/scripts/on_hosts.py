"""Models trained from CSV, Parquet, Arrow and shards, on the hosts that are named, or on this machine.

It prints a line of JSON: digests of weights, and what was evaluated and predicted.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import signal
import zlib
from pathlib import Path

import numpy as np
import polars
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet
import torch
from PIL import Image
from torch import nn

import grampus as gp

FEATURES = [["a", "b", "c"]]
COLUMNS = {"feature_cols": FEATURES, "label_cols": [["y"]]}


def table(rows=96):
    random = np.random.default_rng(3)
    columns = {name: random.standard_normal(rows).astype("float32") for name in FEATURES[0]}
    return pa.table({**columns, "y": columns["a"] - 2 * columns["b"] + columns["c"] / 2})


def net(config):
    return nn.Linear(3, 1)


def estimator(model=net, loss=None):
    return gp.Estimator.from_torch(model=model, optimizer="adam", loss=loss or nn.MSELoss(), seed=1, lanes=4)


def outcome(data, out, model=net):
    est = estimator(model)
    # The second call finds the model trained, and the rows where the first one has packed them.
    for _ in range(2):
        est.fit(data, epochs=2, batch_size=16, validation_data=data, **COLUMNS)
    judged = est.evaluate(data, batch_size=16, **COLUMNS)
    predicted = est.predict(data, batch_size=16, feature_cols=FEATURES)
    if isinstance(predicted, gp.Shards):
        predicted = predicted.to_arrow()
    written = pa.parquet.read_table(est.predict(data, feature_cols=FEATURES, out=out / "out.parquet"))
    answers = [
        np.asarray(each["prediction"].to_pylist(), "float32").tobytes() for each in (predicted, written)
    ]
    return [est.digest(), judged, [zlib.crc32(answer) for answer in answers], len(predicted)]


def doubled(part):
    return part.set_column(0, "a", pa.compute.multiply(part["a"], 2.0))


def tables(folder, out):
    """Outcomes by the kind of the data; files lie in the first folder."""
    found = table()
    pa.csv.write_csv(found, folder / "rows.csv")
    pa.parquet.write_table(found, folder / "rows.parquet", row_group_size=20)
    results = {
        "csv": outcome(str(folder / "rows.csv"), out),
        "arrow": outcome(found, out),
        "polars": outcome(polars.from_arrow(found), out),
        "shards": outcome(gp.Shards.from_arrow(found, 5), out),
        "transformed": outcome(gp.Shards.from_arrow(found, 5).transform_shard(doubled), out),
    }
    # Parquet that workers do not have can be read, and not written beside.
    est = estimator()
    est.fit(str(folder / "rows.parquet"), epochs=2, batch_size=16, **COLUMNS)
    results["parquet"] = est.digest()
    parts = gp.Shards.partition(np.arange(12.0), 5).transform_shard(lambda part: part * 2)
    results["arrays"] = np.concatenate(parts.collect()).tolist()
    return results


def others(folder, out):
    """A native model, and pictures, which are decoded as batches are made."""
    est = gp.Estimator.from_native(
        model=gp.nn.Sequential(gp.nn.Linear(3, 1)),
        loss=gp.nn.MSE(),
        optimizer=gp.optim.SGD(),
        seed=1,
        lanes=4,
    )
    est.fit(table(), epochs=2, batch_size=16, **COLUMNS)
    random = np.random.default_rng(5)
    pictures = []
    for _ in range(24):
        held = io.BytesIO()
        Image.fromarray(random.integers(0, 255, (4, 4, 3), "uint8")).save(held, "PNG")
        pictures.append(held.getvalue())
    labels = random.integers(0, 2, 24)
    pa.parquet.write_table(pa.table({"image": pictures, "label": labels}), folder / "pictures.parquet")
    data = gp.read_images(
        str(folder / "pictures.parquet"),
        image_col="image",
        label_col="label",
        steps=[gp.images.Normalize([0.5] * 3, [0.5] * 3)],
    )
    seen = estimator(lambda config: nn.Sequential(nn.Flatten(), nn.Linear(48, 2)), nn.CrossEntropyLoss())
    seen.fit(data, epochs=2, batch_size=8)
    left = [sum(gp.run(copies))]
    try:
        estimator(lambda config: Raises()).fit(table(), epochs=1, **COLUMNS)
    except ZeroDivisionError:
        left.append(sum(gp.run(copies)))
    judged = seen.evaluate(data, batch_size=8)
    return {"native": est.digest(), "images": seen.digest(), "judged": judged, "left": left}


def memory(folder, out):
    """A table that each process makes for itself, and so no file."""
    est = estimator()
    est.fit(table(), epochs=2, batch_size=16, **COLUMNS)
    judged = est.evaluate(table(), batch_size=16, **COLUMNS)
    predicted = est.predict(table(), batch_size=16, feature_cols=FEATURES)
    return est.digest(), judged, predicted["prediction"].to_pylist()


class Raises(nn.Linear):
    """Raises an error on all workers at once."""

    def __init__(self):
        super().__init__(3, 1)

    def forward(self, x):
        raise ZeroDivisionError


def copies():
    """How many copies of shards a worker holds."""
    files = [file.readlink() for file in Path("/proc/self/fd").iterdir() if file.is_symlink()]
    return sum("grampus-shards" in str(file) for file in files)


class Dies(nn.Linear):
    """Ends the worker of a rank once, in the middle of a run."""

    def __init__(self, rank, mark):
        super().__init__(3, 1)
        self.rank, self.mark, self.calls = rank, mark, 0

    def forward(self, x):
        self.calls += self.training
        if self.calls == 5 and gp.rank() == self.rank and not Path(self.mark).exists():
            open(self.mark, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(x)


def deaths(folder, out):
    """Outcomes without a loss, and with that of each worker in turn; no worker dies on this machine."""
    found = {}
    for rank in (None, 0, 1, 2, 3):
        mark = str(out / f"died-{rank}")
        est = estimator(lambda config, rank=rank, mark=mark: Dies(rank, mark))
        est.fit(table(), epochs=3, batch_size=16, **COLUMNS)
        found[str(rank)] = [est.digest(), Path(mark).exists()]
    return found


def large(folder, out, model=net):
    """A run over 24 MB, of which few rows are used."""
    random = np.random.default_rng(0)
    names = (*FEATURES[0], "y")
    found = pa.table({name: random.standard_normal(1_500_000).astype("float32") for name in names})
    est = estimator(model)
    est.fit(found, epochs=1, max_steps=8, batch_size=64, **COLUMNS)
    return est.digest()


def large_with_a_death(folder, out):
    """The same with the loss of the last worker."""
    mark = str(out / "died")
    digest = large(folder, out, lambda config: Dies(3, mark))
    return digest, Path(mark).exists()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "work", choices=["tables", "others", "memory", "deaths", "large", "large_with_a_death"]
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--address")
    parser.add_argument("--command")
    parser.add_argument("--hosts", nargs="+")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.hosts:
        gp.init(
            cluster=gp.Cluster.ssh(asked.hosts, asked.workers, command=asked.command, address=asked.address)
        )
    elif "RANK" not in os.environ:
        gp.init(workers=2)
    found = globals()[asked.work](asked.folder, asked.out)
    gp.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
