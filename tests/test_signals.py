"""SIGTERM while something starts, and a parent that ignores its children."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from processes import PATIENCE, finish, has_role, lives, marked, read_line, start, wait_until
from test_engine import Processes, cluster

import grampus as gp

GRAMPUS = str(Path(sys.executable).with_name("grampus"))
SLOW = """
import time
from pathlib import Path

Path(__file__).with_suffix(".begun").touch()
time.sleep(60)
"""


def test_sigterm_ends_a_supervisor_that_imports_modules(tmp_path, runtime):
    """It used to end the import instead, and left the supervisor with half a module."""
    (tmp_path / "slow_to_import.py").write_text(SLOW)
    driver = start(
        """
        import sys
        sys.path.append(sys.argv[1])
        import grampus as gp
        gp.init(workers=2, preload=["slow_to_import"])
        print(gp.run(gp.rank))
        """,
        tmp_path,
    )
    assert wait_until((tmp_path / "slow_to_import.begun").exists)
    (supervisor,) = (pid for pid in marked(str(runtime)) if has_role(pid, "supervisor"))
    os.kill(supervisor, signal.SIGTERM)
    code, out, err = finish(driver)
    assert (code, out) == (1, ""), err
    assert "the supervisor of" in err and "exited with code 143" in err
    assert not lives(supervisor)


class Nobody(Processes):
    """An engine whose tasks do not begin, as those that wait for a free slot. Somebody loses patience."""

    def __init__(self, number):
        super().__init__()
        self.number = number
        self.over = threading.Event()

    def run(self, ticket):
        if ticket.slot == 0:
            os.kill(os.getpid(), self.number)
        self.over.wait(60)

    def end(self):
        self.over.set()


def fit(workers):
    import torch

    gp.init(cluster=workers)
    model = lambda config: torch.nn.Linear(1, 1)  # noqa: E731
    est = gp.Estimator.from_torch(model=model, optimizer="sgd", loss=torch.nn.MSELoss())
    est.fit({"x": torch.zeros(8, 1), "y": torch.zeros(8, 1)}, epochs=1, batch_size=4)


@pytest.mark.parametrize(
    ("number", "ends"),
    [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt)],
    ids=["term", "int"],
)
def test_a_signal_ends_a_fit_whose_workers_have_not_begun(number, ends):
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(ends) as caught:
        # Longer than the test may take.
        fit(cluster(Nobody(number), start_timeout=120))
    if number == signal.SIGTERM:
        assert caught.value.code == 143
    assert signal.getsignal(signal.SIGTERM) is before


def threads(pid):
    return [path.read_text().strip() for path in Path(f"/proc/{pid}/task").glob("*/comm")]


def test_a_signal_ends_a_node_that_looks_for_node_0(tmp_path):
    flags = ["--nnodes", "2", "--node-rank", "1", "--rdzv-endpoint", "127.0.0.1:9", "--start-timeout", "120"]
    home = {**os.environ, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    node = subprocess.Popen([GRAMPUS, "run", *flags, "true"], stderr=subprocess.PIPE, env=home)
    try:
        assert wait_until(lambda: "grampus-signals" in threads(node.pid))
        time.sleep(0.5)
        assert node.poll() is None
        node.send_signal(signal.SIGTERM)
        assert node.wait(PATIENCE) == 128 + signal.SIGTERM
    finally:
        node.kill()
        node.communicate()


def ignoring_children():
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)


# Some daemons and batch systems start programs so; the kernel then forgets how their children ended.
IGNORING = {"preexec_fn": ignoring_children}


def test_workers_end_and_have_children_where_the_driver_inherits_an_ignored_sigchld():
    driver = start(
        """
        import os, signal, subprocess
        import grampus as gp
        gp.init(workers=2)
        print(gp.run(lambda: subprocess.run(["sh", "-c", "exit 3"]).returncode), flush=True)
        try:
            gp.run(lambda: gp.rank() and os.kill(os.getpid(), signal.SIGKILL))
        except gp.WorkerDied as error:
            print(error.rank, error.exit_code, flush=True)
        print(gp.run(gp.rank), flush=True)
        """,
        **IGNORING,
    )
    code, out, err = finish(driver, 40)
    assert (code, out.splitlines()) == (0, ["[3, 3]", "1 137", "[0, 1]"]), err


def test_a_supervisor_that_cannot_be_waited_for_is_named_all_the_same():
    driver = start(
        """
        import os, signal
        import grampus as gp
        gp.init(workers=1)
        try:
            os.kill(gp.run(os.getppid)[0], signal.SIGKILL)
            while True:
                gp.run(gp.rank)
        except gp.ClusterError as error:
            print(error, flush=True)
        """,
        **IGNORING,
    )
    code, out, err = finish(driver, 40)
    assert code == 0, err
    assert "the supervisor of" in out and "this program ignores SIGCHLD" in out


def test_ranks_end_where_their_command_inherits_an_ignored_sigchld():
    script = "[ $RANK = 0 ] || exit 3; sh -c 'exit 5'; [ $? = 5 ] && sleep 60"
    command = subprocess.Popen(
        [GRAMPUS, "run", "-n", "2", "sh", "-c", script], stderr=subprocess.PIPE, **IGNORING
    )
    try:
        assert wait_until(lambda: command.poll() is not None)
        assert command.returncode == 3, command.stderr.read()
    finally:
        command.kill()
        command.communicate()


def test_members_that_were_stopped_for_long_find_each_other_alive():
    """A closed lid stops the driver, its supervisors and workers; they do not wake at the same moment."""
    driver = start(
        """
        import os, time
        import grampus as gp
        where = {"command": "sh -c {command}", "address": "127.0.0.1"}
        cluster = gp.Cluster.ssh(["127.0.0.1"], 2, **where, preload=[], heartbeat_timeout=2.0)
        before = cluster.run(os.getpid)
        print(*before, flush=True)
        time.sleep(8)
        print(cluster.run(os.getpid) == before, flush=True)
        cluster.stop()
        """
    )
    members = [int(word) for word in read_line(driver).split()]
    supervisors = [psutil.Process(pid).ppid() for pid in members]
    # Those that are looked for come to life first.
    everybody = [*members, *dict.fromkeys(supervisors), driver.pid]
    for pid in reversed(everybody):
        os.kill(pid, signal.SIGSTOP)
    time.sleep(5)
    for pid in everybody:
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.3)
    code, out, err = finish(driver, 40)
    assert (code, out.splitlines()[-1:]) == (0, ["True"]), err
