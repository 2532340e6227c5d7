"""Every test proves that it left nothing behind."""

from __future__ import annotations

import pytest
from leftovers import leaving_nothing


@pytest.fixture(autouse=True)
def runtime(monkeypatch):
    """A private runtime folder, whose name marks every process of the test; empty at the end."""
    with leaving_nothing(monkeypatch) as folder:
        yield folder
