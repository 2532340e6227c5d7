"""A CSV file into memory with polars."""

import polars as pl

from measured import arguments, report

OPTIONS = arguments()
report(lambda: pl.read_csv(OPTIONS.path).height)
