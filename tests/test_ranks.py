"""Scripts with an Estimator under `grampus run`: the ranks are its workers, and train one model."""

import os
import subprocess
import sys

import pytest
from clusters import no_cluster

runtime = no_cluster()

SCRIPT = """
import sys
import numpy as np
import grampus as gp

x = np.linspace(-1, 1, 40, dtype="f4").reshape(-1, 1)
data = {"x": x, "y": 3 * x + 1}
model = gp.nn.Sequential().add(gp.nn.Linear(1, 4)).add(gp.nn.Tanh()).add(gp.nn.Linear(4, 1))


class Counts(gp.callbacks.Callback):
    epochs = 0

    def on_epoch_end(self, run):
        self.epochs += 1


def estimator(**more):
    return gp.Estimator.from_native(
        model=model, loss=gp.nn.MSE(), optimizer=gp.optim.SGD(0.1), seed=3, threads_per_lane=1, **more
    )
"""
TRAINS = """
counts = Counts()
est = estimator(**MORE)
history = est.fit(data, epochs=2, batch_size=12, callbacks=[counts], checkpoint="runs")
found = est.evaluate(data)
predicted = est.predict(x)
print("came", est.digest(), history["loss"], found, predicted.tobytes().hex(), counts.epochs)
est.save("model.safetensors")
"""


def ranks(folder, text, number=2, script=SCRIPT, environment=None):
    (folder / "script.py").write_text(script + text)
    command = [sys.executable, "-m", "grampus", "run", "-n", str(number), "script.py"]
    env = {**os.environ, **(environment or {})}
    ran = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=50, check=False, env=env
    )
    return ran.returncode, ran.stdout, ran.stderr


def came(text):
    """What each rank printed, without its name."""
    return [line.partition("came ")[2] for line in text.splitlines() if "came " in line]


def test_ranks_train_one_model_to_the_bits_of_one_driver(tmp_path):
    one, many = tmp_path / "one", tmp_path / "many"
    one.mkdir(), many.mkdir()
    code, out, err = ranks(many, TRAINS.replace("MORE", "{}"))
    assert code == 0, err
    (one / "script.py").write_text(SCRIPT + TRAINS.replace("MORE", "{'workers': 2}"))
    alone = subprocess.run(
        [sys.executable, "script.py"], cwd=one, capture_output=True, text=True, timeout=50, check=False
    )
    assert alone.returncode == 0, alone.stderr
    # Every rank has the whole result, and the one file is that of the driver.
    assert came(out) == came(alone.stdout) * 2
    assert (many / "model.safetensors").read_bytes() == (one / "model.safetensors").read_bytes()
    written = [sorted(path.name for path in (folder / "runs").iterdir()) for folder in (many, one)]
    assert written[0] == written[1]


def test_another_number_of_workers_is_refused(tmp_path):
    code, _, err = ranks(tmp_path, "estimator(workers=3).fit(data, batch_size=12)")
    assert code == 1
    assert "workers=3 were asked for, and `grampus run` has started 2 ranks" in err


def test_ranks_that_call_different_things_are_told(tmp_path):
    code, _, err = ranks(tmp_path, "estimator().fit(data, batch_size=8 + 4 * gp.rank())")
    assert code == 1
    assert "the ranks call different things: rank 0 calls fit(" in err


def test_a_rank_that_does_not_call_is_named(tmp_path):
    code, _, err = ranks(tmp_path, "gp.init()\nif gp.rank() == 0:\n    estimator().fit(data, batch_size=12)")
    assert code == 1
    assert "not all ranks of `grampus run` are there: " in err and "rank 1 on " in err


def test_an_error_of_one_rank_is_raised_on_all(tmp_path):
    text = """
def fails():
    gp.collective.barrier()
    if gp.rank() == 1:
        raise KeyError("of rank 1")
    gp.collective.barrier()

try:
    gp.run(fails)
except KeyError as error:
    print("came", error)
"""
    code, out, err = ranks(tmp_path, text)
    assert (code, came(out)) == (0, ["'of rank 1'"] * 2), err


def test_functions_and_collectives_work_on_ranks(tmp_path):
    text = """
total = gp.collective.all_reduce(np.array([gp.rank() + 1]))
print("came", gp.init().workers, gp.run(lambda: gp.rank() * 10), total.tolist())
"""
    code, out, err = ranks(tmp_path, text)
    assert (code, came(out)) == (0, ["2 [0, 10] [3]"] * 2), err


def test_functions_pass_over_shards_on_every_rank(tmp_path):
    text = """
rows = gp.Shards.partition({"x": np.arange(40.0), "y": np.arange(40)}, 4)
doubled = rows.transform_shard(lambda part: {name: values * 2 for name, values in part.items()})
sums = [int(part["y"].sum()) for part in doubled]
data = gp.Shards.partition({"x": x, "y": x}, 2).transform_shard(lambda part: {**part, "y": 3 * part["x"]})
est = estimator()
est.fit(data, epochs=2, batch_size=12)
print("came", sums, est.digest())
"""
    code, out, err = ranks(tmp_path, text)
    assert code == 0, err
    first, second = came(out)
    assert first == second
    assert first.startswith("[90, 290, 490, 690] ")


@pytest.mark.parametrize("text", ["estimator().fit(data, batch_size=12)", "gp.run(print)"])
def test_ranks_of_another_launcher_are_refused(tmp_path, text):
    """They would train a model each, into one file."""
    (tmp_path / "script.py").write_text(SCRIPT + text)
    ran = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env={**os.environ, "RANK": "0", "WORLD_SIZE": "2"},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert ran.returncode == 1
    assert "this process is rank 0 of 2 of another launcher" in ran.stderr


@pytest.mark.parametrize("late", [0, 2])
def test_a_rank_that_comes_late_to_the_first_call_is_named_at_the_deadline(tmp_path, late):
    text = f"""
import time
if gp.rank() == {late}:
    # The others have said what they found long before this one fails as well.
    time.sleep(12)
try:
    gp.collective.form(deadline=3)
except gp.CollectiveError as error:
    print("came", error)
"""
    code, out, err = ranks(tmp_path, text, number=3, script="import grampus as gp\n")
    assert code == 0, err
    said = [f"rank {late} did not come within 3s" in line for line in came(out)]
    assert (len(said), sum(said)) == (3, 2), out


def test_the_first_rank_writes_shards_and_all_wait_for_it(tmp_path):
    text = """
import os, time
import pyarrow as pa
import pyarrow.parquet


def slowly(table):
    if gp.rank() == 0:
        time.sleep(0.5)
    return table


rows = gp.Shards.from_arrow(pa.table({"x": np.arange(8)}), 2).transform_shard(slowly)
rows.write_parquet("parquet")
rows.write_csv("csv")
rows.save("saved")
read = pa.parquet.read_table("parquet")["x"].to_pylist()
print("came", read, len(os.listdir("csv")), len(gp.Shards.load("saved")))
try:
    rows.save("saved")
except gp.DataError as error:
    print("came", error)
"""
    code, out, err = ranks(tmp_path, text)
    assert code == 0, err
    found, again = "[0, 1, 2, 3, 4, 5, 6, 7] 2 8", "'saved' exists: remove it first, or choose another path"
    assert sorted(came(out)) == [again.strip()] * 2 + [found] * 2
