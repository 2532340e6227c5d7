"""Tests on a real Spark."""
