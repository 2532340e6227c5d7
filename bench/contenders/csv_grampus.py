"""A CSV file into shards."""

import grampus as gp
from measured import arguments, report

OPTIONS = arguments()
report(lambda: len(gp.read_csv(OPTIONS.path).compute()))
