"""Whether tasks of an engine reach this program: asked at `init`, where it may run outside of their network.

Clients of Ray (`ray://`) and of Spark Connect talk to a server of the engine, and need not be reached by
anything. Workers must reach them.
"""

from __future__ import annotations

import contextlib
import platform
import secrets
import socket
import threading
from typing import TYPE_CHECKING, NamedTuple

from grampus._starting import explaining

if TYPE_CHECKING:
    from collections.abc import Callable

_CANNOT = "cannot reach the driver"
# Seconds for a connection: packets that a firewall drops are not answered.
_CONNECT_WITHIN = 5.0
# Seconds for the task to begin: where nothing is free, it is not known whether it would come through.
_ASK_WITHIN = 30.0


class Knock(NamedTuple):
    """What a task does: it connects to the driver, and returns why that cannot be, if so."""

    host: str
    port: int
    # It is the driver that is there, not another program at its address.
    question: str
    answer: str

    def connect(self) -> str | None:
        """Connect to it."""
        where = f"{platform.node()} {_CANNOT} at {self.host}:{self.port}"
        try:
            with socket.create_connection((self.host, self.port), _CONNECT_WITHIN) as link:
                link.sendall(self.question.encode())
                heard = link.recv(len(self.answer), socket.MSG_WAITALL)
        except OSError as error:
            return f"{where}: {error}"
        return None if heard == self.answer.encode() else f"{where}: another program listens there"


def advised(why: str | None, how: str) -> str | None:
    """Why a task ended, and what to do where it was that it cannot reach the driver."""
    return f"{why}: {how}" if why is not None and _CANNOT in why else why


def refusal(address: str, bind: str, port: int, ask: Callable[[Knock, float], str | None]) -> str | None:
    """Why tasks do not reach this program under an address, if so; `ask` has one of them knock."""
    with socket.create_server((bind, port)) as server:
        knock = Knock(address, server.getsockname()[1], secrets.token_hex(16), secrets.token_hex(16))
        threading.Thread(target=_open, args=(server, knock), name="grampus-door", daemon=True).start()
        try:
            with explaining(
                lambda: f"waiting up to {_ASK_WITHIN:g} s for a task that tries to reach {address}"
            ):
                return ask(knock, _ASK_WITHIN)
        finally:
            # Closed alone, it would leave the thread where it waits.
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)


def _open(server: socket.socket, knock: Knock) -> None:
    with contextlib.suppress(OSError):
        while True:
            link, _ = server.accept()
            with link, contextlib.suppress(OSError):
                link.settimeout(_CONNECT_WITHIN)
                heard = link.recv(len(knock.question), socket.MSG_WAITALL)
                if heard == knock.question.encode():
                    link.sendall(knock.answer.encode())
