"""Start the ranks of the product's own collectives with gp.run, and wait until they have no more orders."""

import os
import sys

import grampus as gp
from collective_rank import serve


def main(kind, workers):
    try:
        from grampus import collective  # noqa: F401
    except ImportError:
        sys.exit(f"grampus {gp.__version__} has no collectives")
    gp.init(workers=workers, threads=1)
    try:
        gp.run(serve, kind, os.environ["BENCH_SOCKET"])
    finally:
        gp.stop()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
