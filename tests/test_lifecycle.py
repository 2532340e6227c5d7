"""From the start of a cluster to its end, whatever ends it: nothing is left behind.

That nothing is left is proven after every test by the fixture in `conftest.py`.
"""

import multiprocessing
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
from processes import finish, lives, marked, read_line, start, supervisor_of, wait_until

import grampus as gp

# A driver that reports the processes of its cluster, and then does what the test says.
DRIVER = """
import os, signal, subprocess, sys, time
import grampus as gp

def begin():
    # A child, and a process whose parent has ended at once.
    child = subprocess.Popen(["sleep", "600"]).pid
    read, write = os.pipe()
    if os.fork() == 0:
        if os.fork() == 0:
            os.write(write, str(os.getpid()).encode())
            os.execvp("sleep", ["sleep", "600"])
        os._exit(0)
    os.wait()
    return os.getpid(), os.getppid(), child, int(os.read(read, 20))

gp.init(workers=2)
print(*sum(gp.run(begin), ()), flush=True)
"""


def start_driver(rest):
    """Start a driver; return it and all processes of its cluster: workers, supervisor, grandchildren."""
    driver = start(DRIVER + rest)
    return driver, {int(word) for word in read_line(driver).split()}


def all_end(pids, seconds=3.0):
    return wait_until(lambda: not any(map(lives, pids)), seconds)


@pytest.mark.parametrize(
    "doing",
    [
        "time.sleep(600)",
        "gp.run(time.sleep, 600)",
        "gp.run(lambda: [print('x' * 1000) for _ in iter(int, 1)])",
    ],
    ids=["nothing", "a run", "much output"],
)
def test_a_killed_driver_leaves_nothing(doing):
    driver, pids = start_driver(doing)
    time.sleep(0.3)
    driver.kill()
    driver.communicate()
    assert all_end(pids)


def test_a_terminated_driver_leaves_nothing():
    driver, pids = start_driver("gp.run(time.sleep, 600)")
    time.sleep(0.3)
    driver.terminate()
    assert finish(driver)[0] == -signal.SIGTERM
    assert all_end(pids)


@pytest.mark.parametrize(
    ("last", "code"),
    [
        ("", 0),
        ("raise ValueError('the driver fails')", 1),
        ("sys.exit(7)", 7),
        ("gp.stop()", 0),
        ("os._exit(9)", 9),
    ],
    ids=["without stop", "raises", "exits", "stops", "exits at once"],
)
def test_a_driver_that_ends_leaves_nothing(last, code):
    driver, pids = start_driver(last)
    assert finish(driver)[0] == code
    assert all_end(pids)


def test_a_driver_killed_while_it_starts_leaves_nothing(tmp_path, runtime):
    (tmp_path / "slow_to_import.py").write_text("import time\nprint('importing')\ntime.sleep(600)\n")
    driver = start(
        """
        import sys
        sys.path.append(sys.argv[1])
        import grampus as gp
        gp.init(workers=2, preload=["slow_to_import"])
        """,
        tmp_path,
    )
    assert wait_until(lambda: len(marked(str(runtime))) >= 2)
    time.sleep(0.5)
    driver.kill()
    driver.communicate()
    # The fixture gives it three seconds.


def test_a_terminated_supervisor_leaves_nothing():
    """As a batch system does it, for example; not even a daemon with a session of its own is left."""
    gp.init(workers=2)

    def begin():
        return os.getpid(), subprocess.Popen(["sleep", "600"], start_new_session=True).pid

    pids = set(sum(gp.run(begin), ()))
    os.kill(supervisor_of(min(pids)), signal.SIGTERM)
    assert all_end(pids)
    with pytest.raises(gp.ClusterError, match="the supervisor of"):
        wait_until(lambda: gp.run(gp.rank) is None)


def test_a_killed_supervisor_is_named_and_leaves_nothing():
    gp.init(workers=2)

    def begin():
        return os.getpid(), subprocess.Popen(["sleep", "600"]).pid

    pids = set(sum(gp.run(begin), ()))
    supervisor = supervisor_of(min(pids))
    os.kill(supervisor, signal.SIGKILL)
    assert all_end(pids)
    with pytest.raises(gp.ClusterError, match=r"the supervisor of .* was killed by signal 9"):
        wait_until(lambda: gp.run(gp.rank) is None)
    gp.init(workers=2)
    assert gp.run(gp.rank) == [0, 1]


def test_a_supervisor_killed_during_a_run_is_named():
    gp.init(workers=2)

    def kill():
        if gp.rank() == 0:
            time.sleep(0.2)
            os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)

    with pytest.raises(gp.GrampusError, match=r"supervisor of .* was killed by signal 9"):
        gp.run(kill)
    gp.init(workers=2)
    assert gp.run(gp.rank) == [0, 1]


def test_a_driver_that_forks_keeps_its_cluster_and_ends_it():
    """A forked child holds copies of all descriptors of the driver."""
    gp.init(workers=2)
    before = gp.run(os.getpid)
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
    child.start()
    try:
        assert gp.run(os.getpid) == before
        began = time.monotonic()
        gp.stop()
        assert time.monotonic() - began < 3
        assert not any(map(lives, before))
        assert gp.init(workers=2)
        assert gp.run(gp.rank) == [0, 1]
    finally:
        child.kill()
        child.join()
        child.close()


def test_a_forked_child_of_the_driver_has_no_part_in_its_cluster():
    driver = start(
        """
        import os, sys, time
        import grampus as gp
        cluster = gp.init(workers=2)
        before = cluster.run(os.getpid)
        if os.fork() == 0:
            try:
                cluster.run(gp.rank)
            except gp.ClusterError as error:
                print(error, flush=True)
            # One of its own is another matter.
            print(gp.run(lambda: os.getpid() in before, workers=1), flush=True)
            # Through everything that Python does at its end.
            sys.exit(3)
        began = time.monotonic()
        _, status = os.wait()
        assert os.waitstatus_to_exitcode(status) == 3
        assert time.monotonic() - began < 5, "the child hung"
        print(gp.run(os.getpid) == before)
        """
    )
    code, out, err = finish(driver)
    assert code == 0, err
    refused, own, result = out.splitlines()
    assert "forked" in refused
    assert own == "[False]"
    assert result == "True"


def test_a_killed_driver_with_a_forked_child_leaves_nothing():
    driver, pids = start_driver(
        """
child = os.fork()
if child == 0:
    time.sleep(600)
print(child, flush=True)
time.sleep(600)
"""
    )
    child = int(read_line(driver))
    driver.kill()
    driver.wait()
    assert all_end(pids)
    assert lives(child), "it is none of ours"
    os.kill(child, signal.SIGKILL)
    driver.communicate()


def count(kind):
    return len(list(Path("/proc/self", kind).iterdir()))


@pytest.mark.timeout(120)
def test_a_hundred_clusters_leave_nothing(runtime):
    gp.run(gp.rank, workers=2)
    gp.stop()
    threads, descriptors = count("task"), count("fd")
    for _ in range(100):
        gp.init(workers=2)
        assert gp.run(gp.rank) == [0, 1]
        gp.stop()
        assert not marked(str(runtime))
        assert count("fd") == descriptors
        assert not (runtime / "grampus").exists()
    assert count("task") == threads


def test_a_cluster_that_is_forgotten_ends():
    cluster = gp.Cluster.local(2)
    pids = cluster.run(os.getpid)
    del cluster
    assert all_end(pids)


def test_stop_ends_a_run_of_another_thread():
    gp.init(workers=2)
    errors = []

    def long():
        try:
            gp.run(time.sleep, 600)
        except gp.GrampusError as error:
            errors.append(error)

    thread = threading.Thread(target=long)
    thread.start()
    time.sleep(0.3)
    gp.stop()
    thread.join(10)
    assert not thread.is_alive()
    assert "stopped by the user" in str(errors[0])


def test_stop_twice_and_without_a_cluster():
    gp.stop()
    cluster = gp.init(workers=1)
    gp.stop()
    gp.stop()
    cluster.stop()


def test_the_folder_of_killed_jobs_is_swept_by_the_next(runtime):
    """Where supervisor and driver are killed at once, nobody is left to clean up."""
    driver = start(
        """
        import os, time
        import grampus as gp
        gp.init(workers=1)
        print(gp.run(os.getppid)[0], flush=True)
        time.sleep(600)
        """
    )
    supervisor = int(read_line(driver))
    # A stopped driver sees nothing of the supervisor's end before its own.
    driver.send_signal(signal.SIGSTOP)
    os.kill(supervisor, signal.SIGKILL)
    driver.kill()
    driver.communicate()
    assert wait_until(lambda: not marked(str(runtime)))
    (left,) = (runtime / "grampus").iterdir()
    gp.init(workers=1)
    assert left not in list((runtime / "grampus").iterdir())
