"""Every test proves that it left nothing behind."""

from __future__ import annotations

import pytest
from leftovers import leaving_nothing


@pytest.fixture(autouse=True)
def runtime(monkeypatch):
    """A private runtime folder, whose name marks every process of the test; empty at the end."""
    with leaving_nothing(monkeypatch) as folder:
        yield folder


# First: xdist reads the groups in the same hook.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Where several processes run the tests, one runs those of a file, and one those that share an engine."""
    for item in items:
        shares = item.path.parent.name.startswith("on_")
        item.add_marker(pytest.mark.xdist_group(item.path.parent.name if shares else item.path.name))
