"""Weights in the formats of others: Hugging Face, torch's Distributed Checkpoint, Lightning, ONNX."""

from __future__ import annotations

import importlib.util
import json
import os
import pickle
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from clusters import one_cluster, scratch  # noqa: F401 - a fixture
from safetensors.numpy import load_file
from safetensors.torch import save_file
from saved_weights import bytes_of, left, other, trained_once
from small_models import Net, adam, classifier, rows
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.checkpoint.stateful import Stateful

import grampus as gp
from grampus.errors import CheckpointError
from grampus.frameworks import _torch_formats

runtime = one_cluster(workers=2)
trained = trained_once()


# Distributed checkpoints of torch


def test_torch_reads_the_distributed_checkpoint(trained):
    assert trained.save("folder", format="dcp") == "folder"
    assert left() == ["folder"]
    weights = {name: torch.empty_like(value) for name, value in Net().state_dict().items()}
    dcp.load(weights, checkpoint_id="folder", no_dist=True)
    for name, value in trained.state_dict().items():
        torch.testing.assert_close(weights[name], value, rtol=0, atol=0)
    again = other().load("folder")
    assert again.digest() == trained.digest()
    again.fit(rows(), batch_size=16)
    again.save("folder", format="dcp")
    assert left() == ["folder"]
    assert other().load("folder").digest() == again.digest() != trained.digest()


class App(Stateful):
    """As the tutorial of torch wraps a model and its optimizer."""

    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def state_dict(self):
        model, optim = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optim": optim}

    def load_state_dict(self, state):
        raise NotImplementedError


def with_optimizer(trained):
    """The trained model, with an optimizer that remembers something."""
    model = trained.get_model().train()
    optimizer = adam(model, {})
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    model(rows()["x"]).sum().backward()
    optimizer.step()
    model.load_state_dict(weights)
    return model, optimizer


def test_weights_may_stand_beside_an_optimizer(trained):
    model, optimizer = with_optimizer(trained)
    weights = {f"module.{name}": value for name, value in model.state_dict().items()}
    for name, state in {
        "app": {"app": App(model, optimizer), "epoch": 3},
        "model": {"model": model.state_dict(), "optim": optimizer.state_dict()},
        "parallel": {"state": {"model": weights, "step": torch.tensor(3)}},
        "average": {"model": model.state_dict(), "ema": Net().state_dict()},
        "plain": {**model.state_dict(), "optimizer": optimizer.state_dict()},
    }.items():
        dcp.save(state, checkpoint_id=name, no_dist=True)
        assert other().load(name).digest() == trained.digest(), name


def test_a_distributed_checkpoint_that_does_not_fit_is_refused(trained):
    two = {"first": Net().state_dict(), "second": Net().state_dict()}
    dcp.save(two, checkpoint_id="two", no_dist=True)
    with pytest.raises(CheckpointError, match="holds weights of this model under 'first' and 'second'"):
        trained.load("two")
    dcp.save({"model": nn.Linear(2, 2).state_dict()}, checkpoint_id="linear", no_dist=True)
    with pytest.raises(ValueError, match=r"it lacks: layers.0.bias.*it has besides: bias, weight"):
        trained.load("linear")
    trained.save("whole", format="dcp")
    with pytest.raises(ValueError, match=r"shapes differ: layers.0.bias \(8,\) for \(5,\)"):
        classifier(config={"width": 5}).load("whole")
    metadata = Path("whole/.metadata")
    told = pickle.loads(metadata.read_bytes())
    told.state_dict_metadata["layers.0.bias"].chunks[0].sizes = torch.Size([3])
    kept, _ = metadata.read_bytes(), metadata.write_bytes(pickle.dumps(told))
    with pytest.raises(CheckpointError, match=r"metadata does not tell where all of layers.0.bias is"):
        trained.load("whole")
    told.state_dict_metadata["layers.0.bias"].properties.dtype = "float32"
    metadata.write_bytes(pickle.dumps(told))
    with pytest.raises(CheckpointError, match=r"'float32' is no type of numbers"):
        trained.load("whole")
    metadata.write_bytes(kept)
    Path("whole/__0_0.distcp").unlink()
    # Whoever opens it waits for a writer.
    os.mkfifo("whole/__0_0.distcp")
    with pytest.raises(CheckpointError, match=r"whole lacks '__0_0.distcp', which .metadata names"):
        trained.load("whole")


class Bomb:
    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call[0], self.call[1:]


def poisoned(described):
    """A pickle that sets an attribute of a class of torch, and is a description besides."""
    module, name = type(described).__module__, type(described).__name__
    return f"c{module}\n{name}\n(N}}Vpoisoned\nI1\nstb0".encode() + pickle.dumps(described)


def test_a_description_changes_no_class(trained):
    trained.save("folder", format="dcp")
    metadata = Path("folder/.metadata")
    told = pickle.loads(metadata.read_bytes())
    metadata.write_bytes(poisoned(told))
    with pytest.raises(CheckpointError, match="does not describe a checkpoint"):
        trained.load("folder")
    assert not hasattr(type(told), "poisoned")
    pickle.loads(metadata.read_bytes())
    assert type(told).poisoned == 1
    del type(told).poisoned


def test_a_distributed_checkpoint_runs_no_code(trained):
    """Neither its description, nor a value beside the weights, nor what stands in the place of a tensor."""
    dcp.save(
        {"model": Net().state_dict(), "other": Bomb(open, "other", "w")}, checkpoint_id="in", no_dist=True
    )
    Path("other").unlink(missing_ok=True)
    other().load("in")
    metadata = Path("in/.metadata")
    kept = metadata.read_bytes()
    told = pickle.loads(kept)
    told.planner_data["bomb"] = Bomb(open, "exploded", "w")
    for hostile, said in {
        pickle.dumps(Bomb(open, "exploded", "w")): r"it names _?io.open",
        pickle.dumps(told): r"it names _?io.open",
        pickle.dumps(Bomb(eval, "open('exploded', 'w')"), 0): "eval",
        pickle.dumps(Bomb(torch.load, "exploded")): "torch.serialization.load",
        kept[:-20]: "does not describe a checkpoint",
        pickle.dumps({"model": 3}): "does not describe a checkpoint",
    }.items():
        metadata.write_bytes(hostile)
        with pytest.raises(CheckpointError, match=said):
            trained.load("in")
    elsewhere = kept.replace(b"__0_0.distcp", b"../../../pwd")
    assert elsewhere != kept
    metadata.write_bytes(elsewhere)
    with pytest.raises(CheckpointError, match="outside of its folder"):
        trained.load("in")
    told = pickle.loads(kept)
    torch.save(Bomb(open, "exploded", "w"), "in/bomb.distcp")
    for info in told.storage_data.values():
        info.relative_path, info.offset = "bomb.distcp", 0
        info.length = Path("in/bomb.distcp").stat().st_size
    metadata.write_bytes(pickle.dumps(told))
    with pytest.raises(CheckpointError, match="Weights only load failed"):
        trained.load("in")
    assert left() == ["in"]


def test_a_distributed_checkpoint_of_another_python(trained, monkeypatch):
    """Some versions write a member of an enum by its name, as an attribute."""
    kind = dcp.metadata._MEM_FORMAT_ENCODING
    by_name = lambda member, _: (getattr, (kind, member.name))  # noqa: E731
    monkeypatch.setattr(kind, "__reduce_ex__", by_name)
    dcp.save(trained.state_dict(), checkpoint_id="in", no_dist=True)
    assert b"getattr" in Path("in/.metadata").read_bytes()
    found = other().load("in")
    assert found.digest() == trained.digest()
    # It leads to a name, and to no attribute.
    Path("in/.metadata").write_bytes(pickle.dumps(Bomb(getattr, OrderedDict, "fromkeys")))
    with pytest.raises(CheckpointError, match="does not describe a checkpoint"):
        found.load("in")


# Folders of Hugging Face


def test_a_folder_as_hugging_face_has_it(trained):
    trained.save("folder", format="pretrained")
    assert left() == ["folder"] and list(bytes_of("folder")) == ["model.safetensors"]
    found = load_file("folder/model.safetensors")
    np.testing.assert_array_equal(found["layers.0.bias"], trained.state_dict()["layers.0.bias"])
    assert other().load("folder").digest() == trained.digest()


def test_large_models_are_cut_into_files(trained, monkeypatch):
    trained.save("folder", format="pretrained")
    Path("folder/tokenizer.json").write_text("{}")
    monkeypatch.setattr(_torch_formats, "LARGEST", 200)
    trained.save("folder", format="pretrained")
    index = json.loads(Path("folder/model.safetensors.index.json").read_text())
    files = sorted(set(index["weight_map"].values()))
    assert files[0] == f"model-00001-of-{len(files):05d}.safetensors" and len(files) > 2
    assert sorted(bytes_of("folder")) == sorted([*files, "model.safetensors.index.json", "tokenizer.json"])
    assert index["metadata"]["total_size"] == sum(value.nbytes for value in trained.state_dict().values())
    parts = {file: load_file(f"folder/{file}") for file in files}
    assert {name: file for file, part in parts.items() for name in part} == index["weight_map"]
    assert all(sum(value.nbytes for value in part.values()) <= 200 for part in parts.values())
    assert other().load("folder").digest() == trained.digest()
    Path(f"folder/{files[1]}").unlink()
    with pytest.raises(CheckpointError, match=f"folder lacks '{files[1]}', which model.safetensors.index"):
        trained.load("folder")
    monkeypatch.setattr(_torch_formats, "LARGEST", 5_000_000_000)
    trained.save(Path("folder").absolute(), format="pretrained")
    assert sorted(bytes_of("folder")) == ["model.safetensors", "tokenizer.json"]


def test_an_index_says_which_file_a_weight_is_in(trained):
    weights = trained.state_dict()
    Path("folder").mkdir()
    save_file(weights, "folder/a.safetensors")
    save_file({name: torch.zeros_like(value) for name, value in weights.items()}, "folder/b.safetensors")
    first, *rest = weights
    places = {first: "b.safetensors", **dict.fromkeys(rest, "a.safetensors")}
    index = Path("folder/model.safetensors.index.json")
    index.write_text(json.dumps({"weight_map": places}))
    found = other().load("folder").state_dict()
    assert not found[first].any() and all(torch.equal(found[name], weights[name]) for name in rest)
    index.write_text(json.dumps({"weight_map": {**places, "more": "a.safetensors"}}))
    with pytest.raises(CheckpointError, match=r"a.safetensors lacks 'more', which model.safetensors.index"):
        trained.load("folder")


@pytest.mark.parametrize(
    "index",
    ["", "[]", "[" * 100_000, '{"weight_map": 3}', '{"weight_map": {"a": null}}'],
    ids=["empty", "list", "deep", "number", "null"],
)
def test_an_index_that_is_none_is_an_error(trained, index):
    Path("folder").mkdir()
    Path("folder/model.safetensors.index.json").write_text(index)
    with pytest.raises(CheckpointError, match="index"):
        trained.load("folder")


def test_an_index_leads_to_no_other_folder(trained):
    trained.save("a.safetensors")
    Path("folder").mkdir()
    for place in ("../a.safetensors", str(Path("a.safetensors").absolute())):
        places = dict.fromkeys(trained.state_dict(), place)
        Path("folder/model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
        with pytest.raises(CheckpointError, match=f"folder lacks '{place}'"):
            other().load("folder")


class Tied(nn.Module):
    """Two names of one weight, as language models have them."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 4), nn.Linear(4, 4)
        self.outer.weight = self.inner.weight

    def forward(self, x):
        return self.outer(self.inner(x))


def test_a_weight_of_two_names_is_in_a_file_once():
    from safetensors.torch import save_model

    tied = Tied()
    save_model(tied, "tied.safetensors")
    assert len(load_file("tied.safetensors")) == 3
    found = gp.Estimator.from_torch(model=Tied, optimizer="sgd", loss=nn.MSELoss()).load("tied.safetensors")
    x = rows()["x"]
    torch.testing.assert_close(found.get_model()(x), tied(x), rtol=0, atol=0)


def test_one_tensor_has_one_value():
    weights = {**Tied().state_dict(), "outer.weight": torch.zeros(4, 4)}
    estimator = gp.Estimator.from_torch(model=Tied, optimizer="sgd", loss=nn.MSELoss())
    torch.save(weights, "two.pt")
    dcp.save(weights, checkpoint_id="two", no_dist=True)
    for name in ("two.pt", "two"):
        with pytest.raises(CheckpointError, match=r"inner.weight and outer.weight are one tensor in this"):
            estimator.load(name)


def test_a_file_may_be_written_to_after_it_was_read():
    estimator = gp.Estimator.from_torch(model=nn.Linear(600, 600), optimizer="sgd", loss=nn.MSELoss())
    estimator.save("large.safetensors")
    before = estimator.load("large.safetensors").digest()
    with open("large.safetensors", "r+b") as file:
        file.seek(-4096, os.SEEK_END)
        file.write(bytes(4096))
    # Were the file mapped, to cut it off would end the process instead.
    assert estimator.digest() == before


# Files of Lightning and others


def test_checkpoints_of_lightning(trained):
    lightning = pytest.importorskip("lightning")

    class Module(lightning.LightningModule):
        def __init__(self, net):
            super().__init__()
            self.save_hyperparameters({"width": 8})
            self.net = net

        def training_step(self, batch, index):
            return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            return adam(self, {})

    module, data = Module(trained.get_model()), rows()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(data["x"], data["y"]), 16)
    quiet = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    trainer = lightning.Trainer(max_steps=2, accelerator="cpu", **dict.fromkeys(quiet, False))
    trainer.fit(module, loader)
    trainer.save_checkpoint("run.ckpt")
    found = other().load("run.ckpt")
    for name, value in module.net.state_dict().items():
        torch.testing.assert_close(found.state_dict()[name], value, rtol=0, atol=0)
    assert found.digest() != trained.digest()


def test_words_before_the_names_are_taken_off(trained):
    weights = trained.state_dict()
    for before in ("module.", "_orig_mod.", "model.", "net.module.", "model._orig_mod.", "_orig_mod.module."):
        torch.save({"state_dict": {f"{before}{name}": value for name, value in weights.items()}}, "run.ckpt")
        assert other().load("run.ckpt").digest() == trained.digest(), before
    inside = {name.replace("layers.", "layers._orig_mod."): value for name, value in weights.items()}
    torch.save(inside, "inside.pt")
    assert other().load("inside.pt").digest() == trained.digest()
    torch.save({**{f"net.{name}": value for name, value in weights.items()}, "loss.weight": 1}, "more.pt")
    with pytest.raises(ValueError, match="holds no state dict"):
        other().load("more.pt")
    some = {f"net.{name}": value for name, value in weights.items() if name != "layers.0.bias"}
    torch.save(some, "some.pt")
    with pytest.raises(ValueError, match=r"another model; it lacks: layers.0.bias$"):
        other().load("some.pt")


def test_a_compiled_model_takes_weights_of_a_plain_one(trained):
    trained.save("model.pt")
    compiled = other(model=lambda config: torch.compile(Net(config))).load("model.pt")
    assert all(name.startswith("_orig_mod.") for name in compiled.state_dict())
    assert [value.tolist() for value in compiled.state_dict().values()] == [
        value.tolist() for value in trained.state_dict().values()
    ]


def test_files_that_are_more_than_weights_are_refused(trained):
    torch.save({"state_dict": Net().state_dict(), "hyper_parameters": Net()}, "run.ckpt")
    with pytest.raises(CheckpointError, match=r"run.ckpt holds more than weights.*small_models.Net"):
        trained.load("run.ckpt")
    trained.save("model.pt")
    cut = Path("model.pt").read_bytes()[:-100]
    Path("cut.pt").write_bytes(cut)
    with pytest.raises(CheckpointError, match=r"cut.pt is damaged, or no file of weights"):
        trained.load("cut.pt")
    Path("no.pt").write_bytes(b"\x80\x02cfoo\n\xff\n.")
    with pytest.raises(CheckpointError, match=r"no.pt is damaged, or no file of weights"):
        trained.load("no.pt")


def test_what_is_no_weight_is_named(trained):
    weights = trained.state_dict()
    for odd in ({1: torch.zeros(2)}, {"a": torch.zeros(2).to_sparse()}, {"a": torch.empty(2, device="meta")}):
        torch.save({**weights, **odd}, "odd.pt")
        with pytest.raises(ValueError, match=r"odd.pt holds no state dict"):
            trained.load("odd.pt")
    # Many terabytes, if they were laid out.
    torch.save({name: torch.zeros(1).expand(10**13) for name in weights}, "bomb.pt")
    with pytest.raises(ValueError, match="shapes differ"):
        trained.load("bomb.pt")
    header = json.dumps({"a": {"dtype": "F8_E8M0", "shape": [2], "data_offsets": [0, 2]}}).ljust(64).encode()
    Path("odd.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"12")
    with pytest.raises(CheckpointError, match="tensor 'a' is of F8_E8M0, which cannot be trained"):
        trained.load("odd.safetensors")


class Remembers(nn.Linear):
    """It keeps something that is no tensor."""

    def __init__(self):
        super().__init__(2, 2)
        self.seen = 0

    def get_extra_state(self):
        return {"seen": self.seen}

    def set_extra_state(self, state):
        self.seen = state["seen"]


def test_what_a_module_keeps_besides_is_in_files_of_torch_alone():
    def make(seen):
        module = Remembers()
        module.seen = seen
        return gp.Estimator.from_torch(model=module, optimizer="sgd", loss=nn.MSELoss())

    estimator = make(3)
    estimator.save("model.pt")
    assert make(0).load("model.pt").get_model().seen == 3
    for name, form in {"a.safetensors": None, "folder": "pretrained", "other": "dcp"}.items():
        with pytest.raises(CheckpointError, match=r"_extra_state'? is a dict, and"):
            estimator.save(name, format=form)
    assert left() == ["model.pt"]


def test_a_load_that_fails_changes_nothing(trained):
    trained.save("run")
    estimator = classifier(seed=None, lanes=None, threads_per_lane=None, config={"width": 5})
    before = estimator.digest(), dict(vars(estimator))
    with pytest.raises(ValueError, match="shapes differ"):
        estimator.load("run")
    assert (estimator.digest(), vars(estimator)) == before


# ONNX


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 2), nn.Linear(3, 2)

    def forward(self, first, second):
        return self.a(first) * self.b(second)


def answers(path, *batches):
    """What onnxruntime answers, in a process of its own: it opens files that it keeps open."""
    if importlib.util.find_spec("onnxruntime") is None:
        pytest.skip("onnxruntime is not installed")
    for number, batch in enumerate(batches):
        np.savez(f"in-{number}.npz", *(part.numpy() for part in batch))
    text = """
import sys, numpy, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1])
names = [taken.name for taken in session.get_inputs()]
for number in range(int(sys.argv[2])):
    given = dict(zip(names, numpy.load(f"in-{number}.npz").values(), strict=True))
    numpy.save(f"out-{number}.npy", session.run(None, given)[0])
"""
    here = {**os.environ, **dict.fromkeys(("HOME", "TMPDIR"), str(Path.cwd()))}
    subprocess.run([sys.executable, "-c", text, path, str(len(batches))], env=here, check=True, timeout=50)
    return [torch.from_numpy(np.load(f"out-{number}.npy")) for number in range(len(batches))]


def test_onnx_files_answer_as_the_model_does(trained):
    pytest.importorskip("onnxscript")
    with pytest.raises(ValueError, match="pass example=, some rows as the model takes them"):
        trained.save("model.onnx")
    assert left() == []
    trained.save("model.onnx", example=rows(1))
    assert left() == ["model.onnx"]
    batches = [rows(count, seed=count)["x"] for count in (1, 2, 7)]
    for x, found in zip(batches, answers("model.onnx", *([x] for x in batches)), strict=True):
        torch.testing.assert_close(found, trained.get_model()(x).detach())


def test_onnx_files_of_several_inputs():
    pytest.importorskip("onnxscript")
    pair = gp.Estimator.from_torch(model=Pair, optimizer="sgd", loss=nn.MSELoss())
    first, second = torch.randn(5, 4), torch.randn(5, 3)
    expected = pair.get_model()(first, second).detach()
    for name, example in {
        "tuple.onnx": (first[:2], second[:2]),
        "dict.onnx": {"first": first[:3], "second": second[:3].numpy()},
    }.items():
        pair.save(name, example=example)
        torch.testing.assert_close(answers(name, (first, second))[0], expected)
    with pytest.raises(ValueError, match="example= has no rows"):
        pair.save("none.onnx", example=(first[:0], second[:0]))
