"""Rows of tables in blocks that a worker reads alone, one after the other."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from grampus import _native
from grampus.shards import rows
from grampus.shards.delivery import loads_of_parts

if TYPE_CHECKING:
    from grampus.shards.collection import Shards
    from grampus.shards.delivery import Load
    from grampus.shards.segments import Part

# A block is never less than a row group, and row groups of one file are taken together up to so many rows.
_ROWS = 1 << 17


@dataclass
class Block:
    """Which rows: of a stored shard, or of row groups of a file."""

    # The number of the first among all rows.
    first: int
    rows: int
    name: str
    part: Part | None = None
    groups: list[int] = field(default_factory=list)


@dataclass
class Blocks:
    """All rows of shards, in order."""

    blocks: list[Block]
    paths: list[str] | None = None
    columns: list[str] | None = None
    # What of them must be on every host before it can be read.
    loads: list[Load] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Nothing is open yet: it travels to the workers first."""
        self._dataset: _native.ParquetDataset | None = None

    def load(self, block: Block) -> _native.Table:
        """The rows of a block, with all their columns."""
        if block.part is not None:
            return _native.Table.from_stream(rows.as_arrow(block.part.load()))
        if self._dataset is None:
            self._dataset = _native.ParquetDataset(self.paths or [])
        return self._dataset.read(block.groups, self.columns)


def blocks_of(shards: Shards, shares_memory: bool = True) -> Blocks:
    """Cut shards into blocks; where they are cut does not depend on who will read them.

    Workers that do not see the memory of this process need what the blocks name as loads.
    """
    source = shards._source
    if source is None or source.paths is None or shards._parts is not None:
        parts = shards._computed()
        return replace(_stored(parts), loads=[] if shares_memory else loads_of_parts(parts))
    made: list[Block] = []
    last, first = "", 0
    for number, (path, index, count) in enumerate(_native.ParquetDataset(source.paths).row_groups):
        if count:
            if path != last or made[-1].rows + count > _ROWS:
                made.append(Block(first, 0, f"{path} from row group {index} on"))
                last = path
            made[-1].rows += count
            made[-1].groups.append(number)
        first += count
    return Blocks(made, source.paths, source.columns)


def _stored(parts: list[Part]) -> Blocks:
    made, first = [], 0
    for number, part in enumerate(parts):
        if part.form.rows:
            made.append(Block(first, part.form.rows, f"shard {number}", part))
        first += part.form.rows
    return Blocks(made)
