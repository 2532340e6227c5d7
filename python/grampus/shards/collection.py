"""Shards: a partitioned collection, worked on when it is asked for."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, NamedTuple

from grampus import _joint, _native
from grampus._traceback import public_methods
from grampus.cluster import whole
from grampus.errors import DataError
from grampus.shards import feeding, folder, groups, keys, rows, sources, steps, tables, tasks
from grampus.shards.batches import Rows
from grampus.shards.segments import store, store_at_once

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from grampus.images import ImageStep
    from grampus.shards.batches import Packed
    from grampus.shards.segments import Part

    Columns = str | Sequence[str]


class Source(NamedTuple):
    """Where shards come from that are read from files, and what is known of them."""

    paths: list[str] | None
    columns: list[str] | None
    image_col: str | None = None
    label_col: str | None = None
    steps: tuple[ImageStep, ...] = ()


@public_methods
class Shards:
    """A collection cut into shards: tables, frames, trees of arrays, lists, or any objects.

    It is lazy: functions wait until something is asked for (`collect`, `len`, a loop, `compute`), and then
    run on the workers, one shard each at a time. Results live in memory that all workers of this machine see.

    >>> import numpy as np, grampus as gp
    >>> shards = gp.Shards.partition(np.arange(6), num_shards=3).transform_shard(lambda part: part * 2)
    >>> shards.collect()
    [array([0, 2]), array([4, 6]), array([ 8, 10])]
    >>> gp.stop()
    """

    def __init__(
        self,
        parts: list[Part] | None,
        make: Callable[[], list[Part]] | None = None,
        parent: Shards | None = None,
        step: tasks.Step | None = None,
        count: int | None = None,
    ) -> None:
        """Use `Shards.partition`, one of the `from_...` methods, or a reader such as `grampus.read_npz`."""
        self._parts = parts
        # What is not there yet is made by a function here, or of another collection by a step on the workers.
        self._make, self._parent, self._step = make, parent, step
        self._count = len(parts) if parts is not None else count
        self._cached = False
        self._source: Source | None = None
        # Blocks that are shuffled among themselves where files are read each time.
        self._window: int | None = None
        # Whether rows that a model cannot use are left out.
        self._skip = False
        # Arrays of columns that models have read.
        self._packed: dict[str, Packed] = {}

    # Making them

    @classmethod
    def partition(cls, data: Any, num_shards: int | None = None) -> Shards:
        """Cut arrays, alone or in nested dicts, tuples and lists, into shards of equal rows.

        By default there is one shard for each worker.
        """
        return cls(store(sources.arrays(data, num_shards)))

    @classmethod
    def from_pandas(cls, frame: Any, num_shards: int | None = None) -> Shards:
        """Cut a pandas frame; the shards are frames."""
        return cls(store(sources.cut(frame, num_shards)))

    @classmethod
    def from_polars(cls, frame: Any, num_shards: int | None = None) -> Shards:
        """Cut a polars frame; the shards are polars frames."""
        return cls(store(sources.cut(frame, num_shards)))

    @classmethod
    def from_arrow(cls, data: Any, num_shards: int | None = None) -> Shards:
        """Cut anything that gives an Arrow stream (`__arrow_c_stream__`); the shards are Arrow tables."""
        return cls(store(sources.cut(sources.arrow(data), num_shards)))

    @classmethod
    def from_huggingface(cls, dataset: Any, num_shards: int | None = None) -> Shards:
        """Cut a `datasets.Dataset`; the shards are Arrow tables."""
        return cls(store(sources.cut(sources.huggingface(dataset), num_shards)))

    @classmethod
    def from_torch(cls, dataset: Any, num_shards: int | None = None) -> Shards:
        """Read a map-style dataset of torch on the workers; its rows are stacked to arrays."""
        ranges = cls.from_objects(sources.torch_ranges(dataset, num_shards))
        return ranges.transform_shard(sources.collated, dataset)

    @classmethod
    def from_spark(cls, frame: Any) -> Shards:
        """Shards that are the partitions of a Spark DataFrame, as Arrow tables: operations run on Spark.

        Rows stay there until they are asked for (`collect`, `to_arrow`, …), and have an order only where
        they were sorted last.
        """
        from grampus.frames.spark_shards import SparkShards

        return SparkShards(frame)

    @classmethod
    def from_ray(cls, dataset: Any) -> Shards:
        """Shards that are the blocks of a Ray Dataset, as Arrow tables: functions run in tasks of Ray."""
        from grampus.frames.ray_shards import RayShards

        return RayShards(dataset)

    @classmethod
    def from_objects(cls, objects: Iterable[Any]) -> Shards:
        """Make each object a shard."""
        held = list(objects)
        if not held:
            raise DataError("there are no objects to make shards of: give at least one")
        return cls(store(held))

    @classmethod
    def _from_table_reader(cls, read: Callable[[], Any], num_shards: int | None = None) -> Shards:
        """Shards of a table that is read, in the driver, when they are asked for."""

        def make() -> list[Part]:
            return store_at_once(sources.cut_table(sources.arrow(read()), num_shards))

        return cls(None, make, count=num_shards)

    @classmethod
    def load(cls, path: str | os.PathLike[str], allow_pickle: bool = False) -> Shards:
        """Read, on the workers, what `save` wrote; pickles, which can run code, only where they may."""
        return cls.from_objects(folder.entries(path)).transform_shard(folder.load, allow_pickle)

    # Batches

    def stream(self, window: int = 8) -> Shards:
        """Read Parquet files anew in each epoch, a few row groups at a time, instead of keeping them.

        Row groups are shuffled, and rows among those of `window` of them; as many again are read ahead.
        """
        if self._source is None or self._source.paths is None or self._step is not None:
            raise DataError(
                "only Parquet files that nothing was done with can be streamed: begin with read_parquet"
            )
        streamed = Shards(None, self._make, count=self._count)
        streamed._source, streamed._window, streamed._skip = (
            self._source,
            whole(window, "window"),
            self._skip,
        )
        return streamed

    def skip_bad_rows(self) -> Shards:
        """Let models train on and be judged by the rows that they can use: a warning says which are left out.

        Without it, a null, a text or a broken image where a number is needed is an error. The rows that are
        left out leave holes: no other row moves to another batch. Predictions need every row, as before.
        """
        return self._again(skip=True)

    def _again(self, skip: bool) -> Shards:
        """The same shards, with or without rows that cannot be used."""
        again = Shards(None, self._computed, count=self._count)
        again._source, again._window, again._skip = self._source, self._window, skip
        return again

    def to_torch(
        self,
        batch_size: int,
        shuffle: bool = False,
        seed: int | None = None,
        *,
        feature_cols: Columns | None = None,
        label_cols: Columns | None = None,
        images: Sequence[ImageStep] | None = None,
        transform: Callable[[Any], Any] | None = None,
        threads: int | None = None,
        drop_last: bool = False,
        on_error: str = "raise",
    ) -> Any:
        """Batches of tensors for a loop of your own: pairs `(x, y)`, or `x` alone without labels.

        A loop over it is an epoch, and each has its own order; `set_epoch` and `load_state_dict` go to one.
        Under `torch.distributed` each rank gets its part of a batch of `batch_size` rows for each rank.

        Args:
            batch_size: rows of a batch.
            shuffle: in the order that seed and epoch give; else as they come.
            seed: of the order of `shuffle`, and of what is random in `images`.
            feature_cols, label_cols: columns of tables, or steps of `grampus.columns`; several stand side by
                side in one matrix. Shards of dicts have `x` and `y` of their own.
            images: steps of `grampus.images`, for shards of `grampus.read_images`.
            transform: a function of a batch, called where the loop runs.
            threads: that read tables and files; by default as many as there are cores.
            drop_last: leave out the rows that make no whole batch.
            on_error: "raise", or "skip" rows that cannot be used; `skipped` lists them.
        """
        from grampus.frameworks._torch_batches import Batches

        size = whole(batch_size, "batch_size")
        drawn = 0 if seed is None else whole(seed, "seed", least=0)
        cores = _native.host_cores() if threads is None else whole(threads, "threads")
        feed = feeding.rows_of(
            self, feeding.stacked(feature_cols), feeding.stacked(label_cols), images, on_error
        )
        if not isinstance(feed, Rows) and (feature_cols or label_cols or images):
            raise DataError(
                "feature_cols, label_cols and images are for shards of tables, these are arrays: choose "
                "entries of dicts with shards[...], and call them x and y"
            )
        if seed is not None and not shuffle and not (isinstance(feed, Rows) and feed.wanted.is_random):
            raise ValueError(
                f"seed={seed} has no effect: rows come as they are without shuffle=True, and no image step "
                "is random; leave it out"
            )
        if threads is not None and not isinstance(feed, Rows):
            raise ValueError(
                f"threads={threads} has no effect: these shards are arrays in memory, which no thread has to "
                "read; leave it out"
            )
        return Batches(feed, size, shuffle, drawn, transform, cores, drop_last)

    @property
    def columns(self) -> list[str]:
        """The names of the columns; of Parquet files, those in the first footer."""
        source = self._source
        if self._parts is None and source is not None and source.paths is not None:
            return source.columns or _native.ParquetDataset(source.paths).columns
        return [str(name) for name in self.get_schema()["columns"]]

    # Running

    def transform_shard(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Shards:
        """Pass each shard through `func(shard, *args, **kwargs)`, on the workers, when it is asked for.

        The function may change its shard: what is stored here stays as it is.
        """
        if not callable(func):
            raise TypeError(f"transform_shard takes a function, not a {type(func).__name__}")
        return Shards(None, parent=self, step=tasks.Step(func, args, kwargs), count=self._count)

    def compute(self) -> Shards:
        """Run what waits now, and keep the result; return these shards."""
        self._computed()
        return self

    def cache(self) -> Shards:
        """Do the same, and remember how it was made, so that `uncache` can give the memory back."""
        self._cached = True
        return self.compute()

    def uncache(self) -> Shards:
        """Let go of what `cache` kept: it is made again when it is asked for."""
        if self._cached and (self._make is not None or self._step is not None):
            self._parts = None
        self._cached = False
        return self

    def is_cached(self) -> bool:
        """Whether `cache` keeps the result."""
        return self._cached

    def _computed(self) -> list[Part]:
        if self._parts is None:
            self._parts = self._run()
            self._count = len(self._parts)
            if not self._cached:
                # What it was made of may go, once nobody else needs it.
                self._make = self._parent = self._step = None
        return self._parts

    def _run(self) -> list[Part]:
        if self._make is not None:
            return self._make()
        waiting: list[tasks.Step] = []
        at: Shards = self
        while at._parts is None and at._step is not None and at._parent is not None:
            waiting.append(at._step)
            at = at._parent
        return tasks.run(at._computed(), waiting[::-1])

    def _derived(self, function: Callable[..., list[Any]], *args: Any, count: int | None = None) -> Shards:
        """Shards that a function makes of all values at once, here, when they are asked for."""

        def make() -> list[Part]:
            return store(function(self.collect(), *args))

        return Shards(None, make, count=self._count if count is None else count)

    # Looking at them

    def __iter__(self) -> Iterator[Any]:
        """One shard after the other."""
        parts = self._computed()
        return (part.load() for part in parts)

    def collect(self) -> list[Any]:
        """All shards as a list."""
        return [part.load() for part in self._computed()]

    def first(self) -> Any:
        """The first shard."""
        return self._computed()[0].load()

    def take(self, n: int) -> list[Any]:
        """The first `n` shards, or all if there are fewer."""
        return [part.load() for part in self._computed()[: whole(n, "n", least=0)]]

    def head(self, n: int = 5) -> Any:
        """The first `n` rows, in the kind of the shards; the first shard where it has no rows."""
        wanted = whole(n, "n", least=0)
        pieces: list[Any] = []
        kind = "object"
        for value in self:
            kind = rows.kind_of(value)
            if kind == "object":
                return value
            pieces.append(rows.cut(value, kind, 0, wanted))
            wanted -= rows.count(pieces[-1], kind)
            if wanted <= 0:
                break
        return rows.together(pieces, kind)

    def __len__(self) -> int:
        """Rows of all shards; an object that has no rows counts as one."""
        return sum(part.form.rows for part in self._computed())

    def __bool__(self) -> bool:
        """Always true: asking for it runs nothing."""
        return True

    def num_partitions(self) -> int:
        """How many shards there are."""
        return self._count if self._count is not None else len(self._computed())

    def get_schema(self) -> dict[str, list[Any]]:
        """Names and types of the columns: `{"columns": [...], "dtypes": [...]}`."""
        return steps.schema(self.first())

    def __repr__(self) -> str:
        """Kind, rows and number of shards, as far as they are known without running anything."""
        if self._parts is None:
            waits = "not computed yet"
            return f"<grampus.Shards: {'' if self._count is None else f'{self._count} shards, '}{waits}>"
        kinds = dict.fromkeys(rows.NAMES[part.form.kind] for part in self._parts)
        total = sum(part.form.rows for part in self._parts)
        return f"<grampus.Shards: {len(self._parts)} shards of {' and '.join(kinds)}, {total} rows>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel to a worker of this machine, which sees the same memory."""
        return Shards, (self._computed(),)

    # Cutting and combining

    def repartition(self, n: int) -> Shards:
        """Cut all rows evenly into `n` shards, in their order; of other objects, put them into `n` lists."""
        count = whole(n, "the number of shards")
        return self._derived(steps.repartitioned, count, count=count)

    def partition_by(self, cols: Columns, num_partitions: int | None = None) -> Shards:
        """Bring rows with equal values in these columns into one shard.

        Which one is a hash of the values: the same in every process and at any number of workers.
        """
        count = self.num_partitions() if num_partitions is None else whole(num_partitions, "num_partitions")
        return self._derived(tables.partition_by, keys.listed(cols), count, count=count)

    def split(self) -> list[Shards]:
        """Of shards that are tuples or lists of as many elements: a collection for each element."""
        count = steps.elements(self.collect())
        return [self.transform_shard(operator.itemgetter(place)) for place in range(count)]

    def zip(self, other: Shards) -> Shards:
        """Pairs of shards. Both must have as many partitions, and as many elements in each of them."""
        if not isinstance(other, Shards):
            raise DataError(f"other should be a Shards, it is a {type(other).__name__}")
        if self.num_partitions() != other.num_partitions():
            raise DataError(
                f"both should have the same number of partitions, they have {self.num_partitions()} and "
                f"{other.num_partitions()}: repartition one of them"
            )
        for number, (one, two) in enumerate(zip(self._computed(), other._computed(), strict=True)):
            if one.form.rows != two.form.rows:
                raise DataError(
                    f"both should have the same number of elements in each partition, in shard {number} they "
                    f"have {one.form.rows} and {two.form.rows}: repartition both"
                )
        return self._derived(lambda values: list(zip(values, other, strict=True)))

    def sample(
        self,
        frac: float,
        replace: bool = False,
        weights: Any = None,
        random_state: int | None = None,
    ) -> Shards:
        """A part of the rows, drawn at random from all of them; they stay in their order.

        `weights` is a column, or a number for each row. Equal `random_state` gives equal rows.
        """
        if frac < 0 or (frac > 1 and not replace):
            raise ValueError(f"frac must be between 0 and 1, or more with replace=True, it is {frac}")
        return self._derived(steps.sampled, frac, replace, weights, random_state)

    # Columns

    def select(self, cols: Columns) -> Shards:
        """Only these columns, or entries of dicts, in this order."""
        return self.transform_shard(steps.selected, keys.listed(cols))

    def __getitem__(self, key: Any) -> Shards:
        """One column or entry (of a pandas frame as a series), or a list of them."""
        return self.select(key) if isinstance(key, list) else self.transform_shard(steps.item, key)

    def drop_missing_columns(self) -> Shards:
        """Leave out columns in which a value is missing."""
        return self._derived(steps.without_missing)

    drop_missing_value = drop_missing_columns

    def assemble(self, feature_cols: Columns, label_cols: Columns) -> Shards:
        """Stack columns of numbers: `{"x": [rows, features], "y": [rows, labels]}`."""
        return self.transform_shard(steps.assembled, keys.listed(feature_cols), keys.listed(label_cols))

    assembleFeatureLabelCols = assemble  # noqa: N815

    def stack_feature_labels(self) -> Shards:
        """Of pairs of features and labels, or lists of such pairs: `{"x": …, "y": …}`, float32."""
        return self.transform_shard(steps.stacked)

    # All rows of tables at once

    def unique(self) -> Any:
        """The different values of one column as an array, in order of first appearance."""
        return tables.unique(self.collect())

    def deduplicate(self) -> Shards:
        """The first of all equal rows, in the same order."""
        return self._derived(tables.deduplicate)

    deduplicates = deduplicate

    def sort_values(self, by: Columns | None = None, ascending: bool | Sequence[bool] = True) -> Shards:
        """Rows in the order of some columns, by default of all; equal rows keep theirs, nulls come last."""
        return self._derived(steps.sorted_values, None if by is None else keys.listed(by), ascending)

    def merge(self, right: Shards, how: str = "inner", on: Columns | None = None) -> Shards:
        """Join with another collection where the columns `on` are equal, by default those that both have.

        `how` is "inner", "left", "right" or "outer". Rows come in the order of this side, those of the right
        side alone last. Null equals null. Other columns of the same name get `_x` and `_y` appended.
        """
        if not isinstance(right, Shards):
            raise DataError(f"right should be a Shards, it is a {type(right).__name__}")
        if how not in tables.JOINS:
            raise ValueError(f"how must be one of {', '.join(tables.JOINS)}, it is {how!r}")
        names = None if on is None else keys.listed(on)
        return self._derived(lambda values: tables.merge(values, right.collect(), how, names, len(values)))

    def group_by(
        self, columns: Columns = (), agg: groups.Aggregations = "count", join: bool = False
    ) -> Shards:
        """Work out figures of groups of rows with equal values in some columns; of all rows without columns.

        Args:
            columns: their names.
            agg: "count" counts the rows of a group. Another function, or a list of them, is applied to all
                other columns, a dict says which to which: `{"price": ["min", "max"]}`. Columns of the result
                are called like `max(price)`. Nulls are left out. Functions: max, min, count, sum, avg, mean,
                sumDistinct, stddev, stddev_pop, variance, var_pop, skewness, kurtosis, collect_list,
                collect_set, approx_count_distinct (which is exact), first, last.
            join: add the figures to all rows instead of one row for each group.

        Groups come in order of first appearance.
        """
        return self._derived(groups.group_by, keys.listed(columns), agg, join)

    def describe(self, cols: Columns | None = None) -> Any:
        """Count, mean, deviation and quartiles of columns of numbers, by default of all; a pandas frame."""
        return tables.describe(self.collect(), None if cols is None else keys.listed(cols))

    def max_values(self, col: str) -> Any:
        """The largest value of a column."""
        return tables.extreme(self.collect(), col, "max")

    def min_values(self, col: str) -> Any:
        """The smallest value of a column."""
        return tables.extreme(self.collect(), col, "min")

    def null_counts(self) -> Any:
        """How many values are missing in each column: a pandas frame with the columns `col` and `total`."""
        import pandas

        counts = tables.null_counts(self.collect())
        return pandas.DataFrame({"col": list(counts), "total": list(counts.values())})

    get_null_sum = null_counts

    # Out

    def to_arrow(self) -> Any:
        """All rows as one Arrow table."""
        return tables.whole(self.collect(), "to_arrow")[0]

    def to_pandas(self) -> Any:
        """All rows as one pandas frame."""
        values = self.collect()
        kind = rows.one_kind(values, "to_pandas", (*rows.TABULAR, "series"))
        joined = rows.together(values, kind)
        return joined if kind in ("frame", "series") else rows.as_arrow(joined).to_pandas()

    def to_polars(self) -> Any:
        """All rows as one polars frame."""
        return rows.from_arrow(tables.whole(self.collect(), "to_polars")[0], "polars")

    def to_spark_df(self) -> Any:
        """All rows as a DataFrame of the present Spark session."""
        from pyspark.sql import SparkSession

        from grampus._spark_versions import from_arrow

        session = SparkSession.getActiveSession()
        if session is None:
            raise DataError("there is no Spark session: make one with SparkSession.builder.getOrCreate()")
        return from_arrow(session, self.to_arrow())

    def to_ray(self) -> Any:
        """All rows as a Ray Dataset, with a block for each shard."""
        import ray

        return ray.data.from_arrow([rows.as_arrow(value) for value in self.collect()])

    def write_parquet(self, path: str | os.PathLike[str]) -> None:
        """Write a folder with a Parquet file for each shard: all of them, or nothing."""
        _joint.led("write_parquet", path, lambda: folder.write_tables(path, self, "parquet"))

    def write_csv(self, path: str | os.PathLike[str]) -> None:
        """Write a folder with a CSV file for each shard: all of them, or nothing."""
        _joint.led("write_csv", path, lambda: folder.write_tables(path, self, "csv"))

    def save(self, path: str | os.PathLike[str], allow_pickle: bool = False) -> None:
        """Write a folder that `Shards.load` reads: all of it, or nothing.

        Tables are written as Arrow files and trees of arrays as `.npz`; other objects only as pickles, and
        only where they are allowed.
        """
        _joint.led("save", path, lambda: folder.save(path, self, allow_pickle))
