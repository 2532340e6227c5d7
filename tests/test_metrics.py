"""Grampus' metrics: their values against scikit-learn and numpy, how states merge, and what is refused."""

import math
import pickle
import random

import numpy as np
import pytest
from clusters import no_cluster
from scipy.special import rel_entr
from sklearn import metrics as sk

from grampus import _native, metrics

runtime = no_cluster()

CLASSES = 7
BY_CLASS = {
    "Accuracy",
    "MeanAveragePrecision",
    "SparseCategoricalAccuracy",
    "SparseCategoricalCrossEntropy",
    "Top1Accuracy",
    "Top5Accuracy",
}
ONE_HOT = {
    "CategoricalAccuracy",
    "CategoricalCrossEntropy",
    "HitRatio",
    "KLDivergence",
    "NDCG",
    "TreeNNAccuracy",
}
OWN = sorted(metrics.Metric.__subclasses__(), key=lambda kind: kind.__name__)


def plain(kind):
    """The metric with what must be said: as many classes, or scores of a group, as the data have."""
    options = {
        metrics.MeanAveragePrecision: {"k": -1, "classes": CLASSES},
        metrics.MeanAveragePrecisionObjectDetection: {"classes": CLASSES},
        metrics.HitRatio: {"k": 3, "neg_num": CLASSES - 1},
        metrics.NDCG: {"k": 3, "neg_num": CLASSES - 1},
    }
    return kind(**options.get(kind, {}))


@pytest.fixture
def data():
    """Probabilities of classes with labels, and probabilities with answers; a few scores are equal."""
    random = np.random.default_rng(3)
    scores = random.dirichlet(np.ones(CLASSES), 500).astype("float32")
    labels = random.integers(0, CLASSES, 500)
    chances = random.random(500).round(2).astype("float32")
    answers = (random.random(500) < chances).astype("int64")
    return {"scores": scores, "labels": labels, "chances": chances, "answers": answers}


def measure(metric, predictions, targets):
    meter = metrics.meter(metric)
    meter.update(predictions, targets)
    return meter.value()


def boxes(data):
    """A box in each row, and two that were found: one of another size, and one in every second row alone."""
    there = np.zeros((len(data["labels"]), 1, 5), "float32")
    there[:, 0, 0], there[:, 0, 3:] = data["labels"], 1
    found = np.zeros((len(there), 2, 6), "float32")
    found[:, 0, 0], found[:, 0, 1], found[:, 0, 4] = data["labels"], data["chances"], 1
    found[:, 0, 5] = data["scores"][:, 0] + 0.4
    found[:, 1] = [0, 0.5, 0, 0, 1, 1]
    found[::2, 1, 0] = -1
    return found, there


def inputs(metric, data):
    """Predictions and targets that the metric takes."""
    one_hot = np.eye(CLASSES, dtype="float32")[data["labels"]]
    if type(metric).__name__ in BY_CLASS or "'m" in repr(metric):
        return data["scores"], data["labels"]
    if type(metric).__name__ in ONE_HOT:
        return data["scores"], one_hot
    if type(metric) is metrics.MeanAveragePrecisionObjectDetection:
        return boxes(data)
    return data["chances"], data["answers"]


def test_accuracies(data):
    scores, labels, chances, answers = data.values()
    share = sk.accuracy_score(labels, scores.argmax(-1))
    assert measure(metrics.Accuracy(), scores, labels) == share
    assert measure(metrics.Top1Accuracy(), scores, labels) == share
    assert measure(metrics.SparseCategoricalAccuracy(), scores, labels.reshape(-1, 1)) == share
    assert measure(metrics.CategoricalAccuracy(), scores, np.eye(CLASSES)[labels]) == share
    assert measure(metrics.Accuracy(), chances, answers) == sk.accuracy_score(answers, chances >= 0.5)
    assert measure(metrics.Accuracy(), chances.reshape(-1, 1), answers) == sk.accuracy_score(
        answers, chances >= 0.5
    )
    assert measure(metrics.BinaryAccuracy(), chances, answers) == sk.accuracy_score(answers, chances >= 0.5)
    top = sk.top_k_accuracy_score(labels, scores, k=5)
    assert measure(metrics.Top5Accuracy(), scores, labels) == pytest.approx(top)


def test_distances(data):
    chances, answers = data["chances"], data["answers"]
    exact = chances.astype("float64")
    assert measure(metrics.MAE(), chances, answers) == pytest.approx(sk.mean_absolute_error(answers, exact))
    assert measure(metrics.MSE(), chances, answers) == pytest.approx(sk.mean_squared_error(answers, exact))
    # Exact to the last bit: the correctly rounded sum, divided once.
    distances = [abs(float(p) - int(t)) for p, t in zip(chances, answers, strict=True)]
    assert measure(metrics.MAE(), chances, answers) == math.fsum(distances) / len(distances)


def test_entropies(data):
    scores, labels, chances, answers = data.values()
    wide, sure = scores.astype("float64"), chances.astype("float64").clip(1e-7, 1 - 1e-7)
    one_hot = np.eye(CLASSES)[labels]
    soft = wide[::-1].copy()
    entropy = sk.log_loss(labels, wide / wide.sum(-1, keepdims=True))
    assert measure(metrics.SparseCategoricalCrossEntropy(), scores, labels) == pytest.approx(entropy)
    assert measure(metrics.CategoricalCrossEntropy(), scores, one_hot) == pytest.approx(entropy)
    assert measure(metrics.CategoricalCrossEntropy(), scores, soft) == pytest.approx(
        -(soft * np.log(wide)).sum(-1).mean()
    )
    assert measure(metrics.BinaryCrossEntropy(), chances, answers) == pytest.approx(
        sk.log_loss(answers, sure)
    )
    assert measure(metrics.KLDivergence(), scores, soft) == pytest.approx(rel_entr(soft, wide).sum(-1).mean())
    counts = answers * 3
    assert measure(metrics.Poisson(), chances, counts) == pytest.approx(
        (chances - counts * np.log(sure)).mean()
    )


@pytest.mark.parametrize("name", ["precision", "recall", "f1"])
def test_ratios(name, data):
    kind = {"precision": metrics.Precision, "recall": metrics.Recall, "f1": metrics.F1Score}[name]
    score = getattr(sk, f"{name}_score")
    scores, labels, chances, answers = data.values()
    assert measure(kind(), chances, answers) == pytest.approx(score(answers, chances >= 0.5))
    for average in ("micro", "macro"):
        expected = score(labels, scores.argmax(-1), average=average)
        assert measure(kind(average=average), scores, labels) == pytest.approx(expected)
    # A class that is neither found nor there does not count.
    wider = np.pad(scores, ((0, 0), (0, 2)))
    assert measure(kind(average="macro"), wider, labels) == measure(kind(average="macro"), scores, labels)


def test_area_and_curves(data):
    chances, answers = data["chances"], data["answers"]
    # All scores are hundredths: with these thresholds no two of them are confused.
    assert measure(metrics.AUC(2001), chances, answers) == pytest.approx(sk.roc_auc_score(answers, chances))
    assert measure(metrics.AUC(), chances, answers) == pytest.approx(
        sk.roc_auc_score(answers, chances), abs=0.005
    )
    roc = measure(metrics.ROC(), chances, answers)
    expected = sk.roc_curve(answers, chances, drop_intermediate=False)
    for name, array in zip(["fpr", "tpr", "thresholds"], expected, strict=True):
        np.testing.assert_allclose(roc[name], array)
    curve = measure(metrics.PrecisionRecallCurve(), chances, answers)
    expected = sk.precision_recall_curve(answers, chances)
    for name, array in zip(["precision", "recall", "thresholds"], expected, strict=True):
        np.testing.assert_allclose(curve[name], array)


def test_every_option_counts(data):
    scores, labels, chances, answers = data.values()
    fine, coarse = (measure(metrics.AUC(threshold_num=number), chances, answers) for number in (200, 3))
    assert fine != coarse
    for kind in (metrics.Accuracy, metrics.Top1Accuracy, metrics.Top5Accuracy):
        assert measure(kind(zero_based_label=False), scores, labels + 1) == measure(kind(), scores, labels)
    high = measure(metrics.BinaryAccuracy(threshold=0.9), chances, answers)
    assert high != measure(metrics.BinaryAccuracy(), chances, answers)
    averages = {measure(metrics.Recall(average=average), scores, labels) for average in ("micro", "macro")}
    assert len(averages) == 2


ALL = (
    [plain(kind) for kind in OWN]
    + [
        metrics.MeanAveragePrecision(20, CLASSES),
        metrics.MeanAveragePrecisionObjectDetection(CLASSES, iou=0.6, use_voc2007=True, skip_class=0),
    ]
    + [
        kind(average=average)
        for kind in (metrics.Precision, metrics.Recall, metrics.F1Score)
        for average in ("micro", "macro")
    ]
)


@pytest.mark.parametrize("metric", ALL, ids=repr)
def test_any_cut_and_any_order_give_equal_bits(metric, data):
    predictions, targets = inputs(metric, data)
    whole = measure(metric, predictions, targets)
    dice = random.Random(5)
    for _ in range(5):
        lanes = [metrics.meter(metric) for _ in range(dice.randint(1, 7))]
        cuts = sorted(dice.sample(range(1, 500), 20))
        for start, end in zip([0, *cuts], [*cuts, 500], strict=True):
            dice.choice(lanes).update(predictions[start:end], targets[start:end])
        states = [lane.state() for lane in lanes]
        dice.shuffle(states)
        merged = metrics.meter(metric).merge(states).value()
        if isinstance(whole, dict):
            assert {k: v.tobytes() for k, v in merged.items()} == {k: v.tobytes() for k, v in whole.items()}
        else:
            assert merged == whole


@pytest.mark.parametrize("metric", ALL, ids=repr)
def test_inputs_are_left_alone(metric, data):
    predictions, targets = inputs(metric, data)
    predictions[:5] = 0.0
    before = predictions.copy(), targets.copy()
    predictions.flags.writeable = targets.flags.writeable = False
    measure(metric, predictions, targets)
    assert (before[0] == predictions).all()
    assert (before[1] == targets).all()


@pytest.mark.parametrize("kind", OWN)
def test_nothing_seen(kind):
    value = metrics.meter(plain(kind)).value()
    if kind is metrics.ROC:
        assert value["thresholds"].tolist() == [math.inf]
        assert np.isnan(value["fpr"]).all()
        assert np.isnan(value["tpr"]).all()
    elif kind is metrics.PrecisionRecallCurve:
        assert {name: array.tolist() for name, array in value.items()} == {
            "precision": [1.0],
            "recall": [0.0],
            "thresholds": [],
        }
    else:
        assert math.isnan(value)


def test_a_batch_without_rows_changes_nothing(data):
    meter = metrics.meter(metrics.Accuracy())
    meter.update(data["scores"], data["labels"])
    before = meter.state()
    meter.update(data["scores"][:0], data["labels"][:0])
    assert meter.state() == before


def test_a_meter_goes_on_from_a_state(data):
    meter = metrics.meter(metrics.MSE())
    meter.update(data["chances"], data["answers"])
    second = metrics.meter(metrics.MSE())
    second.update(np.ones(3), np.zeros(3))
    second.load(meter.state())
    assert second.value() == meter.value()
    second.reset()
    assert math.isnan(second.value())
    with pytest.raises(ValueError, match=r"a state of .* cannot be merged"):
        second.load(metrics.meter(metrics.MAE()).state())
    with pytest.raises(ValueError, match="no state of a metric"):
        second.load(b"\xff")


def test_merging_leaves_the_meter_as_it_is():
    meter = metrics.meter(metrics.MSE())
    meter.update(np.ones(3), np.zeros(3))
    assert meter.merge([meter.state(), meter.state()]).value() == 1.0
    assert math.isnan(meter.merge([]).value())
    assert meter.value() == 1.0


def test_arrays_of_any_layout(data):
    scores, labels = data["scores"], data["labels"]
    expected = measure(metrics.Accuracy(), scores, labels)
    assert measure(metrics.Accuracy(), np.asfortranarray(scores), labels) == expected
    assert (
        measure(metrics.Accuracy(), np.repeat(scores, 2, axis=0)[::2], np.repeat(labels, 2)[::2]) == expected
    )
    for kind in ("float16", "float64"):
        assert 0 < measure(metrics.Accuracy(), scores.astype(kind), labels.astype("int32")) < 1
    with pytest.raises(ValueError, match="not contiguous"):
        metrics.Accuracy().state().update(np.asfortranarray(scores), labels)


@pytest.mark.parametrize("kind", OWN)
def test_shapes_that_do_not_fit_are_named(kind):
    with pytest.raises(
        ValueError, match=rf"{kind.__name__} cannot take predictions of shape \[2, 3\] \(f32\)"
    ):
        measure(plain(kind), np.zeros((2, 3), "float32"), np.zeros(5, "int64"))


def test_wrong_values_are_named():
    with pytest.raises(ValueError, match=r"the target 3 \(at position 1\): the 3 classes count from 0"):
        measure(metrics.Accuracy(), np.zeros((2, 3)), np.array([0, 3]))
    with pytest.raises(ValueError, match=r"the score 2 .* sigmoid"):
        measure(metrics.AUC(), np.array([2.0]), np.array([1]))
    with pytest.raises(TypeError, match=r"accuracy takes one tensor or array .* not a tuple"):
        measure(metrics.Accuracy(), (np.zeros(3), np.zeros(3)), np.zeros(3))
    with pytest.raises(TypeError, match="cannot work on"):
        measure(metrics.MAE(), np.zeros(3, "complex128"), np.zeros(3))
    with pytest.raises(TypeError, match='cannot work on numpy type "<i2": use float16'):
        measure(metrics.MAE(), np.zeros(3, "int16"), np.zeros(3))


def test_wrong_options_are_named_where_they_are_written():
    with pytest.raises(ValueError, match="AUC cannot take threshold_num=1: it needs a whole number from 2"):
        metrics.AUC(threshold_num=1)
    with pytest.raises(
        ValueError, match='Recall cannot take average="mean": it needs "binary", "micro" or "macro"'
    ):
        metrics.Recall(average="mean")
    with pytest.raises(ValueError, match="Accuracy cannot take zero_based_label=1: it needs true or false"):
        metrics.Accuracy(zero_based_label=1)


def test_metrics_are_values():
    assert metrics.AUC(10) == metrics.AUC(threshold_num=10) != metrics.AUC()
    assert metrics.MAE() != metrics.MSE()
    assert len({metrics.AUC(), metrics.AUC(), metrics.AUC(10), metrics.ROC()}) == 3
    assert repr(metrics.AUC(10)) == "AUC(threshold_num=10)"
    for metric in ALL:
        assert pickle.loads(pickle.dumps(metric)) == metric
        assert eval(repr(metric), vars(metrics)) == metric
    assert metrics.Top5Accuracy().name == "top5accuracy"


def test_the_core_knows_the_same_metrics():
    with pytest.raises(ValueError, match=f"choose one of {', '.join(kind.__name__ for kind in OWN)}$"):
        _native.Metric("", {})
    assert len(OWN) == 34


def agreement(predictions, targets):
    return (predictions == targets).mean()


def test_names():
    assert metrics.named(None) == {}
    assert metrics.named("Accuracy") == {"accuracy": metrics.Accuracy()}
    assert metrics.named([metrics.AUC(10), metrics.MAE, "mse"]) == {
        "auc": metrics.AUC(10),
        "mae": metrics.MAE(),
        "mse": metrics.MSE(),
    }
    assert metrics.named({"Coarse": metrics.AUC(10), "auc": "auc"}) == {
        "Coarse": metrics.AUC(10),
        "auc": metrics.AUC(),
    }
    assert metrics.named([agreement]) == {"agreement": agreement}
    half = lambda predictions, targets: 0.5  # noqa: E731
    assert metrics.named({"half": half}) == {"half": half}


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        (["auc", metrics.AUC(10)], ValueError, "two metrics are called 'auc'"),
        (["acuracy"], ValueError, "no metric 'acuracy': choose one of accuracy, auc, "),
        ([dict], TypeError, "dict is a class and no metric"),
        (["meanaverageprecision"], TypeError, "MeanAveragePrecision has no default for some options"),
        ([3], TypeError, "3 is no metric"),
        ([lambda predictions, targets: 0], ValueError, "has no name: give a dict"),
    ],
)
def test_what_is_no_list_of_metrics(given, error, said):
    with pytest.raises(error, match=said):
        metrics.named(given)


def test_a_meter_of_something_else():
    with pytest.raises(TypeError, match="3 is no metric"):
        metrics.meter(3)


def spread(predictions, targets):
    """Depends on the order of the rows, and is no mean."""
    return float((predictions * np.arange(len(predictions))).sum() - targets[0])


def test_a_function_sees_all_rows_once_in_their_order(data):
    chances, answers = data["chances"], data["answers"]
    calls = []

    def counted(predictions, targets):
        calls.append(len(predictions))
        return spread(predictions, targets)

    lanes = [metrics.meter(counted) for _ in range(4)]
    for start in range(0, 500, 30):
        rows = np.arange(start, min(start + 30, 500))
        lanes[start % 3].update(chances[rows], answers[rows], rows)
    states = pickle.loads(pickle.dumps([lane.state() for lane in lanes]))
    assert states[3] == {}
    value = metrics.meter(counted).merge(states).value()
    assert calls == [500]
    assert value == spread(chances, answers)


def test_a_function_gets_what_came_even_if_its_memory_was_used_again():
    meter = metrics.meter(agreement)
    memory = np.array([1, 2, 3])
    meter.update(memory, memory.copy())
    memory[:] = 0
    assert meter.value() == 1.0


def test_without_row_numbers_lanes_stand_one_behind_the_other():
    lanes = [metrics.meter(spread) for _ in range(2)]
    for lane, start in zip(lanes, (0.0, 10.0), strict=True):
        lane.update(np.array([start, start + 1]), np.zeros(2))
    assert lanes[0].merge([lane.state() for lane in lanes]).value() == spread(np.array([0.0, 1, 10, 11]), [0])


def test_functions_of_several_outputs():
    def both(predictions, targets):
        first, second = predictions["pair"]
        return {"first": (first == targets).mean(), "second": second}

    meter = metrics.meter(both)
    for start in (2, 0):
        rows = np.arange(start, start + 2)
        meter.update({"pair": (rows, rows * 2)}, rows, rows)
    value = meter.value()
    assert value["first"] == 1.0
    assert value["second"].tolist() == [0, 2, 4, 6]


def test_functions_of_what_is_no_array():
    with pytest.raises(TypeError, match="there is a NoneType among the predictions or targets: leave it out"):
        metrics.meter(agreement).update((np.zeros(2), None), np.zeros(2))


def test_functions_without_rows_and_with_wrong_ones():
    meter = metrics.meter(agreement)
    assert math.isnan(meter.value())
    with pytest.raises(ValueError, match=r"have \[2, 3\] rows"):
        meter.update(np.zeros(3), np.zeros(3), np.arange(2))
    meter.update(np.zeros(3), np.zeros(3), np.arange(3))
    meter.update(np.zeros(3), np.zeros(3))
    with pytest.raises(ValueError, match="with row numbers and some without"):
        meter.value()
    meter.reset()
    assert meter.state() == {}
