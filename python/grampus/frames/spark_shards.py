"""Shards of a Spark DataFrame: operations are plans of Spark, and rows stay where they are."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NoReturn

from grampus._spark_versions import to_arrow
from grampus.cluster import whole
from grampus.errors import DataError
from grampus.frames import spark_tables
from grampus.frames.spark_schema import check_running, quoted
from grampus.shards import keys, rows
from grampus.shards.collection import Shards

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from grampus.shards.collection import Columns
    from grampus.shards.groups import Aggregations
    from grampus.shards.segments import Part

_HERE = "bring the rows to this machine first, with Shards.from_arrow(shards.to_arrow())"
# The number of the partition, beside the columns of the rows.
_PARTITION = "__grampus_partition"
# Rows on which a function is tried, to learn the columns of its results.
_TRIED = 8


class SparkShards(Shards):
    """Shards that are the partitions of a Spark DataFrame, as Arrow tables; see `Shards.from_spark`."""

    def __init__(self, frame: Any) -> None:
        """Nothing runs yet."""
        check_running(frame.sparkSession)
        super().__init__(None)
        self._frame = frame

    def _of(self, frame: Any) -> SparkShards:
        made = SparkShards(frame)
        made._skip = self._skip
        return made

    # What is not done on Spark

    def _computed(self) -> list[Part]:
        raise DataError(f"this is not done on Spark: {_HERE}")

    def _derived(self, function: Callable[..., list[Any]], *args: Any, count: int | None = None) -> NoReturn:  # noqa: ARG002 - as in the base
        raise DataError(f"this is not done on Spark: {_HERE}")

    def split(self) -> NoReturn:
        """Shards on Spark are tables, which have no elements."""
        raise DataError("split needs shards that are tuples or lists, those on Spark are tables")

    def zip(self, other: Shards) -> NoReturn:  # noqa: ARG002 - as in the base
        """Rows of Spark have no places by which they could be paired."""
        raise DataError(f"zip is not done on Spark, where rows have no places: merge by a column, or {_HERE}")

    def save(self, path: str | os.PathLike[str], allow_pickle: bool = False) -> NoReturn:  # noqa: ARG002 - as in the base
        """Spark writes tables."""
        raise DataError(f"save is not done on Spark: use write_parquet, or {_HERE}")

    # Running

    def transform_shard(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Shards:
        """Pass each partition, an Arrow table, through a function that returns a table or a frame.

        The function is called here once, with the first rows, to learn the columns of its results; partitions
        without rows are left out.
        """
        if not callable(func):
            raise TypeError(f"transform_shard takes a function, not a {type(func).__name__}")
        return self._of(spark_tables.transformed(self._frame, func, args, kwargs, _TRIED))

    def compute(self) -> Shards:
        """Run what waits now, and let Spark keep the result."""
        self._frame.cache().count()
        return self

    def uncache(self) -> Shards:
        """Let Spark forget what it keeps."""
        self._frame.unpersist()
        self._cached = False
        return self

    def _again(self, skip: bool) -> Shards:
        again = SparkShards(self._frame)
        again._skip = skip
        return again

    # Looking at them

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self._frame.columns)

    def __iter__(self) -> Iterator[Any]:
        """One partition after the other."""
        return iter(self.collect())

    def collect(self) -> list[Any]:
        """All partitions that have rows, as Arrow tables, on this machine."""
        return self._tables(to_arrow(self._numbered()))

    def first(self) -> Any:
        """The first partition."""
        return self.take(1)[0]

    def take(self, n: int) -> list[Any]:
        """The first `n` partitions, without those that have no rows."""
        from pyspark.sql import functions

        few = self._numbered().where(functions.col(_PARTITION) < whole(n, "n", least=0))
        return self._tables(to_arrow(few))

    def _numbered(self) -> Any:
        from pyspark.sql import functions

        return self._frame.withColumn(_PARTITION, functions.spark_partition_id())

    def _tables(self, table: Any) -> list[Any]:
        import numpy

        whole = table.drop_columns([_PARTITION])
        _, starts = numpy.unique(table[_PARTITION].to_numpy(), return_index=True)
        ends = [*starts[1:], table.num_rows]
        return [whole.slice(start, end - start) for start, end in zip(starts, ends, strict=True)] or [whole]

    def head(self, n: int = 5) -> Any:
        """The first `n` rows, as an Arrow table."""
        return to_arrow(self._frame.limit(whole(n, "n", least=0)))

    def __len__(self) -> int:
        """Rows of all partitions; Spark counts them."""
        return int(self._frame.count())

    def num_partitions(self) -> int:
        """How many partitions there are; where a shuffle makes them, Spark runs it to find out."""
        return spark_tables.partitions(self._frame)

    def get_schema(self) -> dict[str, list[Any]]:
        """Names and types of the columns; the types are Spark's."""
        fields = self._frame.schema.fields
        return {"columns": [field.name for field in fields], "dtypes": [field.dataType for field in fields]}

    def __repr__(self) -> str:
        """Name the columns."""
        return f"<grampus.Shards on Spark: {', '.join(self.columns)}>"

    # Cutting and combining

    def repartition(self, n: int) -> Shards:
        """Deal all rows to `n` partitions of about equal size; Spark does not keep their order."""
        return self._of(self._frame.repartition(whole(n, "the number of shards")))

    def partition_by(self, cols: Columns, num_partitions: int | None = None) -> Shards:
        """Bring rows with equal values in these columns into one partition."""
        named = self._named(cols)
        if num_partitions is None:
            return self._of(self._frame.repartition(*named))
        return self._of(self._frame.repartition(whole(num_partitions, "num_partitions"), *named))

    def sample(
        self, frac: float, replace: bool = False, weights: Any = None, random_state: int | None = None
    ) -> Shards:
        """About this part of the rows: Spark draws for each row."""
        if weights is not None:
            raise DataError(f"sample with weights is not done on Spark: {_HERE}")
        if frac < 0 or (frac > 1 and not replace):
            raise ValueError(f"frac must be between 0 and 1, or more with replace=True, it is {frac}")
        return self._of(self._frame.sample(replace, float(frac), random_state))

    # Columns

    def select(self, cols: Columns) -> Shards:
        """Only these columns, in this order."""
        return self._of(self._frame.select(*self._named(cols)))

    def __getitem__(self, key: Any) -> Shards:
        """One column, or a list of them, as tables."""
        return self.select(key)

    def drop_missing_columns(self) -> Shards:
        """Leave out columns in which a value is missing."""
        missing = spark_tables.null_counts(self._frame)
        return self.select([name for name, count in missing.items() if not count])

    drop_missing_value = drop_missing_columns

    def _named(self, cols: Columns) -> list[str]:
        names = keys.listed(cols)
        keys.check(names, self.columns)
        if not names:
            raise DataError("a list of columns is empty: name at least one")
        return [quoted(name) for name in names]

    # All rows of tables at once

    def unique(self) -> Any:
        """The different values of one column as an array, in no order."""
        if len(self.columns) != 1:
            raise DataError(f"unique needs one column, these shards have {len(self.columns)}: choose with []")
        return to_arrow(self._frame.distinct()).column(0).to_numpy()

    def deduplicate(self) -> Shards:
        """One of all equal rows, in no order."""
        return self._of(self._frame.dropDuplicates())

    deduplicates = deduplicate

    def sort_values(self, by: Columns | None = None, ascending: bool | Sequence[bool] = True) -> Shards:
        """Rows in the order of some columns, by default of all; nulls come last."""
        names = self.columns if by is None else keys.listed(by)
        self._named(names)
        return self._of(spark_tables.in_order(self._frame, names, ascending))

    def merge(self, right: Shards, how: str = "inner", on: Columns | None = None) -> Shards:
        """Join with other shards on Spark where the columns `on` are equal; rows come in no order."""
        if not isinstance(right, SparkShards):
            raise DataError("right should be shards on Spark too: make it with Shards.from_spark")
        return self._of(spark_tables.merged(self._frame, right._frame, how, on))

    def group_by(self, columns: Columns = (), agg: Aggregations = "count", join: bool = False) -> Shards:
        """Work out figures of groups of rows, as `Shards.group_by` does; groups come in no order."""
        return self._of(spark_tables.grouped(self._frame, keys.listed(columns), agg, join))

    def describe(self, cols: Columns | None = None) -> Any:
        """Count, mean, deviation and quartiles of columns of numbers, by default of all; a pandas frame."""
        return spark_tables.described(self._frame, None if cols is None else keys.listed(cols))

    def max_values(self, col: str) -> Any:
        """The largest value of a column."""
        return spark_tables.figure(self._frame, col, "max")

    def min_values(self, col: str) -> Any:
        """The smallest value of a column."""
        return spark_tables.figure(self._frame, col, "min")

    def null_counts(self) -> Any:
        """How many values are missing in each column: a pandas frame with the columns `col` and `total`."""
        import pandas

        counts = spark_tables.null_counts(self._frame)
        return pandas.DataFrame({"col": list(counts), "total": list(counts.values())})

    get_null_sum = null_counts

    # Out

    def to_arrow(self) -> Any:
        """All rows as one Arrow table, on this machine."""
        return to_arrow(self._frame)

    def to_pandas(self) -> Any:
        """All rows as one pandas frame, on this machine."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """All rows as one polars frame, on this machine."""
        return rows.from_arrow(self.to_arrow(), "polars")

    def to_spark_df(self) -> Any:
        """The DataFrame."""
        return self._frame

    def write_parquet(self, path: str | os.PathLike[str]) -> None:
        """Let Spark write a folder of Parquet files, one for each partition."""
        self._frame.write.parquet(os.fspath(path))

    def write_csv(self, path: str | os.PathLike[str]) -> None:
        """Let Spark write a folder of CSV files, one for each partition."""
        self._frame.write.csv(os.fspath(path), header=True)
