"""Folders and consoles that take nothing for a while: nobody waits for them, and losses are counted."""

import contextlib
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from processes import PATIENCE, finish, read_line, start, wait_until

import grampus as gp

GRAMPUS = str(Path(sys.executable).with_name("grampus"))
# What is kept for a folder that does not take it, and lines beyond that.
KEPT, LINE, SURPLUS = 16 << 20, "x" * 1023, 4096


@pytest.fixture
def stalled(tmp_path):
    """A log folder in which the file of the first rank takes nothing until somebody reads it."""
    os.mkfifo(tmp_path / "rank-0.log")
    yield tmp_path
    # Lets go of a thread that still waits for somebody to read.
    with contextlib.suppress(OSError):
        os.close(os.open(tmp_path / "rank-0.log", os.O_RDONLY | os.O_NONBLOCK))


def talk(lines):
    for _ in range(lines):
        print(LINE)


def read_all(path, into):
    with path.open() as file:
        into.extend(file)


def test_a_log_folder_that_stalls_holds_up_nobody(stalled, capfd):
    gp.init(workers=2, log_dir=stalled, start_timeout=30)
    assert gp.run(gp.rank) == [0, 1]
    gp.run(lambda: talk(KEPT // 1024 + SURPLUS if gp.rank() == 0 else 1))
    # Several tasks end, and an error is raised, while nothing can be written.
    with pytest.raises(ZeroDivisionError):
        gp.run(lambda: 1 // gp.rank())
    assert gp.run(gp.rank) == [0, 1]
    assert wait_until(lambda: "lines beyond that are left out of the log files" in capfd.readouterr().err)
    found = []
    reader = threading.Thread(target=read_all, args=(stalled / "rank-0.log", found), daemon=True)
    reader.start()
    # Each piece of output costs a little beside its bytes.
    assert wait_until(lambda: len(found) >= 0.9 * KEPT / 1024)
    gp.run(lambda: print("the end"))
    gp.stop()
    reader.join(PATIENCE)
    missing = [line for line in found if "lines are missing here" in line]
    assert len(missing) == 1, missing
    # Those of the traceback are among them.
    surplus = int(missing[0].split()[1]) + found.count(LINE + "\n") - (KEPT // 1024 + SURPLUS)
    assert 0 <= surplus < 100
    assert found[-1] == "the end\n"


def test_a_log_folder_that_never_comes_back_does_not_keep_the_cluster_from_ending(stalled, capfd):
    gp.init(workers=2, log_dir=stalled, start_timeout=30)
    gp.run(lambda: print("one line"))
    gp.stop()
    assert "did not take the output of the ranks in time" in capfd.readouterr().err


def test_ctrl_c_ends_a_run_whose_log_folder_stalls(stalled):
    driver = start(
        """
        import sys, time
        import grampus as gp
        gp.init(workers=2, log_dir=sys.argv[1], start_timeout=30)
        print("ready", flush=True)
        gp.run(lambda: [print("x" * 100) for _ in iter(int, 1)])
        """,
        stalled,
    )
    assert read_line(driver) == "ready"
    time.sleep(1)
    driver.send_signal(signal.SIGINT)
    code, _, err = finish(driver, 30)
    assert code == -signal.SIGINT, err


def over_the_network(**settings):
    """Workers of this very machine, reached as those of others are."""
    return gp.Cluster.ssh(
        ["127.0.0.1"], 2, command="sh -c {command}", address="127.0.0.1", preload=[], **settings
    )


def test_workers_elsewhere_outlive_a_log_folder_of_the_driver_that_stalls(stalled):
    with over_the_network(log_dir=stalled, heartbeat_timeout=2.0, start_timeout=30) as cluster:
        workers = cluster.run(os.getpid)
        cluster.run(print, "one line")
        # Longer than anybody may be silent.
        time.sleep(5)
        assert cluster.run(os.getpid) == workers


def test_lines_of_other_hosts_are_logged_once_under_their_rank(tmp_path):
    """Both ends see the same folder here, as hosts with a shared disk do."""
    with over_the_network(log_dir=tmp_path, start_timeout=30) as cluster:
        cluster.run(lambda: print("I am", gp.rank()))
    assert [(tmp_path / f"rank-{rank}.log").read_text() for rank in (0, 1)] == ["I am 0\n", "I am 1\n"]


def test_a_runtime_folder_that_stalls_holds_up_nobody(runtime, tmp_path):
    gp.init(workers=1)
    (job,) = (runtime / "grampus").iterdir()
    # Written as a new file that replaces the old one.
    path = job / "status.new"
    assert wait_until(lambda: (job / "status.json").exists() and not path.exists())
    with contextlib.suppress(FileExistsError):
        os.mkfifo(path)
    assert stat.S_ISFIFO(path.stat().st_mode)
    # It goes with the folder, and the thread that waits for a reader does not.
    os.link(path, tmp_path / "same")
    for _ in range(3):
        assert gp.run(gp.rank) == [0]
        time.sleep(0.3)
    gp.stop()
    os.close(os.open(tmp_path / "same", os.O_RDONLY | os.O_NONBLOCK))


def launched(tmp_path, program, **options):
    path = tmp_path / "program.py"
    path.write_text(program)
    return subprocess.Popen(
        [GRAMPUS, "run", "-n", "2", str(path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        **options,
    )


def test_ctrl_c_ends_ranks_whose_output_nobody_reads(tmp_path):
    command = launched(tmp_path, "while True: print('x' * 1000)\n")
    try:
        # The pipe is full after 64 KiB.
        time.sleep(3)
        command.send_signal(signal.SIGINT)
        assert command.wait(PATIENCE) == 130
    finally:
        command.kill()
        command.communicate()


def test_a_slow_reader_gets_all_that_ranks_write_and_they_wait_for_it(tmp_path):
    lines = 60_000
    command = launched(tmp_path, f"for line in range({lines}): print(line, 'x' * 1000)\n")
    try:
        # Ranks that do not wait would be done, and their output would fill the memory.
        time.sleep(5)
        assert command.poll() is None
        out, err = command.communicate(timeout=60)
    finally:
        command.kill()
    assert command.returncode == 0, err
    found = [line.split()[2] for line in out.splitlines() if line.startswith("[rank 0]")]
    assert found == [str(line) for line in range(lines)]
    assert out.count("\n") == 2 * lines
