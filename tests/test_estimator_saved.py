"""Weights in files, and checkpoints: what is in them, when they are written, and which of them stay."""

from __future__ import annotations

import json
import pickle
import random
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from clusters import one_cluster, scratch  # noqa: F401 - a fixture
from object_store import serving
from safetensors.numpy import load_file
from small_models import Net, adam, classifier, line, points, rows, weight

import grampus as gp
from grampus.callbacks import Callback
from grampus.errors import CheckpointError
from grampus.triggers import EverySteps

TRAINING = {"epochs": 3, "batch_size": 16}


runtime = one_cluster(workers=3)


@pytest.fixture
def trained():
    estimator = classifier()
    estimator.fit(rows(), **TRAINING)
    return estimator


def fit(estimator, **other):
    return estimator.fit(rows(), validation_data=rows(20, 1), **{**TRAINING, **other})


def test_safetensors_are_what_others_read(trained):
    assert trained.save("model.safetensors") == "model.safetensors"
    found = load_file("model.safetensors")
    assert {name: value.tolist() for name, value in found.items()} == {
        name: value.tolist() for name, value in trained.state_dict().items()
    }
    assert classifier().load("model.safetensors").digest() == trained.digest()


def test_pt_files_are_what_torch_reads(trained):
    trained.save("model.pt")
    weights = torch.load("model.pt", weights_only=True)
    module = Net()
    module.load_state_dict(weights)
    assert classifier().load("model.pt").digest() == trained.digest()
    torch.save(module.state_dict(), "plain.pth")
    assert classifier().load("plain.pth").digest() == trained.digest()
    torch.save({"state_dict": module.state_dict(), "epoch": 3}, "lightning.pt")
    assert classifier().load("lightning.pt").digest() == trained.digest()


def test_a_folder_holds_all_that_training_needs(trained):
    trained.save("run")
    again = classifier(workers=2, lanes=None).load("run")
    assert again.digest() == trained.digest()
    again.fit(rows(), batch_size=16)
    trained.fit(rows(), batch_size=16)
    assert again.digest() == trained.digest()
    assert again.load("run/step-00000012").digest() != trained.digest()


def test_what_was_trained_further_is_saved_further(trained):
    trained.save("run")
    trained.fit(rows())
    trained.save("run")
    assert classifier().load("run").digest() == trained.digest()


def test_a_checkpoint_of_a_run_can_be_loaded(trained):
    fit(classifier(), checkpoint="runs")
    assert classifier().load("runs").digest() == trained.digest()
    assert classifier().load("runs/step-00000012").digest() == trained.digest()


@pytest.mark.parametrize(
    "model", [Net(), Net, lambda config: Net(config)], ids=["object", "class", "creator"]
)
def test_weights_can_be_loaded_before_anything_was_trained(trained, model):
    trained.save("model.safetensors")
    optimizer = adam if not isinstance(model, torch.nn.Module) else torch.optim.Adam(model.parameters())
    estimator = classifier(
        model=model, optimizer=optimizer, scheduler=None, scheduler_step_freq="epoch"
    ).load("model.safetensors")
    assert estimator.digest() == trained.digest()
    assert estimator.evaluate(rows(20, 1)) == trained.evaluate(rows(20, 1))
    before = estimator.digest()
    estimator.fit(rows())
    assert estimator.digest() != before


def test_an_untrained_model_can_be_saved():
    estimator = classifier()
    estimator.save("model.safetensors")
    assert classifier(seed=4).load("model.safetensors").digest() == estimator.digest()
    with pytest.raises(ValueError, match="nothing was trained or loaded yet"):
        estimator.save("folder")


def test_what_a_user_draws_is_not_seeded():
    estimator = classifier()
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    estimator.digest()
    assert before == (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())


def test_weights_of_another_model_are_refused(trained):
    torch.save(torch.nn.Linear(2, 2).state_dict(), "other.pt")
    with pytest.raises(ValueError, match=r"it lacks: layers.0.bias.*it has besides: bias, weight"):
        trained.load("other.pt")
    before = trained.digest()
    trained.save("model.safetensors")
    with pytest.raises(ValueError, match=r"shapes differ: layers.0.bias \(8,\) for \(5,\)"):
        classifier(config={"width": 5}).load("model.safetensors")
    assert trained.digest() == before


class Bomb:
    def __reduce__(self):
        return open, ("exploded", "w")


def test_loading_runs_no_code(trained, tmp_path):
    torch.save({"layers.0.weight": Bomb()}, "bomb.pt")
    (tmp_path / "plain.pt").write_bytes(pickle.dumps(Bomb()))
    (tmp_path / "bomb.safetensors").write_bytes(pickle.dumps(Bomb()))
    trained.save("run")
    (tmp_path / "run" / "step-00000012" / "model.safetensors").write_bytes(pickle.dumps(Bomb()))
    for name in ("bomb.pt", "plain.pt", "bomb.safetensors", "run"):
        with pytest.raises((pickle.UnpicklingError, CheckpointError)):
            trained.load(name)
    assert not (tmp_path / "exploded").exists()


def test_a_file_that_is_not_there_is_named():
    for name in ("none.safetensors", "none.pt", "none"):
        with pytest.raises((CheckpointError, FileNotFoundError), match="none"):
            classifier().load(name)


# Checkpoints


def names():
    return sorted(entry.name for entry in Path("runs").iterdir())


def test_a_checkpoint_says_what_it_is():
    fit(classifier(workers=2), checkpoint="runs", max_steps=6)
    with open("runs/step-00000006/manifest.json") as file:
        manifest = json.load(file)
    meta = manifest["meta"]
    assert meta["layout"] == {"lanes": 4, "threads": 1, "seed": 3}
    assert (meta["at"]["epoch"], meta["at"]["step_in_epoch"], meta["at"]["step"]) == (1, 2, 6)
    assert (meta["batch_size"], meta["samples"], len(meta["records"])) == (16, 64, 1)
    assert set(manifest["files"]) == {"model.safetensors", "optimizer.safetensors"}
    assert load_file("runs/step-00000006/model.safetensors").keys() == Net().state_dict().keys()


def test_a_trigger_says_when_and_model_dir_where(tmp_path):
    fit(classifier(model_dir=tmp_path / "model"), checkpoint=EverySteps(5))
    found = sorted(entry.name for entry in (tmp_path / "model").glob("step-*"))
    assert found == ["step-00000005", "step-00000010", "step-00000012"]
    estimator = classifier(model_dir=tmp_path / "model")
    assert fit(estimator, resume=True).workers[0]["rows"] == 0
    with pytest.raises(ValueError, match="there is no place for checkpoints"):
        fit(classifier(), checkpoint=EverySteps(5))


def test_old_checkpoints_go():
    fit(classifier(), checkpoint=gp.Checkpoint("runs", every=EverySteps(2), keep=2))
    assert names() == ["step-00000010", "step-00000012"]


class Scores(Callback):
    """Puts made-up scores into the records."""

    def __init__(self, *scores):
        self.scores = scores

    def on_epoch_end(self, run):
        run.log("score", self.scores[run.epoch - 1])


def test_the_best_checkpoint_stays():
    saving = gp.Checkpoint("runs", keep=1, best="score", mode="max")
    fit(classifier(), checkpoint=saving, epochs=5, callbacks=[Scores(1, 3, 2, 0, 1)])
    assert names() == ["step-00000008", "step-00000020"]
    fit(classifier(), checkpoint=gp.Checkpoint("few", keep=1, best="val_loss"), epochs=2)
    with pytest.raises(
        ValueError, match="there is no 'f1' to choose the best checkpoint by: there are epoch"
    ):
        fit(classifier(), checkpoint=gp.Checkpoint("none", best="f1", mode="max"))


def test_the_best_checkpoint_stays_over_the_pieces_of_a_run():
    saving = gp.Checkpoint("runs", keep=1, best="score", mode="max")
    scores = [Scores(1, 3, 2, 0, 1)]
    fit(classifier(), checkpoint=saving, epochs=5, max_steps=13, callbacks=scores)
    fit(classifier(), checkpoint=saving, epochs=5, callbacks=scores, resume=True)
    assert names() == ["step-00000008", "step-00000020"]


def test_the_best_checkpoint_by_steps_is_that_of_the_epochs_end():
    saving = gp.Checkpoint("runs", every=EverySteps(2), keep=1, best="score", mode="max")
    fit(classifier(), checkpoint=saving, epochs=4, callbacks=[Scores(1, 3, 2, 0)])
    assert names() == ["step-00000008", "step-00000016"]


def test_the_best_checkpoint_is_there_whenever_others_are_written():
    """Epochs end at steps 4, 8, 12 and 16, and nothing is written there by itself but the last."""
    saving = gp.Checkpoint("runs", every=EverySteps(3), keep=1, best="score", mode="max")
    fit(classifier(), checkpoint=saving, epochs=4, callbacks=[Scores(1, 3, 2, 0)])
    assert names() == ["step-00000008", "step-00000016"]
    own = classifier().load("runs", best=True)
    assert own.digest() == classifier().load("runs/step-00000008").digest()
    assert own.digest() != classifier().load("runs").digest()
    fit(classifier(), checkpoint="others")
    for place in ("others", "runs/nothing"):
        with pytest.raises(CheckpointError, match="does not say which checkpoint is the best: train with"):
            own.load(place, best=True)


def test_losses_that_are_no_numbers_are_saved_and_read(tmp_path):
    data = points()
    data["y"][3] = float("nan")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        line().fit(data, checkpoint="runs")
        history = line().fit(data, epochs=2, checkpoint="runs", resume=True)
    assert history["epoch"] == [1, 2]


def test_a_checkpoint_among_the_callbacks_does_the_same():
    fit(classifier(), callbacks=[gp.Checkpoint("runs")])
    assert names() == ["step-00000004", "step-00000008", "step-00000012"]
    with pytest.raises(ValueError, match="pass one of them"):
        fit(classifier(), checkpoint="runs", callbacks=[gp.Checkpoint("runs")])


def test_a_place_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="file"):
        fit(classifier(), checkpoint="file/runs")


def test_weights_of_one_step_stay_while_the_next_is_trained():
    """A checkpoint is written while training goes on, and holds the weights as they were."""
    estimator = line(config={"lr": 0.01})
    estimator.fit(points(512), batch_size=2, checkpoint=gp.Checkpoint("runs", every=EverySteps(32)))
    expected = 0.0
    for step in range(1, 257):
        expected += 0.01 * 2 * (3 - expected)
        if step % 32 == 0:
            found = line().load(f"runs/step-{step:08d}")
            assert weight(found) == pytest.approx(expected, rel=1e-5)


@pytest.mark.timeout(120)
def test_a_run_is_saved_in_an_object_store(trained, monkeypatch, tmp_path):
    # Workers know the store from their environment, so they start after it.
    gp.stop()
    with serving(monkeypatch, tmp_path / "moto.log"):
        gp.init(workers=2)
        try:
            fit(classifier(), checkpoint=gp.Checkpoint("s3://bucket/runs", keep=1), max_steps=6)
            estimator = classifier()
            fit(estimator, checkpoint="s3://bucket/runs", resume=True)
            assert estimator.digest() == trained.digest()
            estimator.save("s3://bucket/saved")
            assert classifier().load("s3://bucket/saved").digest() == trained.digest()
            assert not Path("s3:").exists()
        finally:
            gp.stop()
    gp.init(workers=3)
