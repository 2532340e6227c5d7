"""Blocks of Ray Datasets: in their order, and in parts that fit into memory."""

from __future__ import annotations

from typing import Any

# What a part of a block takes, and what a model answers for it: as much as a block that Ray itself makes.
PART_BYTES = 128 * 2**20


def materialized(dataset: Any) -> Any:
    """The data set with all blocks in the object store: in their order, not in that in which tasks end."""
    # A data set keeps the options that held when it was made.
    options = dataset.context.execution_options
    before, options.preserve_order = options.preserve_order, True
    try:
        return dataset.materialize()
    finally:
        options.preserve_order = before


def rows_at_once(bytes_per_row: float, multiple: int = 1, most: int = PART_BYTES) -> int:
    """How many rows make a part: a multiple, so that a model gets the same batches as of the whole block.

    >>> rows_at_once(1000, 100, most=1_000_000)
    1000
    >>> rows_at_once(3000, 100, most=1_000_000)
    300
    >>> rows_at_once(10**9, 100)
    100
    """
    return max(int(most / max(bytes_per_row, 1.0)) // multiple, 1) * multiple


def batches(table: Any, most: int = PART_BYTES) -> list[Any]:
    """The rows as record batches: one, unless they are so wide that a list could not hold them together.

    Lists of Arrow count their values with 32 bits.
    """
    return list((table.combine_chunks() if table.nbytes <= most else table).to_batches())
