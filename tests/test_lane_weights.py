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
from torch.utils.data import DataLoader, Dataset

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


# Losses and the data that they take, each of which was wrong over two lanes.
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


# Sequences, padded to the longest of a lane


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


# Steps of an operator, and steps with a closure, where nothing counts in one lane

LAID_OUT = [(1, 1), (2, 2), (3, 3), (3, 1)]


def with_an_ignored_lane(data, ignored):
    """Of each batch the first five rows count for nothing: all those of a lane."""
    for start in range(0, ROWS, BATCH):
        rows = plain_order().rows(start, min(ROWS, start + 5))
        data["y"][torch.frombuffer(rows, dtype=torch.int64)] = ignored
    return data


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
