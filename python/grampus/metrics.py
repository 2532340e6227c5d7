"""Metrics whose value does not depend on the number of workers.

Each is a state that merges: counts are integers and sums are exact, so that cutting the rows in another way
changes no bit of the value.

>>> import numpy as np
>>> from grampus import metrics
>>> here, there = (metrics.meter(metrics.Accuracy()) for _ in range(2))
>>> here.update(np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([0, 1]))
>>> there.update(np.array([[0.7, 0.3]]), np.array([1]))
>>> round(here.merge([here.state(), there.state()]).value(), 3)
0.667

`named` takes what users give to an Estimator: these metrics, their names, objects of torchmetrics and plain
functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol

from grampus import _meters, _native
from grampus._arguments import suggest

__all__ = [
    "AUC",
    "MAE",
    "MAPE",
    "MDAPE",
    "ME",
    "MPE",
    "MSE",
    "MSLE",
    "MSPE",
    "NDCG",
    "R2",
    "RMSE",
    "ROC",
    "Accuracy",
    "BinaryAccuracy",
    "BinaryCrossEntropy",
    "CategoricalAccuracy",
    "CategoricalCrossEntropy",
    "F1Score",
    "HitRatio",
    "KLDivergence",
    "MeanAveragePrecision",
    "MeanAveragePrecisionObjectDetection",
    "Meter",
    "Metric",
    "Poisson",
    "Precision",
    "PrecisionRecallCurve",
    "Recall",
    "SparseCategoricalAccuracy",
    "SparseCategoricalCrossEntropy",
    "Top1Accuracy",
    "Top5Accuracy",
    "TreeNNAccuracy",
    "directions",
    "meter",
    "named",
    "sMAPE",
    "sMDAPE",
]


class Metric:
    """The base of the metrics of this module: a name and options; what was seen is in its states."""

    # Whether it is measured while a model trains, on rows in any order.
    in_training: ClassVar[bool] = True

    def __init__(self, **options: bool | int | float | str) -> None:
        self._options = options
        self.state()  # refuses wrong options where they were written

    @property
    def name(self) -> str:
        """The class's name in lower case: what results are called."""
        return type(self).__name__.lower()

    @property
    def higher_is_better(self) -> bool | None:
        """Whether more is better; `None` of curves, and of `ME` and `MPE`, which are best at 0."""
        return self._described().higher_is_better

    def state(self) -> _native.MetricState:
        """A state that has seen nothing."""
        return self._described().state()

    def _described(self) -> _native.Metric:
        return _native.Metric(type(self).__name__, self._options)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((type(self), *self._options.items()))

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self._options.items())
        return f"{type(self).__name__}({options})"


class AUC(Metric):
    """The area under the ROC curve of probabilities, by trapezoids between thresholds.

    The `threshold_num` thresholds stand at equal distances from 0 to 1; scores between two of them count as
    equal. NaN unless both classes were seen.
    """

    def __init__(self, threshold_num: int = 200) -> None:
        super().__init__(threshold_num=threshold_num)


class MAE(Metric):
    """The mean distance of prediction and target."""

    def __init__(self) -> None:
        super().__init__()


class MSE(Metric):
    """The mean square of the distance of prediction and target."""

    def __init__(self) -> None:
        super().__init__()


class RMSE(Metric):
    """The root of the mean square of the distance of prediction and target."""

    def __init__(self) -> None:
        super().__init__()


class ME(Metric):
    """The mean of `t - p`: above 0 where predictions are too low."""

    def __init__(self) -> None:
        super().__init__()


class MPE(Metric):
    """The mean of `(t - p) / t`, in percent; infinite or NaN where a target is 0 and was missed."""

    def __init__(self) -> None:
        super().__init__()


class MAPE(Metric):
    """The mean of `|t - p| / |t|`, in percent; infinite where a target is 0 and was missed."""

    def __init__(self) -> None:
        super().__init__()


class MSPE(Metric):
    """The mean of `((t - p) / t)²`, in percent; infinite where a target is 0 and was missed."""

    def __init__(self) -> None:
        super().__init__()


class sMAPE(Metric):  # noqa: N801
    """The mean of `|t - p| / (|t| + |p|)`, in percent, from 0 to 100.

    Some write it with half of the sum below the line: that is twice this value.
    """

    def __init__(self) -> None:
        super().__init__()


class MDAPE(Metric):
    """The median of `|t - p| / |t|`, in percent. Its state holds every different error."""

    def __init__(self) -> None:
        super().__init__()


class sMDAPE(Metric):  # noqa: N801
    """The median of `|t - p| / (|t| + |p|)`, in percent. Its state holds every different error."""

    def __init__(self) -> None:
        super().__init__()


class MSLE(Metric):
    """The mean of `(ln(1 + t) - ln(1 + p))²`; NaN where a number is below -1."""

    def __init__(self) -> None:
        super().__init__()


class R2(Metric):
    """The share of the variance of the targets that is explained: `1 - sum((t - p)²) / sum((t - mean(t))²)`.

    It is taken over all elements together. Where targets do not vary, it is 1 if all are met and else 0; NaN
    of less than two.
    """

    def __init__(self) -> None:
        super().__init__()


class Accuracy(Metric):
    """The share of right predictions.

    With one axis more than the targets, predictions are scores of classes along the last axis, and the
    highest counts. Of equal shape, floats from 0.5 on are the second of two classes, and integers are
    classes. A trailing axis of one element is no axis. With `zero_based_label=False` labels count from 1.
    """

    def __init__(self, zero_based_label: bool = True) -> None:
        super().__init__(zero_based_label=zero_based_label)


class Top1Accuracy(Metric):
    """`Accuracy` by another name."""

    def __init__(self, zero_based_label: bool = True) -> None:
        super().__init__(zero_based_label=zero_based_label)


class TreeNNAccuracy(Metric):
    """The share of trees whose root was predicted right: of each row, the first node alone counts.

    Predictions are `[rows, nodes, classes]`, or of one score, which means the second of two classes from 0.5
    on; targets are `[rows, nodes]`.
    """

    def __init__(self) -> None:
        super().__init__()


class SparseCategoricalAccuracy(Metric):
    """The share of rows whose highest score, along the last axis, is that of the target's class."""

    def __init__(self) -> None:
        super().__init__()


class CategoricalAccuracy(Metric):
    """The share of rows whose highest score stands where the highest of the one-hot targets stands."""

    def __init__(self) -> None:
        super().__init__()


class BinaryAccuracy(Metric):
    """The share of predictions that reach the threshold just where the target is 1."""

    def __init__(self, threshold: float = 0.5) -> None:
        super().__init__(threshold=threshold)


class Top5Accuracy(Metric):
    """The share of rows in which the target's score is one of the five highest, along the last axis.

    With `zero_based_label=False` labels count from 1.
    """

    def __init__(self, zero_based_label: bool = True) -> None:
        super().__init__(zero_based_label=zero_based_label)


class BinaryCrossEntropy(Metric):
    """The mean of `-t ln(p) - (1 - t) ln(1 - p)` over all elements; `p` are probabilities."""

    def __init__(self) -> None:
        super().__init__()


class CategoricalCrossEntropy(Metric):
    """The mean over rows of `-t ln(p)`, summed over the classes along the last axis."""

    def __init__(self) -> None:
        super().__init__()


class SparseCategoricalCrossEntropy(Metric):
    """The mean over rows of `-ln(p)`, `p` being the probability of the target's class."""

    def __init__(self) -> None:
        super().__init__()


class KLDivergence(Metric):
    """The mean over rows of `t ln(t / p)`, summed over the classes along the last axis."""

    def __init__(self) -> None:
        super().__init__()


class Poisson(Metric):
    """The mean of `p - t ln(p)` over all elements; `p` are expected counts."""

    def __init__(self) -> None:
        super().__init__()


class ROC(Metric):
    """The exact ROC curve: `fpr`, `tpr` and `thresholds`, from the highest threshold to the lowest.

    The first point is that of nothing found, with an infinite threshold.
    """

    def __init__(self) -> None:
        super().__init__()


class F1Score(Metric):
    """The harmonic mean of precision and recall; `average` as for `Precision`."""

    def __init__(self, average: str = "binary") -> None:
        super().__init__(average=average)


class Precision(Metric):
    """Of what was found, the share that is right.

    `average` is "binary" (predictions from 0.5 on are found), or "micro" or "macro" for scores of classes
    along the last axis, of which the highest counts: all together, or the mean over classes that were seen.
    """

    def __init__(self, average: str = "binary") -> None:
        super().__init__(average=average)


class Recall(Metric):
    """Of what is there, the share that was found; `average` as for `Precision`."""

    def __init__(self, average: str = "binary") -> None:
        super().__init__(average=average)


class PrecisionRecallCurve(Metric):
    """The exact curve: `precision`, `recall` and `thresholds`, from the lowest threshold to the highest.

    The last point is that of nothing found; it has no threshold.
    """

    def __init__(self) -> None:
        super().__init__()


class MeanAveragePrecision(Metric):
    """The mean over classes of the area under the curve of precision and recall.

    Predictions have a score for each of the `classes` along the last axis. For each class, rows are put in
    order of its score, of which the highest `k` count, or all with -1. The area is that of VOC from 2010 on:
    at each recall, the highest precision that goes with it or with more. Classes that no target has are left
    out.
    """

    def __init__(self, k: int, classes: int) -> None:
        super().__init__(k=k, classes=classes)


class MeanAveragePrecisionObjectDetection(Metric):
    """The mean over classes of the area under the curve of precision and recall of boxes around objects.

    Predictions are `[rows, boxes, 6]`: class, score, x1, y1, x2, y2. Targets are `[rows, boxes, 5]`: class,
    x1, y1, x2, y2. A class below 0 is no box: rows are filled with it.

    Boxes are taken in order of their scores. One is right if, of the targets of its class in the row, that
    which it covers best has an intersection over union of at least `iou` with it and was not found before.
    `use_voc2007` reads precision at recalls of 0, 0.1, … 1 only, as was done for VOC at first. `skip_class`
    is left out, and so are classes that no target has.
    """

    def __init__(
        self, classes: int, iou: float = 0.5, use_voc2007: bool = False, skip_class: int = -1
    ) -> None:
        super().__init__(classes=classes, iou=iou, use_voc2007=use_voc2007, skip_class=skip_class)


class HitRatio(Metric):
    """The share of groups whose positive has one of the `k` highest scores.

    A group is one positive, whose target is 1, and `neg_num` negatives, whose targets are 0. A row holds the
    scores of a group, `[rows, 1 + neg_num]`, or the rows of a group stand one behind the other, and batches
    are cut between groups. Of equal scores, those of negatives are higher. It is not measured while a model
    trains, where rows are in another order.
    """

    in_training = False

    def __init__(self, k: int = 10, neg_num: int = 100) -> None:
        super().__init__(k=k, neg_num=neg_num)


class NDCG(Metric):
    """The mean over groups of `1 / log2(1 + place)` of the positive; 0 where `k` or more scores are higher.

    Groups are those of `HitRatio`; places count from 1.
    """

    in_training = False

    def __init__(self, k: int = 10, neg_num: int = 100) -> None:
        super().__init__(k=k, neg_num=neg_num)


_BY_NAME = {kind.__name__.lower(): kind for kind in Metric.__subclasses__()}


class Meter(Protocol):
    """What one lane has seen of a metric of any kind."""

    def update(self, predictions: Any, targets: Any, rows: Any = None) -> None:
        """Take a batch of tensors or arrays.

        `rows` are the positions of its rows in the order of evaluation, for metrics that look at all rows at
        once.
        """

    def state(self) -> Any:
        """What was seen, to travel or to be kept: plain values, bytes, arrays and CPU tensors alone."""

    def load(self, state: Any) -> None:
        """Go on from a state."""

    def merge(self, states: Sequence[Any]) -> Meter:
        """A new meter that has seen what these states of lanes have, given in their order."""

    def value(self) -> Any:
        """The value over all that was seen: a number, or numbers and arrays by name."""

    def reset(self) -> None:
        """Forget what was seen."""


def meter(metric: Any) -> Meter:
    """A meter that has seen nothing, of one of the metrics that `named` gives."""
    if isinstance(metric, Metric):
        return _meters.OwnMeter(metric)
    if is_torchmetrics(metric):
        return _meters.TorchmetricsMeter(metric)
    if callable(metric):
        return _meters.FunctionMeter(metric)
    raise _no_metric(metric)


def named(metrics: Any) -> dict[str, Any]:
    """The metrics that a user gave, by name.

    Takes None, one metric, a list, or a dict whose keys are the names. A metric is one of this module, its
    class, its name such as "accuracy", an object of torchmetrics, or a function of all predictions and all
    targets.

    >>> named(["mae", Top5Accuracy])
    {'mae': MAE(), 'top5accuracy': Top5Accuracy(zero_based_label=True)}
    """
    found: dict[str, Any] = {}
    for name, metric in _pairs(metrics):
        if name in found:
            raise ValueError(f"two metrics are called {name!r}: give a dict of names and metrics")
        found[name] = metric
    return found


def directions(metrics: Any) -> dict[str, bool | None]:
    """Whether more of each metric is better; `None` where it does not say.

    Metrics of torchmetrics have an attribute `higher_is_better`; a function of your own may be given one.

    >>> directions(["mae", Top5Accuracy, ME])
    {'mae': False, 'top5accuracy': True, 'me': None}
    """
    found = {name: getattr(metric, "higher_is_better", None) for name, metric in named(metrics).items()}
    return {name: None if higher is None else bool(higher) for name, higher in found.items()}


def _pairs(metrics: Any) -> Iterator[tuple[str, Any]]:
    if metrics is None:
        return
    if isinstance(metrics, Mapping):
        for name, metric in metrics.items():
            for own, made in _made(metric):
                # A collection has several under one name.
                yield (name if own is None else f"{name}_{own}"), made
    elif isinstance(metrics, list | tuple):
        for metric in metrics:
            yield from ((own or _name_of(made), made) for own, made in _made(metric))
    else:
        yield from _pairs([metrics])


def _made(metric: Any) -> Iterator[tuple[str | None, Any]]:
    """The metrics that one word of the user means, with their names if they come with any."""
    if isinstance(metric, str):
        if metric.lower() not in _BY_NAME:
            raise ValueError(f"there is no metric {metric!r}: choose one of {', '.join(sorted(_BY_NAME))}")
        yield None, _without_options(_BY_NAME[metric.lower()])
    elif isinstance(metric, type):
        if not issubclass(metric, Metric):
            raise TypeError(f"{metric.__name__} is a class and no metric: give an object of it")
        yield None, _without_options(metric)
    elif is_torchmetrics(metric) and not hasattr(metric, "_reductions"):
        yield from metric.items()
    elif isinstance(metric, Metric) or callable(metric):
        yield None, metric
    else:
        raise _no_metric(metric)


def _without_options(kind: type[Metric]) -> Metric:
    try:
        return kind()
    except TypeError as error:
        raise TypeError(f"{kind.__name__} has no default for some options: give an object of it") from error


def _name_of(metric: Any) -> str:
    if isinstance(metric, Metric):
        return metric.name
    if is_torchmetrics(metric):
        return type(metric).__name__.lower()
    name = getattr(metric, "__name__", "<lambda>")
    if name == "<lambda>":
        raise ValueError(f"{metric!r} has no name: give a dict of names and metrics")
    return str(name).lower()


def is_torchmetrics(metric: Any) -> bool:
    """Whether it is a metric of torchmetrics or a collection of them; said without the import of it."""
    calls = all(hasattr(metric, call) for call in ("update", "compute", "reset"))
    return calls and (hasattr(metric, "_reductions") or hasattr(metric, "compute_groups"))


def _no_metric(metric: Any) -> TypeError:
    return TypeError(
        f"{metric!r} is no metric: give one of grampus.metrics, its name, an object of torchmetrics, or a "
        "function of predictions and targets"
    )


suggest(globals())
