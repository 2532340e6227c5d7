"""Scalers and indexers as plans of Spark: only figures come to the driver."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from grampus.errors import DataError
from grampus.frames.spark_schema import is_number, kinds_of, quoted
from grampus.shards import keys
from grampus.shards.encoding import Moments, not_numbers

if TYPE_CHECKING:
    from grampus.shards.encoding import Encoding, Scale

# Names of columns beside those of the frame.
_TEXT, _NUMBER = "__grampus_text", "__grampus_number"


def moments(frame: Any, names: list[str]) -> list[Moments]:
    """Figures of columns of numbers, over all rows, in one job."""
    from pyspark.sql import functions

    figures = []
    for name in names:
        column = _number(frame, name)
        # Spark takes NaN for the largest of all.
        known = functions.nanvl(column, functions.lit(None).cast("double"))
        figures += [functions.min(known), functions.max(known)]
        figures += [functions.mean(column), functions.stddev(column)]
    found = list(frame.agg(*figures).first())
    width = len(Moments._fields)
    return [Moments(*found[place : place + width]) for place in range(0, len(found), width)]


def scaled(frame: Any, inputs: list[str], outputs: list[str], scales: list[Scale]) -> Any:
    """The frame with columns that are scaled from others."""
    made = {}
    for name, output, (start, span, size, base) in zip(inputs, outputs, scales, strict=True):
        made[output] = (_number(frame, name) - start) / span * size + base
    return frame.withColumns(made)


def _number(frame: Any, name: str) -> Any:
    keys.check([name], frame.columns)
    kind = kinds_of(frame)[name]
    if not is_number(kind):
        raise not_numbers(name, kind)
    return frame[quoted(name)].cast("double")


def text_counts(frame: Any, name: str, least: int, sep: str | None) -> dict[Any, int]:
    """How often texts occur that do so at least so often, in the order of the texts."""
    from pyspark.sql import functions

    texts = frame[quoted(name)]
    if sep is not None:
        kind = kinds_of(frame)[name]
        if kind != "string":
            raise DataError(f'do_split needs texts, column "{name}" holds {kind}: leave do_split out')
        # Spark takes a regular expression.
        texts = functions.explode(functions.split(texts, re.escape(sep)))
    counts = frame.select(texts.alias(_TEXT)).where(functions.col(_TEXT).isNotNull())
    counts = counts.groupBy(_TEXT).count()
    found = counts.where(functions.col("count") >= least).orderBy(_TEXT).collect()
    return {text: int(count) for text, count in found}


def encoded(frame: Any, name: str, numbers: dict[Any, int], encoding: Encoding) -> Any:
    """The frame with numbers in the place of the texts of a column.

    Whole texts are joined with their numbers; parts of texts are looked up by tasks, which get that column.
    """
    keys.check([name], frame.columns)
    if encoding.sep is not None:
        return frame.withColumn(name, _looked_up(numbers, encoding)(frame[quoted(name)]))
    from pyspark.sql import functions, types

    kind = frame.schema[name].dataType
    form = types.StructType([types.StructField(_TEXT, kind), types.StructField(_NUMBER, types.LongType())])
    known = frame.sparkSession.createDataFrame(list(numbers.items()), form)
    both = frame.join(functions.broadcast(known), frame[quoted(name)] == known[_TEXT], "left_outer")
    number = functions.coalesce(functions.col(_NUMBER), functions.lit(0).cast("long")).alias(name)
    return both.select(*(number if each == name else frame[quoted(each)] for each in frame.columns))


def _looked_up(numbers: dict[Any, int], encoding: Encoding) -> Any:
    import pandas
    from pyspark.sql.functions import pandas_udf

    def look_up(texts: pandas.Series) -> pandas.Series:
        # Nulls are NaN in some versions of pandas.
        known = [None if missing else text for text, missing in zip(texts, texts.isna(), strict=True)]
        return pandas.Series([encoding.number(text, numbers.get) for text in known])

    # Spark reads the annotations, which are strings in this module.
    look_up.__annotations__ = {"texts": pandas.Series, "return": pandas.Series}
    return pandas_udf(look_up, "array<bigint>" if encoding.makes_lists else "bigint")
