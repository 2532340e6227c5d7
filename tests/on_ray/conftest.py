"""One Ray of two nodes for all tests here, in a network of its own."""

from __future__ import annotations

import signal
import tempfile
from pathlib import Path

import pytest
from leftovers import beside_an_engine
from needs import lacking
from processes import wait_until

from on_ray.nodes import HEAD, Alone, Nodes


@pytest.fixture(autouse=True)
def runtime(monkeypatch, tmp_path):
    """What a test leaves behind is looked for among processes of Grampus: Ray's stay."""
    with beside_an_engine(monkeypatch, tmp_path) as folder:
        yield folder


@pytest.fixture(scope="package")
def nodes():
    """Two nodes with two CPUs each; this process is in their network."""
    try:
        alone = Alone()
    except OSError as error:
        lacking("NETNS", f"no network of its own for Ray, which needs root: {error}")
    # Ray puts a handler of its own in the place of what the program does at SIGTERM.
    handler = signal.getsignal(signal.SIGTERM)
    # Short: Ray's sockets are in it.
    with tempfile.TemporaryDirectory(prefix="gr-", dir="/tmp") as folder:
        try:
            started = Nodes(Path(folder), cpus=2)
            with pytest.MonkeyPatch.context() as patch:
                for name, value in started.environment.items():
                    patch.setenv(name, value)
                yield started
            started.close()
        finally:
            alone.leave()
            signal.signal(signal.SIGTERM, handler)


@pytest.fixture(scope="module")
def ray(nodes):
    """A connection to them."""
    import ray

    ray.init(address=nodes.address, _node_ip_address=HEAD, log_to_driver=False, logging_level="error")
    assert wait_until(lambda: sum(node["Alive"] for node in ray.nodes()) == 2, 30)
    yield ray
    ray.shutdown()
