"""A real Ray of two nodes on this machine, in a network of its own: Ray listens on all interfaces."""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_CLONE_NEWNET = 0x40000000
UP_WITHIN = 60.0
HEAD, OTHER, THIRD = "127.0.0.2", "127.0.0.3", "127.0.0.4"
PORT = 6379


class Alone:
    """This process, and what it starts from now on, in a network that has a loopback and nothing else."""

    def __init__(self) -> None:
        """Enter it; raise `OSError` where that is not allowed."""
        self._before = os.open("/proc/self/ns/net", os.O_RDONLY)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(_CLONE_NEWNET):
            os.close(self._before)
            raise OSError(ctypes.get_errno(), "no network of its own")
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True, timeout=10)

    def leave(self) -> None:
        """Go back."""
        ctypes.CDLL(None, use_errno=True).setns(self._before, _CLONE_NEWNET)
        os.close(self._before)


class Nodes:
    """Two nodes with one CPU each, unless told otherwise, until they are closed."""

    def __init__(self, folder: Path, cpus: int = 1, losses: bool = True) -> None:
        """Start them, and wait until the head takes connections; `losses` where some are to be lost."""
        token = folder / "token"
        token.write_text(secrets.token_hex(32))
        token.chmod(0o600)
        self.environment = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
            "HOME": str(folder),
            # Tasks have the modules of tests.
            "PYTHONPATH": str(Path(__file__).parent.parent),
        }
        if losses:
            # A node whose raylet is gone is given up soon. One of a busy machine may be silent for longer.
            self.environment["RAY_health_check_period_ms"] = "500"
            self.environment["RAY_health_check_failure_threshold"] = "4"
        self._folder = folder
        self.address = f"{HEAD}:{PORT}"
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}
        try:
            self._start(
                HEAD, cpus, "--head", f"--port={PORT}", "--include-dashboard=false", f"--temp-dir={folder}/r"
            )
            _wait_for(HEAD, PORT)
            self._start(OTHER, cpus, f"--address={self.address}")
        except BaseException:
            self.close()
            raise

    def _start(self, address: str, cpus: int, *options: str) -> None:
        with (self._folder / f"{address}.log").open("wb") as log:
            self._nodes[address] = subprocess.Popen(
                [
                    *[str(Path(sys.executable).with_name("ray")), "start", "--block", *options],
                    *[
                        f"--node-ip-address={address}",
                        f"--num-cpus={cpus}",
                        "--object-store-memory=209715200",
                    ],
                ],
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @contextlib.contextmanager
    def third(self, cpus: int, gpus: int = 0) -> Iterator[None]:
        """One more node meanwhile; its GPUs are none but in Ray's books."""
        self._start(THIRD, cpus, f"--address={self.address}", f"--num-gpus={gpus}")
        try:
            yield
        finally:
            self._end(self._nodes.pop(THIRD))

    def close(self) -> None:
        """End both, the head last."""
        while self._nodes:
            self._end(self._nodes.popitem()[1])

    @staticmethod
    def _end(node: subprocess.Popen[bytes]) -> None:
        node.send_signal(signal.SIGTERM)
        try:
            node.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(node.pid, signal.SIGKILL)
            node.wait(10)


def main() -> int:
    """Run a program beside two nodes, in their network: `nodes.py FOLDER PROGRAM …`."""
    alone = Alone()
    nodes = Nodes(Path(sys.argv[1]), cpus=2, losses=False)
    try:
        return subprocess.run(sys.argv[2:], check=False, env={**os.environ, **nodes.environment}).returncode
    finally:
        nodes.close()
        alone.leave()


def _wait_for(host: str, port: int) -> None:
    end = time.monotonic() + UP_WITHIN
    while True:
        try:
            with socket.create_connection((host, port), 1):
                return
        except OSError:
            assert time.monotonic() < end, f"nobody listens at {host}:{port}"
            time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
