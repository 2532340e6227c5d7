"""What is known of the data of engines: DataFrames of Spark, classic and Connect, and Datasets of Ray.

No engine is imported here before data of it is met.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from grampus.errors import DataError
from grampus.shards.batches import wanted
from grampus.shards.collection import Shards

if TYPE_CHECKING:
    from grampus._training.answering import Model
    from grampus.shards.batches import Columns

_KINDS = {("pyspark", "DataFrame"): "spark", ("ray", "Dataset"): "ray", ("ray", "MaterializedDataset"): "ray"}
_RDDS = ("RDD", "PipelinedRDD")


def engine_of(value: Any) -> str | None:
    """Which engine holds the data: "spark", "ray", or none.

    >>> engine_of([1, 2, 3])
    """
    kind = type(value)
    return _KINDS.get((kind.__module__.partition(".")[0], kind.__name__))


def frame_of(value: Any) -> Any:
    """The frame or data set of an engine that data is, or that shards stand for; nothing for other data."""
    if isinstance(value, Shards):
        return getattr(value, "_frame", None)
    if is_pandas_on_spark(value):
        frame, index = _with_index(value)
        return frame.drop(*index)
    kind = type(value)
    if kind.__module__.startswith("pyspark.") and kind.__name__ in _RDDS:
        raise DataError(
            "an RDD has no columns: make a DataFrame of it, such as "
            'spark.createDataFrame(rdd, "x double, y double")'
        )
    return None if engine_of(value) is None else value


def is_pandas_on_spark(value: Any) -> bool:
    """Whether this is a frame of `pyspark.pandas`."""
    kind = type(value)
    return kind.__module__.startswith("pyspark.pandas.") and kind.__name__ == "DataFrame"


def _with_index(value: Any) -> tuple[Any, list[str]]:
    """A frame of `pyspark.pandas` as one of Spark, and the names that its index has there."""
    names = [f"__grampus_index_{level}" for level in range(value.index.nlevels)]
    return value.to_spark(index_col=names), names


def predicted(value: Any, model: Model, feature_cols: Columns | None, out: Any = None) -> Any:
    """The same with what a model answers, computed by the engine when it is asked for."""
    if out is not None:
        raise ValueError("out= is for rows of this machine: let the engine write what predict returns")
    if is_pandas_on_spark(value):
        frame, index = _with_index(value)
        made = predicted(frame, model, feature_cols).pandas_api(index_col=index)
        made.index.names = value.index.names
        return made
    frame = frame_of(value)
    read = wanted(feature_cols, None)
    part = importlib.import_module(f"grampus.frames.{engine_of(frame)}_predict")
    made = part.predicted(frame, model.snapshot(read), read)
    return made if frame is value else type(value)(made)
