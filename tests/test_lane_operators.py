"""Operators with steps of their own: several lanes equal a plain loop over the whole batch."""

import math

import plain_loop
import pytest
import torch
from clusters import one_cluster, scratch  # noqa: F401 - a fixture
from test_lane_weights import (
    BATCH,
    LANES,
    ROWS,
    WEIGHTS,
    Linear,
    counted,
    estimator,
    labelled,
    plain_order,
    sgd,
    valued,
    with_an_ignored_lane,
)
from torch import nn
from torch.utils.data import IterableDataset

import grampus as gp

runtime = one_cluster(workers=3)


class Own(gp.TrainingOperator):
    def train_batch(self, batch, batch_info):
        loss = self.criterion(self.model(batch["x"]), batch["y"])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return {"train_loss": loss.item(), "num_samples": len(batch["y"])}


def test_an_operators_criterion_that_is_no_row_mean_is_warned_about():
    made = estimator(Linear, nn.CrossEntropyLoss(WEIGHTS), 2, training_operator_cls=Own)
    with pytest.warns(RuntimeWarning, match="the criterion CrossEntropyLoss is no mean over rows"):
        made.fit(labelled(), epochs=1, batch_size=BATCH)


# Steps of an operator, and steps with a closure, where nothing counts in one lane

LAID_OUT = [(1, 1), (2, 2), (3, 3), (3, 1)]


OPERATED = {
    "a masked mean": (counted, valued(), -1, lambda batch: float((batch["y"] >= 0).sum())),
    "ignored labels": (
        nn.CrossEntropyLoss(),
        labelled(),
        -100,
        lambda batch: float((batch["y"] >= 0).sum()),
    ),
}


@pytest.mark.parametrize(("lanes", "workers"), LAID_OUT)
@pytest.mark.parametrize("case", OPERATED)
def test_an_operators_lane_that_counts_for_nothing_changes_nothing(case, lanes, workers):
    loss, data, ignored, weigh = OPERATED[case]
    data = with_an_ignored_lane(data, ignored)
    options = {"training_operator_cls": Own, "loss_weight": weigh}
    made = estimator(Linear, loss, lanes, workers, **options)
    history = made.fit(data, epochs=2, batch_size=BATCH)
    plain = plain_loop.train(Linear, sgd, loss, data, seed=5, epochs=2, batch_size=BATCH)
    plain_loop.assert_close(made.get_model().state_dict(), plain.state_dict(), rtol=1e-9, atol=1e-9)
    alone = estimator(Linear, loss, 1, **options).fit(data, epochs=2, batch_size=BATCH)
    assert history["loss"] == pytest.approx(alone["loss"], rel=1e-9)


class Adding(gp.TrainingOperator):
    """A step for every second batch."""

    def train_batch(self, batch, batch_info):
        loss = self.criterion(self.model(batch["x"]), batch["y"])
        loss.backward()
        if batch_info["batch_idx"] % 2:
            self.optimizer.step()
            self.optimizer.zero_grad()
        return {"train_loss": loss.item(), "num_samples": len(batch["y"])}


@pytest.mark.parametrize("workers", [1, 2])
def test_gradients_that_count_for_nothing_are_not_added_up(workers):
    data = with_an_ignored_lane(valued(), -1)
    # The batches with a step count in all lanes.
    for start in (BATCH, 3 * BATCH):
        rows = plain_order().rows(start, min(ROWS, start + BATCH))
        data["y"][torch.frombuffer(rows, dtype=torch.int64)] = 0.5
    weigh = OPERATED["a masked mean"][3]
    made = estimator(Linear, counted, 2, workers, training_operator_cls=Adding, loss_weight=weigh)
    history = made.fit(data, epochs=1, batch_size=BATCH)
    assert all(value.isfinite().all() for value in made.get_model().state_dict().values())
    assert math.isfinite(history["loss"][0])


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_a_search_with_a_lane_that_counts_for_nothing_is_that_of_one_process(search, lanes):
    def searching(model, config):
        return torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4, line_search_fn=search)

    data, loss = with_an_ignored_lane(labelled(), -100), nn.CrossEntropyLoss()
    made = gp.Estimator.from_torch(
        model=Linear, optimizer=searching, loss=loss, seed=5, workers=lanes, threads_per_lane=1
    )
    made.fit(data, epochs=1, batch_size=BATCH)
    plain = plain_loop.train(Linear, sgd, loss, data, seed=5, epochs=0)
    stepper = searching(plain, {})
    for x, y in plain_loop.batches(data, BATCH, 5, 0):

        def closure(x=x, y=y):
            stepper.zero_grad()
            found = loss(plain(x), y)
            found.backward()
            return found

        stepper.step(closure)
    plain_loop.assert_close(made.get_model().state_dict(), plain.state_dict(), rtol=1e-6, atol=1e-6)


# Epochs of an operator's own


class Epochs(Own):
    def train_epoch(self, iterator, info):
        return super().train_epoch(iterator, info)


class SearchedEpochs(Epochs):
    def train_batch(self, batch, batch_info):
        def closure():
            self.optimizer.zero_grad()
            loss = self.criterion(self.model(batch["x"]), batch["y"])
            loss.backward()
            return loss

        return {"train_loss": float(self.optimizer.step(closure).detach()), "num_samples": len(batch["y"])}


def searching(model, config):
    return torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4)


def searched(data, loss):
    """A plain loop of steps with a closure."""
    plain = plain_loop.train(Linear, sgd, loss, data, seed=5, epochs=0)
    stepper = searching(plain, {})
    for x, y in plain_loop.batches(data, BATCH, 5, 0):

        def closure(x=x, y=y):
            stepper.zero_grad()
            found = loss(plain(x), y)
            found.backward()
            return found

        stepper.step(closure)
    return plain


@pytest.mark.filterwarnings("ignore:the operator changes weights more than once")
@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("case", OPERATED)
def test_epochs_of_an_operator_weigh_lanes_as_the_user_says(case, lanes):
    loss, data, ignored, weigh = OPERATED[case]
    data = with_an_ignored_lane(data, ignored)
    made = estimator(Linear, loss, lanes, training_operator_cls=Epochs, loss_weight=weigh)
    made.fit(data, epochs=2, batch_size=BATCH)
    plain = plain_loop.train(Linear, sgd, loss, data, seed=5, epochs=2, batch_size=BATCH)
    plain_loop.assert_close(made.get_model().state_dict(), plain.state_dict(), rtol=1e-9, atol=1e-9)


@pytest.mark.filterwarnings("ignore:the operator changes weights more than once")
@pytest.mark.parametrize("lanes", LANES)
def test_searches_within_epochs_weigh_lanes_as_the_user_says(lanes):
    loss, data, ignored, weigh = OPERATED["ignored labels"]
    data = with_an_ignored_lane(data, ignored)
    made = gp.Estimator.from_torch(
        model=Linear,
        optimizer=searching,
        loss=loss,
        seed=5,
        workers=lanes,
        threads_per_lane=1,
        training_operator_cls=SearchedEpochs,
        loss_weight=weigh,
    )
    made.fit(data, epochs=1, batch_size=BATCH)
    weights = searched(data, loss).state_dict()
    plain_loop.assert_close(made.get_model().state_dict(), weights, rtol=1e-6, atol=1e-6)


class OfItsLane(IterableDataset):
    """Of 19 rows the first lane has 14, so that the last batches differ in size."""

    def __iter__(self):
        lane = gp.lane()
        data = valued()
        for row in rows_of_lane(lane.index) if lane.count > 1 else range(19):
            yield {"x": data["x"][row], "y": data["y"][row]}


def rows_of_lane(index):
    return range(14) if index == 0 else range(14, 19)


@pytest.mark.filterwarnings("ignore:the operator changes weights more than once")
def test_epochs_over_a_stream_weigh_lanes_by_their_rows():
    """Steps of 4 + 4 rows, 4 + 1, 4 + 0, and 2 + 0."""
    loss, data = nn.MSELoss(), valued()
    made = estimator(Linear, loss, 2, training_operator_cls=Epochs)
    made.fit(OfItsLane(), epochs=1, batch_size=8)
    plain = plain_loop.train(Linear, sgd, loss, data, seed=5, epochs=0)
    stepper = sgd(plain, {})
    for start in range(0, 14, 4):
        rows = [row for lane in (0, 1) for row in rows_of_lane(lane)[start : start + 4]]
        stepper.zero_grad()
        loss(plain(data["x"][rows]), data["y"][rows]).backward()
        stepper.step()
    plain_loop.assert_close(made.get_model().state_dict(), plain.state_dict(), rtol=1e-9, atol=1e-9)
