"""What models and losses are called with: what can be told apart is, and the rest is refused."""

import pickle

import numpy as np
import pandas as pd
import polars
import pyarrow
import pyarrow.parquet
import pytest
import torch
from estimators import numbers, runtime, scratch  # noqa: F401 - fixtures
from sklearn.datasets import load_iris
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import grampus as gp
from grampus.errors import CheckpointError
from grampus.frameworks._torch_inputs import Inputs


class Masked(nn.Module):
    """Sums what a mask leaves."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, ids, mask=None):
        return (ids if mask is None else ids * mask).sum(1, keepdim=True) * self.weight


class Telling(Masked):
    """Has an option that is no input."""

    def forward(self, ids, scaled=False, name="sum"):
        assert scaled is False
        assert name == "sum"
        return super().forward(ids)


class ByName(Masked):
    """Takes its mask by name alone."""

    def forward(self, ids, *, mask=None):
        return super().forward(ids, mask)


class ByAnyName(Masked):
    """Takes what it is given by name."""

    def forward(self, ids, **more):
        return super().forward(ids, **more)


class BehindOption(Masked):
    """Has an option before its mask."""

    def forward(self, ids, scale=1.0, mask=None):
        return super().forward(ids * scale, mask)


class Both(Masked):
    """Needs both."""

    def forward(self, ids, mask):
        return super().forward(ids, mask)


class Any_(Masked):  # noqa: N801 - a wrapper takes whatever it is given
    def forward(self, *parts):
        return super().forward(*parts)


class OwnLoss(Masked):
    """Makes its own loss."""

    def forward(self, ids, mask=None):
        output = super().forward(ids, mask)
        return {"loss": output.mean(), "logits": output}


class Default(gp.TrainingOperator):
    def predict_batch(self, batch):
        return super().predict_batch(batch)


IDS = torch.arange(12.0).reshape(6, 2)
MASK = torch.tensor([[1.0, 0.0]] * 6)
Y = torch.zeros(6, 1)


def estimator(model, **settings):
    return gp.Estimator.from_torch(
        model=model, **{"optimizer": "sgd", "loss": nn.MSELoss(), "workers": 2, **settings}
    )


# Inputs that a model may do without


@pytest.mark.parametrize("settings", [{}, {"training_operator_cls": Default}], ids=["plain", "operator"])
@pytest.mark.parametrize(
    "data",
    [
        (IDS, MASK),
        [IDS, MASK],
        (IDS.numpy(), MASK.numpy()),
        TensorDataset(IDS, MASK),
        DataLoader(TensorDataset(IDS, MASK), batch_size=4),
    ],
    ids=["tuple", "list", "arrays", "data set", "loader"],
)
def test_a_second_part_that_may_be_input_or_target_is_refused(data, settings):
    words = (
        r"of the 2 parts of a batch 1 to 2 may be inputs of forward\(\), and the others targets: write \{'x'"
    )
    for model in (Masked, Any_):
        with pytest.raises(ValueError, match=words):
            estimator(model, **settings).predict(data)


@pytest.mark.parametrize("settings", [{}, {"training_operator_cls": Default}], ids=["plain", "operator"])
def test_what_can_be_told_apart_is_predicted(settings):
    whole, masked = IDS.sum(1, keepdim=True), (IDS * MASK).sum(1, keepdim=True)
    for model, data, expected in (
        (Masked, {"x": (IDS, MASK)}, masked),
        (Masked, {"x": {"ids": IDS, "mask": MASK}}, masked),
        (Masked, {"ids": IDS, "mask": MASK}, masked),
        (Masked, {"x": IDS}, whole),
        (Masked, {"x": IDS, "y": Y}, whole),
        (Masked, (IDS,), whole),
        (Both, (IDS, MASK), masked),
        (Both, (IDS, MASK, Y), masked),
        # Options are no inputs.
        (Telling, (IDS, Y), whole),
        (ByName, {"x": {"ids": IDS, "mask": MASK}}, masked),
        (BehindOption, {"ids": IDS, "mask": MASK}, masked),
    ):
        assert estimator(model, **settings).predict(data).equal(expected)


def test_a_target_named_as_an_input_is_refused():
    class Second(Masked):
        def forward(self, x, y=None):
            return super().forward(x, y)

    with pytest.raises(ValueError, match=r"'y' may be an input of forward\(\) or the target"):
        estimator(Second).predict({"x": IDS, "y": MASK})
    assert estimator(Second).predict({"x": IDS}).equal(IDS.sum(1, keepdim=True))


def test_a_model_with_a_loss_of_its_own_gets_every_input():
    est = estimator(OwnLoss, loss=None, config={"lr": 0.0})
    for call in (est.fit, est.evaluate):
        with pytest.raises(ValueError, match="of the 2 parts of a batch 1 to 2 may be inputs"):
            call((IDS, MASK))
        call({"x": (IDS, MASK)})
    assert est.evaluate({"x": (IDS, MASK)})["loss"] == pytest.approx((IDS * MASK).sum(1).mean().item())


def test_wrappers_do_not_hide_what_forward_takes():
    for wrapped in (Masked(), torch.compile(Masked()), nn.DataParallel(Masked())):
        assert Inputs.of(wrapped)[:2] == (1, 2)
    scripted = torch.jit.trace(Both(), (IDS, MASK))
    assert Inputs.of(scripted)[:2] == (2, 2)


# Several targets


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(2, 1), nn.Linear(2, 1)

    def forward(self, x):
        return self.first(x), self.second(x)


def of_both(outputs, targets):
    return sum(nn.functional.mse_loss(*pair) for pair in zip(outputs, targets, strict=True))


def two_heads():
    torch.manual_seed(0)
    return TwoHeads()


def test_several_targets_in_a_flat_tuple_train_as_a_plain_loop():
    model = two_heads()
    targets = IDS.sum(1, keepdim=True) / 10, IDS.prod(1, keepdim=True) / 100
    loader = DataLoader(TensorDataset(IDS / 10, *targets), batch_size=4)
    est = gp.Estimator.from_torch(
        model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), loss=of_both, workers=2
    )
    est.fit(loader, epochs=2)
    plain = two_heads()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    for _ in range(2):
        for x, *wanted in loader:
            optimizer.zero_grad()
            of_both(plain(x), wanted).backward()
            optimizer.step()
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(est.state_dict()[name], value)
    with torch.no_grad():
        outputs = plain(IDS / 10)
    assert est.evaluate(loader)["loss"] == pytest.approx(of_both(outputs, targets).item(), rel=1e-4)
    for found, expected in zip(est.predict(loader), outputs, strict=True):
        torch.testing.assert_close(found, expected)


def test_inputs_and_targets_that_cannot_be_counted_are_refused():
    for parts in ((IDS, MASK, Y), (IDS, MASK, Y, Y)):
        words = rf"of the {len(parts)} parts of a batch 1 to 2 may be inputs.*\{{'x': \(…\), 'y': …\}}"
        for call in (estimator(Masked).fit, estimator(Masked).evaluate, estimator(Masked).predict):
            with pytest.raises(ValueError, match=words):
                call(parts)


@pytest.mark.parametrize("model", [ByName, ByAnyName, BehindOption])
def test_inputs_that_are_passed_by_name_are_not_dropped(model):
    """A mask that cannot be passed by place was taken for a target, and left away."""
    est = estimator(model, config={"lr": 0.0})
    words = r"of the 2 parts of a batch 1 to 2 may be inputs.*\{'x': \{'name of a parameter': …\}, 'y': …\}"
    with pytest.raises(ValueError, match=words):
        est.predict((IDS, MASK))
    with pytest.raises(ValueError, match="of the 3 parts of a batch 1 to 2 may be inputs"):
        est.fit((IDS, MASK, Y))
    # The last of two is the target of the loss.
    est.fit((IDS, Y))
    assert est.predict({"x": {"ids": IDS, "mask": MASK}}).equal((IDS * MASK).sum(1, keepdim=True))


# As in scikit-learn


def flowers():
    """As scikit-learn returns them, in doubles."""
    return load_iris(return_X_y=True)


def classifier(model=None, **settings):
    return estimator(
        model or (lambda config: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))),
        **{"optimizer": "adam", "loss": nn.CrossEntropyLoss(), "metrics": ["accuracy"], **settings},
        config={"lr": 0.02},
    )


def test_fit_evaluate_and_score_take_x_and_y():
    x, y = flowers()
    single = x.astype(np.float32)
    one = classifier()
    one.fit({"x": single, "y": y}, epochs=3, batch_size=16)
    outputs = one.predict(single)
    right = (outputs.argmax(1) == y).mean()
    for kind in (
        lambda: (x, y),
        lambda: (torch.from_numpy(x), torch.from_numpy(y)),
        lambda: (x.tolist(), y.tolist()),
        lambda: (x.tolist(), list(y)),
        lambda: (pd.DataFrame(x), pd.Series(y, name="kind")),
        lambda: (polars.DataFrame(x), polars.Series(y)),
    ):
        features, targets = kind()
        other = classifier()
        history = other.fit(features, targets, epochs=3, batch_size=16, validation_data=(features, targets))
        assert other.digest() == one.digest()
        assert history[-1]["val_loss"] == pytest.approx(one.evaluate({"x": single, "y": y})["loss"])
        assert one.evaluate({"x": single, "y": y}) == other.evaluate(features, targets)
        assert other.score(features, y=targets) == pytest.approx(right)
        found = other.predict(features)
        if hasattr(found, "columns"):
            # Of a frame of polars, an Arrow table.
            names = list(getattr(found, "column_names", found.columns))
            assert names == [*features.columns, "prediction"]
            found = np.stack(found["prediction"].to_numpy())
        assert np.array_equal(np.asarray(found), outputs)


def test_a_model_of_doubles_gets_doubles():
    x, y = flowers()
    model = classifier(model=lambda config: nn.Linear(4, 3).double(), seed=3)
    model.fit(x, y, epochs=2)
    assert model.predict(x).dtype == np.float64
    again = classifier(model=lambda config: nn.Linear(4, 3).double(), seed=3)
    again.fit({"x": x, "y": y}, epochs=2)
    assert again.digest() == model.digest()


def test_predict_takes_a_loader_after_x_and_y_too():
    x, y = flowers()
    model = classifier()
    model.fit(x, y)
    single = torch.from_numpy(x).float()
    expected = model.predict({"x": x})
    for data in (DataLoader(TensorDataset(single), batch_size=16), single, {"x": single}):
        assert np.array_equal(model.predict(data), expected)


def test_lists_of_numbers_are_named_in_a_few_words():
    x, _ = flowers()
    words = r"\[0\]\[0\] \(\), \[0\]\[1\] \(\), .* and 596 more; .*pass numpy.asarray"
    with pytest.raises(ValueError, match=words) as caught:
        classifier().predict(x.tolist())
    assert len(str(caught.value)) < 300


def test_native_models_take_x_and_y():
    x, y = flowers()
    digests = set()
    for data in (({"x": x, "y": y},), (x, y)):
        model = gp.nn.Sequential().add(gp.nn.Linear(4, 3))
        est = gp.Estimator.from_native(
            model=model, loss=gp.nn.CrossEntropy(), optimizer=gp.optim.SGD(lr=0.1), workers=2
        )
        est.fit(*data, epochs=2)
        digests.add(est.digest())
    assert len(digests) == 1


def test_lightning_modules_get_x_and_y_as_a_pair():
    lightning = pytest.importorskip("lightning")

    class Line(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(1, 1)

        def training_step(self, batch, batch_idx):
            x, y = batch
            return nn.functional.mse_loss(self.layer(x), y)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    gp.Estimator.from_lightning(model=Line, workers=2).fit(numbers(8), numbers(8))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((TensorDataset(IDS, Y), Y), "y goes with arrays.*TensorDataset.*leave y out"),
        (("rows.parquet", Y), "y goes with arrays.*label_cols"),
        # One number is how many epochs there are.
        ((IDS, 3), "needs a target, and the batch has none"),
        ((IDS, Y[:4]), "differ in their number of rows"),
    ],
    ids=["data set", "path", "epochs", "rows"],
)
def test_a_y_that_does_not_go_with_the_data(arguments, words):
    with pytest.raises((TypeError, ValueError), match=words):
        estimator(Masked).fit(*arguments)


# Files that are damaged


def damaged(path, kind):
    whole = path.read_bytes()
    if kind == "cut off":
        path.write_bytes(whole[: len(whole) // 2])
    elif kind == "turned bit":
        # In the numbers of a tensor, which torch itself reads without a word.
        middle = whole.index(torch.full((64,), 1.5).numpy().tobytes()) + 17
        path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 64]) + whole[middle + 1 :])
    elif kind == "random":
        path.write_bytes(np.random.default_rng(0).bytes(4096))
    elif kind == "text":
        path.write_text("<html>404</html>")
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "beginning":
        path.write_bytes(b"\x80\x02}" + whole[:100])


@pytest.mark.parametrize("suffix", ["pt", "pth", "ckpt"])
@pytest.mark.parametrize("kind", ["cut off", "turned bit", "random", "text", "empty", "beginning"])
def test_a_damaged_file_of_weights_is_called_damaged(kind, suffix, tmp_path):
    model = nn.Linear(64, 1, bias=False)
    nn.init.constant_(model.weight, 1.5)
    path = tmp_path / f"weights.{suffix}"
    torch.save(model.state_dict(), path)
    est = estimator(lambda config: nn.Linear(64, 1, bias=False))
    est.load(path)
    damaged(path, kind)
    with pytest.raises(CheckpointError, match=rf"weights\.{suffix} is damaged"):
        est.load(path)


@pytest.mark.parametrize("old", [False, True])
def test_a_whole_file_that_could_run_code_is_not_called_damaged(old, tmp_path):
    path = tmp_path / "model.pt"
    torch.save(Masked(), path, _use_new_zipfile_serialization=not old)
    with pytest.raises(CheckpointError, match="holds more than weights"):
        estimator(Masked).load(path)
    path.write_bytes(pickle.dumps(np.zeros(3)))
    with pytest.raises(CheckpointError, match="holds more than weights"):
        estimator(Masked).load(path)


def test_a_file_without_checksums_is_loaded(tmp_path):
    torch.serialization.set_crc32_options(compute_crc32=False)
    try:
        torch.save(Masked().state_dict(), tmp_path / "weights.pt")
    finally:
        torch.serialization.set_crc32_options(compute_crc32=True)
    estimator(Masked).load(tmp_path / "weights.pt")


# Weights from memory


def test_native_weights_go_from_one_estimator_to_another():
    def line():
        return gp.Estimator.from_native(model=gp.nn.Sequential().add(gp.nn.Linear(2, 3)), workers=1)

    weights = {name: value + 1 for name, value in line().state_dict().items()}
    other = line().load_state_dict(weights)
    for name, value in weights.items():
        assert np.array_equal(other.state_dict()[name], value)
    with pytest.raises(ValueError, match="weight"):
        other.load_state_dict({})


def test_weights_go_from_one_estimator_to_another():
    one, other = estimator(two_heads), estimator(TwoHeads)
    assert one.digest() != other.digest()
    assert other.load_state_dict(one.state_dict()) is other
    assert other.digest() == one.digest()
    # Those of torch, too, and under the words that wrappers put before names.
    wrapped = {f"module.{name}": value for name, value in TwoHeads().state_dict().items()}
    other.load_state_dict(wrapped)
    assert other.state_dict()["first.weight"].equal(wrapped["module.first.weight"])
    before = other.digest()
    with pytest.raises(ValueError, match="second"):
        other.load_state_dict({name: v for name, v in wrapped.items() if "second" not in name})
    assert other.digest() == before


@pytest.mark.parametrize("framework", ["torch", "native"])
def test_rows_that_are_left_out_are_not_evaluated(framework):
    def rows(output, target):
        return float(len(target))

    shards = gp.Shards.from_arrow(
        pyarrow.table({"x": [None, *map(float, range(11))], "y": [0.0] * 12}), 2
    ).skip_bad_rows()
    if framework == "torch":
        est = estimator(lambda config: nn.Linear(1, 1), metrics=[rows])
    else:
        model = gp.nn.Sequential().add(gp.nn.Linear(1, 1))
        est = gp.Estimator.from_native(
            model=model, optimizer=gp.optim.SGD(lr=0.1), loss=gp.nn.MSE(), workers=2, metrics=[rows]
        )
    found = est.evaluate(shards, feature_cols=[["x"]], label_cols=[["y"]], batch_size=6)
    assert (found["rows"], found["num_samples"]) == (11, 11)
