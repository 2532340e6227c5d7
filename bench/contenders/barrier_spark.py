"""Two tasks of Spark that call back, as one `barrier` stage or as two `jobs`; then one of them is killed.

Prints how long both take to call, and how long after the death of one both are there again.
"""

import os
import signal
import socket
import struct
import sys
import threading
import time

from outside import say
from spark_session import session, stop

TIMES = 3


class Switchboard:
    """Hears tasks that call, and when."""

    def __init__(self):
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.calls = []

    def heard(self, count, limit=60):
        """Wait for so many calls; return their processes."""
        self._socket.settimeout(limit)
        for _ in range(count):
            call, _ = self._socket.accept()
            self.calls.append((call, struct.unpack("<i", call.recv(4))[0]))
        return [pid for _, pid in self.calls[-count:]]

    def let_go(self):
        for call, _ in self.calls:
            call.close()
        self.calls.clear()


def task(port):
    def call(batches):
        own = socket.create_connection(("127.0.0.1", port))
        own.sendall(struct.pack("<i", os.getpid()))
        own.recv(1)
        yield from batches

    return call


def begin(way, spark, port):
    """Start two tasks; return the threads that wait for them."""
    call = task(port)
    if way == "barrier":
        # With a shuffle behind it: only so is a stage that has lost a task run again, as a whole.
        two = spark.range(0, 2, 1, 2).mapInArrow(call, "id long", barrier=True)
        frames = [two.repartition(1)]
    else:
        frames = [spark.range(0, 1, 1, 1).mapInArrow(call, "id long") for _ in range(2)]
    threads = [threading.Thread(target=frame.collect, daemon=True) for frame in frames]
    for thread in threads:
        thread.start()
    return threads


def main():
    way = sys.argv[1]
    settings = {
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
        "spark.log.level": "OFF",
    }
    spark = session("local-cluster[2,1,1024]", **settings)
    board = Switchboard()
    starts, recoveries = [], []
    for _ in range(1 + TIMES):
        began = time.perf_counter()
        threads = begin(way, spark, board.port)
        victim = board.heard(2)[0]
        starts.append(time.perf_counter() - began)
        began = time.perf_counter()
        os.kill(victim, signal.SIGKILL)
        board.heard(2 if way == "barrier" else 1)
        recoveries.append(time.perf_counter() - began)
        board.let_go()
        for thread in threads:
            thread.join()
    middle = 1 + TIMES // 2
    say(first=starts[0], seconds=sorted(starts[1:])[middle - 1], recovery=sorted(recoveries)[middle])
    stop(spark)


if __name__ == "__main__":
    main()
