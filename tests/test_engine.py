"""Workers whose supervisors call the driver: what every engine relies on, with processes of this machine."""

import os
import pickle
import re
import signal
import subprocess
import sys
import time

import psutil
import pytest
import torch
from leftovers import rests
from processes import lives, wait_until

import grampus as gp
from grampus._folders import own_folders
from grampus._training import recovery
from grampus._tunnel import Ahead, Ticket
from grampus.cluster import Settings
from grampus.engine import EngineCluster
from grampus.errors import ClusterError

TASK = "import pickle, sys; from grampus import _tunnel; print(_tunnel.serve(pickle.load(sys.stdin.buffer)))"


class Processes:
    """An engine that starts a process for each task, and copies of it where it is told to."""

    name = "processes"
    address = "127.0.0.1"
    bind = None
    port = 0
    cores = 1
    gpus = None
    session = None
    reuses = False

    def __init__(self, copies=1, change=lambda ticket: ticket):
        self.copies, self.change = copies, change
        self.tasks = []

    def begin(self, workers, within):
        pass

    def run(self, ticket):
        started = [self._start(self.change(ticket)) for _ in range(self.copies)]
        said = [task.communicate()[0].decode().strip() for task in started]
        return None if said[0] in ("None", "") else said[0]

    def _start(self, ticket):
        task = subprocess.Popen([sys.executable, "-c", TASK], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.tasks.append(task)
        task.stdin.write(pickle.dumps(ticket))
        task.stdin.flush()
        return task

    def scarce(self):
        return "there is nothing to wait for"

    def end(self):
        for task in self.tasks:
            task.kill()
            task.wait(10)


SERVER = """
import pickle, sys
from grampus import _tunnel
while True:
    told = pickle.load(sys.stdin.buffer)
    said = _tunnel.prepare(told) if isinstance(told, _tunnel.Ahead) else _tunnel.serve(told)
    sys.stdout.buffer.write(pickle.dumps(said))
    sys.stdout.buffer.flush()
"""


class Reused(Processes):
    """An engine whose tasks come one after the other into the same process, as those of Spark do."""

    reuses = True

    def __init__(self):
        super().__init__()
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.server = subprocess.Popen([sys.executable, "-c", SERVER], **pipes)

    def run(self, ticket):
        pickle.dump(ticket, self.server.stdin)
        self.server.stdin.flush()
        return pickle.load(self.server.stdout)

    def close(self):
        self.server.kill()
        self.server.communicate()


@pytest.fixture
def reused():
    launcher = Reused()
    yield launcher
    launcher.close()


def cluster(launcher, workers=2, start_timeout=20.0, heartbeat_timeout=3.0):
    settings = Settings.checked(1, [], None, start_timeout, heartbeat_timeout)
    return EngineCluster(launcher, workers, settings)


def after_a_loss(workers, function):
    """Call a function of which it does not matter how often it is called."""
    return recovery.repeated(lambda: workers._call(function, (), {}, None))


def test_workers_are_there_while_something_runs():
    launcher = Processes()
    with cluster(launcher) as workers:
        assert launcher.tasks == []
        assert workers.run(lambda: gp.world_size()) == [2, 2]
        assert len(launcher.tasks) == 2
        assert not any(lives(task.pid) for task in launcher.tasks)
        with workers.held():
            first = workers._call(os.getpid, (), {}, None)
            assert workers._call(os.getpid, (), {}, None) == first
        assert len(launcher.tasks) == 4


def test_a_supervisor_rests_between_tasks_of_a_process(reused):
    with cluster(reused, workers=1) as workers:
        first, second = workers.run(os.getppid), workers.run(os.getppid)
        assert first == second == [child.pid for child in _children(reused.server.pid)]
        # Without workers, and without a line to the driver: its standard output leads nowhere.
        assert wait_until(lambda: _children(first[0]) == [])
        assert rests(first[0])
        # What it prints reaches the driver of its job all the same.
        with pytest.raises(ZeroDivisionError):
            workers.run(lambda: 1 // 0)
        # Killed while it rests.
        os.kill(first[0], signal.SIGKILL)
        assert workers.run(os.getppid) != first
    (resting,) = _children(reused.server.pid)
    reused.server.kill()
    assert wait_until(lambda: not lives(resting.pid))


def test_a_supervisor_that_was_started_in_advance(reused):
    with cluster(reused, workers=1) as workers:
        for _ in range(2):
            assert reused.run(Ahead(own_folders(), ["numpy"])) is None
        (ahead,) = _children(reused.server.pid)
        assert workers.run(os.getppid) == [ahead.pid]
        # It rests like any other.
        assert workers.run(lambda: (os.getppid(), "numpy" in sys.modules)) == [(ahead.pid, True)]


def test_a_supervisor_with_modules_of_users_does_not_rest(reused, tmp_path, monkeypatch):
    (tmp_path / "changes.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    settings = Settings.checked(1, ["changes"], None, 20.0, 3.0)
    with EngineCluster(reused, 1, settings) as workers:
        assert reused.run(workers.site.ahead) is None
        assert _children(reused.server.pid) == []
        assert workers.run(os.getppid) != workers.run(os.getppid)
        assert wait_until(lambda: _children(reused.server.pid) == [])


def test_a_copy_of_a_task_waits_and_takes_over():
    launcher = Processes(copies=2)
    with cluster(launcher, workers=1) as workers, workers.held():
        (worker,) = workers._call(os.getpid, (), {}, None)
        first, second = launcher.tasks
        serving = first if _is_above(first.pid, worker) else second
        spare = second if serving is first else first
        # A spare has started nothing.
        assert _children(spare.pid) == []
        serving.kill()
        assert wait_until(lambda: not lives(worker))
        (other,) = after_a_loss(workers, os.getpid)
        assert other != worker
        assert _is_above(spare.pid, other)


def test_a_lost_task_is_started_again():
    launcher = Processes()
    with cluster(launcher) as workers, workers.held():
        before = workers._call(os.getpid, (), {}, None)
        launcher.tasks[1].send_signal(signal.SIGKILL)
        assert wait_until(lambda: not all(map(lives, before)))
        after = after_a_loss(workers, os.getpid)
        assert len(set(before) & set(after)) == 1
        assert len(launcher.tasks) == 3


def test_a_task_that_is_stopped_is_given_up():
    """It gives no sign of life, and its worker is fine: but nobody could order it anything."""
    launcher = Processes()
    with cluster(launcher, start_timeout=16.0, heartbeat_timeout=1.5) as workers, workers.held():
        before = workers._call(os.getpid, (), {}, None)
        stopped = launcher.tasks[0]
        stopped.send_signal(signal.SIGSTOP)
        assert wait_until(lambda: len(launcher.tasks) == 3)
        after = after_a_loss(workers, os.getpid)
        stopped.send_signal(signal.SIGCONT)
        assert len(set(before) & set(after)) == 1
        assert wait_until(lambda: not any(lives(worker) for worker in set(before) - set(after)))


def test_more_workers_get_tasks_of_their_own():
    launcher = Processes()
    with cluster(launcher, workers=1) as workers, workers.held():
        assert workers._call(gp.world_size, (), {}, None) == [1]
        workers.resize(2)
        assert workers._call(gp.world_size, (), {}, None) == [2, 2]
        assert len(launcher.tasks) == 2


def test_another_version_is_named_at_once():
    launcher = Processes(change=lambda ticket: ticket._replace(version="0.0.1"))
    with (
        cluster(launcher) as workers,
        pytest.raises(ClusterError, match=r"the driver has 0\.0\.1: install one"),
    ):
        workers.run(lambda: 1)


def test_a_driver_that_cannot_be_reached_is_named():
    def elsewhere(ticket: Ticket) -> Ticket:
        # Nobody listens there.
        return ticket._replace(join=ticket.join.replace("tcp:127.0.0.1:", "tcp:127.0.0.9:"))

    launcher = Processes(change=elsewhere)
    with (
        cluster(launcher) as workers,
        pytest.raises(ClusterError, match=r"cannot reach the driver: .*127\.0\.0\.9"),
    ):
        workers.run(lambda: 1)


def test_a_task_with_a_wrong_key_is_refused():
    launcher = Processes(change=lambda ticket: ticket._replace(join=_other_key(ticket.join)))
    with cluster(launcher, start_timeout=5) as workers, pytest.raises(ClusterError):
        workers.run(lambda: 1)


def test_an_engine_that_starts_nobody_is_named():
    launcher = Processes(copies=0)
    launcher.run = lambda ticket: time.sleep(3)
    with (
        cluster(launcher, start_timeout=1.0) as workers,
        pytest.raises(ClusterError, match=r"only 0 of 2 members are in after(.|\n)*there is nothing to wait"),
    ):
        workers.run(lambda: 1)


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"cluster": "yarn"}, ClusterError, "unknown cluster 'yarn': use one of 'local', 'spark', 'ray'"),
        (
            {"cluster": "local", "master": "local[2]"},
            TypeError,
            "master is nothing that a cluster of kind 'local'",
        ),
        ({"cluster": "ray", "memory": "4g"}, TypeError, "memory is nothing that a cluster of kind 'ray' has"),
        ({"cluster": "spark", "workers": 0}, ValueError, "workers must be at least 1"),
        (
            {"cluster": "spark", "cores_per_worker": "two"},
            TypeError,
            "cores_per_worker must be a whole number",
        ),
        ({"cluster": "spark", "port": 70_000}, ValueError, "port must be at most 65000, it is 70000"),
        ({"cluster": "spark", "session": 5}, TypeError, "session must be a SparkSession, it is a int"),
        ({"cluster": "spark", "conf": ["a"]}, TypeError, "conf must be a dict of settings of Spark"),
    ],
)
def test_what_is_asked_for_wrongly_starts_nothing(settings, error, words):
    with pytest.raises(error, match=re.escape(words)):
        gp.init(**settings)


def test_an_order_is_for_frames_alone():
    est = gp.Estimator.from_torch(model=torch.nn.Linear(1, 1), optimizer="sgd", config={"lr": 0.1})
    rows = torch.ones(4, 1)
    with (
        gp.init(1, preload=["torch"]),
        pytest.raises(ValueError, match="order_by is for DataFrames of Spark"),
    ):
        est.fit({"x": rows, "y": rows}, order_by="x")


def _other_key(join):
    form, job, key, address = join.split("/")
    return "/".join([form, job, key[::-1], address])


def _children(pid):
    return psutil.Process(pid).children(recursive=True)


def _is_above(pid, other):
    return pid in [parent.pid for parent in psutil.Process(other).parents()]
