"""The program that disturbs runs: every kind of fault once, played as `make chaos` plays hundreds."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from needs import lacking
from processes import command_line, finish, lives, marked, wait_until

PROGRAM = Path(__file__).parents[1] / "target" / "debug" / "grampus-chaos"
LOCAL = ["kill", "stop", "pause", "double-kill", "kill-in-recovery", "driver-kill", "disk-full"]
NETWORK = ["partition", "delay", "packet-loss"]
# What a few seeded faults show of a cluster of hosts; `make chaos` has the others.
HOSTS = ["late", "host-kill", "flood", "cut-for-good"]
# On a busy machine; otherwise a minute.
LONG = 420


def start(*arguments):
    assert PROGRAM.exists(), "grampus-chaos is not built: run `make test`, or `cargo build --workspace`"
    # The driver is to find the very package that is tested here.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([PROGRAM, *arguments, "--python", sys.executable], env=environment, **pipes)


def play(kinds, *arguments):
    """Each of these kinds once, in one run; no promise may be broken."""
    count = str(len(kinds))
    started = start("--faults", count, "--per-run", count, "--kinds", ",".join(kinds), *arguments)
    code, out, said = finish(started, LONG - 60)
    told = f"{out}\n{said}"
    if "left out" in out:
        lacking("NETNS", f"not all faults can be made here: {told}")
    assert code == 0, told
    words = {line.split()[0]: line.split()[1] for line in out.splitlines() if line.split()}
    assert {kind: words.get(kind) for kind in kinds} == dict.fromkeys(kinds, "1"), told
    assert "weights and history equal to the undisturbed run: 1 of 1 runs" in out
    assert "rows lost: 0, doubled: 0" in out
    assert "hangs: 0" in out
    assert "left behind: 0 processes, 0 sockets, 0 files, 0 of shared memory, 0 namespaces" in out
    assert "promises broken: 0" in out


@pytest.mark.timeout(LONG)
@pytest.mark.parametrize("kinds", [LOCAL, NETWORK], ids=["local", "network"])
def test_every_kind_of_fault_breaks_no_promise(kinds):
    play(kinds)


@pytest.mark.timeout(LONG)
def test_faults_of_hosts_break_no_promise():
    play(HOSTS, "--hosts", "2x2", "--heartbeat-timeout", "3")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "killed"])
def test_a_program_that_is_ended_leaves_no_hosts(how):
    started = start("--hosts", "2x2", "--faults", "2", "--kinds", "kill,partition")
    try:
        if not wait_until(lambda: len(namespaces(started)) == 3 and drivers(started), 90):
            lacking("NETNS", f"there are no hosts: {finish(started)}")
        [driver] = drivers(started)[:1]
        # To the program alone, and not, as a terminal does, to the driver too: the driver must be found.
        started.send_signal(how)
        started.wait(10)
        assert wait_until(lambda: not namespaces(started) and not lives(driver))
        assert wait_until(lambda: not list(folders(started)))
    finally:
        started.kill()
        started.communicate()


@pytest.mark.timeout(60)
def test_what_a_dead_program_left_is_removed_by_the_next():
    gone = subprocess.Popen(["true"])
    gone.wait()
    name = f"gc-{gone.pid}-1-0-0"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode != 0:
        lacking("NETNS", "network namespaces cannot be made")
    inhabitant = subprocess.Popen(["ip", "netns", "exec", name, "sleep", "60"])
    folder = Path(os.environ["TMPDIR"], f"gc-{gone.pid}-1-abcdef")
    (folder / "work").mkdir(parents=True)
    try:
        assert wait_until(lambda: command_line(inhabitant.pid).startswith("sleep"))
        swept = subprocess.run([PROGRAM, "--sweep"], capture_output=True, text=True, timeout=30, check=True)
        # There may be more, of other dead programs.
        assert {f"removed {folder}", f"removed namespace {name}"} <= set(swept.stdout.splitlines())
        assert inhabitant.wait(10) == -signal.SIGKILL
        assert not folder.exists()
        assert not Path("/run/netns", name).exists()
    finally:
        inhabitant.kill()
        inhabitant.wait()
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def namespaces(program):
    return list(Path("/run/netns").glob(f"gc-{program.pid}-*"))


def folders(program):
    return Path(os.environ["TMPDIR"]).glob(f"gc-{program.pid}-*")


def drivers(program):
    """Processes of the run that the program plays on hosts."""
    found = (pid for folder in folders(program) for pid in marked(str(folder)))
    return [pid for pid in found if "train.py" in command_line(pid) and "--hosts" in command_line(pid)]
