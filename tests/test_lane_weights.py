"""Losses that are no means over rows: several lanes equal a plain loop over the whole batch.

The oracle is torch alone, in one process, on the same batches. Rows are a multiple of nothing, so lanes are
uneven, and the labels that count for nothing all fall into one lane.
"""

import functools
import math
import warnings

import plain_loop
import pytest
import torch
from clusters import one_cluster, scratch  # noqa: F401 - a fixture
from torch import nn
from torch.nn import functional

import grampus as gp
from grampus import _native

runtime = one_cluster(workers=3)

LANES = [1, 2, 3]
ROWS, FEATURES, CLASSES, BATCH = 37, 4, 3, 10
WEIGHTS = torch.tensor([0.1, 1.0, 7.0], dtype=torch.float64)


def sgd(model, config):
    return torch.optim.SGD(model.parameters(), lr=0.3)


class Linear(nn.Linear):
    def __init__(self, config):
        super().__init__(FEATURES, CLASSES, dtype=torch.float64)


class Places(nn.Module):
    """A score for each class, at each of five places of a row."""

    def __init__(self, config):
        super().__init__()
        self.linear = nn.Linear(FEATURES, CLASSES * 5, dtype=torch.float64)

    def forward(self, x):
        return self.linear(x).view(len(x), CLASSES, 5)


class Logs(Linear):
    def forward(self, x):
        return super().forward(x).log_softmax(1)


class Shares(Linear):
    def forward(self, x):
        return super().forward(x).sigmoid()


def drawn():
    return torch.Generator().manual_seed(3)


def inputs(rows=ROWS):
    return torch.randn(rows, FEATURES, dtype=torch.float64, generator=drawn())


def labelled(*shape, ignored=None):
    """Rows and classes; of each batch the first four rows, those of one lane, count for nothing."""
    x = inputs()
    y = torch.randint(0, CLASSES, (ROWS, *shape), generator=drawn())
    if ignored is not None:
        for step in range(math.ceil(ROWS / BATCH)):
            first, end = step * BATCH, min(ROWS, step * BATCH + 4)
            y[torch.frombuffer(plain_order().rows(first, end), dtype=torch.int64)] = ignored
    return {"x": x, "y": y}


def with_an_ignored_lane(data, ignored):
    """Of each batch the first five rows count for nothing: all those of a lane."""
    for start in range(0, ROWS, BATCH):
        rows = plain_order().rows(start, min(ROWS, start + 5))
        data["y"][torch.frombuffer(rows, dtype=torch.int64)] = ignored
    return data


def plain_order():
    return _native.Order(5, 0, ROWS)


def valued(kind="floats"):
    x = inputs()
    y = torch.rand(ROWS, CLASSES, dtype=torch.float64, generator=drawn())
    return {"x": x, "y": y if kind == "floats" else (y > 0.5).double()}


def estimator(model, loss, lanes, workers=None, **options):
    return gp.Estimator.from_torch(
        model=model,
        optimizer=sgd,
        loss=loss,
        seed=5,
        lanes=lanes,
        workers=lanes if workers is None else workers,
        threads_per_lane=1,
        **options,
    )


def assert_equals_one_process(model, loss, data, lanes, epochs=1, workers=None):
    """Weights after several steps, records, and the evaluated loss."""
    made = estimator(model, loss, lanes, workers)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        history = made.fit(data, epochs=epochs, batch_size=BATCH)
        found = made.evaluate(data, batch_size=BATCH)["loss"]
    plain = plain_loop.train(model, sgd, loss, data, seed=5, epochs=epochs, batch_size=BATCH)
    plain_loop.assert_close(made.get_model().state_dict(), plain.state_dict(), rtol=1e-9, atol=1e-9)
    with torch.no_grad():
        assert found == pytest.approx(loss(plain(data["x"]), data["y"]).item(), rel=1e-6)
    return history


# Losses and the data that they take; most of them would be wrong if lanes were weighed by rows.
CASES = {
    "sum": (Linear, nn.MSELoss(reduction="sum"), valued()),
    "sum of a function": (Linear, functools.partial(functional.l1_loss, reduction="sum"), valued()),
    "sum of classes": (Linear, nn.CrossEntropyLoss(reduction="sum", weight=WEIGHTS), labelled()),
    "class weights": (Linear, nn.CrossEntropyLoss(weight=WEIGHTS), labelled()),
    "class weights of a function": (
        Linear,
        functools.partial(functional.cross_entropy, weight=WEIGHTS, ignore_index=1),
        labelled(),
    ),
    "ignored": (Linear, nn.CrossEntropyLoss(ignore_index=-1), labelled(ignored=-1)),
    "ignored by default": (Linear, nn.CrossEntropyLoss(), labelled(ignored=-100)),
    "a plain function": (Linear, functional.cross_entropy, labelled(ignored=-100)),
    "weights and ignored": (Linear, nn.CrossEntropyLoss(WEIGHTS, ignore_index=2), labelled(ignored=2)),
    "smoothed": (Linear, nn.CrossEntropyLoss(label_smoothing=0.2, ignore_index=-1), labelled(ignored=-1)),
    "smoothed and weighted": (
        Linear,
        nn.CrossEntropyLoss(WEIGHTS, label_smoothing=0.2, ignore_index=-1),
        labelled(ignored=-1),
    ),
    "probabilities": (Linear, nn.CrossEntropyLoss(WEIGHTS), valued()),
    "places": (Places, nn.CrossEntropyLoss(WEIGHTS, ignore_index=-1), labelled(5, ignored=-1)),
    "logarithms": (Logs, nn.NLLLoss(WEIGHTS, ignore_index=-1), labelled(ignored=-1)),
    "elements": (Linear, nn.SmoothL1Loss(), valued()),
    "Huber": (Linear, nn.HuberLoss(reduction="sum"), valued()),
    "positive weight": (Linear, nn.BCEWithLogitsLoss(pos_weight=WEIGHTS), valued("truth")),
    "weighted elements": (Shares, nn.BCELoss(weight=WEIGHTS), valued("truth")),
    "batchmean": (Logs, nn.KLDivLoss(reduction="batchmean"), valued()),
    "divergence": (Logs, nn.KLDivLoss(), valued()),
    "Poisson": (Linear, nn.PoissonNLLLoss(), valued()),
    "margins": (Linear, nn.MultiMarginLoss(weight=WEIGHTS), labelled()),
    "several labels": (Linear, nn.MultiLabelSoftMarginLoss(), valued("truth")),
}


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("case", CASES)
def test_lanes_equal_one_process_with_the_whole_batch(case, lanes):
    model, loss, data = CASES[case]
    assert_equals_one_process(model, loss, data, lanes)


def test_lanes_of_one_worker_are_weighed_alike():
    model, loss, data = CASES["weights and ignored"]
    assert_equals_one_process(model, loss, data, lanes=3, workers=1)
    assert_equals_one_process(model, loss, data, lanes=3, workers=2)


@pytest.mark.parametrize("lanes", LANES)
def test_records_of_a_sum_are_sums(lanes):
    data = valued()
    history = estimator(Linear, nn.MSELoss(reduction="sum"), lanes).fit(
        data, epochs=1, batch_size=ROWS, validation_data=data
    )
    before = plain_loop.train(Linear, sgd, nn.MSELoss(reduction="sum"), data, seed=5, epochs=0)
    first = functional.mse_loss(before(data["x"]), data["y"], reduction="sum").item()
    assert history["loss"] == [pytest.approx(first)]
    model = plain_loop.train(Linear, sgd, nn.MSELoss(reduction="sum"), data, seed=5, batch_size=ROWS)
    with torch.no_grad():
        after = functional.mse_loss(model(data["x"]), data["y"], reduction="sum").item()
    assert history["val_loss"] == [pytest.approx(after)]


# Options beside the loss


def plain_records(model, loss, data, epochs, weigh):
    """The loss of each epoch and that of all rows after it, of a plain loop."""
    plain = plain_loop.train(model, sgd, loss, data, seed=5, epochs=0)
    stepper = sgd(plain, {})
    found = []
    for epoch in range(epochs):
        total = weight = 0.0
        for x, y in plain_loop.batches(data, BATCH, 5, epoch):
            stepper.zero_grad()
            value = loss(plain(x), y)
            value.backward()
            stepper.step()
            total, weight = total + value.item() * weigh(y), weight + weigh(y)
        with torch.no_grad():
            found.append((total / weight, loss(plain(data["x"]), data["y"]).item()))
    return found


@pytest.mark.parametrize("backend", ["grampus", "torch_distributed"])
@pytest.mark.parametrize("lanes", LANES)
def test_records_of_weighed_lanes_are_those_of_one_process(lanes, backend):
    loss, data = nn.CrossEntropyLoss(WEIGHTS, ignore_index=-1), labelled(ignored=-1)
    made = estimator(Linear, loss, lanes, backend=backend)
    history = made.fit(data, epochs=2, batch_size=BATCH, validation_data=data)
    plain = plain_records(Linear, loss, data, 2, lambda y: WEIGHTS[y[y >= 0]].sum().item())
    assert history["loss"] == [pytest.approx(train, rel=1e-6) for train, _ in plain]
    assert history["val_loss"] == [pytest.approx(after, rel=1e-6) for _, after in plain]


def clip_norm(parameters):
    nn.utils.clip_grad_norm_(parameters, 0.2)


def clip_values(parameters):
    nn.utils.clip_grad_value_(parameters, 0.1)


@pytest.mark.parametrize("clip", [clip_norm, clip_values])
@pytest.mark.parametrize("backend", ["grampus", "torch_distributed"])
def test_weighed_gradients_are_clipped_as_those_of_one_process(clip, backend):
    loss, data = nn.CrossEntropyLoss(WEIGHTS, ignore_index=-1), labelled(ignored=-1)
    made = estimator(Linear, loss, 3, backend=backend)
    if clip is clip_norm:
        made.set_l2_norm_gradient_clipping(0.2)
    else:
        made.set_constant_gradient_clipping(-0.1, 0.1)
    made.fit(data, epochs=2, batch_size=BATCH)
    plain = plain_loop.train(Linear, sgd, loss, data, seed=5, epochs=2, batch_size=BATCH, clip=clip)
    unclipped = plain_loop.train(Linear, sgd, loss, data, seed=5, epochs=2, batch_size=BATCH)
    assert not torch.allclose(plain.weight, unclipped.weight, rtol=1e-2)
    plain_loop.assert_close(made.get_model().state_dict(), plain.state_dict(), rtol=1e-8, atol=1e-8)


class Half(nn.Linear):
    """Forward in 16 bits, as `precision="bf16"` does it."""

    def __init__(self, config):
        super().__init__(FEATURES, CLASSES)

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            return super().forward(x)


@pytest.mark.parametrize("lanes", LANES)
def test_lanes_are_weighed_in_half_precision(lanes):
    data = {name: value.float() if value.is_floating_point() else value for name, value in labelled().items()}
    with_an_ignored_lane(data, -100)
    loss = nn.CrossEntropyLoss(WEIGHTS.float())
    made = estimator(Half, loss, lanes, precision="bf16")
    made.fit(data, epochs=2, batch_size=BATCH)

    def in_half(output, target):
        with torch.autocast("cpu", torch.bfloat16):
            return loss(output, target)

    plain = plain_loop.train(Half, sgd, in_half, data, seed=5, epochs=2, batch_size=BATCH)
    plain_loop.assert_close(made.get_model().state_dict(), plain.state_dict(), rtol=2e-2, atol=2e-2)


# Steps in which nothing counts


@pytest.mark.parametrize("lanes", LANES)
def test_a_batch_of_which_no_label_counts_is_a_skipped_step(lanes):
    data = labelled()
    order = plain_order()
    void = torch.frombuffer(order.rows(BATCH, 2 * BATCH), dtype=torch.int64)
    data["y"][void] = -100
    made = estimator(Linear, nn.CrossEntropyLoss(), lanes)
    with pytest.warns(RuntimeWarning, match="no row of the batch at step 2 counts"):
        history = made.fit(data, epochs=1, batch_size=BATCH)
    kept = torch.cat(
        [torch.frombuffer(order.rows(a, b), dtype=torch.int64) for a, b in ((0, BATCH), (2 * BATCH, ROWS))]
    )
    plain = plain_loop.train(Linear, sgd, nn.CrossEntropyLoss(), data, seed=5, epochs=0)
    stepper = sgd(plain, {})
    losses = []
    for rows in (kept[:BATCH], kept[BATCH : 2 * BATCH], kept[2 * BATCH :]):
        stepper.zero_grad()
        loss = nn.functional.cross_entropy(plain(data["x"][rows]), data["y"][rows])
        losses.append((loss.item(), len(rows)))
        loss.backward()
        stepper.step()
    plain_loop.assert_close(made.get_model().state_dict(), plain.state_dict(), rtol=1e-9, atol=1e-9)
    assert history["steps"][0] == 4
    assert history["samples"][0] == ROWS
    mean = sum(loss * rows for loss, rows in losses) / sum(rows for _, rows in losses)
    assert history["loss"] == [pytest.approx(mean, rel=1e-6)]


def test_nothing_counts_at_all():
    data = labelled()
    data["y"][:] = -100
    made = estimator(Linear, nn.CrossEntropyLoss(), 2)
    before = plain_loop.train(Linear, sgd, nn.CrossEntropyLoss(), data, seed=5, epochs=0)
    with pytest.warns(RuntimeWarning, match="such steps are skipped"):
        made.fit(data, epochs=1, batch_size=BATCH)
    assert plain_loop.same_bits(made.get_model().state_dict(), before.state_dict()) == []
    assert math.isnan(made.evaluate(data)["loss"])


def test_a_run_of_skipped_steps_alone_ends_without_a_loss():
    data = labelled()
    data["y"][:] = -100
    with pytest.warns(RuntimeWarning, match="such steps are skipped"):
        history = estimator(Linear, nn.CrossEntropyLoss(), 2).fit(data, batch_size=BATCH, max_steps=2)
    assert math.isnan(history["loss"][0])
    assert history["steps"] == [2]


# Losses of the user's own


def mean_of_squares(output, target):
    return ((output - target) ** 2).mean()


def sum_of_squares(output, target):
    return ((output - target) ** 2).sum()


def divided_by_a_count(output, target):
    mask = target > 0.5
    return ((output - target) ** 2 * mask).sum() / mask.sum()


def contrastive(output, target):
    near = torch.nn.functional.normalize(output, dim=1)
    return functional.cross_entropy(near @ near.T, torch.arange(len(output)))


@pytest.mark.parametrize("loss", [sum_of_squares, divided_by_a_count, contrastive])
def test_a_loss_of_the_users_own_that_is_no_row_mean_is_warned_about_once(loss):
    made = estimator(Linear, loss, 2)
    with pytest.warns(RuntimeWarning, match="the loss is no mean over rows") as told:
        made.fit(valued(), epochs=2, batch_size=BATCH)
        made.fit(valued(), epochs=1, batch_size=BATCH)
    assert len([each for each in told if "no mean over rows" in str(each.message)]) == 1
    text = str(told[0].message)
    assert "loss_weight=" in text and "lanes=1" in text


@pytest.mark.parametrize(
    ("loss", "options", "lanes"),
    [
        (mean_of_squares, {}, 2),
        (sum_of_squares, {}, 1),
        (divided_by_a_count, {"loss_weight": lambda batch: float((batch["y"] > 0.5).sum())}, 2),
    ],
)
def test_what_is_right_is_not_warned_about(loss, options, lanes):
    made = estimator(Linear, loss, lanes, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made.fit(valued(), epochs=1, batch_size=BATCH)
    plain = plain_loop.train(Linear, sgd, loss, valued(), seed=5, batch_size=BATCH)
    plain_loop.assert_close(made.get_model().state_dict(), plain.state_dict(), rtol=1e-9, atol=1e-9)


def counted(output, target):
    counts = target >= 0
    return ((output - target) ** 2 * counts).sum() / counts.sum()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_difference_in_one_lane_alone_is_warned_about(workers):
    """Labels that do not count are all in the last lane of the first batch."""
    data = valued()
    last = torch.frombuffer(plain_order().rows(BATCH - 3, BATCH), dtype=torch.int64)
    data["y"][last] = -1
    made = estimator(Linear, counted, 2, workers)
    with pytest.warns(RuntimeWarning, match="the loss is no mean over rows: in lane 1,") as told:
        made.fit(data, epochs=1, batch_size=BATCH)
    assert len([each for each in told if "no mean over rows" in str(each.message)]) == 1


class Encoder(nn.Module):
    """Returns a number for the batch beside its rows, as variational models do."""

    def __init__(self, config):
        super().__init__()
        self.linear = nn.Linear(FEATURES, FEATURES, dtype=torch.float64)

    def forward(self, x):
        code = self.linear(x)
        return code, (code**2).mean()


def summed(output, target):
    return sum_of_squares(output[0], target) + output[1]


def averaged(output, target):
    return mean_of_squares(output[0], target) + output[1]


class Small(nn.Module):
    """A loss without a target."""

    def __init__(self, reduce):
        super().__init__()
        self.reduce = reduce

    def forward(self, output):
        return self.reduce(output**2)


BESIDE = {"x": inputs(), "y": inputs()}
TRIED = {
    "a number beside rows": (Encoder, summed, averaged, BESIDE, BATCH),
    "no target": (Linear, Small(torch.sum), Small(torch.mean), {"x": inputs()}, BATCH),
    "one row a lane": (Linear, sum_of_squares, mean_of_squares, valued(), 2),
    "several rows beside one": (Linear, sum_of_squares, mean_of_squares, valued(), 3),
}


@pytest.mark.parametrize("case", TRIED)
def test_every_loss_whose_rows_can_be_told_apart_is_tried(case):
    model, wrong, right, data, size = TRIED[case]
    with pytest.warns(RuntimeWarning, match="the loss is no mean over rows"):
        estimator(model, wrong, 2).fit(data, epochs=1, batch_size=size)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimator(model, right, 2).fit(data, epochs=1, batch_size=size)


class Judging(nn.Module):
    """Makes its own loss, as models of transformers do: the mean over labels that count."""

    def __init__(self, config):
        super().__init__()
        self.linear = nn.Linear(FEATURES, CLASSES, dtype=torch.float64)
        self.norm = nn.BatchNorm1d(CLASSES, dtype=torch.float64)
        self.dropped = nn.Dropout(0.3)
        self.calls, self.seen = 0, []

    def forward(self, x, labels):
        self.calls += 1
        self.seen.append(len(x))
        logits = self.dropped(self.norm(self.linear(x)))
        assert len(self.seen) == self.calls
        return {"loss": functional.cross_entropy(logits, labels), "logits": logits}


def named(ignored):
    found = labelled(ignored=ignored)
    return {"x": found["x"], "labels": found["y"]}


def test_a_model_that_makes_its_own_loss_is_tried_without_a_trace():
    with pytest.warns(RuntimeWarning, match="the loss is no mean over rows"):
        tried = estimator(Judging, None, 2)
        tried.fit(named(-100), epochs=1, batch_size=BATCH)
    # With a weight nothing is tried, and where the labels all count the weight is that of rows.
    digests = []
    for options in ({}, {"loss_weight": lambda batch: len(batch["x"])}):
        made = estimator(Judging, None, 2, **options)
        made.fit(named(None), epochs=1, batch_size=BATCH)
        digests.append(made.digest())
    assert digests[0] == digests[1]
    assert made.get_model().calls == 0


@pytest.mark.parametrize("workers", [1, 3])
def test_bits_do_not_depend_on_workers_where_a_loss_is_tried(workers):
    found = []
    for count in (2, workers):
        made = estimator(Judging, None, 3, workers=count)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made.fit(named(-100), epochs=1, batch_size=BATCH)
        found.append(made.digest())
    assert found[0] == found[1]


def ctc(output, target):
    """A row mean: each row is divided by the length of its own target."""
    logs = output.log_softmax(2).transpose(0, 1)
    lengths = torch.full((len(output),), output.shape[1])
    return functional.ctc_loss(logs, target + 1, lengths, torch.full((len(output),), target.shape[1]))


class Times(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.linear = nn.Linear(FEATURES, 12 * (CLASSES + 1), dtype=torch.float64)

    def forward(self, x):
        return self.linear(x).view(len(x), 12, CLASSES + 1)


@pytest.mark.parametrize("lanes", LANES)
def test_ctc_is_a_mean_over_rows(lanes):
    assert_equals_one_process(Times, ctc, labelled(4), lanes)


class LongCtc(nn.Module):
    """Targets of different lengths, which the first column tells."""

    def __init__(self):
        super().__init__()
        self.ctc = nn.CTCLoss()

    def forward(self, output, target):
        logs = output.log_softmax(2).transpose(0, 1)
        return self.ctc(logs, target[:, 1:] + 1, torch.full((len(output),), output.shape[1]), target[:, 0])


@pytest.mark.parametrize("lanes", LANES)
def test_ctc_of_targets_of_different_lengths_is_a_mean_over_rows(lanes):
    data = labelled(5)
    data["y"][:, 0] = 1 + torch.arange(ROWS) % 4
    assert_equals_one_process(Times, LongCtc(), data, lanes)


def test_sixteen_bits_are_not_taken_for_another_loss():
    made = gp.Estimator.from_torch(
        model=nn.Linear(FEATURES, CLASSES, dtype=torch.bfloat16),
        optimizer=sgd,
        loss=mean_of_squares,
        workers=2,
    )
    data = {name: value.bfloat16() for name, value in valued().items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made.fit(data, epochs=1, batch_size=ROWS)
