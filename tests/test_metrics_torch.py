"""Metrics of tensors: Grampus' own, those of torchmetrics merged as it would, and plain functions."""

import math
import pickle

import numpy as np
import pytest
import torch
import torchmetrics
from torchmetrics import classification as tm
from torchmetrics import regression, wrappers

from grampus import metrics

ROWS, CLASSES = 200, 4


@pytest.fixture
def data():
    generator = torch.Generator().manual_seed(7)
    scores = torch.randn(ROWS, CLASSES, generator=generator).softmax(-1)
    labels = torch.randint(0, CLASSES, (ROWS,), generator=generator)
    chances = torch.rand(ROWS, generator=generator)
    answers = (torch.rand(ROWS, generator=generator) < chances).long()
    return scores, labels, chances, answers


def measure(metric, predictions, targets):
    meter = metrics.meter(metric)
    meter.update(predictions, targets)
    return meter.value()


def lanes_of(metric, predictions, targets, cuts):
    """One meter for each part; its states, as they arrive elsewhere."""
    lanes = []
    for start, end in zip([0, *cuts], [*cuts, len(targets)], strict=True):
        lane = metrics.meter(metric)
        # In two batches, so that a lane has seen more than one.
        for part in np.array_split(np.arange(start, end), 2):
            if len(part):
                lane.update(predictions[part], targets[part], part)
        lanes.append(lane)
    return pickle.loads(pickle.dumps([lane.state() for lane in lanes]))


def test_own_metrics_agree_with_torchmetrics(data):
    scores, labels, chances, answers = data
    by_class = {"num_classes": CLASSES}
    pairs = [
        (metrics.Accuracy(), tm.MulticlassAccuracy(**by_class, average="micro"), scores, labels),
        (metrics.Accuracy(), tm.BinaryAccuracy(), chances, answers),
        (metrics.BinaryAccuracy(0.7), tm.BinaryAccuracy(threshold=0.7), chances, answers),
        (metrics.AUC(), tm.BinaryAUROC(thresholds=200), chances, answers),
        (metrics.Precision(), tm.BinaryPrecision(), chances, answers),
        (metrics.Recall(), tm.BinaryRecall(), chances, answers),
        (metrics.F1Score(), tm.BinaryF1Score(), chances, answers),
        (metrics.Precision("macro"), tm.MulticlassPrecision(**by_class, average="macro"), scores, labels),
        (metrics.Recall("macro"), tm.MulticlassRecall(**by_class, average="macro"), scores, labels),
        (metrics.F1Score("micro"), tm.MulticlassF1Score(**by_class, average="micro"), scores, labels),
        (metrics.MAE(), regression.MeanAbsoluteError(), chances, answers.float()),
        (metrics.MSE(), regression.MeanSquaredError(), chances, answers.float()),
        (metrics.KLDivergence(), regression.KLDivergence(), scores, scores.flip(0)),
    ]
    for own, theirs, predictions, targets in pairs:
        # torchmetrics takes the target's distribution first.
        order = (targets, predictions) if "KL" in repr(own) else (predictions, targets)
        expected = theirs(*order).item()
        assert measure(own, predictions, targets) == pytest.approx(expected, rel=1e-5), own
    fpr, tpr, thresholds = tm.BinaryROC()(chances, answers)
    roc = measure(metrics.ROC(), chances, answers)
    np.testing.assert_allclose(roc["fpr"], fpr, rtol=1e-6)
    np.testing.assert_allclose(roc["tpr"], tpr, rtol=1e-6)
    np.testing.assert_allclose(roc["thresholds"][1:], thresholds[1:], rtol=1e-6)
    curve = measure(metrics.PrecisionRecallCurve(), chances, answers)
    theirs = tm.BinaryPrecisionRecallCurve()(chances, answers)
    for ours, array in zip(curve.values(), theirs, strict=True):
        np.testing.assert_allclose(ours, array, rtol=1e-6)


def test_losses_agree_with_torch(data):
    scores, labels, chances, answers = data
    entropy = torch.nn.functional.nll_loss(scores.double().log(), labels).item()
    assert measure(metrics.SparseCategoricalCrossEntropy(), scores, labels) == pytest.approx(entropy)
    entropy = torch.nn.functional.binary_cross_entropy(chances.double(), answers.double()).item()
    assert measure(metrics.BinaryCrossEntropy(), chances, answers) == pytest.approx(entropy)
    poisson = torch.nn.functional.poisson_nll_loss(chances.double(), answers.double(), log_input=False, eps=0)
    assert measure(metrics.Poisson(), chances, answers) == pytest.approx(poisson.item())


def test_tensors_of_any_kind(data):
    scores, labels, *_ = data
    expected = measure(metrics.Accuracy(), scores.numpy(), labels.numpy())
    assert measure(metrics.Accuracy(), scores, labels) == expected
    assert measure(metrics.Accuracy(), scores.t().contiguous().t(), labels) == expected
    assert measure(metrics.Accuracy(), scores.clone().requires_grad_() * 1, labels) == expected
    assert measure(metrics.Accuracy(), scores, labels.int()) == expected
    half = measure(metrics.Accuracy(), scores.bfloat16(), labels)
    assert half == (scores.bfloat16().argmax(-1) == labels).double().mean().item()
    assert measure(metrics.Accuracy(), labels == 1, labels == 1) == 1.0
    with pytest.raises(TypeError, match=r"cannot work on torch\.int16: use torch\.float32, "):
        measure(metrics.Accuracy(), scores, labels.short())


def test_scalars_of_a_squeezed_batch():
    assert measure(metrics.Accuracy(), torch.tensor([[0.7]]).squeeze(), torch.tensor([1])) == 1.0

    def distance(predictions, targets):
        return (predictions - targets).abs().sum()

    meter = metrics.meter(distance)
    for given in ([[0.25]], [[0.5], [0.75]]):
        meter.update(torch.tensor(given).squeeze(), torch.ones(len(given)))
    assert meter.value() == 1.5


MERGED = [
    (tm.MulticlassAccuracy(num_classes=CLASSES, average="macro"), "classes"),  # sums
    (tm.BinaryAUROC(), "pairs"),  # all scores
    (tm.BinaryAUROC(thresholds=20), "pairs"),
    (tm.BinaryF1Score(), "pairs"),
    (regression.MeanSquaredError(), "numbers"),
    (regression.PearsonCorrCoef(), "numbers"),  # a state of each process, put together by the metric
    (regression.R2Score(), "numbers"),
    (wrappers.ClasswiseWrapper(tm.MulticlassRecall(num_classes=CLASSES, average=None)), "classes"),
    (tm.BinaryPrecision() + tm.BinaryRecall(), "pairs"),
    (tm.BinaryROC(), "pairs"),
]


def close(one, other):
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(close(one[name], other[name]) for name in one)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(close, one, other))
    return np.allclose(one, other, atol=1e-6)


@pytest.mark.parametrize(("metric", "takes"), MERGED, ids=lambda part: type(part).__name__)
@pytest.mark.parametrize("cuts", [[50, 110], [0, 30, 30]])
def test_lanes_of_torchmetrics_merge(metric, takes, cuts, data):
    scores, labels, chances, answers = data
    by_kind = {
        "classes": (scores, labels),
        "pairs": (chances, answers),
        "numbers": (chances, answers.float()),
    }
    predictions, targets = by_kind[takes]
    whole = measure(metric, predictions, targets)
    states = lanes_of(metric, predictions, targets, cuts)
    assert close(metrics.meter(metric).merge(states).value(), whole)


class Extremes(torchmetrics.Metric):
    """A state of every reduction there is."""

    def __init__(self):
        super().__init__()
        self.add_state("high", torch.tensor(-math.inf), dist_reduce_fx="max")
        self.add_state("low", torch.tensor(math.inf), dist_reduce_fx="min")
        self.add_state("average", torch.tensor(0.0), dist_reduce_fx="mean")
        self.add_state("total", torch.tensor(0.0), dist_reduce_fx="sum")
        self.add_state("product", torch.tensor(1.0), dist_reduce_fx=lambda lanes: lanes.prod(0))
        self.add_state("last", torch.tensor(0.0), dist_reduce_fx=None)
        self.add_state("seen", [], dist_reduce_fx="cat")
        self.add_state("apart", [], dist_reduce_fx=None)

    def update(self, predictions, targets):
        self.high = torch.maximum(self.high, predictions.max())
        self.low = torch.minimum(self.low, predictions.min())
        self.average = predictions.mean()
        self.total = self.total + predictions.sum()
        self.product = self.product * predictions.prod()
        self.last = predictions[-1]
        self.seen.append(predictions)
        self.apart.append(predictions)

    def compute(self):
        seen = torch.cat(self.seen) if isinstance(self.seen, list) else self.seen
        numbers = (self.high, self.low, self.average, self.total, self.product)
        return [number.item() for number in numbers], self.last.tolist(), seen.tolist(), len(self.apart)


def test_every_reduction():
    lanes = [metrics.meter(Extremes()) for _ in range(3)]
    lanes[0].update(torch.tensor([2.0, 4.0]), None)
    lanes[2].update(torch.tensor([8.0]), None)
    lanes[2].update(torch.tensor([1.0]), None)
    merged = lanes[0].merge([lane.state() for lane in lanes])
    # The lane that saw nothing is no part of the mean.
    assert merged.value() == ([8.0, 1.0, 2.0, 15.0, 64.0], [4.0, 1.0], [2.0, 4.0, 8.0, 1.0], 3)
    assert lanes[0].value() == ([4.0, 2.0, 3.0, 6.0, 8.0], 4.0, [2.0, 4.0], 1)


def test_the_given_object_stays_as_it_is(data):
    *_, chances, answers = data
    metric = tm.BinaryAccuracy()
    metric.update(1 - chances, answers)
    before = metric.compute()
    assert measure(metric, chances, answers) != before
    assert metric.compute() == before


def test_a_meter_of_torchmetrics_goes_on_from_a_state(data):
    *_, chances, answers = data
    whole = measure(tm.BinaryAUROC(), chances, answers)
    first = metrics.meter(tm.BinaryAUROC())
    first.update(chances[:80], answers[:80])
    second = metrics.meter(tm.BinaryAUROC())
    second.load(first.state())
    second.update(chances[80:].numpy(), answers[80:].numpy())
    assert second.value() == pytest.approx(whole)
    second.reset()
    second.update(chances[:80], answers[:80])
    assert second.value() == first.value()


def test_torchmetrics_keep_no_graph():
    meter = metrics.meter(tm.BinaryAUROC())
    weight = torch.ones(1, requires_grad=True)
    meter.update(weight * torch.rand(4), torch.tensor([0, 1, 0, 1]))
    assert not any(tensor.requires_grad for tensor in meter._metric.preds)


def test_metrics_do_not_meet_through_torch_distributed(data, tmp_path):
    """In a worker that uses torch.distributed itself, a value is that of the states that were merged."""
    *_, chances, answers = data
    whole = measure(tm.BinaryAccuracy(), chances, answers)
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        meter = metrics.meter(tm.BinaryAccuracy(dist_sync_fn=lambda *_, **__: pytest.fail("it was gathered")))
        meter.update(chances, answers)
        assert meter.value() == whole
    finally:
        torch.distributed.destroy_process_group()


def test_names_of_torchmetrics():
    accuracy, recall = tm.BinaryAccuracy(), tm.BinaryRecall()
    assert metrics.named([accuracy, "accuracy"]) == {
        "binaryaccuracy": accuracy,
        "accuracy": metrics.Accuracy(),
    }
    with pytest.raises(ValueError, match="two metrics are called 'binaryaccuracy'"):
        metrics.named([accuracy, "binaryaccuracy"])
    with pytest.raises(TypeError, match="BinaryAccuracy is a class and no metric: give an object of it"):
        metrics.named([tm.BinaryAccuracy])
    collection = torchmetrics.MetricCollection({"a": accuracy, "r": recall}, prefix="my_")
    assert list(metrics.named([collection])) == ["my_a", "my_r"]
    assert list(metrics.named({"both": collection})) == ["both_my_a", "both_my_r"]


def test_functions_get_tensors_where_tensors_came(data):
    *_, chances, answers = data

    def rows(predictions, targets):
        assert isinstance(predictions, torch.Tensor) and isinstance(targets, np.ndarray)
        assert predictions.dtype == torch.bfloat16 and not predictions.requires_grad
        return (predictions.float() * torch.arange(ROWS)).sum()

    given = chances.bfloat16().requires_grad_()
    states = lanes_of(rows, given, answers.numpy(), [60, 60, 100])
    value = metrics.meter(rows).merge(states[::-1]).value()
    assert isinstance(value, float)
    assert value == pytest.approx((chances.bfloat16().float() * torch.arange(ROWS)).sum().item())
