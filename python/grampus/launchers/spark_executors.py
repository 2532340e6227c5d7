"""How many workers the executors of a classic session can run, once they have registered."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from grampus._figures import count
from grampus._spark_queue import explained, holders, slots
from grampus._starting import explaining
from grampus.errors import ClusterError

# Where Spark does not say how many executors it will start, all are there once none has come for so long,
_SETTLED = 3.0
# or once the session is so old; Spark itself waits as long for them.
_STARTED = 30.0

Setting = Callable[[str, Any], Any]


def registered_slots(session: Any, setting: Setting, within: float) -> int:
    """How many tasks can run at once when the executors that are starting have registered."""
    if setting("spark.dynamicAllocation.enabled", "false") == "true":
        return _of_dynamic_allocation(session, setting)
    expected = expected_slots(setting)
    context = session.sparkContext._jsc.sc()
    began = changed = time.monotonic()
    before = 0

    def why() -> str | None:
        wait = f"waiting for executors of Spark, for up to {within:g} s (start_timeout)"
        return None if before else explained(holders(session, []), wait)

    with explaining(why):
        while True:
            found, now = slots(session), time.monotonic()
            if found != before:
                before, changed = found, now
            age = time.time() - context.startTime() / 1000
            if context.isLocal() or are_all(found, expected, now - changed, age):
                return found
            if now > began + within:
                if found:
                    return found
                wait = f"no executor of Spark came within {within:g} s (start_timeout)"
                raise ClusterError(explained(holders(session, []), wait))
            time.sleep(0.05)


def wait_for(session: Any, needed: int, workers_on: Callable[[int], int], within: float) -> int:
    """Wait until so many workers can run at once, and return how many can; fewer where the time is over.

    `workers_on` says how many can where so many tasks do.
    """

    def why() -> str:
        there = f"{workers_on(slots(session))} of {count(needed, 'slot')}"
        wait = f"{there} are there, the others are waited for, for up to"
        return explained(holders(session, []), f"{wait} {within:g} s (start_timeout)")

    end = time.monotonic() + within
    with explaining(why):
        while (found := workers_on(slots(session))) < needed and time.monotonic() < end:
            if session.sparkContext._jsc.sc().isLocal():
                break
            time.sleep(0.05)
    return found


def are_all(found: int, expected: int | None, unchanged: float, age: float) -> bool:
    """Whether all executors have registered that will, as far as one can know.

    `unchanged` seconds ago there were as many slots, and `age` seconds ago the session began.

    >>> are_all(0, None, unchanged=60, age=60)
    False
    >>> are_all(2, 2, unchanged=0, age=1)
    True
    >>> are_all(1, 2, unchanged=1, age=5), are_all(1, 2, unchanged=4, age=8)
    (False, True)
    """
    if expected is not None and found >= expected:
        return True
    return found > 0 and (unchanged >= _SETTLED or age >= _STARTED)


def expected_slots(setting: Setting) -> int | None:
    """How many there will be at most, by the settings of a session; `None` where they do not say it.

    >>> expected_slots({"spark.cores.max": "5", "spark.executor.cores": "2"}.get)
    4
    >>> expected_slots({"spark.executor.instances": "3", "spark.executor.cores": "4"}.get)
    12
    >>> expected_slots({}.get)
    """
    task = int(setting("spark.task.cpus", "1"))
    each = int(setting("spark.executor.cores", "0"))
    instances, most = setting("spark.executor.instances", None), setting("spark.cores.max", None)
    if instances is not None:
        return int(instances) * (max(each, 1) // task)
    if most is None:
        return None
    return int(most) // each * (each // task) if each else int(most) // task


def _of_dynamic_allocation(session: Any, setting: Setting) -> int:
    """Executors come when there is something to do: what is set is what there can be."""
    most = setting("spark.dynamicAllocation.maxExecutors", None)
    if most is not None:
        each = int(setting("spark.executor.cores", "1")) // int(setting("spark.task.cpus", "1"))
        return int(most) * each
    found = slots(session)
    if not found:
        raise ClusterError(
            "with dynamic allocation there are no executors yet that could be counted: say how many workers, "
            "gp.init(workers=…), or set spark.dynamicAllocation.maxExecutors"
        )
    return found
