"""Hosts for tests: network namespaces on one bridge, each with an address of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass


@dataclass
class Host:
    """One namespace."""

    name: str
    address: str

    def command(self, *words: str) -> list[str]:
        """Say how to run something there."""
        return ["ip", "netns", "exec", self.name, *words]

    def cut(self) -> None:
        """Take its link down: what is sent is lost, and nobody is told."""
        _ip("-n", self.name, "link", "set", "up0", "down")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=10)


class Refused(Exception):
    """Namespaces cannot be made here."""


def make_hosts(count: int) -> list[Host]:
    """Make namespaces; skip the test where that is not allowed, unless the environment forbids skipping."""
    # Here, because the benchmarks use this file too, and have no pytest.
    from needs import lacking

    try:
        return join_hosts(count)
    except Refused as error:
        lacking("NETNS", f"network namespaces cannot be made: {error}")


def join_hosts(count: int) -> list[Host]:
    """Make namespaces and join them by a bridge."""
    tag = f"gp{os.getpid()}"
    hosts = [Host(f"{tag}-{number}", f"10.77.0.{number + 1}") for number in range(count)]
    if shutil.which("ip") is None:
        raise Refused("the command ip (Debian: iproute2) is missing")
    try:
        # The bridge lives in the first namespace, so that nothing changes outside.
        for host in hosts:
            _ip("netns", "add", host.name)
            _ip("-n", host.name, "link", "set", "lo", "up")
        first = hosts[0].name
        _ip("-n", first, "link", "add", "up0", "type", "bridge")
        for number, host in enumerate(hosts[1:], 1):
            ends = ["link", "add", f"port{number}", "type", "veth", "peer", "name", "up0", "netns", host.name]
            _ip("-n", first, *ends)
            _ip("-n", first, "link", "set", f"port{number}", "master", "up0")
            _ip("-n", first, "link", "set", f"port{number}", "up")
        for host in hosts:
            _ip("-n", host.name, "addr", "add", f"{host.address}/24", "dev", "up0")
            _ip("-n", host.name, "link", "set", "up0", "up")
    except subprocess.SubprocessError as error:
        remove_hosts(hosts)
        raise Refused(str(getattr(error, "stderr", None) or error).strip()) from error
    return hosts


def remove_hosts(hosts: list[Host]) -> None:
    """Remove the namespaces with all that is in them."""
    for host in hosts:
        subprocess.run(["ip", "netns", "del", host.name], check=False, capture_output=True, timeout=10)


def processes_in(host: Host) -> list[str]:
    """Processes that live in a namespace."""
    listed = subprocess.run(
        ["ip", "netns", "pids", host.name], check=True, capture_output=True, text=True, timeout=10
    )
    return listed.stdout.split()
