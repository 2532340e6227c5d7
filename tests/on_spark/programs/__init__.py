"""Programs that users start on Spark."""
