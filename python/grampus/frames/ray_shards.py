"""Shards of a Ray Dataset: its blocks, read in place from the object store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grampus.cluster import whole
from grampus.frames.ray_blocks import materialized
from grampus.frames.ray_predict import check_running
from grampus.shards import keys, rows
from grampus.shards.collection import Shards
from grampus.shards.segments import store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from grampus.shards.collection import Columns
    from grampus.shards.segments import Part


class RayShards(Shards):
    """Shards that are the blocks of a Ray Dataset, as Arrow tables; see `Shards.from_ray`.

    Functions run in Ray's tasks. What looks at all rows at once runs here, on the blocks as they lie in the
    object store, and gives shards of this machine.
    """

    def __init__(self, frame: Any) -> None:
        """Nothing runs yet."""
        check_running()
        super().__init__(None)
        self._frame = frame

    def _of(self, frame: Any) -> RayShards:
        made = RayShards(frame)
        made._skip = self._skip
        return made

    def _computed(self) -> list[Part]:
        if self._parts is None:
            self._parts = store(self.collect())
        return self._parts

    def _again(self, skip: bool) -> Shards:
        again = RayShards(self._frame)
        again._skip = skip
        return again

    def transform_shard(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Shards:
        """Pass each block, an Arrow table, through a function that returns a table or a frame."""
        if not callable(func):
            raise TypeError(f"transform_shard takes a function, not a {type(func).__name__}")

        def run(table: Any) -> Any:
            made = func(table, *args, **kwargs)
            rows.one_kind([made], "a result of transform_shard on Ray", rows.TABULAR)
            return rows.as_arrow(made)

        return self._of(
            self._frame.map_batches(run, batch_format="pyarrow", batch_size=None, zero_copy_batch=True)
        )

    def compute(self) -> Shards:
        """Run what waits now, and let the object store keep the result."""
        self._frame = materialized(self._frame)
        return self

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self._frame.schema().names)

    def __iter__(self) -> Iterator[Any]:
        """One block after the other."""
        return iter(self.collect())

    def collect(self) -> list[Any]:
        """All blocks, as Arrow tables over the memory of the object store."""
        import ray

        self.compute()
        return [rows.as_arrow(table) for table in ray.get(self._frame.to_arrow_refs())]

    def first(self) -> Any:
        """The first block."""
        return self.take(1)[0]

    def take(self, n: int) -> list[Any]:
        """The first `n` blocks, or all if there are fewer."""
        import ray

        self.compute()
        few = self._frame.to_arrow_refs()[: whole(n, "n", least=0)]
        return [rows.as_arrow(table) for table in ray.get(few)]

    def __len__(self) -> int:
        """Rows of all blocks."""
        return int(self._frame.count())

    def num_partitions(self) -> int:
        """How many blocks there are."""
        self.compute()
        return int(self._frame.num_blocks())

    def __repr__(self) -> str:
        """Name the data set."""
        return f"<grampus.Shards on Ray: {self._frame}>"

    def repartition(self, n: int) -> Shards:
        """Cut all rows evenly into `n` blocks, in their order."""
        return self._of(self._frame.repartition(whole(n, "the number of shards"), shuffle=False))

    def select(self, cols: Columns) -> Shards:
        """Only these columns, in this order."""
        names = keys.listed(cols)
        keys.check(names, self.columns)
        return self._of(self._frame.select_columns(names))

    def __getitem__(self, key: Any) -> Shards:
        """One column, or a list of them, as tables."""
        return self.select(key)

    def to_ray(self) -> Any:
        """The data set."""
        return self._frame
