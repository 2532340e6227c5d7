"""A server that speaks S3, for tests."""

from __future__ import annotations

import contextlib
import http.server
import os
import re
import socket
import subprocess
import sys
import threading
import urllib.parse
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


class Slow(http.server.ThreadingHTTPServer):
    """An object store of one bucket, in this process, that takes its time to write, or refuses to."""

    def __init__(self, seconds, refuses=False):
        super().__init__(("127.0.0.1", 0), _SlowHandler)
        self.seconds, self.refuses = seconds, refuses
        self.objects = {}
        self.closing = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.closing.set()
        self.shutdown()
        self.server_close()


class _SlowHandler(http.server.BaseHTTPRequestHandler):
    def _answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in {"Content-Length": len(body), "ETag": '"tag"', **headers}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(body)

    def _key(self):
        return urllib.parse.unquote(urllib.parse.urlsplit(self.path).path).removeprefix("/bucket/")

    def do_PUT(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.refuses:
            self._answer(403)
        elif not self.server.closing.wait(self.server.seconds):
            self.server.objects[self._key()] = body
            self._answer(200)

    def do_POST(self):
        """Several keys are deleted at once."""
        keys = re.findall(rb"<Key>(.*?)</Key>", self.rfile.read(int(self.headers["Content-Length"])))
        for key in keys:
            self.server.objects.pop(key.decode(), None)
        told = b"".join(b"<Deleted><Key>" + key + b"</Key></Deleted>" for key in keys)
        self._answer(200, b"<DeleteResult>" + told + b"</DeleteResult>")

    def do_GET(self):
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
        if "list-type" not in query:
            body = self.server.objects.get(self._key())
            self._answer(404) if body is None else self._answer(200, body, **_MODIFIED)
            return
        keys = [key for key in sorted(self.server.objects) if key.startswith(query.get("prefix", ""))]
        found = "".join(
            f"<Contents><Key>{key}</Key><Size>{len(self.server.objects[key])}</Size>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for key in keys
        )
        self._answer(
            200, f"<ListBucketResult><IsTruncated>false</IsTruncated>{found}</ListBucketResult>".encode()
        )

    def log_message(self, *_):
        """Nobody reads it."""


_MODIFIED = {"Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
