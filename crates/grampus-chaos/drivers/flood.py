"""Idle connections for `grampus-chaos`: as many as it is told, to ports of an address, until its input ends.

A connection that the other side closes is opened again, so that the flood lasts. Nothing is ever sent.
"""

from __future__ import annotations

import argparse
import select
import socket
import sys

# Between two looks at the connections, in seconds.
PAUSE = 0.2
# Opened at one look: a flood, and yet bounded.
AT_ONCE = 200


def connect(address: str, port: int) -> socket.socket:
    """Begin to connect; whether it comes to that is the other side's business."""
    idle = socket.socket()
    idle.setblocking(False)
    idle.connect_ex((address, port))
    return idle


def is_closed(idle: socket.socket) -> bool:
    """Whether the other side has closed or refused a connection."""
    try:
        return idle.recv(4096) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def main() -> None:
    """Flood, and say so once all connections are begun."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address")
    parser.add_argument("count", type=int)
    parser.add_argument("ports", type=int, nargs="+")
    arguments = parser.parse_args()
    begun: list[tuple[int, socket.socket]] = []
    told = False
    while True:
        readable = poll([idle for _, idle in begun])
        for entry in [entry for entry in begun if entry[1] in readable and is_closed(entry[1])]:
            entry[1].close()
            begun.remove(entry)
        for _ in range(min(AT_ONCE, arguments.count - len(begun))):
            port = min(arguments.ports, key=lambda port: sum(known == port for known, _ in begun))
            begun.append((port, connect(arguments.address, port)))
        if not told and len(begun) == arguments.count:
            told = True
            print(len(begun), flush=True)
        if select.select([sys.stdin], [], [], PAUSE)[0]:
            return


def poll(sockets: list[socket.socket]) -> set[socket.socket]:
    """Those of which there is something to know."""
    # Not `select`, whose descriptors must be below 1024.
    poller = select.poll()
    by_number = {idle.fileno(): idle for idle in sockets}
    for number in by_number:
        poller.register(number, select.POLLIN)
    return {by_number[number] for number, _ in poller.poll(0)}


if __name__ == "__main__":
    main()
