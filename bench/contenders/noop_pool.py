"""Start a pool of two spawned processes, run a no-op on each, stop."""

import multiprocessing


def noop(_):
    return None


if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        pool.map(noop, range(2), chunksize=1)
        pool.close()
        pool.join()
