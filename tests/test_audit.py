"""The ledger of a run, and what `grampus audit` proves from it."""

import json
import os
import re
import signal
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from clusters import one_cluster, scratch  # noqa: F401 - a fixture
from deadly_runs import ROWS, Deadly, KillsAll, Slow, arrays, estimator, of_every_kind
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, WeightedRandomSampler

import grampus as gp

runtime = one_cluster(workers=3, heartbeat_timeout=1.5)
pytestmark = pytest.mark.filterwarnings("ignore:the run goes on")
EPOCHS, STEPS = 3, 8


def audited(run, *options):
    """Exit code and output of the command."""
    command = [sys.executable, "-m", "grampus", "audit", str(run), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    return done.returncode, done.stdout + done.stderr


def audit_of(run):
    """What the command tells programs, and that it is a proof."""
    code, text = audited(run, "--json")
    found = json.loads(text)
    assert (code, found["faults"]) == (0, [])
    return found


def trained(run, data=None, loss=None, **settings):
    est = estimator(Deadly(run.parent) if loss is None else loss, model_dir=run)
    est.fit(arrays() if data is None else data, batch_size=12, audit=True, **{"epochs": EPOCHS, **settings})
    return est


@pytest.mark.parametrize(
    ("rows", "how"),
    [((), None), ((0,), 9), ((17, 60, 61, 95), 9), ((40,), signal.SIGSTOP), ((40,), signal.SIGTERM)],
)
def test_each_row_is_used_once_whatever_is_killed(tmp_path, rows, how):
    trained(tmp_path / "run", loss=Deadly(tmp_path, rows, how))
    found = audit_of(tmp_path / "run")
    assert found["attempts"] == 1 + len(rows)
    assert [(epoch["rows"], epoch["steps"], epoch["lanes"]) for epoch in found["epochs"]] == [
        (ROWS, STEPS, 3)
    ] * EPOCHS
    begun = sum(epoch["begun"] for epoch in found["epochs"])
    assert EPOCHS * STEPS <= begun <= EPOCHS * STEPS + len(rows)
    code, text = audited(tmp_path / "run")
    assert code == 0
    assert "each row once per epoch, none lost, none doubled: 3 epochs, 288 rows, 24 steps" in text


def test_data_of_every_kind_has_a_ledger(tmp_path):
    for number, (source, settings) in enumerate(of_every_kind(tmp_path)):
        folder = tmp_path / str(number)
        folder.mkdir()
        trained(folder / "run", source, loss=Deadly(folder, (30,)), **settings)
        found = audit_of(folder / "run")
        assert [epoch["rows"] for epoch in found["epochs"]] == [ROWS] * EPOCHS


class Stream(IterableDataset):
    """Rows that have no numbers; of one lane, if so asked."""

    def __init__(self, apart):
        self.apart = apart

    def __iter__(self):
        data = arrays()
        lane = gp.lane() if self.apart else None
        for row in range(0, ROWS) if lane is None else range(lane.index, ROWS - 5, lane.count):
            yield data["x"][row], data["y"][row]


@pytest.mark.parametrize("apart", [False, True])
def test_streams_have_a_ledger(tmp_path, apart):
    trained(tmp_path / "run", Stream(apart), loss=Deadly(tmp_path, (30,)))
    for epoch in audit_of(tmp_path / "run")["epochs"]:
        assert epoch["rows"] == (ROWS - 5 if apart else ROWS)
        assert epoch["steps"] == STEPS
        assert epoch["lost"] == (None if apart else 0)
    wanted = "each step once, with all lanes" if apart else "each row once per epoch"
    assert wanted in audited(tmp_path / "run")[1]


def chosen_twice(config, batch_size):
    data = arrays()
    sampler = WeightedRandomSampler([1.0] * 4 + [0.0] * (ROWS - 4), 50)
    return DataLoader(TensorDataset(data["x"], data["y"]), batch_size=batch_size, sampler=sampler)


def dropped(config, batch_size):
    data = arrays()
    tensors = TensorDataset(data["x"][:-5], data["y"][:-5])
    return DataLoader(tensors, batch_size=batch_size, shuffle=True, drop_last=True)


@pytest.mark.parametrize(("source", "rows"), [(chosen_twice, 50), (dropped, 84)])
def test_places_count_where_rows_are_chosen(tmp_path, source, rows):
    trained(tmp_path / "run", source, loss=Deadly(tmp_path, (2,)))
    found = audit_of(tmp_path / "run")
    assert [(epoch["rows"], epoch["expected"]) for epoch in found["epochs"]] == [(rows, rows)] * EPOCHS


def test_a_run_that_is_resumed_has_one_history(tmp_path):
    run = tmp_path / "run"
    saved = gp.Checkpoint(tmp_path / "saved", every=gp.triggers.EverySteps(5))
    trained(run, max_steps=12, checkpoint=saved)
    cut = audit_of(run)["epochs"][1]
    assert (cut["rows"], cut["ended"]) == (48, False)
    assert "cut off, of 96 rows" in audited(run)[1]
    trained(run, checkpoint=saved, resume=True)
    found = audit_of(run)
    assert [epoch["rows"] for epoch in found["epochs"]] == [ROWS] * EPOCHS
    assert (found["attempts"], all(epoch["ended"] for epoch in found["epochs"])) == (2, True)


def test_when_all_are_lost_the_steps_since_the_checkpoint_count_once(tmp_path):
    kills = KillsAll(gp.run(os.getpid), tmp_path / "saved")
    every = gp.Checkpoint(tmp_path / "saved", every=gp.triggers.EverySteps(4))
    trained(tmp_path / "run", loss=Slow(tmp_path), checkpoint=every, callbacks=[kills])
    assert not kills.pids
    found = audit_of(tmp_path / "run")
    assert [epoch["rows"] for epoch in found["epochs"]] == [ROWS] * EPOCHS


def test_a_ledger_that_was_tampered_with_is_no_proof(tmp_path):
    run = tmp_path / "run"
    trained(run)
    page = run / "audit" / "attempt-0001-rank-1.jsonl"
    text = page.read_text()
    rows = re.search(r'"rows":\[(\d+),(\d+)', text)
    page.write_text(text.replace(rows[0], f'"rows":[{rows[1]},{rows[1]}', 1))
    code, told = audited(run)
    assert code == 1
    assert f"epoch 1: row {rows[1]} was used in step 1 by lane 1, and in step 1 by lane 1" in told
    assert f"epoch 1: row {rows[2]} was not used" in told
    assert "not proven, 1 lost, 1 doubled" in told
    page.write_text(text.replace('"done"', "done", 1))
    code, told = audited(run)
    assert (code, "attempt-0001-rank-1.jsonl, line 4: " in told) == (1, True)
    page.unlink()
    code, told = audited(run)
    assert code == 1
    assert "epoch 1, step 1: lane 1 is missing, though attempt 1 has done the step" in told


def test_wrong_use(tmp_path):
    code, told = audited(tmp_path)
    assert (code, "train with fit(audit=True)" in told) == (1, True)
    est = estimator(Deadly(tmp_path), model_dir="s3://bucket/run")
    with pytest.raises(ValueError, match="audit=True writes into the folder of the run"):
        est.fit(arrays(), audit=True)


def test_without_asking_there_is_no_ledger(tmp_path):
    for name, options in (("plain", {}), ("audited", {"audit": True})):
        estimator(Deadly(tmp_path), model_dir=tmp_path / name).fit(arrays(), batch_size=12, **options)
    assert not (tmp_path / "plain" / "audit").exists()
    assert (tmp_path / "audited" / "audit").exists()


def test_bad_rows_have_had_their_turn(tmp_path):
    # All of the second row group: batches, too, may have none that is good.
    bad = [None if 11 <= row < 22 else float(row) for row in range(33)]
    table = pa.table({"x": bad, "z": [0.1] * 33, "y": [0.5] * 33})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=11)
    est = gp.Estimator.from_torch(
        model=torch.nn.Linear(2, 1),
        optimizer="sgd",
        loss=torch.nn.MSELoss(),
        config={"lr": 0.001},
        lanes=3,
        workers=3,
        model_dir=tmp_path / "run",
    )
    columns = {"feature_cols": [["x", "z"]], "label_cols": ["y"]}
    shards = gp.read_parquet(tmp_path / "t.parquet").stream(1).skip_bad_rows()
    with pytest.warns(RuntimeWarning, match="left out"):
        est.fit(shards, epochs=3, batch_size=3, audit=True, **columns)
    for epoch in audit_of(tmp_path / "run")["epochs"]:
        assert (epoch["rows"], epoch["left_out"], epoch["lost"]) == (22, 11, 0)
