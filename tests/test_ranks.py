"""Scripts with an Estimator under `grampus run`: the ranks are its workers, and train one model."""

import os
import re
import signal
import subprocess
import sys

import pytest
from clusters import no_cluster
from processes import read_line

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
    given = {"optimizer": gp.optim.SGD(0.1), "seed": 3, "threads_per_lane": 1, **more}
    return gp.Estimator.from_native(model=model, loss=gp.nn.MSE(), **given)
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
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}
    env = {**os.environ, **cache, **(environment or {})}
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


DIFFERENT = {
    "rows": (
        "x = x[gp.rank() :: 2]\ndata = {'x': x, 'y': x}",
        r"data['x'] is float32 (20, 1) ",
        "Grampus deals",
    ),
    "labels": (
        "data['y'] = data['y'] + gp.rank()",
        "data['y'] is float32 (40, 1) ",
        "Grampus deals the rows",
    ),
    "number": (
        "data = {'x': x[gp.rank() :], 'y': x[gp.rank() :]}",
        "float32 (39, 1) ",
        "Grampus deals the rows",
    ),
    "seed": ("MORE['seed'] = 3 + gp.rank()", "seed is 3 on rank 0, and 4 on rank 1", "make it alike"),
    "optimizer": ("MORE['optimizer'] = gp.optim.SGD([0.1, 0.5][gp.rank()])", '"lr": 0.5', "make it alike"),
    "config": (
        "MORE['config'] = {'a': {'b': gp.rank()}}",
        "config is {a: {b: 0}, ",
        "make it alike",
    ),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_ranks_with_different_data_or_settings_are_told(tmp_path, what):
    """They trained on those of the first rank, without a word."""
    change, named, advice = DIFFERENT[what]
    text = f"""
MORE = {{}}
{change}
try:
    estimator(**MORE).fit(data, batch_size=10)
except gp.CallMismatch as error:
    print("came", error)
"""
    code, out, err = ranks(tmp_path, text)
    assert code == 0, err
    first, second = came(out)
    assert first == second
    assert first.startswith("the ranks call fit with different ")
    assert named in first and advice in first and "on rank 1" in first


def test_data_sets_of_ranks_are_compared_and_weights_are_not(tmp_path):
    text = """
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset


class Rows(Dataset):
    def __init__(self, x):
        self.x = x

    def __len__(self):
        return len(self.x)

    def __getitem__(self, row):
        return self.x[row], self.x[row]


def made(lr=0.1):
    # Weights that are drawn without a seed are those of the first rank.
    module = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(module.parameters(), lr=lr)
    return gp.Estimator.from_torch(model=module, optimizer=optimizer, loss=torch.nn.MSELoss())


x = torch.from_numpy(x)
mine = x[gp.rank() :: 2]
for data in (Rows(mine), TensorDataset(mine, mine), DataLoader(Rows(mine))):
    try:
        made().fit(data, batch_size=None)
    except gp.CallMismatch as error:
        print("came", str(error).partition(" is ")[0])
try:
    made(0.1 * (1 + gp.rank())).fit(Rows(x))
except gp.CallMismatch as error:
    print("came", str(error).partition(":")[0])
sampler = DistributedSampler(Rows(x), num_replicas=2, rank=gp.rank())
est = made()
est.fit(DataLoader(Rows(x), batch_size=10, sampler=sampler), batch_size=None)
print("came", est.digest())
"""
    code, out, err = ranks(tmp_path, text)
    assert code == 0, err
    words = "the ranks call fit with different "
    found = came(out)
    for named in ("data: data.x", "data: data.tensors[0]", "data: data.dataset.x", "settings"):
        assert found.count(words + named) == 2, out
    digests = [line for line in found if not line.startswith(words)]
    assert len(digests) == 2 and len(set(digests)) == 1


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
    said = [f"rank {late} did not " in line and " within 3s" in line for line in came(out)]
    assert (len(said), sum(said)) == (3, 2), out


def test_meeting_and_forming_have_one_deadline(tmp_path):
    text = """
import time
from grampus import _ranks
if gp.rank() == 1:
    # It meets the other in time, and never forms the group.
    time.sleep(4)
    _ranks.meet(30)
    time.sleep(8)
else:
    began = time.monotonic()
    try:
        gp.collective.form(deadline=6)
    except gp.CollectiveError as error:
        print("came", "rank 1 on" in str(error), time.monotonic() - began < 9)
"""
    code, out, err = ranks(tmp_path, text, script="import grampus as gp\n")
    assert (code, came(out)) == (0, ["True True"]), out + err


def test_every_rank_has_the_history(tmp_path):
    text = """
est = estimator()
history = est.fit(data, epochs=2, batch_size=12)
print("came", est.history is history, len(history), est.history["loss"])
"""
    code, out, err = ranks(tmp_path, text)
    assert code == 0, err
    assert len(came(out)) == 2 and len(set(came(out))) == 1
    assert came(out)[0].startswith("True 2 [")


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


FAILS = """
import torch


class Rows(torch.utils.data.Dataset):
    calls = 0

    def __len__(self):
        return 40

    def __getitem__(self, row):
        self.calls += 1
        # In the third step.
        if gp.rank() == BAD and self.calls == 13:
            raise KeyError("no such row")
        return torch.full((1,), row / 40), torch.full((1,), row / 20)


class Breaks(gp.callbacks.Callback):
    def on_step_end(self, run):
        if run.step == 2:
            raise RuntimeError("broken callback")


def labels(config):
    return {"x": x, "y": np.full(40, 7 if gp.rank() == BAD else 0)}


def of_callback():
    estimator().fit(data, batch_size=12, callbacks=[Breaks()])


def of_dataset():
    made = gp.Estimator.from_torch(
        model=torch.nn.Linear(1, 1), optimizer="sgd", loss=torch.nn.MSELoss(), config={"lr": 0.1}
    )
    made.fit(Rows(), batch_size=12)


def of_label():
    classes = gp.nn.Sequential().add(gp.nn.Linear(1, 3))
    made = gp.Estimator.from_native(model=classes, loss=gp.nn.CrossEntropy(), optimizer=gp.optim.SGD(0.1))
    made.fit(labels, batch_size=12)


try:
    WHAT()
except Exception as error:
    print("came", type(error).__name__, str(error).splitlines()[0])
# The ranks are still there for each other.
print("came", gp.run(lambda: gp.rank()))
"""


@pytest.mark.parametrize(
    ("what", "rank", "named"),
    [
        ("of_callback", 0, "RuntimeError broken callback"),
        ("of_dataset", 0, "KeyError"),
        ("of_dataset", 1, "KeyError"),
        ("of_label", 0, "the label is 7"),
        ("of_label", 1, "the label is 7"),
    ],
)
def test_an_error_in_fit_on_one_rank_is_raised_on_all(tmp_path, what, rank, named):
    code, out, err = ranks(tmp_path, FAILS.replace("WHAT", what).replace("BAD", str(rank)))
    assert code == 0, err
    errors = [line for line in came(out) if named in line]
    assert len(errors) == 2 and len(set(errors)) == 1, out
    assert came(out).count("[0, 1]") == 2


def test_every_rank_has_the_weights_after_an_error(tmp_path):
    text = """
class Breaks(gp.callbacks.Callback):
    def on_step_end(self, run):
        if run.step == 6:
            raise RuntimeError("broken")


est = estimator(MORE)
try:
    est.fit(data, epochs=3, batch_size=12, callbacks=[Breaks()])
except RuntimeError as error:
    print("came", est.digest(), len(est.history), error.__notes__[-1])
"""
    code, out, err = ranks(tmp_path, text.replace("MORE", ""))
    assert code == 0, err
    (tmp_path / "script.py").write_text(SCRIPT + text.replace("MORE", "workers=2"))
    alone = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=50, check=False
    )
    assert "the estimator keeps the weights of epoch 2, step 6" in alone.stdout, alone.stderr
    assert came(out) == came(alone.stdout) * 2


INTERRUPTED = """
import os, time


class Slow(gp.callbacks.Callback):
    def on_step_end(self, run):
        if run.step == 6:
            print("ready", flush=True)
        time.sleep(0.02)


print("pid", os.getpid(), flush=True)
est = estimator()
try:
    est.fit(data, epochs=100000, batch_size=12, callbacks=[Slow()], checkpoint=CHECKPOINT)
except KeyboardInterrupt as error:
    print("came", est._at["step"], est.digest(), error, flush=True)
# The ranks are still there for each other.
whole = estimator()
whole.fit(data, epochs=100000, batch_size=12, max_steps=est._at["step"])
print("came", whole.digest(), flush=True)
"""


# A machine that is busy with other things: for the steps to begin, and for the end.
PATIENCE = 50


def interrupted(folder, press, checkpoint=None):
    """What the ranks print that get Ctrl-C by `press`, and the exit code."""
    (folder / "script.py").write_text(SCRIPT + INTERRUPTED.replace("CHECKPOINT", repr(checkpoint)))
    command = [sys.executable, "-m", "grampus", "run", "-n", "2", "script.py"]
    running = subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        pids = {}
        while "ready" not in (line := read_line(running, PATIENCE)):
            if "pid" in line:
                pids[line.split()[1].rstrip("]")] = int(line.split()[-1])
        press(running.pid, [pids[rank] for rank in sorted(pids)])
        out, _ = running.communicate(timeout=PATIENCE)
        return running.returncode, out
    finally:
        running.kill()
        running.communicate()


def check_interrupted(out):
    lines = came(out)
    assert len(lines) == 4 and len(set(lines)) == 2, out
    step, digest, text = next(line for line in lines if "interrupted" in line).split(" ", 2)
    assert int(step) >= 6
    # The weights are those of a run of so many steps, to the bit.
    assert digest in lines
    assert f"step {step}: the estimator keeps the weights of that step" in text


@pytest.mark.timeout(3 * PATIENCE)
@pytest.mark.parametrize("pressed", [[0, 1], [0], [1]], ids=["both", "first", "second"])
def test_ranks_that_get_ctrl_c_end_after_their_step_and_keep_the_weights(tmp_path, pressed):
    """On several nodes, the person at one of them may reach its ranks alone."""

    def press(_launcher, pids):
        for rank in pressed:
            os.killpg(pids[rank], signal.SIGINT)

    code, out = interrupted(tmp_path, press)
    assert code == 0, out
    check_interrupted(out)


@pytest.mark.timeout(3 * PATIENCE)
def test_ctrl_c_in_a_terminal_keeps_the_weights(tmp_path):
    """A terminal sends it to its foreground group: the command, and not the ranks."""
    code, out = interrupted(tmp_path, lambda launcher, _pids: os.killpg(launcher, signal.SIGINT))
    assert code == 130, out
    check_interrupted(out)


@pytest.mark.timeout(3 * PATIENCE)
def test_ranks_that_get_ctrl_c_save_the_run(tmp_path):
    def press(_launcher, pids):
        for pid in pids:
            os.killpg(pid, signal.SIGINT)

    code, out = interrupted(tmp_path, press, checkpoint="runs")
    assert code == 0, out
    check_interrupted(out)
    assert "resume=True goes on from there" in out
    step = next(line for line in came(out) if "interrupted" in line).split()[0]
    assert (tmp_path / "runs" / f"step-{int(step):08d}").is_dir()


BREAKS = """
def breaks():
    gp.collective.barrier()
    if gp.rank() == BAD:
        raise ValueError("as asked")
    gp.collective.barrier()


class Breaks(gp.callbacks.Callback):
    def on_step_end(self, run):
        if run.step == 2:
            raise ValueError("as asked")


"""


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("call", ["gp.run(breaks)", "estimator().fit(data, callbacks=[Breaks()])"])
def test_an_error_that_is_not_caught_is_shown_once(tmp_path, call, rank):
    code, _, err = ranks(tmp_path, BREAKS.replace("BAD", str(rank)) + call)
    assert code == 1
    lines = [line for line in err.splitlines() if line.startswith("[rank 1]")]
    assert [line for line in lines if "as asked" in line] == [
        "[rank 1] ValueError: as asked (rank 0 shows the traceback)"
    ], err
    assert "Traceback" not in "".join(lines)
    assert err.count("raise ValueError") == 1, err
    assert err.count("WorkerTraceback: rank") <= 1
    raised = rank if call == "gp.run(breaks)" else 0
    assert re.search(rf"^grampus: rank {raised} on .* exited with code 1$", err, re.MULTILINE), err
    if raised == 1:
        assert "WorkerTraceback: rank 1 on " in err


def test_an_error_of_a_rank_has_one_cause_on_all(tmp_path):
    text = """
try:
    gp.run(breaks)
except ValueError as error:
    print("came", error.__cause__.rank, error.__cause__.pid, type(error.__cause__.__cause__))
"""
    code, out, err = ranks(tmp_path, BREAKS.replace("BAD", "1") + text)
    assert code == 0, err
    first, second = came(out)
    assert first == second and first.startswith("1 ") and first.endswith("<class 'NoneType'>")
