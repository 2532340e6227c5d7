"""One large array to two workers, against one copy of it into fresh memory, in turns; prints JSON."""

import json
import sys
import time

import numpy

import grampus as gp
from tree import cpu_seconds

PAGE = 4096


def touch(array):
    return float(array[0])


def read_every_page(array):
    return float(array[:: PAGE // array.itemsize].sum())


def timed(call):
    cpu, began = cpu_seconds(), time.perf_counter()
    call()
    return time.perf_counter() - began, cpu_seconds() - cpu


def main(rounds, mebibytes):
    array = numpy.ones(mebibytes * 2**20 // 8)
    pages = array.nbytes / PAGE
    gp.init(workers=2)
    assert gp.run(touch, array) == [1.0, 1.0]
    assert gp.run(read_every_page, array) == [pages, pages]
    calls = {
        "array.copy()": lambda: array.copy(),
        "gp.run, one element read": lambda: gp.run(touch, array),
        "gp.run, every page read": lambda: gp.run(read_every_page, array),
    }
    results = {name: [] for name in calls}
    # The first round is not counted: memory that a virtual machine has never touched costs its host too.
    for number in range(rounds + 1):
        for name, call in calls.items():
            sample = timed(call)
            if number > 0:
                results[name].append(sample)
    gp.stop()
    print(json.dumps(results))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
