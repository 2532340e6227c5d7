"""What reads the data that users pass for torch models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import data as torch_data

from grampus._training import creator, trees
from grampus._training.feed import StreamFeed, TableFeed
from grampus._training.model import Reduction
from grampus.frameworks import _torch_batches, _torch_data, _torch_datasets
from grampus.frameworks._torch_devices import Ahead
from grampus.frameworks._torch_samplers import share_samplers
from grampus.shards import batches

if TYPE_CHECKING:
    from collections.abc import Callable

    from grampus._training.job import Data, Spec
    from grampus._training.lanes import Lanes


def feed(data: Data, lanes: Lanes, spec: Spec, training: bool, model: Any = None) -> Any:
    """What reads the user's data; for a model on a GPU, batches travel there in advance."""
    device = torch.device("cpu") if model is None else model.device
    # Whoever trains has a model; a batch that is only answered is not weighed.
    reduction = model.trained_by if training else Reduction()
    found = _feed(data, lanes, spec, training, device, reduction, model)
    return found if device.type != "cuda" or found.resident else Ahead(found, device)


def _feed(
    data: Data,
    lanes: Lanes,
    spec: Spec,
    training: bool,
    device: torch.device,
    reduction: Reduction,
    model: Any,
) -> TableFeed | StreamFeed:
    value = _torch_data.given(data, model)
    if _is_creator(value):
        size = data.batch_size or 32
        creator.seed_all(creator.make_seed(lanes.seed, 2))
        value = creator.in_turn(
            lanes,
            lambda: creator.call(
                value, "data creator", "f(config) or f(config, batch_size)", spec.config, size
            ),
        )
        if isinstance(value, torch_data.DataLoader):
            share_samplers(value, lanes.group)
    if isinstance(value, _torch_batches.Batches):
        # It gives batches, which are no rows, and in a process group those of its rank.
        value = torch_data.DataLoader(value.whole(), batch_size=None)
    loader = value if isinstance(value, torch_data.DataLoader) else None
    size = _batch_size(data, loader)
    weigh = reduction.weigh
    if isinstance(value, batches.Packed):
        bad = [row for row, _ in value.bad]
        return _of_arrays(_torch_data.Arrays(value.load(), training, bad, device), lanes, size, reduction)
    if isinstance(value, batches.Loadable):
        table = _torch_batches.LoadedTable(value, lanes.seed, lanes.threads, training)
        return TableFeed(table, lanes, size, None if reduction.by_shape else weigh)
    if loader is not None:
        return _loaded(loader, lanes, size, weigh, training)
    if _torch_datasets.is_dataset(value):
        return _torch_datasets.feed(value, data, lanes, size, weigh, training)
    if isinstance(value, torch_data.IterableDataset):
        return StreamFeed(_torch_data.Rows(value), lanes, size, weigh)
    if isinstance(value, Mapping) or trees.is_frame(value):
        arrays = _selected(value, data)
        return _of_arrays(_torch_data.Arrays(arrays, training, device=device), lanes, size, reduction)
    if (
        isinstance(value, torch.Tensor)
        or type(value).__module__ == "numpy"
        or isinstance(value, list | tuple)
    ):
        return _of_arrays(_torch_data.Arrays(value, training, device=device), lanes, size, reduction)
    if hasattr(value, "__getitem__") and hasattr(value, "__len__"):
        return TableFeed(_torch_data.Dataset(value, training, lanes.seed), lanes, size, weigh)
    if hasattr(value, "train_dataloader"):
        raise TypeError(
            f"a {type(value).__name__} holds several loaders: pass its train_dataloader() as data, and its "
            "val_dataloader() as validation_data="
        )
    raise TypeError(
        f"a {type(value).__name__} is no data: pass arrays as {{'x': …, 'y': …}}, a Dataset, a DataLoader, "
        "or a function that returns one of these"
    )


def _of_arrays(table: _torch_data.Arrays, lanes: Lanes, size: int, reduction: Reduction) -> TableFeed:
    """Arrays that all workers have whole: where all rows count the same, no worker asks the others."""
    even = reduction.by_shape or (reduction.is_even is not None and reduction.is_even(table.tree))
    return TableFeed(table, lanes, size, None if even else reduction.weigh)


def _loaded(
    loader: Any, lanes: Lanes, size: int, weigh: Callable[[Any], float] | None, training: bool
) -> TableFeed | StreamFeed:
    if isinstance(loader.dataset, torch_data.IterableDataset):
        return StreamFeed(_torch_data.Rows(loader.dataset, loader, training), lanes, size, weigh)
    if loader.batch_sampler is None:
        raise ValueError("the loader has batch_size=None over a map-style data set: give it a batch_size")
    table = _torch_data.Dataset(loader.dataset, training, lanes.seed, loader)
    return TableFeed(table, lanes, size, weigh)


def _selected(value: Any, data: Data) -> Any:
    """The columns that were asked for."""
    if data.feature_cols is None:
        if trees.is_frame(value):
            raise ValueError("a data frame needs feature_cols, and for training label_cols")
        return dict(value)
    chosen = {"x": _torch_data.columns(value, data.feature_cols, "feature_cols")}
    if data.label_cols is not None:
        chosen["y"] = _torch_data.columns(value, data.label_cols, "label_cols")
    return chosen


def _batch_size(data: Data, loader: Any) -> int:
    own = None
    if loader is not None:
        own = loader.batch_size
        if own is None and loader.batch_sampler is not None:
            own = getattr(loader.batch_sampler, "batch_size", None)
    asked = data.batch_size if data.given else None
    if own is None:
        if loader is not None and asked is not None:
            raise ValueError(
                f"batch_size={asked} was asked for, and the loader's sampler or data set makes the batches: "
                "pass batch_size=None"
            )
        return data.batch_size or 32
    if asked is not None and asked != own:
        raise ValueError(
            f"batch_size={asked} was asked for and the loader makes batches of {own}: pass "
            "batch_size=None to take the loader's, which counts the rows of all workers together"
        )
    return int(own)


def _is_creator(value: Any) -> bool:
    return callable(value) and not hasattr(value, "__getitem__") and not isinstance(value, torch_data.Dataset)
