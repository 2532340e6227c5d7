"""A trained model, and what is on the disk after it was saved."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_models import classifier, rows


def trained_once():
    """One trained estimator for all tests of a file that writes `trained = trained_once()`."""

    @pytest.fixture(scope="module")
    def trained():
        estimator = classifier(lanes=2)
        estimator.fit(rows(), batch_size=16)
        return estimator

    return trained


def other(**given):
    """An estimator with other weights."""
    return classifier(seed=4, **given)


def left():
    """Nothing half-written stays, and nothing beside what was asked for."""
    return sorted(path.name for path in Path().iterdir() if path.name != "grampus_runs")


def bytes_of(folder):
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}
