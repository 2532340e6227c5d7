"""One rank's side of a benchmark: it waits for orders on a socket, where it costs no CPU, and answers them.

The socket is a file, so that a rank in another network namespace reaches it too. Nothing but the standard
library is imported here.
"""

import contextlib
import json
import os
import socket
import time
import traceback


class Link:
    """The connection of one rank to whoever takes the times."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.file = self.socket.makefile("rw", encoding="utf-8")

    def say(self, **facts):
        self.file.write(json.dumps(facts) + "\n")
        self.file.flush()

    def serve(self, orders):
        """Answer orders, each a function by name, until there are no more.

        Every answer says how much CPU time went by while this rank had nothing to do: whoever spins there
        spoils the figures of the others.
        """
        cpu, wall = time.process_time(), time.perf_counter()
        while line := self.file.readline():
            idle = {"idle_cpu": time.process_time() - cpu, "idle_wall": time.perf_counter() - wall}
            order = json.loads(line)
            self.say(**orders[order.pop("do")](**order), **idle)
            cpu, wall = time.process_time(), time.perf_counter()


@contextlib.contextmanager
def linked(path=None):
    """Connect; what is raised inside is told to the other side before it ends this rank."""
    link = Link(path or os.environ["BENCH_SOCKET"])
    try:
        yield link
    except BaseException as error:
        with contextlib.suppress(OSError):
            link.say(error="".join(traceback.format_exception_only(error)).strip())
        raise
