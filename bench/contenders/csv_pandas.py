"""A CSV file into memory with pandas."""

import pandas as pd

from measured import arguments, report

OPTIONS = arguments()
report(lambda: len(pd.read_csv(OPTIONS.path)))
