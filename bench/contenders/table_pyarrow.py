"""The floor: the same columns into memory, in order, in no batches."""

import pyarrow.parquet as pq

from measured import arguments, report

OPTIONS = arguments()
report(lambda: pq.read_table(OPTIONS.path).num_rows)
