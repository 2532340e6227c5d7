"""A worker that dies: who, where, how, and what it said last. The next run works."""

import ctypes
import multiprocessing.connection
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import lives, wait_until

import grampus as gp

HOST = os.uname().nodename


def pids():
    return gp.run(os.getpid)


def exit_by_itself():
    os._exit(3)


def kill_itself():
    os.kill(os.getpid(), signal.SIGKILL)


def killed_while_it_listens():
    listener = multiprocessing.connection.Listener(family="AF_UNIX")
    assert Path(listener.address).exists()
    kill_itself()


def touch_nothing():
    # No file of a core dump in the folder of the tests.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.string_at(0)


def abort():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.abort()


def leave_politely():
    sys.exit(5)


def leave_with_words():
    sys.exit("that is all")


def leave_as_if_done():
    sys.exit()


@pytest.mark.parametrize(
    ("how", "words", "code"),
    [
        (exit_by_itself, "exited with code 3", 3),
        (kill_itself, "was killed by signal 9 (SIGKILL)", 137),
        # Its socket goes with the job.
        (killed_while_it_listens, "was killed by signal 9 (SIGKILL)", 137),
        (touch_nothing, "was killed by signal 11 (SIGSEGV)", 139),
        (abort, "was killed by signal 6 (SIGABRT)", 134),
        (leave_politely, "exited with code 5", 5),
        (leave_with_words, "exited with code 1", 1),
        (leave_as_if_done, "exited with code 0", 0),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_the_error_names_rank_host_and_way_of_death(how, words, code):
    gp.init(workers=2)
    before = pids()

    def die():
        if gp.rank() == 1:
            print("my last words", flush=True)
            how()
        time.sleep(60)

    with pytest.raises(gp.WorkerDied) as caught:
        gp.run(die)
    error, text = caught.value, str(caught.value)
    assert (error.rank, error.host, error.pid, error.exit_code) == (1, HOST, before[1], code)
    assert text.startswith(f"rank 1 on {HOST} (pid {before[1]}) {words}")
    assert "my last words" in error.output
    # It was printed as it came.
    assert "my last words" not in text
    after = pids()
    assert after[0] == before[0]
    assert after[1] != before[1]


def test_where_a_function_called_exit_is_among_its_last_lines():
    gp.init(workers=1)
    with pytest.raises(gp.WorkerDied) as caught:
        gp.run(leave_politely)
    assert f'File "{__file__}", line {leave_politely.__code__.co_firstlineno + 1}' in caught.value.output


def test_only_the_last_lines_of_the_output_are_told():
    gp.init(workers=1)

    def talk():
        for number in range(1000):
            print(f"line {number}")
        os._exit(1)

    with pytest.raises(gp.WorkerDied) as caught:
        gp.run(talk)
    assert "line 999" in caught.value.output
    assert "line 900" not in caught.value.output


def test_every_rank_dies_at_once():
    gp.init(workers=3)
    before = pids()
    moment = time.monotonic() + 0.5

    def die():
        while time.monotonic() < moment:
            pass
        kill_itself()

    with pytest.raises(gp.WorkerDied) as caught:
        gp.run(die)
    assert (caught.value.pid, caught.value.exit_code) == (before[caught.value.rank], 137)
    after = pids()
    assert len(set(after)) == 3
    assert caught.value.pid not in after


def test_a_worker_dies_again_and_again_and_the_cluster_goes_on():
    gp.init(workers=2)
    for _ in range(6):
        with pytest.raises(gp.WorkerDied):
            gp.run(lambda: gp.rank() or os._exit(1))
        assert gp.run(gp.rank) == [0, 1]


def test_a_rank_beyond_the_run_dies_meanwhile():
    gp.init(workers=3)
    outsider = pids()[2]

    def work():
        if gp.rank() == 0:
            os.kill(outsider, signal.SIGKILL)
        time.sleep(0.3)
        return gp.rank()

    assert gp.run(work, workers=2) == [0, 1]
    assert len(set(pids()) - {outsider}) == 3


def test_what_a_dead_worker_had_started_ends_with_it():
    gp.init(workers=2)

    def start():
        return subprocess.Popen(["sleep", "600"]).pid

    children = gp.run(start)
    victim = pids()[0]
    os.kill(victim, signal.SIGKILL)
    assert wait_until(lambda: not lives(children[0]))
    assert gp.run(gp.rank) == [0, 1]
    assert lives(children[1])


def test_too_little_memory_for_a_worker_is_its_own_error():
    gp.init(workers=2)

    def grow():
        limit = 4 << 30
        before = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
        try:
            return len(bytearray(2 * limit))
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)

    with pytest.raises(MemoryError):
        gp.run(grow)


def test_a_worker_killed_while_it_is_idle_is_replaced():
    gp.init(workers=2)
    before = pids()
    os.kill(before[0], signal.SIGKILL)
    assert wait_until(lambda: not lives(before[0]))
    # The news travels; a run in that very moment is the next test's.
    time.sleep(0.5)
    after = pids()
    assert after[0] != before[0]
    assert after[1] == before[1]


def test_a_worker_killed_just_before_a_run():
    """Either the run meets the dead worker, and says so, or its replacement; nothing else."""
    gp.init(workers=2)
    for _ in range(10):
        victim = pids()[1]
        os.kill(victim, signal.SIGKILL)
        death = None
        try:
            assert gp.run(gp.rank) == [0, 1]
        except gp.WorkerDied as error:
            death = error
        assert death is None or (death.rank, death.pid, death.exit_code) == (1, victim, 137)


def test_a_stopped_worker_is_given_up_in_time():
    gp.init(workers=2, heartbeat_timeout=1)
    before = pids()

    def freeze():
        if gp.rank() == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(60)

    began = time.monotonic()
    with pytest.raises(gp.WorkerDied, match=rf"rank 1 on {HOST} .* gave no sign of life for") as caught:
        gp.run(freeze)
    assert 0.9 < time.monotonic() - began < 5
    assert (caught.value.rank, caught.value.pid, caught.value.exit_code) == (1, before[1], None)
    assert wait_until(lambda: not lives(before[1]))
    after = pids()
    assert after[0] == before[0]
    assert after[1] != before[1]


def test_a_worker_that_holds_the_interpreter_lock_is_alive():
    """Signs of life come from a thread that needs no interpreter."""
    gp.init(workers=1, heartbeat_timeout=0.5)
    before = pids()

    def hold():
        # PyDLL keeps the lock while it sleeps.
        ctypes.PyDLL(None).usleep(2_000_000)

    gp.run(hold)
    assert pids() == before
