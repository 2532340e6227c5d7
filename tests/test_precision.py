"""Half precision, devices, and what models do to be fast or small."""

from __future__ import annotations

import warnings
from contextlib import nullcontext

import pytest
import torch
from clusters import one_cluster, scratch  # noqa: F401 - a fixture
from operator_models import Plain, Steps, adam, by_hand, data, estimator
from torch import nn

import grampus as gp

runtime = one_cluster(workers=2)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_keeps_weights_and_promises(precision, tmp_path):
    digests = set()
    for workers in (1, 2):
        half = estimator(None, workers=workers, lanes=2, precision=precision)
        loss = half.fit(data(), epochs=2, batch_size=32)["loss"]
        digests.add(half.digest())
    assert len(digests) == 1
    whole = estimator(None, workers=2)
    expected = whole.fit(data(), epochs=2, batch_size=32)["loss"]
    assert loss == pytest.approx(expected, rel=0.02)
    assert loss != expected
    assert {value.dtype for value in half.state_dict().values()} == {torch.float32}
    answer = half.predict(data()["x"][:4])
    assert answer.dtype == {"bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    half.save(tmp_path / "half")
    later = estimator(None, workers=1, precision=precision).load(tmp_path / "half")
    straight = estimator(None, workers=2, precision=precision)
    straight.fit(data(), epochs=3, batch_size=32)
    later.fit(data(), epochs=1, batch_size=32)
    assert later.digest() == straight.digest()
    own = estimator(Steps, workers=2, precision=precision)
    assert own.fit(data(), epochs=2, batch_size=32)["loss"] == pytest.approx(expected, rel=0.02)


def test_a_loss_that_overflows_makes_the_scale_smaller():
    def huge(output, target):
        return nn.functional.cross_entropy(output.float(), target) * 100

    half = estimator(None, workers=2, loss=huge, precision="fp16", optimizer=adam)
    before = half.state_dict()
    half.fit(data(), epochs=1, max_steps=1, batch_size=32)
    # The first gradients were infinite: no step was taken.
    assert all(torch.equal(value, before[name]) for name, value in half.state_dict().items())
    half.fit(data(), epochs=3, batch_size=8)
    assert not all(torch.equal(value, before[name]) for name, value in half.state_dict().items())


def test_settings_of_precision_and_device():
    with pytest.raises(ValueError, match=r"precision must be 'bf16', 'fp16' or None, it is 'double'"):
        estimator(None, precision="double")
    if not torch.cuda.is_available():
        for device in ("cuda", "cuda:0", torch.device("cuda")):
            with pytest.raises(ValueError, match=r"'cuda.* was asked for, and this worker sees no GPU"):
                estimator(None, workers=1, device=device).fit(data())
    for device in ("gpu", 1.5):
        with pytest.raises(ValueError, match=r"device must be 'cpu' or 'cuda', it is"):
            estimator(None, workers=1, device=device).fit(data())
    estimator(None, workers=1, device="cpu").fit(data(), max_steps=1)


class Checkpointed(nn.Module):
    """Gives up what it computed, and computes it again."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x):
        from torch.utils.checkpoint import checkpoint

        return self.second(checkpoint(lambda each: torch.relu(self.first(each)), x, use_reentrant=False))


def compiled(config):
    return torch.compile(Plain(), backend="aot_eager" if config.get("traced") else "eager")


def test_models_that_are_compiled_or_give_up_activations(tmp_path):
    plain = estimator(None, workers=2)
    plain.fit(data(), epochs=1, batch_size=50)
    fast = estimator(None, workers=2, model=compiled)
    fast.fit(data(), epochs=1, batch_size=50)
    assert fast.digest() == plain.digest()
    fast.save(tmp_path / "weights.safetensors")
    assert estimator(None).load(tmp_path / "weights.safetensors").digest() == plain.digest()
    sparing = estimator(None, workers=2, model=Checkpointed)
    first, last = sparing.fit(data(), epochs=4, batch_size=20)["loss"][::3]
    assert last < first


def convolutions(config):
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 3))
    return net.to(memory_format=torch.channels_last) if config["last"] else net


def test_channels_last_is_kept():
    generator = torch.Generator().manual_seed(0)
    pictures = {"x": torch.randn(24, 3, 8, 8, generator=generator), "y": torch.arange(24) % 3}
    found = []
    for last in (False, True):
        own = estimator(None, workers=2, model=convolutions, config={"last": last})
        own.fit(pictures, epochs=2, batch_size=8)
        found.append(own.state_dict())
    for name, value in found[0].items():
        assert torch.allclose(value, found[1][name], atol=1e-5)


def test_lanes_accumulate_gradients():
    # One worker with four lanes: a quarter of the batch is in memory at a time.
    own = estimator(None, workers=1, lanes=4)
    own.fit(data(), epochs=2, batch_size=100)
    plain = by_hand(2, 100)[0]
    for name, value in own.state_dict().items():
        assert torch.allclose(value, plain.state_dict()[name], atol=1e-6)


class Pair(gp.TrainingOperator):
    """Two models, whose gradients are both there before either takes a step; the first ones overflow."""

    def train_batch(self, batch, batch_info):
        overflows = float("inf") if batch_info["global_step"] in (0, 3) else 1.0
        (first, second), (of_first, of_second) = self.models, self.optimizers
        of_first.zero_grad()
        of_second.zero_grad()
        with self.autocast():
            losses = [pair_loss(model, batch) for model in (first, second)]
        self.backward(losses[0] * overflows)
        self.backward(losses[1])
        of_first.step()
        of_second.step()
        return {"train_loss": losses[1].item(), "num_samples": len(batch["y"])}


class Twice(Pair):
    """One of them takes two steps for a batch, while the other's gradients wait."""

    def train_batch(self, batch, batch_info):
        overflows = float("inf") if batch_info["global_step"] == 0 else 1.0
        (first, second), (of_first, of_second) = self.models, self.optimizers
        for factor in (overflows, 1.0):
            of_first.zero_grad()
            with self.autocast():
                loss = pair_loss(first, batch)
            self.backward(loss * factor)
            if factor == overflows:
                of_second.zero_grad()
                with self.autocast():
                    loss = pair_loss(second, batch)
                self.backward(loss)
            of_first.step()
        of_second.step()
        return {"train_loss": loss.item(), "num_samples": len(batch["y"])}


def pair_loss(model, batch):
    # Small, so that only what is multiplied overflows.
    return nn.functional.mse_loss(model(batch["x"]).float(), batch["y"]) / 1000


def two_lines(config=None):
    torch.manual_seed(0)
    return [nn.Linear(3, 1), nn.Linear(3, 1)]


def two_sgds(models, config=None):
    return [torch.optim.SGD(model.parameters(), lr=100.0) for model in models]


def pair_rows():
    x = torch.randn(8, 3, generator=torch.Generator().manual_seed(1))
    return {"x": x, "y": x.sum(1, keepdim=True)}


def with_torchs_scaler(epochs):
    """The loop of torch's guide to several models and optimizers: one update for each batch."""
    models = two_lines()
    optimizers = two_sgds(models)
    scaler = torch.amp.GradScaler("cpu")
    for step in range(epochs):
        overflows = float("inf") if step in (0, 3) else 1.0
        for each in optimizers:
            each.zero_grad()
        with torch.autocast("cpu", torch.float16):
            losses = [pair_loss(model, pair_rows()) for model in models]
        scaler.scale(losses[0] * overflows).backward()
        scaler.scale(losses[1]).backward()
        for each in optimizers:
            scaler.step(each)
        scaler.update()
    return models, scaler.get_scale()


def check_weights(own, models):
    expected = [value for model in models for value in model.state_dict().values()]
    for found, value in zip(own.state_dict().values(), expected, strict=True):
        torch.testing.assert_close(found, value, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("workers", [1, 2])
def test_two_backwards_before_two_steps_have_one_scale(workers):
    settings = {"model": two_lines, "optimizer": two_sgds, "precision": "fp16", "workers": workers}
    own = estimator(Pair, **settings)
    own.fit(pair_rows(), epochs=5, batch_size=8)
    models, scale = with_torchs_scaler(5)
    check_weights(own, models)
    assert own._state["plain"]["besides"]["precision"]["scale"] == scale


def test_gradients_that_wait_keep_their_size_where_the_scale_changes():
    settings = {"model": two_lines, "optimizer": two_sgds, "precision": "fp16", "workers": 1}
    own = estimator(Twice, **settings)
    own.fit(pair_rows(), epochs=3, batch_size=8)
    models = two_lines()
    optimizers = two_sgds(models)
    for step in range(3):
        for model, optimizer, steps in zip(models, optimizers, (2, 1), strict=True):
            # The very first step overflows, and is not taken.
            for number in range(steps):
                if model is models[0] and step == number == 0:
                    continue
                optimizer.zero_grad()
                with torch.autocast("cpu", torch.float16):
                    loss = pair_loss(model, pair_rows())
                loss.backward()
                optimizer.step()
    check_weights(own, models)


class Casts(gp.TrainingOperator):
    """Computes forward in the precision that was asked for, or does not."""

    def train_batch(self, batch, batch_info):
        with self.autocast() if self.config["casts"] else nullcontext():
            loss = self.criterion(self.model(batch["x"]), batch["y"])
        self.optimizer.zero_grad()
        self.backward(loss)
        self.optimizer.step()
        return {"train_loss": loss.item(), "num_samples": len(batch["y"])}


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_precision_that_an_operator_does_not_use_is_warned_about(precision):
    settings = {"model": line, "optimizer": "sgd", "loss": nn.MSELoss(), "precision": precision, "workers": 2}
    for casts in (False, True):
        own = estimator(Casts, **settings, config={"lr": 0.1, "casts": casts})
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            own.fit(pair_rows(), epochs=2, batch_size=4)
        said = [each for each in told if "has no effect on the operator's own steps" in str(each.message)]
        assert len(said) == (0 if casts else 1)


def line(config):
    return nn.Linear(3, 1)
