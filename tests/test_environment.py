"""What the environment tells a worker: torchrun's variables, `TF_CONFIG`, and ports that can be used."""

import json
import os
import socket

import pytest

import grampus as gp

NAMES = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TF_CONFIG",
)


def test_the_variables_of_torchrun():
    gp.init(workers=2)
    seen = gp.run(lambda: {name: os.environ.get(name) for name in NAMES})
    for rank, environment in enumerate(seen):
        assert environment["RANK"] == environment["LOCAL_RANK"] == str(rank)
        assert environment["WORLD_SIZE"] == environment["LOCAL_WORLD_SIZE"] == "2"
        assert (environment["GROUP_RANK"], environment["GROUP_WORLD_SIZE"]) == ("0", "1")
        assert environment["MASTER_ADDR"] == "127.0.0.1"
    assert seen[0]["MASTER_PORT"] == seen[1]["MASTER_PORT"]


def test_the_variables_follow_the_size_of_the_run():
    gp.init(workers=3)
    seen = gp.run(lambda: os.environ["WORLD_SIZE"], workers=2)
    assert seen == ["2", "2"]
    assert gp.run(lambda: os.environ["WORLD_SIZE"]) == ["3", "3", "3"]


def test_tf_config_names_every_worker_and_this_one():
    gp.init(workers=3)
    configs = [json.loads(text) for text in gp.run(lambda: os.environ["TF_CONFIG"])]
    workers = configs[0]["cluster"]["worker"]
    assert len(set(workers)) == 3
    for rank, config in enumerate(configs):
        assert config["cluster"] == {"worker": workers}
        assert config["task"] == {"type": "worker", "index": rank}


def test_the_driver_does_not_get_the_variables():
    gp.run(gp.rank, workers=2)
    assert not set(NAMES) & set(os.environ)


def serve_http_and_ask():
    """Rank 0 serves on the port of the master, everybody asks it, rank 0 last of all."""
    import http.server
    import threading
    import time
    import urllib.request

    url = f"http://{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}/"
    if gp.rank() == 0:

        class Answer(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"hello")

            def log_message(self, *words):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["MASTER_PORT"])), Answer)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        # Kept open, as a process group of PyTorch would be that nobody has destroyed.
        import builtins

        builtins.__dict__.setdefault("kept_servers", []).append(server)
    for _ in range(200):
        try:
            return urllib.request.urlopen(url, timeout=5).read(), os.environ["MASTER_PORT"]
        except OSError:
            time.sleep(0.05)
    raise TimeoutError(url)


def test_a_server_on_the_port_of_the_master_and_another_in_the_next_run():
    gp.init(workers=2)
    first, second = gp.run(serve_http_and_ask), gp.run(serve_http_and_ask)
    assert {word for word, _ in first + second} == {b"hello"}
    assert len({port for _, port in first}) == 1
    assert {port for _, port in first}.isdisjoint({port for _, port in second})


def test_every_worker_can_serve_on_its_own_port_of_tf_config():
    gp.init(workers=3)

    def serve():
        import asyncio

        config = json.loads(os.environ["TF_CONFIG"])
        host, port = config["cluster"]["worker"][config["task"]["index"]].rsplit(":", 1)

        async def answer(reader, writer):
            writer.write(b"hello")
            await writer.drain()
            writer.close()

        async def main():
            async with await asyncio.start_server(answer, host, int(port)):
                reader, writer = await asyncio.open_connection(host, int(port))
                word = await reader.read()
                writer.close()
                return word

        return asyncio.run(main())

    assert gp.run(serve) == [b"hello"] * 3


def test_nobody_else_is_given_a_port_of_a_worker():
    gp.init(workers=2)
    taken = [int(port) for port in gp.run(lambda: os.environ["MASTER_PORT"])][:1]
    sockets = []
    try:
        for _ in range(500):
            sockets.append(socket.create_server(("127.0.0.1", 0)))
        given = {each.getsockname()[1] for each in sockets}
    finally:
        for each in sockets:
            each.close()
    assert not given & set(taken)


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE", "MASTER_PORT"])
def test_a_driver_that_has_the_variables_itself_does_not_pass_them_on(name, monkeypatch):
    monkeypatch.setenv(name, "77")
    gp.init(workers=2)
    assert "77" not in gp.run(lambda: os.environ[name])
