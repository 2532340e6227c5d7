"""When a loss of the user's own is tried, and what its first batch shows besides."""

import warnings

import pytest
import torch
from clusters import one_cluster, scratch  # noqa: F401 - a fixture
from test_lane_operators import Own
from test_lane_weights import (
    BATCH,
    FEATURES,
    Linear,
    estimator,
    labelled,
    mean_of_squares,
    sum_of_squares,
    valued,
)
from torch import nn
from torch.nn import functional

runtime = one_cluster(workers=2)


def texts_of(call, *arguments, **options):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        call(*arguments, **options)
    return [str(each.message) for each in told]


# When a loss is tried


def test_a_loss_is_tried_after_a_run_was_loaded_or_resumed():
    estimator(Linear, mean_of_squares, 2).fit(valued(), batch_size=BATCH, checkpoint="saved")
    loaded = estimator(Linear, sum_of_squares, 2).load("saved")
    [text] = texts_of(loaded.fit, valued(), batch_size=BATCH)
    assert "no mean over rows" in text
    resumed = estimator(Linear, sum_of_squares, 2)
    [text] = texts_of(resumed.fit, valued(), epochs=2, batch_size=BATCH, checkpoint="saved", resume=True)
    assert "no mean over rows" in text


def test_another_loss_in_a_second_fit_is_tried():
    made = estimator(Linear, mean_of_squares, 2)
    assert texts_of(made.fit, valued(), batch_size=BATCH, checkpoint="saved") == []
    made.load("saved", loss=sum_of_squares)
    [text] = texts_of(made.fit, valued(), batch_size=BATCH)
    assert "no mean over rows" in text


def class_mean(output, target):
    return functional.cross_entropy(output, target)


def test_an_evaluation_tries_a_loss_and_says_so_once():
    data = labelled()
    data["y"][7:] = -100
    made = estimator(Linear, class_mean, 2)
    [text] = texts_of(made.evaluate, data, batch_size=BATCH)
    assert "no mean over rows" in text
    assert texts_of(made.evaluate, data, batch_size=BATCH) == []
    assert texts_of(estimator(Linear, class_mean, 1).evaluate, data, batch_size=BATCH) == []
    assert texts_of(estimator(Linear, class_mean, 2).evaluate, labelled(), batch_size=BATCH) == []
    assert texts_of(estimator(Linear, nn.CrossEntropyLoss(), 2).evaluate, data, batch_size=BATCH) == []


def test_a_lane_that_counts_for_nothing_late_in_an_evaluation_is_warned_about():
    data = labelled()
    data["y"][3 * BATCH + 5 :] = -100
    [text] = texts_of(estimator(Linear, class_mean, 2).evaluate, data, batch_size=BATCH)
    assert "in lane 1, the loss is nan" in text


def test_validation_data_are_looked_at_too():
    data = labelled()
    data["y"][7:] = -100
    made = estimator(Linear, class_mean, 2)
    [text] = texts_of(made.fit, labelled(), batch_size=BATCH, validation_data=data)
    assert "no mean over rows" in text


class Judging(nn.Module):
    """Makes its own loss."""

    def __init__(self, config):
        super().__init__()
        self.linear = Linear(config)
        self.calls = 0

    def forward(self, x, labels):
        self.calls += 1
        logits = self.linear(x)
        return {"loss": functional.cross_entropy(logits, labels), "logits": logits}


def test_an_evaluation_tries_the_loss_that_a_model_makes():
    data = labelled()
    data["y"][7:] = -100
    data = {"x": data["x"], "labels": data["y"]}
    [text] = texts_of(estimator(Judging, None, 2).evaluate, data, batch_size=BATCH)
    assert "no mean over rows" in text


# Losses that pair each row with all others


class Column(nn.Linear):
    def __init__(self, config):
        super().__init__(FEATURES, 1, dtype=torch.float64)


class Flat(Column):
    def forward(self, x):
        return super().forward(x).squeeze(-1)


def squeezed(output, target):
    return mean_of_squares(output.flatten(), target.flatten())


class Squares(nn.Module):
    def forward(self, output, target):
        return mean_of_squares(output, target)


def numbers(column):
    found = valued()
    y = found["y"][:, :1]
    return {"x": found["x"], "y": y if column else y[:, 0]}


@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize("loss", [mean_of_squares, Squares()])
@pytest.mark.parametrize("options", [{}, {"training_operator_cls": Own}])
def test_a_loss_of_ones_own_that_broadcasts_is_warned_about_once(loss, lanes, options):
    for model, column, advice in ((Column, False, "unsqueeze"), (Flat, True, "squeeze")):
        made = estimator(model, loss, lanes, loss_weight=lambda batch: float(len(batch["y"])), **options)
        told = texts_of(made.fit, numbers(column), epochs=2, batch_size=BATCH)
        told += texts_of(made.fit, numbers(column), epochs=1, batch_size=BATCH)
        [text] = told
        assert "compares each row with all others" in text and advice in text


def test_a_broadcast_in_an_evaluation_is_warned_about():
    told = texts_of(estimator(Column, mean_of_squares, 1).evaluate, numbers(False))
    assert len(told) == 1 and "compares each row with all others" in told[0]


@pytest.mark.parametrize(("model", "column"), [(Column, False), (Flat, True), (Column, True), (Flat, False)])
def test_a_loss_that_brings_shapes_together_is_not_warned_about(model, column):
    made = estimator(model, squeezed, 1)
    assert texts_of(made.fit, numbers(column), batch_size=BATCH) == []
