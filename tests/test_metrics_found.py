"""Metrics of forecasts, of what was found and of what was recommended, against formulas in numpy."""

import numpy as np
import pytest
from clusters import no_cluster
from sklearn import metrics as sk

from grampus import metrics

runtime = no_cluster()


def measure(metric, predictions, targets):
    meter = metrics.meter(metric)
    meter.update(predictions, targets)
    return meter.value()


# Forecasts

FORECASTS = {
    metrics.RMSE: sk.root_mean_squared_error,
    metrics.MSLE: sk.mean_squared_log_error,
    metrics.R2: sk.r2_score,
    metrics.ME: lambda t, p: (t - p).mean(),
    metrics.MPE: lambda t, p: 100 * ((t - p) / t).mean(),
    metrics.MAPE: lambda t, p: 100 * sk.mean_absolute_percentage_error(t, p),
    metrics.MSPE: lambda t, p: 100 * (((t - p) / t) ** 2).mean(),
    metrics.MDAPE: lambda t, p: 100 * np.median(abs((t - p) / t)),
    metrics.sMAPE: lambda t, p: 100 * (abs(t - p) / (abs(t) + abs(p))).mean(),
    metrics.sMDAPE: lambda t, p: 100 * np.median(abs(t - p) / (abs(t) + abs(p))),
}


@pytest.mark.parametrize("kind", FORECASTS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("count", [300, 301])
def test_errors_of_forecasts(kind, count):
    random = np.random.default_rng(count)
    targets = random.uniform(0.5, 9, count)
    predictions = targets + random.uniform(-0.4, 0.5, count)
    expected = FORECASTS[kind](targets, predictions)
    assert measure(kind(), predictions, targets) == pytest.approx(expected, rel=1e-12)
    # Several numbers in a row are as many forecasts, except for those who take columns apart.
    if count == 300:
        wide = measure(kind(), predictions.reshape(100, 3), targets.reshape(100, 3))
        assert wide == measure(kind(), predictions, targets)


# Classes and boxes


def areas(scores, right, there, k=-1, eleven=False):
    """The area under precision and recall, by its definition."""
    order = np.argsort(-scores, kind="stable")[: k if k > 0 else None]
    hits = right[order].cumsum()
    precision, recall = hits / np.arange(1, len(hits) + 1), hits / there
    recalls = np.arange(11) / 10 if eleven else np.arange(1, there + 1) / there
    return np.mean([precision[recall >= at - 1e-12].max(initial=0.0) for at in recalls])


@pytest.mark.parametrize("k", [-1, 25])
def test_average_precision_of_rows(k):
    random = np.random.default_rng(1)
    labels = random.integers(0, 4, 200)
    scores = random.random((200, 6))
    scores[np.arange(200), labels] += 0.3
    expected = [areas(scores[:, c], labels == c, (labels == c).sum(), k) for c in range(4)]
    # Nothing is of the last two classes.
    assert measure(metrics.MeanAveragePrecision(k, 6), scores, labels) == pytest.approx(np.mean(expected))


def overlap(one, other):
    corners = np.maximum(one[:2], other[:2]), np.minimum(one[2:], other[2:])
    both = np.prod((corners[1] - corners[0]).clip(0))
    return both / (np.prod(one[2:] - one[:2]) + np.prod(other[2:] - other[:2]) - both)


def matched(found, there, iou):
    """Class, score and whether it is right, of each box of an image."""
    taken = set()
    for box in sorted(found.tolist(), key=lambda box: -box[1]):
        of_class = [at for at in range(len(there)) if there[at][0] == box[0]]
        shares = {at: overlap(np.array(box[2:]), there[at][1:]) for at in of_class}
        best = max(shares, key=shares.get, default=None)
        right = best is not None and shares[best] >= iou and best not in taken
        if right:
            taken.add(best)
        yield box[0], box[1], right


@pytest.fixture(scope="module")
def images():
    """Forty images with up to four boxes; those found are moved a little, and some are made up."""
    random = np.random.default_rng(2)
    found, there = [], []
    for _ in range(40):
        corners = random.uniform(0, 8, (random.integers(0, 5), 2))
        boxes = np.hstack([random.integers(0, 3, (len(corners), 1)), corners, corners + 3])
        moved = boxes[:, 1:] + random.normal(0, 0.6, (len(boxes), 4))
        again = np.hstack([boxes[:, :1], random.random((len(boxes), 1)), moved])
        made_up = [[random.integers(0, 3), random.random(), 1, 1, 4, 4]]
        there.append(boxes)
        # The first is found twice, with a lower score the second time.
        twice = again[:1] * [1, 0.9, 1, 1, 1, 1]
        found.append(np.vstack([again, twice, made_up]))
    return found, there


def padded(images, length):
    """As one array: rows of boxes, filled with what is no box."""
    array = np.full((len(images), length, images[0].shape[1]), -1.0)
    for row, boxes in zip(array, images, strict=True):
        row[: len(boxes)] = boxes
    return array


@pytest.mark.parametrize("eleven", [False, True])
@pytest.mark.parametrize("iou", [0.5, 0.7])
def test_average_precision_of_boxes(images, iou, eleven):
    found, there = images
    all_found = [box for f, t in zip(found, there, strict=True) for box in matched(f, t, iou)]
    expected = {}
    for kind in range(3):
        scores, right = np.array([(score, right) for c, score, right in all_found if c == kind]).T
        boxes = sum(int((boxes[:, 0] == kind).sum()) for boxes in there)
        expected[kind] = areas(scores, right, boxes, eleven=eleven)
    predictions, targets = padded(found, 7), padded(there, 5)
    metric = metrics.MeanAveragePrecisionObjectDetection(3, iou, eleven)
    assert measure(metric, predictions, targets) == pytest.approx(np.mean(list(expected.values())))
    but_one = metrics.MeanAveragePrecisionObjectDetection(3, iou, eleven, skip_class=1)
    assert measure(but_one, predictions, targets) == pytest.approx((expected[0] + expected[2]) / 2)
    # How many places there are for boxes may change from batch to batch.
    meter = metrics.meter(metric)
    meter.update(predictions[:9], targets[:9])
    meter.update(padded(found[9:], 30), padded(there[9:], 4))
    assert meter.value() == measure(metric, predictions, targets)


# Groups


@pytest.fixture(scope="module")
def groups():
    """Scores of groups of one positive, anywhere, and ten negatives."""
    random = np.random.default_rng(4)
    scores = random.random((60, 11)).astype("float32")
    targets = np.eye(11, dtype="float32")[random.integers(0, 11, 60)]
    return scores + 0.4 * targets, targets


def test_places_of_positives(groups):
    scores, targets = groups
    places = 1 + (scores > (scores * targets).sum(1, keepdims=True)).sum(1)
    for k in (1, 3, 11):
        hits = places <= k
        assert measure(metrics.HitRatio(k, neg_num=10), scores, targets) == hits.mean()
        gain = np.where(hits, 1 / np.log2(1 + places), 0)
        assert measure(metrics.NDCG(k, neg_num=10), scores, targets) == pytest.approx(gain.mean())
    # None of the first: zero, and not minus zero.
    assert str(measure(metrics.HitRatio(1, neg_num=10), -scores * targets, targets)) == "0.0"
    # With one positive, it is what scikit-learn says.
    whole = sk.ndcg_score(targets, scores, k=5)
    assert measure(metrics.NDCG(5, 10), scores.ravel(), targets.ravel()) == pytest.approx(whole)


def test_groups_must_be_whole(groups):
    scores, targets = (part.ravel() for part in groups)
    with pytest.raises(
        ValueError, match=r"HitRatio cannot take 32 rows, .* no whole groups of 11: let a row"
    ):
        measure(metrics.HitRatio(neg_num=10), scores[:32], targets[:32])
    with pytest.raises(ValueError, match=r"targets of 1 in group 0 of the batch: each group of 11 needs one"):
        measure(metrics.HitRatio(neg_num=10), scores[:11], np.zeros(11))
