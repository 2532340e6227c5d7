"""Weights in the formats of others take the place that was asked for: whole or not at all, and no other."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
import torch
from clusters import one_cluster, scratch  # noqa: F401 - a fixture
from operator_models import gan
from saved_weights import bytes_of, left, other, trained_once
from small_models import classifier

import grampus as gp
from grampus.errors import CheckpointError
from grampus.frameworks import _torch_formats

runtime = one_cluster(workers=2)
trained = trained_once()


def test_a_distributed_checkpoint_takes_no_other_place(trained):
    Path("mine").mkdir()
    Path("mine/letter.txt").write_text("dear")
    with pytest.raises(ValueError, match="mine is there and is no checkpoint of torch alone: name a new"):
        trained.save("mine", format="dcp")
    assert left() == ["mine"] and Path("mine/letter.txt").read_text() == "dear"
    # Nor that of one which has something else beside it.
    trained.save("whole", format="dcp")
    Path("whole/letter.txt").write_text("dear")
    with pytest.raises(ValueError, match="whole is there"):
        trained.save("whole", format="dcp")
    assert Path("whole/letter.txt").read_text() == "dear"
    trained.load("whole")


def test_a_place_that_cannot_be_taken_stays_what_it_is(trained, monkeypatch):
    trained.save("folder", format="dcp")
    before, rename = bytes_of("folder"), Path.rename

    def fails(path, target):
        if path.name.startswith(".folder.") and target.name == "folder" and not path.name.endswith(".old"):
            raise OSError("the disk is gone")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fails)
    with pytest.raises(OSError, match="the disk is gone"):
        other().save("folder", format="dcp")
    assert left() == ["folder"] and bytes_of("folder") == before


def test_a_full_disk_is_named_and_what_was_there_stays(trained):
    forms = {"weights.pt": {}, "a.safetensors": {}, "hub": {"format": "pretrained"}, "dcp": {"format": "dcp"}}
    for name, given in forms.items():
        trained.save(name, **given)
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    for name, given in forms.items():
        # Like a full disk, to those who write.
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, most))
        try:
            with pytest.raises(CheckpointError, match=r"File too large"):
                other().save(name, **given)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    assert {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()} == before


def test_links_stay_and_what_they_lead_to_is_new(trained):
    for name, given in {
        "weights.pt": {},
        "folder": {"format": "dcp"},
        "hub": {"format": "pretrained"},
    }.items():
        other().save(f"far/{name}", **given)
        Path(name).symlink_to(f"far/{name}")
        trained.save(name, **given)
        assert Path(name).is_symlink() and other().load(f"far/{name}").digest() == trained.digest()
    assert left() == ["far", "folder", "hub", "weights.pt"]
    assert sorted(path.name for path in Path("far").iterdir()) == ["folder", "hub", "weights.pt"]


def test_files_of_others_stay_in_the_folder(trained):
    Path("folder").mkdir()
    others = ("model_ema.safetensors", "model.fp16.safetensors", "model-notes.safetensors.txt", "config.json")
    for name in others:
        Path("folder", name).write_text("theirs")
    trained.save("folder", format="pretrained")
    assert sorted(bytes_of("folder")) == sorted([*others, "model.safetensors"])
    Path("a file").write_text("dear")
    with pytest.raises(ValueError, match="is a file: name a folder"):
        trained.save("a file", format="pretrained")


def test_a_checkpoint_of_a_run_is_not_damaged(trained):
    trained.save("run")
    (step,) = Path("run").iterdir()
    with pytest.raises(ValueError, match="is a checkpoint of Grampus, which this would damage"):
        trained.save(step, format="pretrained")
    assert classifier(lanes=2).load("run").digest() == trained.digest()


def test_old_and_new_parts_are_not_taken_for_one_model(trained, monkeypatch):
    """Even where the process ends between two files."""
    monkeypatch.setattr(_torch_formats, "LARGEST", 200)
    trained.save("folder", format="pretrained")
    put, moved = Path.replace, []

    def fails(path, target):
        if len(moved) == 2:
            raise OSError("the disk is gone")
        moved.append(target)
        return put(path, target)

    monkeypatch.setattr(Path, "replace", fails)
    with pytest.raises(OSError, match="the disk is gone"):
        other().save("folder", format="pretrained")
    with pytest.raises(CheckpointError):
        trained.load("folder")


def test_wrong_formats_are_named(trained):
    Path("model.h5").touch()
    with pytest.raises(ValueError, match=r"model.h5 cannot be loaded: files of weights end in \.safetensors"):
        trained.load("model.h5")
    Path("model.h5").unlink()
    several = gan()
    with pytest.raises(ValueError, match=r"an ONNX file holds one model, and there are 2"):
        several.save("model.onnx", example=torch.zeros(1, 1))
    with pytest.raises(ValueError, match="format must be one of None, 'dcp', 'pretrained', it is 'h5'"):
        trained.save("folder", format="h5")
    for name, form in {"folder": "dcp", "weights.pt": None}.items():
        with pytest.raises(ValueError, match="is an address: save to a disk"):
            trained.save(f"s3://bucket/{name}", format=form)
    native = gp.Estimator.from_native(model=gp.nn.Sequential().add(gp.nn.Linear(2, 2)))
    with pytest.raises(ValueError, match=r"a native model is saved as .safetensors, or as a folder"):
        native.save("folder", format="dcp")
    assert left() == []
