"""A disk that takes nothing more: errors name the file, and a log that cannot be written ends no run."""

import subprocess
import sys

import pytest
from clusters import one_cluster, scratch  # noqa: F401 - a fixture
from small_models import line, points, weight

from grampus.callbacks import CSVLog, JSONLog, TensorBoard

runtime = one_cluster(workers=1, start_timeout=200)

# Where nothing can be made, also by root.
NOWHERE = "/proc/grampus-test"


@pytest.mark.parametrize("make", [TensorBoard, CSVLog, JSONLog])
def test_a_log_that_cannot_be_made_is_a_warning(make):
    est = line(workers=1)
    with pytest.warns(RuntimeWarning, match=rf"{make.__name__} fails, and the run goes on.*{NOWHERE}"):
        history = est.fit(points(), epochs=2, batch_size=4, callbacks=[make(f"{NOWHERE}/log")])
    assert len(history) == 2
    assert weight(est) != 0


def test_the_folder_of_a_run_that_takes_nothing_is_a_warning():
    est = line(workers=1, model_dir=f"{NOWHERE}/run")
    with pytest.warns(RuntimeWarning, match=f"TensorBoard fails.*{NOWHERE}/run/tensorboard"):
        assert len(est.fit(points(), epochs=2, batch_size=4)) == 2


SCRIPT = """
import os, sys, warnings
warnings.simplefilter("ignore")
import numpy, pyarrow as pa, torch
import grampus as gp
from grampus import _native
folder = sys.argv[1]
# Larger than the disk, and it cannot be compressed.
numbers = numpy.random.default_rng(0).random(400_000)
table = pa.table({"x": numbers})

def tensors(path):
    gp.Estimator.from_torch(model=torch.nn.Linear(400_000, 1), optimizer="sgd", config={"lr": 1.0}).save(path)

def events(path):
    writer = _native.EventWriter(path, 0.0)
    for step in range(100_000):
        writer.scalar("loss", 1.0, step, 0.0)
    writer.close()

def shards(method):
    def write(path):
        made = gp.Shards.from_objects([numbers]) if method == "save" else gp.Shards.from_arrow(table)
        getattr(made, method)(path)
    return write

def log(path):
    gp.callbacks.CSVLog(path).event({"kind": "epoch", "record": {"epoch": 1, "text": "x" * 2_000_000}})

WRITES = {
    "log.csv": log,
    "model.safetensors": tensors,
    "model.pt": tensors,
    "events": events,
    "table.parquet": lambda path: _native.Table.from_stream(table).write_parquet(path),
    "table.csv": lambda path: _native.Table.from_stream(table).write_csv(path),
    "parts": shards("write_parquet"),
    "texts": shards("write_csv"),
    "saved": shards("save"),
}
for name, write in WRITES.items():
    try:
        write(f"{folder}/{name}")
    except AttributeError as error:
        print(name, "ABSENT", error)
    except Exception as error:
        named = "named" if f"{folder}/{name}" in str(error) else "UNNAMED"
        print(name, named, type(error).__name__, str(error)[:200])
    else:
        print(name, "WRITTEN")
    for left in os.listdir(folder):
        os.system(f"rm -rf {folder}/{left}")
"""


def test_errors_of_a_full_disk_name_the_path(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o size=1m none {disk} && exec "$@"', "sh"]
    if subprocess.run([*mount, "true"], capture_output=True).returncode:
        pytest.skip("file systems cannot be mounted here")
    command = [*mount, sys.executable, "-c", SCRIPT, str(disk)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=200)
    lines = done.stdout.splitlines()
    assert len(lines) == 9, done.stderr
    assert not [each for each in lines if each.split()[1] != "named"], done.stdout
