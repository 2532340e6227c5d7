"""Meters of the three kinds of metrics: Grampus' own, those of torchmetrics, and plain functions."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from grampus import _native

if TYPE_CHECKING:
    from grampus.metrics import Metric

# A tensor, an array, or a tuple, list or dict of them, as models return.
Tree = Any


class OwnMeter:
    """Of a metric of Grampus."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self._state = metric.state()

    def update(self, predictions: Any, targets: Any, rows: Any = None) -> None:  # noqa: ARG002
        self._state.update(self._plain(predictions), self._plain(targets))

    def state(self) -> bytes:
        return self._state.to_bytes()

    def load(self, state: bytes) -> None:
        self._state = self.merge([state])._state

    def merge(self, states: Sequence[bytes]) -> OwnMeter:
        merged = OwnMeter(self._metric)
        for state in states:
            merged._state.merge(_native.MetricState.from_bytes(state))
        return merged

    def value(self) -> Any:
        value = self._state.value()
        if not isinstance(value, dict):
            return value
        import numpy as np

        return {name: np.frombuffer(array, np.float64).copy() for name, array in value.items()}

    def reset(self) -> None:
        self._state.reset()

    def _plain(self, array: Any) -> Any:
        """The values of a tensor or an array as the core reads them: contiguous, in the host."""
        if hasattr(array, "detach"):
            from grampus.frameworks import _torch_memory

            # Ten times cheaper than what torch does for DLPack.
            return _torch_memory.shaped(array)
        if isinstance(array, tuple | list | Mapping):
            raise TypeError(
                f"{self._metric.name} takes one tensor or array of predictions and one of targets, not a "
                f"{type(array).__name__}: give a function of all of them as the metric"
            )
        flags = getattr(array, "flags", None)
        return array if flags is None or (flags.c_contiguous and flags.aligned) else array.copy()


class TorchmetricsMeter:
    """Of a metric of torchmetrics: a copy of it, merged as torchmetrics itself would between processes.

    A metric may hold others; each of them has its own states.
    """

    def __init__(self, metric: Any) -> None:
        self._metric = copy.deepcopy(metric)
        self._metric.reset()
        for part in _parts(self._metric).values():
            # Meters merge states themselves, also where torch.distributed is in use.
            part.sync_on_compute = part._to_sync = False

    def update(self, predictions: Any, targets: Any, rows: Any = None) -> None:  # noqa: ARG002
        predictions, targets = _map(predictions, _tensor), _map(targets, _tensor)
        device = getattr(predictions, "device", None)
        if device is not None and self._metric.device != device:
            self._metric.to(device)
        self._metric.update(predictions, targets)

    def state(self) -> dict[str, dict[str, Any]]:
        return _seen_by(self._metric)

    def load(self, state: Mapping[str, Mapping[str, Any]]) -> None:
        for name, part in _parts(self._metric).items():
            for attribute, value in state[name]["states"].items():
                setattr(part, attribute, _map(value, lambda tensor: tensor.clone().to(self._metric.device)))
            part._update_count = state[name]["updates"]
            part._computed = None

    def merge(self, states: Sequence[Mapping[str, Mapping[str, Any]]]) -> TorchmetricsMeter:
        merged = TorchmetricsMeter(self._metric)
        if states:
            parts = _parts(self._metric).items()
            merged.load({name: _merged(part, [s[name] for s in states]) for name, part in parts})
        return merged

    def value(self) -> Any:
        return _readable(self._metric.compute())

    def reset(self) -> None:
        self._metric.reset()


def value_of_all(metrics: Sequence[Any]) -> Any:
    """The value over what several copies of a metric of torchmetrics have seen; they stay as they are."""
    return TorchmetricsMeter(metrics[0]).merge([_seen_by(metric) for metric in metrics]).value()


class FunctionMeter:
    """Of a function, which is called once, on all predictions and targets in the order of their rows."""

    def __init__(self, function: Callable[[Tree, Tree], Any]) -> None:
        self._function = function
        self._batches: list[dict[str, Any]] = []

    def update(self, predictions: Tree, targets: Tree, rows: Any = None) -> None:
        """Without `rows`, lanes stand one behind the other."""
        import numpy as np

        batch = {
            "rows": None if rows is None else np.array(rows, np.int64),
            "predictions": _map(predictions, _kept),
            "targets": _map(targets, _kept),
        }
        lengths = {len(leaf) for part in batch.values() if part is not None for leaf in _leaves(part)}
        if len(lengths) != 1:
            raise ValueError(
                f"predictions, targets and rows of a batch have {sorted(lengths)} rows: give as many of each"
            )
        self._batches.append(batch)

    def state(self) -> dict[str, Any]:
        """Row numbers, predictions and targets; nothing where no batch came."""
        if len(self._batches) > 1:
            self._batches = [_joined(self._batches)]
        return self._batches[0] if self._batches else {}

    def load(self, state: dict[str, Any]) -> None:
        self._batches = [state] if state else []

    def merge(self, states: Sequence[dict[str, Any]]) -> FunctionMeter:
        merged = FunctionMeter(self._function)
        merged._batches = [state for state in states if state]
        return merged

    def value(self) -> Any:
        seen = self.state()
        if not seen:
            return math.nan
        predictions, targets = seen["predictions"], seen["targets"]
        if seen["rows"] is not None:
            order = seen["rows"].argsort(kind="stable")
            predictions, targets = (_map(part, lambda leaf: leaf[order]) for part in (predictions, targets))
        return _readable(self._function(predictions, targets))

    def reset(self) -> None:
        self._batches = []


def _map(tree: Tree, change: Callable[[Any], Any]) -> Tree:
    if isinstance(tree, Mapping):
        return {name: _map(part, change) for name, part in tree.items()}
    if isinstance(tree, tuple | list):
        parts = [_map(part, change) for part in tree]
        return parts if isinstance(tree, list) else tuple(parts)
    return change(tree)


def _leaves(tree: Tree) -> list[Any]:
    leaves: list[Any] = []
    _map(tree, leaves.append)
    return leaves


def _joined(trees: Sequence[Tree]) -> Tree:
    """One tree of the leaves of all, one behind the other."""
    first = trees[0]
    if isinstance(first, Mapping):
        return {name: _joined([tree[name] for tree in trees]) for name in first}
    if isinstance(first, tuple | list):
        return type(first)(_joined(parts) for parts in zip(*trees, strict=True))
    if first is None or any(tree is None for tree in trees):
        if all(tree is None for tree in trees):
            return None
        raise ValueError("some batches came with row numbers and some without: give them with all or none")
    if hasattr(first, "detach"):
        import torch

        return torch.cat(list(trees))
    import numpy as np

    return np.concatenate(trees)


def _kept(array: Any) -> Any:
    """A copy in the host's memory: the next batch may come where this one lies.

    The output for a single row may have lost its first axis.
    """
    if not hasattr(array, "shape"):
        raise TypeError(
            f"a function as a metric takes tensors and arrays, and there is a {type(array).__name__} among "
            "the predictions or targets: leave it out of what the model or the data gives"
        )
    kept = array.detach().cpu().clone() if hasattr(array, "detach") else array.copy()
    return kept if kept.shape else kept.reshape(1)


def _tensor(array: Any) -> Any:
    """A tensor without its graph, an array as a tensor, and anything else as it is."""
    if hasattr(array, "detach"):
        return array.detach()
    if hasattr(array, "__array_interface__"):
        import torch

        return torch.as_tensor(array)
    return array


def _parts(metric: Any) -> dict[str, Any]:
    return {name: part for name, part in metric.named_modules() if hasattr(part, "_reductions")}


def _seen_by(metric: Any) -> dict[str, dict[str, Any]]:
    return {name: _seen(part) for name, part in _parts(metric).items()}


def _seen(part: Any) -> dict[str, Any]:
    """The states of one metric of torchmetrics."""
    states = {
        name: _map(getattr(part, name), lambda leaf: leaf.detach().cpu().clone()) for name in part._reductions
    }
    return {"updates": part._update_count, "states": states}


def _merged(part: Any, lanes: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """What several lanes have seen, as torchmetrics reduces the states of several processes."""
    # A lane without rows says nothing; for a mean or an average of lanes it would count.
    lanes = [lane for lane in lanes if lane["updates"]] or lanes[:1]
    if len(lanes) == 1:
        return lanes[0]
    states = {
        name: _reduced([lane["states"][name] for lane in lanes], part._defaults[name], reduction)
        for name, reduction in part._reductions.items()
    }
    return {"updates": sum(lane["updates"] for lane in lanes), "states": states}


def _reduced(values: Sequence[Any], default: Any, reduction: Callable[[Any], Any] | None) -> Any:
    if isinstance(default, list):
        together: Any = [tensor for tensors in values for tensor in tensors]
        if not together:
            return []
    else:
        import torch

        together = torch.stack(list(values))
    return together if reduction is None else reduction(together)


def _readable(value: Any) -> Any:
    """Numbers where there is one, arrays where there are more."""
    if isinstance(value, Mapping | tuple | list):
        return _map(value, _readable)
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        return value.item() if value.numel() == 1 else value.numpy()
    return value.item() if getattr(value, "size", None) == 1 else value
