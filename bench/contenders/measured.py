"""What a reading contender prints: rows, and the seconds and CPU seconds that they took after the imports."""

import argparse
import json
import resource
import sys
import time


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--procs", type=int, default=0)
    return parser.parse_args()


def spent():
    """Return CPU seconds of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def report(read):
    """Call `read`, which returns how many rows it has read, and print what that cost."""
    wall, cpu = time.perf_counter(), spent()
    rows = read()
    figures = {"rows": rows, "seconds": time.perf_counter() - wall, "cpu": spent() - cpu}
    print(json.dumps(figures), flush=True)
    sys.stdout.flush()
