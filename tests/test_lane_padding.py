"""Lanes whose rows differ in their number of elements, as lanes do that are padded by themselves.

They equal a plain loop over the whole batch, or a warning says that they do not.
"""

import warnings

import plain_loop
import pytest
import torch
from clusters import one_cluster, scratch  # noqa: F401 - a fixture
from test_lane_operators import Own
from test_lane_weights import BATCH, LANES, ROWS, estimator, sgd
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from grampus import _native

runtime = one_cluster(workers=3)


class Sequences(Dataset):
    """Rows of unequal length, with a target for each place."""

    def __len__(self):
        return ROWS

    def __getitem__(self, row):
        long = 1 + (row * 7) % 9
        x = torch.arange(long, dtype=torch.float64).sin() + row % 5
        return x, x * 2 + 1


def padded(rows, value=0.0):
    return tuple(
        nn.utils.rnn.pad_sequence(part, batch_first=True, padding_value=value)
        for part in zip(*rows, strict=True)
    )


class Scaling(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.a = nn.Parameter(torch.tensor(0.1, dtype=torch.float64))
        self.b = nn.Parameter(torch.tensor(0.2, dtype=torch.float64))

    def forward(self, x):
        return self.a * x + self.b


def lanes_of(rows, lanes):
    """As the batch is cut."""
    for lane in range(lanes):
        start, end = _native.rows_of(lane, lanes, BATCH, len(rows))
        if end > start:
            yield rows[start:end]


@pytest.mark.parametrize("lanes", LANES)
def test_the_mean_over_elements_is_that_of_all_elements_however_lanes_are_padded(lanes):
    """Lanes are padded by themselves, so they equal the mean over the elements that all of them have.

    One process pads all rows of the batch to the longest, so the difference is warned about.
    """
    made = estimator(Scaling, nn.MSELoss(), lanes)
    loader = DataLoader(Sequences(), batch_size=BATCH, collate_fn=padded)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        made.fit(loader, epochs=2, batch_size=None)
    assert ["padded to different lengths" in str(each.message) for each in told] == [True] * (lanes > 1)
    plain, data = Scaling({}), Sequences()
    stepper = sgd(plain, {})
    for _ in range(2):
        for start in range(0, ROWS, BATCH):
            rows = [data[row] for row in range(start, min(ROWS, start + BATCH))]
            parts = [padded(part) for part in lanes_of(rows, lanes)]
            total = sum(nn.functional.mse_loss(plain(x), y, reduction="sum") for x, y in parts)
            stepper.zero_grad()
            (total / sum(y.numel() for _, y in parts)).backward()
            stepper.step()
    plain_loop.assert_close(made.get_model().state_dict(), plain.state_dict(), rtol=1e-9, atol=1e-9)


def joined(rows):
    """All places of all rows below each other."""
    return tuple(torch.cat(part).unsqueeze(1) for part in zip(*rows, strict=True))


def loader(collate, data=None, **options):
    return DataLoader(Sequences() if data is None else data, batch_size=BATCH, collate_fn=collate, **options)


def plain_steps(model, loss, collate, data=None, epochs=2):
    """A plain loop over whole batches."""
    data = Sequences() if data is None else data
    plain = model({})
    stepper = sgd(plain, {})
    for _ in range(epochs):
        for start in range(0, ROWS, BATCH):
            x, y = collate([data[row] for row in range(start, min(ROWS, start + BATCH))])
            stepper.zero_grad()
            loss(plain(x), y).backward()
            stepper.step()
    return plain.state_dict()


def steps(model, loss, collate, lanes, data=None, epochs=2, **options):
    """The weights of lanes, and what was warned of, apart from what a lost worker costs."""
    made = estimator(model, loss, lanes, **options)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        made.fit(loader(collate, data), epochs=epochs, batch_size=None)
    texts = [str(each.message) for each in told]
    return made.get_model().state_dict(), [text for text in texts if "changes weights more" not in text]


def squared(output, target):
    return ((output - target) ** 2).mean()


def elements(batch):
    return float(batch[1].numel())


class Small(Scaling):
    """Steps of sums over many places would go astray."""

    def forward(self, x):
        return super().forward(x) * 0.1


class Pairs(Own):
    def train_batch(self, batch, batch_info):
        return super().train_batch({"x": batch[0], "y": batch[1]}, batch_info)


class PairEpochs(Pairs):
    def train_epoch(self, iterator, info):
        return super().train_epoch(iterator, info)


UNEQUAL = {
    "a loss of one's own": (squared, {}),
    "torch's function": (lambda output, target: functional.mse_loss(output, target), {}),
    "own steps": (nn.MSELoss(), {"training_operator_cls": Pairs}),
    "own steps and loss": (squared, {"training_operator_cls": Pairs}),
    "own epochs": (nn.L1Loss(), {"training_operator_cls": PairEpochs}),
}


@pytest.mark.parametrize("collate", [padded, joined])
@pytest.mark.parametrize("case", UNEQUAL)
def test_lanes_whose_rows_differ_in_size_are_warned_about_once(case, collate):
    loss, options = UNEQUAL[case]
    _, told = steps(Small, loss, collate, 3, **options)
    [text] = told
    assert "elements a row in lane" in text and "loss_weight=" in text
    weights, told = steps(Small, loss, collate, 1, **options)
    assert told == []
    plain_loop.assert_close(weights, plain_steps(Small, loss, collate), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("case", UNEQUAL)
def test_rows_that_are_joined_equal_one_process_with_a_weight(case):
    loss, options = UNEQUAL[case]
    weights, told = steps(Small, loss, joined, 3, loss_weight=elements, **options)
    assert told == []
    plain_loop.assert_close(weights, plain_steps(Small, loss, joined), rtol=1e-9, atol=1e-9)


class Late(Sequences):
    """Rows of one length, but for those of the last lane that has any in the last batch."""

    def __getitem__(self, row):
        x, y = super().__getitem__(8)
        return (x[:2], y[:2]) if row >= ROWS - 3 else (x, y)


def test_lanes_that_differ_in_a_late_batch_alone_are_warned_about():
    _, told = steps(Small, squared, padded, 3, Late(), epochs=1)
    assert len(told) == 1 and "elements a row in lane" in told[0]


@pytest.mark.parametrize("epochs", [1, 2])
def test_a_sum_counts_padding_too(epochs):
    _, told = steps(Small, nn.MSELoss(reduction="sum"), padded, 3, epochs=epochs)
    assert len(told) == 1 and "padded to different lengths" in told[0]
    weights, told = steps(Small, nn.MSELoss(reduction="sum"), joined, 3)
    assert told == []
    summed = plain_steps(Small, nn.MSELoss(reduction="sum"), joined)
    plain_loop.assert_close(weights, summed, rtol=1e-9, atol=1e-9)


# Losses that divide by the first axis, which are places where rows are joined


class Shared(Scaling):
    """Two logarithms of shares, or two scores."""

    def forward(self, x):
        return torch.cat([self.a * x, self.b - x], 1).log_softmax(1)


def two(make):
    """Joined rows whose targets have two columns, or one class."""

    def collate(rows):
        x, y = joined(rows)
        return x, make(y)

    return collate


FIRST_AXIS = {
    "batchmean": (nn.KLDivLoss(reduction="batchmean"), lambda y: torch.cat([y, -y], 1).softmax(1)),
    "several labels": (nn.MultiLabelSoftMarginLoss(), lambda y: torch.cat([y > 2, y < 3], 1).double()),
    "margins": (nn.MultiMarginLoss(), lambda y: (y[:, 0] > 2).long()),
}


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("case", FIRST_AXIS)
def test_losses_that_divide_by_the_first_axis_count_places(case, lanes):
    loss, make = FIRST_AXIS[case]
    weights, told = steps(Shared, loss, two(make), lanes)
    assert told == []
    plain_loop.assert_close(weights, plain_steps(Shared, loss, two(make)), rtol=1e-9, atol=1e-9)


# Classes, padded by one of them or by what is ignored


class Tagged(Sequences):
    def __getitem__(self, row):
        x, _ = super().__getitem__(row)
        return x, torch.arange(len(x)) % 3


class Tagging(nn.Module):
    """Scores of three classes at each place."""

    def __init__(self, config):
        super().__init__()
        self.a = nn.Parameter(torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64))

    def forward(self, x):
        return self.a.view(1, 3, 1) * x.unsqueeze(1)


def tagged(value):
    def collate(rows):
        x, _ = padded(rows)
        [y] = padded([(each,) for _, each in rows], value)
        return x, y

    return collate


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("lanes", LANES)
def test_padding_that_is_ignored_is_right_and_a_class_is_warned_about(lanes, reduction):
    loss = nn.CrossEntropyLoss(reduction=reduction)
    weights, told = steps(Tagging, loss, tagged(-100), lanes, Tagged())
    assert told == []
    plain_loop.assert_close(weights, plain_steps(Tagging, loss, tagged(-100), Tagged()), rtol=1e-9, atol=1e-9)
    _, told = steps(Tagging, loss, tagged(0), lanes, Tagged())
    assert ["padded to different lengths" in text for text in told] == [True] * (lanes > 1)


@pytest.mark.parametrize("lanes", LANES)
def test_padding_is_warned_about_in_an_evaluation(lanes):
    made = estimator(Scaling, nn.MSELoss(), lanes)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(2):
            made.evaluate(loader(padded), batch_size=None)
    assert ["padded to different lengths" in str(each.message) for each in told] == [True] * (lanes > 1)
