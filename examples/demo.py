"""Count primes on two workers, then see what a failing worker looks like.

Run it with `make demo`, or with `python examples/demo.py` where grampus is installed.
"""

import os
import time

import grampus as gp

LIMIT = 2_000_000


def count_primes(limit):
    """Sieve this worker's part of the numbers below `limit`, in segments that fit the cache."""
    part = limit // gp.world_size()
    start = gp.rank() * part
    end = limit if gp.rank() == gp.world_size() - 1 else start + part
    print(f"process {os.getpid()} sieves {start:,} to {end:,}")
    small = [n for n in range(2, int(limit**0.5) + 1) if all(n % d for d in range(2, int(n**0.5) + 1))]
    count = 0
    for low in range(max(start, 2), end, 1 << 16):
        high = min(low + (1 << 16), end)
        flags = bytearray([1]) * (high - low)
        for prime in small:
            first = max(prime * prime, -(-low // prime) * prime)
            flags[first - low :: prime] = bytes(len(range(first, high, prime)))
        count += sum(flags)
    return count


def fail_on_rank_1():
    if gp.rank() == 1:
        raise ValueError("rank 1 does not like this")
    time.sleep(60)  # rank 0 is not waited for: it is ended when rank 1 fails


began = time.perf_counter()
gp.init(workers=2)
ready = time.perf_counter()
print(f"2 workers are ready after {ready - began:.2f} s")

counts = gp.run(count_primes, LIMIT)
print(f"{sum(counts):,} primes below {LIMIT:,}: {' + '.join(f'{count:,}' for count in counts)}")
assert sum(counts) == 148_933

first, second = gp.run(os.getpid), gp.run(os.getpid)
print(f"the workers stay warm: processes {first} before, {second} now")
assert first == second

began = time.perf_counter()
try:
    gp.run(fail_on_rank_1)
except ValueError as error:
    print(f"a worker's error is raised here, after {time.perf_counter() - began:.2f} s: {error!r}")
    print("\n".join(f"    {line}" for line in str(error.__cause__).splitlines()))

gp.stop()
print("nothing is left running")
