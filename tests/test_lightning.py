"""Lightning modules, with their own steps, optimizers and schedulers."""

from __future__ import annotations

import lightning
import pytest
import torch
import torchmetrics
from clusters import one_cluster, scratch  # noqa: F401 - a fixture
from small_models import rows
from torch import nn

import grampus as gp

runtime = one_cluster(workers=2, preload=("numpy", "torch", "torch._dynamo", "lightning"))


class Lit(lightning.LightningModule):
    """As people write them."""

    def __init__(self, width=8):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 3))
        self.epochs_begun = 0

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.cross_entropy(self(x), y)
        self.log("train_loss", loss, prog_bar=True)
        self.log_dict({"where": batch_idx, "epoch_was": self.current_epoch})
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        output = self(x)
        self.log("val_loss", nn.functional.cross_entropy(output, y))
        self.log("val_acc", (output.argmax(1) == y).float().mean(), sync_dist=True)

    def predict_step(self, batch, batch_idx):
        return self(batch).argmax(1)

    def on_train_epoch_start(self):
        self.epochs_begun += 1

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=0.01)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": self.interval}}

    interval = "epoch"


class LitSteps(Lit):
    interval = "step"


def pairs():
    found = rows(100, seed=1)
    return torch.utils.data.TensorDataset(found["x"], found["y"])


def loader(**options):
    return torch.utils.data.DataLoader(pairs(), batch_size=25, **options)


def estimator(model=Lit, **other):
    return gp.Estimator.from_lightning(model=model, seed=1, threads_per_lane=1, **other)


def test_a_module_trains_as_its_trainer_would_train_it():
    own = estimator(workers=1, lanes=1)
    first = own.state_dict()
    history = own.fit(loader(), epochs=3, batch_size=None, validation_data=loader())
    module = Lit()
    module.load_state_dict(first)
    trainer = lightning.Trainer(
        max_epochs=3,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, loader(), loader())
    for name, value in own.state_dict().items():
        assert torch.allclose(value, module.state_dict()[name], atol=1e-6), name
    assert history["learning_rate"] == pytest.approx([0.01, 0.005, 0.0025])
    assert history["val_acc"][-1] == pytest.approx(trainer.callback_metrics["val_acc"].item())
    assert history["val_loss"][-1] == pytest.approx(trainer.callback_metrics["val_loss"].item(), rel=1e-5)
    assert history["epoch_was"] == [0, 1, 2]
    assert history["where"] == [1.5] * 3
    assert history["train_loss"] == pytest.approx(history["loss"])


def test_weights_are_the_same_at_any_number_of_workers(tmp_path):
    found = []
    for workers in (1, 2):
        own = estimator(workers=workers, lanes=2)
        own.fit(loader(), epochs=2, batch_size=None)
        found.append((own.digest(), own.evaluate(loader(), batch_size=None)))
    assert found[0][0] == found[1][0]
    assert found[0][1] == pytest.approx(found[1][1])
    assert found[0][1]["num_samples"] == 100
    assert set(found[0][1]) == {"val_loss", "val_acc", "num_samples"}
    classes = own.predict(rows(100, seed=1)["x"])
    assert torch.equal(classes, own.get_model()(rows(100, seed=1)["x"]).argmax(1))
    own.save(tmp_path / "lit.pt")
    assert Lit().load_state_dict(torch.load(tmp_path / "lit.pt", weights_only=True))


def test_a_run_goes_on(tmp_path):
    def trained(place, **options):
        own = estimator(workers=2)
        own.fit(loader(), epochs=3, batch_size=None, checkpoint=str(place), **options)
        return own.digest()

    trained(tmp_path / "a", max_steps=6)
    assert trained(tmp_path / "a", resume=True) == trained(tmp_path / "b")


def test_schedulers_step_when_the_module_says():
    own = estimator(LitSteps, workers=2)
    assert own.fit(loader(), epochs=2, batch_size=None)["learning_rate"][-1] == pytest.approx(0.01 * 0.5**8)


class Asking(Lit):
    """Asks for what a Trainer has."""

    def training_step(self, batch, batch_idx):
        self.log("rate", self.optimizers().param_groups[0]["lr"])
        self.log("decays", self.lr_schedulers().gamma)
        self.log("validates", float(self.trainer.validating))
        return super().training_step(batch, batch_idx)

    def predict_step(self, batch, batch_idx):
        return torch.full((len(batch),), batch_idx)

    def on_train_epoch_end(self):
        self.log("at_the_end", self.current_epoch)

    def on_before_optimizer_step(self, optimizer):
        raise AssertionError


class AsksForMore(Lit):
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1 / self.trainer.estimated_stepping_batches)


def test_modules_ask_for_what_a_trainer_has():
    own = estimator(Asking, workers=2, lanes=4)
    with pytest.warns(RuntimeWarning, match="the module's on_before_optimizer_step will not be called"):
        record = own.fit(loader(), epochs=2, batch_size=None, validation_data=loader())[-1]
    assert (record["rate"], record["decays"], record["validates"]) == (pytest.approx(0.005), 0.5, 0.0)
    assert record["at_the_end"] == 1.0
    assert own.predict(torch.zeros(9, 4), batch_size=4).tolist() == [0] * 4 + [1] * 4 + [2]
    with pytest.raises(AttributeError, match="asks its trainer for 'estimated_stepping_batches'"):
        estimator(AsksForMore, workers=1).fit(loader(), batch_size=None)


class Measured(Lit):
    """Logs objects that count by themselves, and other numbers than means."""

    def __init__(self):
        super().__init__()
        self.train_right = torchmetrics.Accuracy(task="multiclass", num_classes=3)
        self.val_right = torchmetrics.MetricCollection({"val_right": self.train_right.clone()})

    def training_step(self, batch, batch_idx):
        output = self(batch[0])
        self.train_right(output, batch[1])
        self.log("right", (output.argmax(1) == batch[1]).float().mean())
        self.log("train_right", self.train_right, on_step=False, on_epoch=True)
        self.log("last", batch_idx, reduce_fx="max")
        self.log_dict({"first": batch_idx, "below": -batch_idx}, reduce_fx=torch.min)
        return super().training_step(batch, batch_idx)

    def validation_step(self, batch, batch_idx):
        super().validation_step(batch, batch_idx)
        self.val_right.update(self(batch[0]), batch[1])
        self.log_dict(self.val_right)
        self.log("val_rows", len(batch[0]), reduce_fx="sum")

    def on_train_epoch_end(self):
        self.log("steps_done", self.global_step)


class LogsAtTheEnd(Measured):
    def on_train_epoch_end(self):
        self.log("train_right", self.train_right)


class Median(Lit):
    def training_step(self, batch, batch_idx):
        self.log("median", batch_idx, reduce_fx=torch.median)
        return super().training_step(batch, batch_idx)


def test_metrics_of_torchmetrics_count_over_all_workers():
    for workers, lanes in ((2, 2), (2, 4), (1, 1)):
        own = estimator(Measured, workers=workers, lanes=lanes)
        history = own.fit(loader(), epochs=3, batch_size=None, validation_data=pairs())
        assert history["val_right"] == pytest.approx(history["val_acc"])
        assert history["val_rows"] == [100.0] * 3
        assert (history["first"], history["last"], history["below"]) == ([0.0] * 3, [3.0] * 3, [-3.0] * 3)
        assert history["steps_done"] == [4.0, 8.0, 12.0]
        # Of each epoch for itself.
        assert history["train_right"] == pytest.approx(history["right"])
        assert own.evaluate(pairs())["val_right"] == history[-1]["val_right"]
    with pytest.raises(TypeError, match=r"logged a MulticlassAccuracy as 'train_right': log numbers there"):
        estimator(LogsAtTheEnd, workers=2).fit(loader(), batch_size=None)
    with pytest.raises(ValueError, match=r"self.log knows 'mean', 'max', 'min' and 'sum'"):
        estimator(Median, workers=1).fit(loader(), batch_size=None)


class Brief(Lit):
    """Steps without the number of the batch, and the name of what a plateau looks at beside its scheduler."""

    def training_step(self, batch):
        return super().training_step(batch, 0)

    def validation_step(self, batch):
        super().validation_step(batch, 0)
        self.log("val_worse", float(self.current_epoch))

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
        return {"optimizer": optimizer, "lr_scheduler": plateau, "monitor": "val_worse"}


def test_other_forms_that_lightning_takes():
    history = estimator(Brief, workers=2).fit(loader(), epochs=3, batch_size=None, validation_data=loader())
    assert history["val_loss"] == sorted(history["val_loss"], reverse=True)
    assert history["learning_rate"] == pytest.approx([0.1, 0.1, 0.01])


class Loaders(lightning.LightningDataModule):
    pass


class Unjudged(lightning.LightningModule):
    training_step = Lit.training_step


class Untrained(Lit):
    def configure_optimizers(self):
        return None


class ByHand(Lit):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False


class Two(Lit):
    def configure_optimizers(self):
        return [torch.optim.SGD(self.parameters(), lr=0.1)] * 2


def test_wrong_use_is_named():
    with pytest.raises(TypeError, match=r"a Loaders holds several loaders: pass its train_dataloader\(\)"):
        estimator(workers=1).fit(Loaders())
    with pytest.raises(ValueError, match=r"the module has no validation_step: write one"):
        estimator(Unjudged(), workers=1).evaluate(loader(), batch_size=None)
    with pytest.raises(ValueError, match=r"configure_optimizers returned no optimizer"):
        estimator(Untrained, workers=1).fit(loader(), batch_size=None)
    with pytest.raises(ValueError, match=r"automatic_optimization=False: write its step as a gp"):
        estimator(ByHand, workers=1).fit(loader(), batch_size=None)
    with pytest.raises(ValueError, match=r"returned 2 optimizers: write the step as a gp"):
        estimator(Two, workers=1).fit(loader(), batch_size=None)
    with pytest.raises(TypeError, match=r"a Linear is no LightningModule: use Estimator.from_torch"):
        estimator(nn.Linear(1, 1), workers=1).fit(loader(), batch_size=None)


class Collecting(Lit):
    """Validates as a whole: what steps have found is put together at the end."""

    def __init__(self):
        super().__init__()
        self.told = []

    def on_train_start(self):
        self.told.append("start")

    def on_validation_epoch_start(self):
        self.found = []

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.found.append((self(x).argmax(1) == y).float())

    def on_validation_epoch_end(self):
        assert not torch.is_grad_enabled()
        self.log("val_right", torch.cat(self.found).mean())
        self.log("starts", len(self.told))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_validation_that_ends_with_a_hook(workers):
    own = estimator(Collecting, workers=workers, lanes=2)
    history = own.fit(loader(), epochs=2, batch_size=None, validation_data=loader())
    found = rows(100, seed=1)
    right = (own.get_model()(found["x"]).argmax(1) == found["y"]).float().mean().item()
    assert history["val_right"][-1] == pytest.approx(right)
    assert history["val_starts"] == [1.0, 1.0]
    # One row: the second worker has none, of which no mean could be made.
    one = torch.utils.data.TensorDataset(found["x"][:1], found["y"][:1])
    assert own.evaluate(one)["num_samples"] == 1


class Looking(Lit):
    """As tutorials write it: the monitor of a scheduler that looks at nothing is passed over."""

    def configure_optimizers(self):
        found = super().configure_optimizers()
        return {**found, "lr_scheduler": {**found["lr_scheduler"], "monitor": "val_loss"}}


def test_a_monitor_that_nobody_needs_is_passed_over():
    own = estimator(Looking, workers=1)
    rates = own.fit(loader(), epochs=2, batch_size=None)["learning_rate"]
    assert rates == pytest.approx([0.01, 0.005])


class LitLine(lightning.LightningModule):
    """One layer, whose loss is a function of torch."""

    def __init__(self, classes=3, loss=nn.functional.cross_entropy):
        super().__init__()
        self.line = nn.Linear(4, classes, dtype=torch.float64)
        self.loss = loss

    def training_step(self, batch, batch_idx):
        return self.loss(self.line(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def ignoring():
    """Of each batch the labels of the second half count for nothing."""
    found = rows(80, seed=1)
    labels = found["y"].clone()
    labels[torch.arange(80) % 20 >= 10] = -100
    data = torch.utils.data.TensorDataset(found["x"].double(), labels)
    return torch.utils.data.DataLoader(data, batch_size=20)


def test_a_weight_makes_ignored_labels_those_of_the_whole_batch():
    own = estimator(LitLine, workers=2, loss_weight=lambda batch: float((batch[1] >= 0).sum()))
    plain = LitLine()
    plain.load_state_dict(own.state_dict())
    history = own.fit(ignoring(), batch_size=None)
    stepper = plain.configure_optimizers()
    losses = []
    for place, batch in enumerate(ignoring()):
        stepper.zero_grad()
        loss = plain.training_step(batch, place)
        loss.backward()
        stepper.step()
        losses.append(loss.item())
    for name, value in own.state_dict().items():
        assert torch.allclose(value, plain.state_dict()[name], rtol=1e-9, atol=1e-9), name
    assert history["loss"] == pytest.approx([sum(losses) / len(losses)])


def test_a_lane_of_which_no_label_counts_is_warned_about():
    with pytest.warns(RuntimeWarning, match=r"in lane 1, the loss is nan, and a number in .* loss_weight="):
        estimator(LitLine, workers=2).fit(ignoring(), batch_size=None)


@pytest.mark.parametrize("workers", [1, 2])
def test_shapes_that_torch_would_broadcast_are_refused(workers):
    found = rows(40, seed=1)
    data = torch.utils.data.TensorDataset(found["x"].double(), found["y"].double())
    loader = torch.utils.data.DataLoader(data, batch_size=20)
    own = estimator(lambda config: LitLine(1, nn.functional.mse_loss), workers=workers)
    before = own.digest()
    with pytest.raises(ValueError, match="the loss compares element by element"):
        own.fit(loader, batch_size=None)
    assert own.digest() == before
