"""`grampus status`, `logs` and `doctor` on a terminal, over a job that really runs."""

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

import pytest
from processes import wait_until

import grampus

DEADLINE = 30
JOB = """
import time
import grampus as gp

def work():
    print("hello from", gp.rank(), flush=True)
    time.sleep(60)

gp.init(workers=2)
gp.run(work)
"""


@pytest.fixture
def environment():
    """A runtime folder of its own, with a path that is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="grampus-") as folder:
        hidden = ("NO_COLOR", "OMP_NUM_THREADS", "TERM")
        inherited = {name: value for name, value in os.environ.items() if name not in hidden}
        yield {**inherited, "XDG_RUNTIME_DIR": folder}


@pytest.fixture
def job(environment):
    """A job of two workers that have said hello."""
    command = [sys.executable, "-c", JOB, "--epochs", "3"]
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    driver = subprocess.Popen(command, env=environment, **options)
    until = time.monotonic() + DEADLINE
    while view(environment, "logs")[1].count("hello") < 2:
        assert time.monotonic() < until
        assert driver.poll() is None
        time.sleep(0.05)
    yield driver
    driver.terminate()
    driver.wait(DEADLINE)


def view(environment, *arguments):
    command = [sys.executable, "-m", "grampus", *arguments]
    options = {"capture_output": True, "text": True, "timeout": DEADLINE, "stdin": subprocess.DEVNULL}
    result = subprocess.run(command, env=environment, check=False, **options)
    return result.returncode, result.stdout, result.stderr


class Screen:
    """A command on a terminal of its own."""

    def __init__(self, environment, columns, *arguments):
        self.fd, side = pty.openpty()
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        command = [sys.executable, "-m", "grampus", *arguments]
        self.process = subprocess.Popen(
            command, env=environment, stdin=side, stdout=side, stderr=side, start_new_session=True
        )
        os.close(side)
        self.text = ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait(DEADLINE)
        os.close(self.fd)

    def read_until(self, done):
        """Read on until `done(text)`, or to the end where that comes first."""
        until = time.monotonic() + DEADLINE
        while not done(self.text):
            assert select.select([self.fd], [], [], max(0, until - time.monotonic()))[0], self.text
            try:
                self.text += os.read(self.fd, 65536).decode()
            except OSError:  # the other side is closed
                break
        return self.text

    def finish(self):
        text = self.read_until(lambda _: False)
        return self.process.wait(DEADLINE), text.replace("\r\n", "\n")


def test_a_real_job_is_shown(environment, job):
    def status():
        code, out, _ = view(environment, "status", "--json")
        assert code == 0
        [shown] = json.loads(out)
        return shown

    # The driver writes its status beside what it does.
    assert wait_until(lambda: status()["phase"] == "running"), status()
    assert (status()["pid"], len(status()["members"])) == (job.pid, 2)
    code, out, _ = view(environment, "logs", status()["job"][:4], "--rank", "1")
    assert (code, out) == (0, "[rank 1] hello from 1\n")
    code, _, err = view(environment, "logs", "--rank", "2")
    assert (code, "no log of rank 2" in err) == (1, True)


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_lines_fit_the_terminal(environment, job, columns):
    for command in ("status", "doctor"):
        with Screen({**environment, "NO_COLOR": "1"}, columns, command) as screen:
            _, text = screen.finish()
        assert "\x1b" not in text
        # Paths stay whole, however long they are.
        lines = [line for line in text.splitlines() if " /" not in line and "`/" not in line]
        assert max(map(len, lines)) <= columns


def test_colours_are_for_terminals(environment, job):
    with Screen(environment, 80, "logs") as screen:
        assert "\x1b[36m[rank 0]\x1b[0m hello from 0" in screen.finish()[1]
    assert "\x1b" not in view(environment, "logs")[1]


@pytest.mark.parametrize("arguments", [("status", "--watch"), ("logs", "--follow")])
def test_control_c_ends_a_view_at_once(environment, job, arguments):
    with Screen(environment, 80, *arguments) as screen:
        shown = "running" if arguments[0] == "status" else "hello from 1"
        screen.read_until(lambda text: shown in text)
        screen.process.send_signal(signal.SIGINT)
        code, text = screen.finish()
    assert code == -signal.SIGINT
    assert "Traceback" not in text


def test_watching_draws_over_what_was_there(environment, job):
    with Screen(environment, 80, "status", "--watch") as screen:
        assert "\x1b[6A" in screen.read_until(lambda text: text.count("COMMAND") >= 2)


def test_following_ends_with_the_job(environment, job):
    with Screen(environment, 80, "logs", "--follow") as screen:
        screen.read_until(lambda text: "hello from 1" in text)
        job.terminate()
        code, text = screen.finish()
    assert (code, text.splitlines()[-1]) == (0, "grampus: the job is over")


def test_the_doctor_knows_this_python(environment):
    code, out, _ = view(environment, "doctor", "--json")
    report = json.loads(out)
    found = {check["name"]: check for check in report["checks"]}
    assert code == (0 if report["ok"] else 1)
    assert found["Python"]["found"].endswith(sys.executable)
    assert (found["grampus"]["level"], report["version"]) == ("ok", grampus.__version__)
    assert "numpy" in found["libraries"]["found"]
