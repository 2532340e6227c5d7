"""A server that speaks S3, for tests."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import urllib.request

from processes import PATIENCE, wait_until


def point_at(monkeypatch, url):
    """Let all object stores of this process be this server."""
    for key in [key for key in os.environ if key.startswith("AWS_")]:
        monkeypatch.delenv(key)
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@contextlib.contextmanager
def serving(monkeypatch, log_path):
    """Start a server with an empty `s3://bucket`; its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with log_path.open("wb") as log:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"
    try:
        assert wait_until(lambda: _answers(server, url)), log_path.read_text()
        urllib.request.urlopen(urllib.request.Request(f"{url}/bucket", method="PUT"), timeout=PATIENCE)
        point_at(monkeypatch, url)
        yield url
    finally:
        server.kill()
        server.wait(PATIENCE)


def _answers(server, url):
    assert server.poll() is None, "the server ended"
    try:
        urllib.request.urlopen(url, timeout=PATIENCE)
    except OSError:
        return False
    return True
