"""Blocks of Ray Datasets, in their order."""

from __future__ import annotations

from typing import Any


def materialized(dataset: Any) -> Any:
    """The data set with all blocks in the object store: in their order, not in that in which tasks end."""
    # A data set keeps the options that held when it was made.
    options = dataset.context.execution_options
    before, options.preserve_order = options.preserve_order, True
    try:
        return dataset.materialize()
    finally:
        options.preserve_order = before
