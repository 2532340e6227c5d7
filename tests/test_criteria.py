"""Losses that cannot be told by their kind: what is refused, what is warned about, and what is right.

Where results are numbers the oracle is torch alone, in one process.
"""

import functools
import re
import warnings

import pandas
import plain_loop
import pytest
import torch
from clusters import one_cluster, scratch  # noqa: F401 - a fixture
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, TensorDataset

import grampus as gp

runtime = one_cluster(workers=2)

ROWS, BATCH, CLASSES = 16, 8, 3
NO_MEAN = "the loss is no mean over rows"
BROADCASTS = "compares element by element"


def sgd(model, config):
    return torch.optim.SGD(model.parameters(), lr=0.1)


class Line(nn.Linear):
    def __init__(self, config):
        super().__init__(1, 1, dtype=torch.float64)


class Classes(nn.Linear):
    def __init__(self, config):
        super().__init__(1, CLASSES, dtype=torch.float64)


def inputs():
    return torch.linspace(-1, 1, ROWS, dtype=torch.float64).unsqueeze(1)


def labels():
    """Of each batch all labels of the second lane are ignored."""
    found = torch.arange(ROWS) % CLASSES
    found[torch.arange(ROWS) % BATCH >= BATCH // 2] = -100
    return found


def loader(*arrays):
    return DataLoader(TensorDataset(*arrays), batch_size=BATCH)


def estimator(model, loss, workers=2, **options):
    return gp.Estimator.from_torch(
        **{"model": model, "optimizer": sgd, "loss": loss, "seed": 5, "workers": workers, **options},
        threads_per_lane=1,
    )


def trained_plainly(model, loss, x, y):
    """A plain loop over the batches in order."""
    module = plain_loop.train(model, sgd, None, {"x": x, "y": y}, seed=5, epochs=0)
    stepper = sgd(module, {})
    for start in range(0, len(x), BATCH):
        stepper.zero_grad()
        loss(module(x[start : start + BATCH]), y[start : start + BATCH]).backward()
        stepper.step()
    return module.state_dict()


def warned(fit):
    """Texts of all warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit()
    return [str(each.message) for each in caught if each.category is RuntimeWarning]


# Labels that are ignored in all rows of a lane


class Judging(nn.Module):
    """Makes its own loss."""

    def __init__(self, config):
        super().__init__()
        self.linear = Classes({})

    def forward(self, x, labels):
        logits = self.linear(x)
        return {"loss": functional.cross_entropy(logits, labels), "logits": logits}


class Named(Dataset):
    def __len__(self):
        return ROWS

    def __getitem__(self, row):
        return {"x": inputs()[row], "labels": labels()[row]}


def by_function(workers):
    made = estimator(Classes, lambda output, target: functional.cross_entropy(output, target), workers)
    return lambda: made.fit(loader(inputs(), labels()))


def by_model(workers):
    return lambda: estimator(Judging, None, workers).fit(DataLoader(Named(), batch_size=BATCH))


def in_an_operator(workers):
    made = estimator(Classes, nn.CrossEntropyLoss(), workers, training_operator_cls=Own)
    return lambda: made.fit(loader(inputs(), labels()))


class Own(gp.TrainingOperator):
    def train_batch(self, batch, batch_info):
        loss = self.criterion(self.model(batch[0]), batch[1])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return {"train_loss": loss.item(), "num_samples": len(batch[1])}


@pytest.mark.parametrize("fit", [by_function, by_model, in_an_operator])
def test_a_lane_of_which_no_label_counts_is_warned_about(fit):
    words = f"{NO_MEAN}: in lane 1, the loss is nan, and a number in other lanes"
    assert len([text for text in warned(fit(2)) if words in text]) == 1
    assert warned(fit(1)) == []


def test_a_loss_that_is_nan_in_all_lanes_is_no_matter_of_lanes():
    made = estimator(Line, lambda output, target: functional.mse_loss(output, target))
    texts = warned(lambda: made.fit(loader(inputs() * float("nan"), inputs())))
    assert texts and not any(NO_MEAN in text for text in texts)


# Shapes


def flat():
    return loader(inputs(), inputs()[:, 0])


class OwnLoss(Own):
    """Calls a function of torch, where no criterion sees it."""

    def train_batch(self, batch, batch_info):
        loss = functional.smooth_l1_loss(self.model(batch[0]), batch[1])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return {"train_loss": loss.item(), "num_samples": len(batch[1])}


class Epochs(Own):
    def train_epoch(self, iterator, info):
        return super().train_epoch(iterator, info)


BROADCASTING = {
    "several labels": (nn.MultiLabelSoftMarginLoss(), {}),
    "a function": (lambda output, target: functional.mse_loss(output, target), {}),
    "a function, one lane": (lambda output, target: functional.huber_loss(output, target), {"workers": 1}),
    "an operator's module": (nn.MSELoss(), {"training_operator_cls": Own}),
    "an operator's module, one lane": (nn.MSELoss(), {"training_operator_cls": Own, "workers": 1}),
    "an operator's function": (functional.l1_loss, {"training_operator_cls": Own}),
    "an operator's partial": (
        functools.partial(functional.soft_margin_loss, reduction="mean"),
        {"training_operator_cls": Own},
    ),
    "an operator's own": (None, {"training_operator_cls": OwnLoss}),
    "an operator's epochs": (nn.SoftMarginLoss(), {"training_operator_cls": Epochs}),
}


@pytest.mark.parametrize("case", BROADCASTING)
def test_shapes_that_torch_would_broadcast_are_refused_before_the_first_step(case):
    loss, options = BROADCASTING[case]
    made = estimator(Line, loss, **options)
    before = made.digest()
    with pytest.raises(ValueError, match=BROADCASTS) as caught:
        made.fit(flat())
    sizes = [int(size) for size in re.findall(r"\((\d+)", str(caught.value))[:2]]
    assert sizes in ([BATCH // 2] * 2, [BATCH] * 2) and "output.squeeze(-1)" in str(caught.value)
    assert made.digest() == before


def test_a_number_for_all_rows_is_not_refused():
    def towards_zero(output, target):
        return functional.mse_loss(output, target) + functional.mse_loss(output, torch.zeros(()).double())

    made = estimator(Line, towards_zero)
    made.fit(loader(inputs(), inputs()))
    found = trained_plainly(Line, towards_zero, inputs(), inputs())
    plain_loop.assert_close(made.state_dict(), found, rtol=1e-9, atol=1e-9)


def test_a_loss_of_one_target_says_so_where_there_are_two():
    table = pandas.DataFrame({"a": torch.arange(8.0), "b": torch.arange(8.0), "c": torch.arange(8.0)})
    for loss in (nn.MSELoss(), functional.mse_loss):
        with pytest.raises(TypeError, match=r"MSELoss takes one target.* 2: write label_cols=\[\['b', 'c'"):
            estimator(lambda config: nn.Linear(1, 1), loss).fit(
                table, feature_cols=[["a"]], label_cols=["b", "c"]
            )


# Criteria of operators


def counted(output, target):
    counts = target > 0.5
    return ((output - target) ** 2 * counts).sum() / counts.sum()


def mean_of_squares(output, target):
    return ((output - target) ** 2).mean()


class Counted(nn.Module):
    def forward(self, output, target):
        return counted(output, target)


def searching(model, config):
    return torch.optim.LBFGS(model.parameters(), max_iter=2)


SEVERAL = inputs().sin().abs()
OPERATORS = {
    "a function": (counted, {"training_operator_cls": Own}),
    "a module": (Counted(), {"training_operator_cls": Own}),
    "lanes of one worker": (counted, {"training_operator_cls": Own, "workers": 1, "lanes": 2}),
    "whole epochs": (counted, {"training_operator_cls": Epochs}),
    "a search": (counted, {"optimizer": searching}),
}


@pytest.mark.parametrize("case", OPERATORS)
def test_a_criterion_that_is_no_row_mean_is_warned_about_once(case):
    loss, options = OPERATORS[case]
    texts = warned(lambda: estimator(Line, loss, **options).fit(loader(inputs(), SEVERAL), epochs=2))
    assert len([text for text in texts if NO_MEAN in text]) == 1


@pytest.mark.parametrize("case", OPERATORS)
def test_a_criterion_that_is_a_row_mean_is_not_warned_about(case):
    options = OPERATORS[case][1]
    for loss in (mean_of_squares, nn.MSELoss()):
        texts = warned(lambda loss=loss: estimator(Line, loss, **options).fit(loader(inputs(), SEVERAL)))
        assert not any(NO_MEAN in text for text in texts)


def test_a_weight_ends_the_trial_of_a_criterion():
    def weight(batch):
        return float((batch[1] > 0.5).sum())

    made = estimator(Line, counted, training_operator_cls=Own, loss_weight=weight)
    assert warned(lambda: made.fit(loader(inputs(), SEVERAL))) == []
    found = trained_plainly(Line, counted, inputs(), SEVERAL)
    plain_loop.assert_close(made.state_dict(), found, rtol=1e-9, atol=1e-9)


class Drawing(nn.Module):
    """Counts its calls, and draws."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, output, target):
        self.calls += 1
        return mean_of_squares(output + torch.rand(()), target) * self.calls


class Looking(Own):
    """Draws behind the criterion, and knows what it is."""

    def train_batch(self, batch, batch_info):
        assert type(self.criterion) is Drawing
        said = super().train_batch(batch, batch_info)
        return {**said, "calls": self.criterion.calls, "drawn": torch.rand(()).item()}


def test_a_trial_of_a_criterion_leaves_no_trace():
    found = []
    for options in ({}, {"loss_weight": lambda batch: len(batch[0])}):
        made = estimator(Line, Drawing(), training_operator_cls=Looking, **options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            history = made.fit(loader(inputs(), SEVERAL), epochs=2)
        found.append((made.digest(), history["calls"], history["drawn"]))
    assert found[0] == found[1]


# Rows of unequal length


class Sequences(Dataset):
    def __init__(self, uneven):
        self.uneven = uneven

    def __len__(self):
        return ROWS

    def __getitem__(self, row):
        long = 1 + (row * 7) % 9 if self.uneven else 4
        x = torch.arange(long, dtype=torch.float64).sin() + row % 5
        return x, x * 2 + 1


def padded(rows):
    return tuple(nn.utils.rnn.pad_sequence(part, batch_first=True) for part in zip(*rows, strict=True))


def joined(rows):
    """End to end, as nodes of graphs are."""
    return tuple(torch.cat(part).unsqueeze(1) for part in zip(*rows, strict=True))


def sequences(collate, uneven=True):
    return DataLoader(Sequences(uneven), batch_size=BATCH, collate_fn=collate)


class Scaling(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.a = nn.Parameter(torch.tensor(0.1, dtype=torch.float64))

    def forward(self, x):
        return self.a * x


@pytest.mark.parametrize("options", [{}, {"workers": 1, "lanes": 2}, {"optimizer": searching}])
def test_lanes_that_pad_to_different_lengths_are_warned_about_once(options):
    made = estimator(Scaling, nn.MSELoss(), **options)
    texts = warned(lambda: made.fit(sequences(padded), epochs=2, batch_size=None))
    assert len([text for text in texts if "lanes are padded to different lengths" in text]) == 1


def test_rows_of_equal_length_and_rows_without_padding_are_right():
    for collate, uneven in ((padded, False), (joined, True)):
        made = estimator(Scaling, nn.MSELoss())
        assert warned(lambda m=made, c=collate, u=uneven: m.fit(sequences(c, u), batch_size=None)) == []
        plain = Scaling({})
        stepper = sgd(plain, {})
        for x, y in sequences(collate, uneven):
            stepper.zero_grad()
            functional.mse_loss(plain(x), y).backward()
            stepper.step()
        plain_loop.assert_close(made.state_dict(), plain.state_dict(), rtol=1e-9, atol=1e-9)


# What else is in a model or its data


class Extra(Line):
    """Keeps more than tensors."""

    def __init__(self, config):
        super().__init__(config)
        self.extra = {"names": ["a"], "tensor": torch.ones(2)}

    def get_extra_state(self):
        return self.extra

    def set_extra_state(self, state):
        self.extra = state


def test_a_model_that_keeps_more_than_tensors_trains_on_several_workers():
    made = estimator(Extra, nn.MSELoss())
    made.fit(loader(inputs(), SEVERAL))
    found = trained_plainly(Line, nn.MSELoss(), inputs(), SEVERAL)
    weights = {name: value for name, value in made.state_dict().items() if name in found}
    plain_loop.assert_close(weights, found, rtol=1e-9, atol=1e-9)
    module = made.get_model()
    assert module.extra["names"] == ["a"] and torch.equal(module.extra["tensor"], torch.ones(2))
    digests = [made.digest()]
    for workers in (1, 2):
        other = estimator(Extra, nn.MSELoss(), workers=workers, lanes=2)
        other.fit(loader(inputs(), SEVERAL))
        digests.append(other.digest())
    assert digests[0] == digests[1] == digests[2]


@pytest.mark.parametrize("backend", ["grampus", "torch_distributed"])
def test_batches_of_shards_are_batches(backend):
    x = inputs().float()
    shards = gp.Shards.partition({"x": x.numpy(), "y": (3 * x).numpy()}, 2)
    made = estimator(lambda config: nn.Linear(1, 1), nn.MSELoss(), backend=backend)
    assert made.fit(shards.to_torch(BATCH), epochs=2)["samples"] == [ROWS, ROWS]
    found = made.evaluate(shards.to_torch(5))
    assert found["num_samples"] == ROWS
    assert found["loss"] == pytest.approx(made.evaluate({"x": x, "y": 3 * x})["loss"], rel=1e-5)
    assert made.evaluate(shards.to_torch(5, drop_last=True))["num_samples"] == ROWS - ROWS % 5
