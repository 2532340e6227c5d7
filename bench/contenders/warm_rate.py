"""Calls a second on two warm workers, in turns of half a second each; prints JSON."""

import json
import multiprocessing
import os
import sys
import time

import grampus as gp
from tree import cpu_seconds

TURN = 0.5


def noop(_):
    return None


def rate(call):
    """Return calls and CPU seconds per second of wall time over one turn."""
    calls, cpu, began = 0, cpu_seconds(), time.perf_counter()
    while (wall := time.perf_counter() - began) < TURN:
        call()
        calls += 1
    return calls / wall, (cpu_seconds() - cpu) / wall


def main(rounds):
    gp.init(workers=2)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        calls = {
            "gp.run, lambda": lambda: gp.run(lambda: None),
            "gp.run, importable function": lambda: gp.run(os.getpid),
            "multiprocessing.Pool(2).map": lambda: pool.map(noop, range(2), chunksize=1),
        }
        for call in calls.values():
            call()
        results = {name: [] for name in calls}
        for _ in range(rounds):
            for name, call in calls.items():
                results[name].append(rate(call))
        pool.close()
        pool.join()
    gp.stop()
    print(json.dumps(results))


if __name__ == "__main__":
    main(int(sys.argv[1]))
