"""Native models train, evaluate and predict on many workers: as PyTorch's from the same weights and rows."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn as tnn

import grampus as gp
from grampus import nn

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(autouse=True)
def place(monkeypatch, tmp_path):
    """Runs, and torch's cache, go elsewhere."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))


def pictures(rows=80, classes=4):
    random = np.random.default_rng(0)
    return {
        "x": random.standard_normal((rows, 1, 12, 12)),
        "y": random.integers(0, classes, rows),
    }


def small_lenet():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 3),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(96, 16),
        nn.GELU(),
        nn.Linear(16, 4),
    )


class TorchLenet(tnn.Sequential):
    def __init__(self):
        super().__init__(
            tnn.Conv2d(1, 4, 3, padding=1),
            tnn.ReLU(),
            tnn.MaxPool2d(2),
            tnn.Conv2d(4, 6, 3),
            tnn.Tanh(),
            tnn.Flatten(),
            tnn.Linear(96, 16),
            tnn.GELU(),
            tnn.Linear(16, 4),
        )


def small_resnet():
    x = nn.Input()
    stem = nn.ReLU()(
        nn.BatchNorm2d(4)(nn.Conv2d(1, 4, 3, padding=1, bias=False)(x, name="stem"), name="norm")
    )
    inner = nn.BatchNorm2d(4)(nn.Conv2d(4, 4, 3, padding=1, bias=False)(stem, name="inner"), name="second")
    down = nn.Conv2d(4, 8, 3, stride=2, padding=1)(nn.ReLU()(nn.Add()(inner, stem)), name="down")
    return nn.Model(x, nn.Linear(8, 4)(nn.GlobalAvgPool()(nn.ReLU()(down)), name="last"))


class TorchResnet(tnn.Module):
    def __init__(self):
        super().__init__()
        self.stem = tnn.Conv2d(1, 4, 3, padding=1, bias=False)
        self.norm = tnn.BatchNorm2d(4)
        self.inner = tnn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.second = tnn.BatchNorm2d(4)
        self.down = tnn.Conv2d(4, 8, 3, stride=2, padding=1)
        self.last = tnn.Linear(8, 4)

    def forward(self, x):
        stem = self.norm(self.stem(x)).relu()
        sum_ = (self.second(self.inner(stem)) + stem).relu()
        return self.last(self.down(sum_).relu().mean((2, 3)))


def both(ours, theirs, lanes, dtype):
    """The same model here and in PyTorch, with the same weights and lanes."""
    kind = torch.float64 if dtype == "float64" else torch.float32
    module = theirs().to(kind)
    settings = {"lanes": lanes, "workers": min(lanes, 2), "threads_per_lane": 1, "seed": 5}
    one = gp.Estimator.from_torch(
        model=module,
        optimizer=lambda model, _: torch.optim.SGD(
            model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3
        ),
        loss=tnn.CrossEntropyLoss(),
        **settings,
    )
    other = gp.Estimator.from_native(
        model=ours(),
        optimizer=gp.optim.SGD(lr=0.05, momentum=0.9, weight_decay=1e-3),
        loss=nn.CrossEntropy(),
        dtype=dtype,
        **settings,
    )
    return one, other


@pytest.mark.parametrize("dtype, near", [("float64", 1e-9), ("float32", 1e-4)])
@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("ours, theirs", [(small_lenet, TorchLenet), (small_resnet, TorchResnet)])
def test_training_goes_as_in_pytorch(tmp_path, ours, theirs, lanes, dtype, near):
    one, other = both(ours, theirs, lanes, dtype)
    weights = str(tmp_path / "first.safetensors")
    one.save(weights)
    other.load(weights)
    data = pictures()
    wanted = {"x": torch.from_numpy(data["x"].astype(dtype)), "y": torch.from_numpy(data["y"])}
    histories = [
        one.fit(wanted, epochs=4, batch_size=16),
        other.fit(data, epochs=4, batch_size=16),
    ]
    assert histories[0]["steps"] == [5] * 4
    # The loss is summed with single precision between lanes.
    losses = [history["loss"] for history in histories]
    np.testing.assert_allclose(*losses, rtol=max(near, 1e-6))
    found = other.state_dict()
    for name, value in one.state_dict().items():
        if not name.endswith("num_batches_tracked"):
            np.testing.assert_allclose(found[name], value.numpy(), rtol=near, atol=near, err_msg=name)


def drawing():
    return nn.Sequential(
        nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.3), nn.Linear(12, 3), nn.LogSoftmax()
    )


def rows(count=90):
    random = np.random.default_rng(3)
    return {"x": random.standard_normal((count, 6), dtype="f4"), "y": random.integers(0, 3, count)}


def classifier(**settings):
    usual = {"lanes": 4, "threads_per_lane": 1, "seed": 1, "optimizer": gp.optim.Adam(lr=0.02)}
    return gp.Estimator.from_native(
        model=drawing(), loss=nn.NLL(), metrics=[gp.metrics.Accuracy()], **{**usual, **settings}
    )


def test_weights_are_equal_to_the_bit_at_any_number_of_workers():
    digests = set()
    for workers in (1, 2, 4):
        with classifier(workers=workers) as estimator:
            estimator.fit(rows(), epochs=3, batch_size=16)
            digests.add(estimator.digest())
    assert len(digests) == 1


def test_a_run_goes_on_to_the_same_weights(tmp_path):
    whole = classifier(workers=2)
    whole.fit(rows(), epochs=4, batch_size=16)
    first = classifier(workers=2)
    first.fit(rows(), max_steps=9, batch_size=16, checkpoint=str(tmp_path / "c"))
    second = classifier(workers=2)
    second.fit(rows(), epochs=4, batch_size=16, checkpoint=str(tmp_path / "c"), resume=True)
    assert second.digest() == whole.digest()


def test_a_schedule_moves_the_rate_and_a_run_that_goes_on_knows_where_it_was(tmp_path):
    settings = {"workers": 2, "scheduler": gp.optim.Cosine(24)}
    whole = classifier(**settings)
    rates = whole.fit(rows(), epochs=4, batch_size=16)["learning_rate"]
    assert rates == sorted(rates, reverse=True) and rates[-1] < 0.001
    first = classifier(**settings)
    first.fit(rows(), max_steps=9, batch_size=16, checkpoint=str(tmp_path / "c"))
    second = classifier(**settings)
    second.fit(rows(), epochs=4, batch_size=16, checkpoint=str(tmp_path / "c"), resume=True)
    assert second.digest() == whole.digest()


def test_the_model_of_the_seeds_trains_without_torch():
    model = nn.Sequential().add(nn.Linear(2, 2))
    estimator = gp.Estimator.from_native(
        model=model, loss=nn.MSE(), optimizer=gp.optim.Adam(lr=0.05), workers=2
    )
    x = np.random.default_rng(0).standard_normal((200, 2))
    y = x @ np.array([[1.0, -2.0], [0.5, 3.0]]) + 1
    history = estimator.fit({"x": x, "y": y}, epochs=60, batch_size=20)
    assert history["loss"][-1] < 1e-3
    assert estimator.evaluate({"x": x, "y": y})["loss"] < 1e-3
    np.testing.assert_allclose(estimator.predict(x), y, atol=0.1)
    assert gp.run(lambda: "torch" in __import__("sys").modules) == [False, False]


def test_frames_shards_and_files_go_in_and_come_back(tmp_path):
    data = rows()
    frame = pd.DataFrame(data["x"], columns=[f"x{at}" for at in range(6)]).assign(y=data["y"])
    features = [[f"x{at}" for at in range(6)]]
    estimator = classifier(workers=2)
    shards = gp.Shards.from_pandas(frame, 3)
    estimator.fit(shards, epochs=2, batch_size=16, feature_cols=features, label_cols="y")
    frame.to_parquet(tmp_path / "t.parquet")
    found = estimator.evaluate(str(tmp_path / "t.parquet"), feature_cols=features, label_cols="y")
    again = estimator.evaluate(data)
    assert found["accuracy"] == again["accuracy"] and found["num_samples"] == 90
    table = estimator.predict(str(tmp_path / "t.parquet"), feature_cols=features)
    np.testing.assert_allclose(
        np.stack(table["prediction"].to_numpy()), estimator.predict(data["x"]), atol=1e-6
    )


def test_what_is_saved_is_loaded_again(tmp_path):
    estimator = classifier(workers=1, lanes=1)
    estimator.fit(rows(), epochs=1, batch_size=16)
    estimator.save(tmp_path / "w.safetensors")
    other = classifier(workers=1, lanes=1).load(tmp_path / "w.safetensors")
    assert other.digest() == estimator.digest()
    model = other.get_model()
    # As many rows at once as workers get: products round otherwise with others.
    np.testing.assert_array_equal(model(rows()["x"]), estimator.predict(rows()["x"], batch_size=90))
    # The file says which layers they are of.
    read = gp.Estimator.from_native(model=tmp_path / "w.safetensors", workers=1)
    assert read.digest() == estimator.digest()
    torch.save({}, tmp_path / "w.pt")
    with pytest.raises(ValueError, match=r"w\.pt does not say which layers its weights are of"):
        gp.Estimator.from_native(model=str(tmp_path / "w.pt"))


# Wrong use


def test_shapes_that_do_not_fit_name_the_layer():
    estimator = gp.Estimator.from_native(
        model=nn.Sequential(nn.Linear(6, 4), nn.Linear(5, 2)),
        loss=nn.MSE(),
        optimizer=gp.optim.SGD(0.1),
        workers=1,
    )
    words = r"layer 1 \(Linear\(5, 2\)\): needs rows whose last axis has 5 numbers, and 4 came in"
    with pytest.raises(ValueError, match=words):
        estimator.fit({"x": rows()["x"], "y": rows()["x"]})


def test_a_label_out_of_range_names_its_row():
    data = rows()
    data["y"][17] = 3
    with pytest.raises(ValueError, match="the label is 3, and there are classes from 0 to 2") as raised:
        classifier(workers=2).fit(data, batch_size=90)
    assert any("row 17 of the data" in note for note in raised.value.__notes__)


def test_weights_of_another_model_are_refused(tmp_path):
    estimator = classifier(workers=1, lanes=1)
    estimator.save(tmp_path / "w.safetensors")
    other = gp.Estimator.from_native(
        model=nn.Sequential(nn.Linear(6, 3)), loss=nn.MSE(), optimizer=gp.optim.SGD(0.1), workers=1
    )
    words = r"of another model: what was given has besides 1\.bias, .*; has other shapes 0\.bias 12 for 3"
    with pytest.raises(ValueError, match=words):
        other.load(tmp_path / "w.safetensors")


def test_graphs_that_cannot_be_are_refused():
    x = nn.Input("x")
    with pytest.raises(ValueError, match=r"layer add \(Add\(\)\): takes 2 inputs or more, not 1"):
        nn.Model(x, nn.Add()(x, name="add")).summary([3])
    with pytest.raises(ValueError, match="not among the inputs of the model"):
        nn.Model(x, nn.ReLU()(nn.Input("z"))).summary([3])
    twice = nn.ReLU()(x, name="a")
    with pytest.raises(ValueError, match="two layers are called a: give each a name of its own"):
        nn.Model(x, nn.ReLU()(twice, name="a")).summary([3])


def test_wrong_settings_are_refused_before_anything_starts():
    with pytest.raises(ValueError, match="dtype must be 'float32' or 'float64', it is 'half'"):
        gp.Estimator.from_native(model=drawing(), dtype="half")
    with pytest.raises(ValueError, match="nesterov of SGD needs a momentum above 0"):
        gp.optim.SGD(0.1, nesterov=True)
    estimator = classifier(workers=1, scheduler=gp.optim.Cosine(0))
    with pytest.raises(ValueError, match="schedule: total must be 1 or more"):
        estimator.fit(rows())
    with pytest.raises(TypeError, match=r"model is a int: pass a gp.nn.Sequential"):
        gp.Estimator.from_native(model=3, loss=nn.MSE(), optimizer=gp.optim.SGD(), workers=1).fit(rows())
    with pytest.raises(ValueError, match=r"layer 0 \(Conv2d\) cannot be read: .*`-2`"):
        nn.Sequential(nn.Conv2d(1, -2, 3)).summary([1, 8, 8])


def test_a_loss_that_is_no_number_names_the_layer():
    data = rows()
    data["x"][5, 0] = np.inf
    words = r"layer 0 \(Linear\(6, 12\)\) is the first that is not finite"
    with pytest.raises(FloatingPointError, match=words):
        classifier(workers=2).fit(data, batch_size=90, callbacks=[gp.callbacks.StopOnNaN()])
