"""One Spark for all tests here, and a session of it for those of a file."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

from engines import end_gateway
from leftovers import beside_an_engine
from standalone import TWO_EXECUTORS, Standalone, classic, environment


@pytest.fixture(autouse=True)
def runtime(monkeypatch, tmp_path):
    """What a test leaves behind is looked for among processes of Grampus: Spark's stay."""
    with beside_an_engine(monkeypatch, tmp_path) as folder:
        yield folder


@pytest.fixture(scope="package")
def standalone(tmp_path_factory):
    """A Master, and two Workers with two cores each."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment().items():
            patch.setenv(name, value)
        cluster = Standalone(tmp_path_factory.mktemp("spark"), cores=2)
        yield cluster
        end_gateway()
        cluster.close()


@pytest.fixture(scope="module")
def spark(standalone):
    """A session with two executors of one core each, on hosts of their own."""
    session = classic(standalone.master, TWO_EXECUTORS)
    yield session
    session.stop()
