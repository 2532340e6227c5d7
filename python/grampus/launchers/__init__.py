"""Where workers are started by others: one file for each engine."""
