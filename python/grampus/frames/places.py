"""Where a row stands that cannot be used, in the words of an engine."""

from __future__ import annotations

import re


def placed(text: str, partition: int | None = None, first: int = 0) -> str:
    """What is wrong with a batch, said of the partition or block whose row `first` is its first.

    >>> placed('shard 0, row 2, column "a" is null', 3, 10000)
    'partition 3, row 10002, column "a" is null'
    >>> placed('shard 0, row 2, column "a" is null')
    'row 2 of a block, column "a" is null'
    """

    def said(found: re.Match[str]) -> str:
        row = first + int(found[1])
        return f"row {row} of a block" if partition is None else f"partition {partition}, row {row}"

    # A batch is packed as the only shard.
    return re.sub(r"^row (\d+)", said, text.removeprefix("shard 0, "))
