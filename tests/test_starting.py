"""What a user sees while workers start."""

import os
import pty
import re
import secrets
import subprocess
import sys
import textwrap
import time

import pytest
from processes import PATIENCE, finish, marked, start, wait_until

import grampus as gp
from grampus import _starting

# A start takes as long as the slowest module that workers import in advance.
SLOW = "import time; time.sleep(1.5)"
SCRIPT = """
    import sys
    import grampus as gp

    sys.path.insert(0, sys.argv[1])
    gp.init(workers=2, preload=sys.argv[2:])
    print(gp.run(gp.rank))
"""
LINE = "starting 2 workers …"


@pytest.fixture
def slow_module(tmp_path):
    (tmp_path / "slow_to_import.py").write_text(SLOW)
    return "slow_to_import"


def on_terminal(*arguments):
    """What a script writes to a terminal, and its output."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), *map(str, arguments)]
    environment = {**os.environ, "TERM": "xterm"}
    driver = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, text=True, env=environment)
    os.close(theirs)
    out, _ = driver.communicate(timeout=PATIENCE)
    written = b""
    try:
        while part := os.read(ours, 4096):
            written += part
    except OSError:  # the terminal was closed at the other end
        pass
    finally:
        os.close(ours)
    return written.decode(), out


def test_a_slow_start_is_a_line_in_a_file(tmp_path, slow_module):
    code, out, err = finish(start(SCRIPT, tmp_path, slow_module))
    assert (code, out, err) == (0, "[0, 1]\n", f"{LINE}\n")


def test_a_slow_start_is_a_line_that_vanishes_from_a_terminal(tmp_path, slow_module):
    written, out = on_terminal(tmp_path, slow_module)
    assert out == "[0, 1]\n"
    assert written == f"\r{LINE}\x1b[K\r\x1b[K"


def test_a_quick_start_says_nothing(monkeypatch, capfd):
    monkeypatch.setattr(_starting, "_MOMENT", PATIENCE)
    gp.init(workers=2)
    assert capfd.readouterr() == ("", "")


def test_the_line_comes_while_the_workers_start(tmp_path, slow_module):
    driver = start(SCRIPT, tmp_path, slow_module)
    began = time.monotonic()
    assert driver.stderr.readline() == f"{LINE}\n"
    seconds = time.monotonic() - began
    assert driver.poll() is None
    assert finish(driver)[0] == 0
    # The start lasts another second from here, at least.
    assert time.monotonic() - began - seconds > 0.5


def test_a_start_that_fails_leaves_no_line_on_a_terminal(tmp_path):
    (tmp_path / "endless.py").write_text("import time; time.sleep(60)")
    script = SCRIPT.replace("workers=2,", "workers=2, start_timeout=1.0,")
    began = time.monotonic()
    code, _, err = finish(start(script, tmp_path, "endless"))
    assert code == 1
    assert err.startswith(f"{LINE}\n")
    assert "grampus.errors.ClusterError: " in err
    assert time.monotonic() - began < PATIENCE


def test_far_more_workers_than_cores_are_warned_of(monkeypatch):
    monkeypatch.setattr(gp._native, "host_cores", lambda: 1)
    words = "10 workers on 1 core: 1 compute at a time, .* GiB are free; workers=1 makes full use"
    with pytest.warns(RuntimeWarning, match=words) as told:
        gp.init(workers=10)
    assert {warning.filename for warning in told} == {__file__}
    assert gp.run(gp.rank) == list(range(10))


def test_far_more_workers_than_cores_are_warned_of_when_a_cluster_grows(monkeypatch):
    with gp.Cluster.local(1) as cluster:
        monkeypatch.setattr(gp._native, "host_cores", lambda: 1)
        with pytest.warns(RuntimeWarning, match="10 workers on 1 core: .* workers=1 makes full use") as told:
            cluster.resize(10)
        assert {warning.filename for warning in told} == {__file__}
        cluster.resize(2)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("deadline", [0.05, 60.0])
def test_many_workers_start_or_fail_within_the_deadline(deadline):
    began = time.monotonic()
    with pytest.warns(RuntimeWarning, match="48 workers on"):
        if deadline < 1:
            with pytest.raises(gp.ClusterError, match="start_timeout"):
                gp.Cluster.local(48, start_timeout=deadline)
        else:
            with gp.Cluster.local(48, start_timeout=deadline) as cluster:
                assert cluster.run(gp.rank) == list(range(48))
    # To end them takes a while, too.
    assert time.monotonic() - began < deadline + 1 + 20


def test_a_thousand_workers_are_warned_of_at_once_and_given_up_at_the_deadline(tmp_path):
    """Forks are slowed down, so that a small machine that runs other things is not filled by the test."""
    slow = "import os, time\nfork = os.fork\nos.fork = lambda: time.sleep(0.02) or fork()\n"
    (tmp_path / "slow_forks.py").write_text(slow)
    deadline, mark = 3.0, secrets.token_hex(8)
    script = SCRIPT.replace("workers=2,", f"workers=1000, start_timeout={deadline},")
    driver = start(script, tmp_path, "slow_forks", env={**os.environ, "MARK_OF_A_TEST": mark})
    said = ""
    while "RuntimeWarning: 1000 workers on " not in said:
        line = driver.stderr.readline()
        assert line, f"it ended without a warning: {finish(driver)}\n{said}"
        said += line
    warned = time.monotonic()
    code, out, err = finish(driver)
    seconds = time.monotonic() - warned
    assert (code, out) == (1, "")
    late = (
        r"(only \d+ of 1000 members are in after|the workers did not join within) .*: raise `start_timeout`"
    )
    assert re.search(f"ClusterError: {late}", err), err
    # To end those that were started takes a while, too.
    assert deadline - 1 < seconds < deadline + 12
    assert wait_until(lambda: not marked(mark)), marked(mark)


def test_a_machine_that_allows_no_more_processes(tmp_path):
    """As `ulimit -u` does, from which root is exempt."""
    (tmp_path / "no_more.py").write_text(
        textwrap.dedent(
            """
            import errno, os
            fork, left = os.fork, [3]

            def limited():
                left[0] -= 1
                if left[0] < 0:
                    raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
                return fork()

            os.fork = limited
            """
        )
    )
    began = time.monotonic()
    code, _, err = finish(start(SCRIPT.replace("workers=2", "workers=8"), tmp_path, "no_more"))
    assert code == 1
    words = (
        "rank 3 on this host could not be started: cannot fork: [Errno 11] Resource temporarily unavailable"
    )
    assert f"{words}: use fewer workers, or allow more processes (ulimit -u)" in err
    assert time.monotonic() - began < PATIENCE
