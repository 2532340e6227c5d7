"""What wrong use gets: a clear error that says what to do, and nothing left running."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

import grampus as gp


@pytest.mark.parametrize(
    ("workers", "error", "words"),
    [
        (0, ValueError, "at least 1, it is 0"),
        (-1, ValueError, "at least 1, it is -1"),
        ("2", TypeError, "whole number, it is '2'"),
        (True, TypeError, "whole number, it is True"),
        (2.0, TypeError, "whole number, it is 2.0"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("call", ["init", "run", "cluster"])
def test_a_number_of_workers_that_makes_no_sense(call, workers, error, words):
    calls = {
        "init": lambda: gp.init(workers=workers),
        "run": lambda: gp.run(gp.rank, workers=workers),
        "cluster": lambda: gp.Cluster.local(workers),
    }
    with pytest.raises(error, match=words):
        calls[call]()


def test_a_size_of_a_run_that_makes_no_sense_leaves_the_cluster_alone():
    gp.init(workers=2)
    for workers, error in [(0, ValueError), ("2", TypeError), (3, gp.ClusterError)]:
        with pytest.raises(error):
            gp.run(gp.rank, workers=workers)
    assert gp.run(gp.rank) == [0, 1]


def test_more_workers_than_memory_allows():
    with pytest.raises(
        gp.ClusterError, match=r"1000000 workers need at least .* of memory .*use at most \d+"
    ):
        gp.init(workers=10**6)


@pytest.mark.parametrize("workers", [2**31, 2**32, 10**30])
def test_more_workers_than_can_be_counted(workers):
    with pytest.raises((gp.ClusterError, ValueError), match="workers"):
        gp.init(workers=workers)


@pytest.mark.parametrize("threads", [-1, "2", 1.5, True])
def test_a_number_of_threads_that_makes_no_sense(threads):
    with pytest.raises((TypeError, ValueError), match="threads must be"):
        gp.init(workers=1, threads=threads)


@pytest.mark.parametrize("value", ["4,2", "many", "", "-1", "²"])
def test_a_variable_for_threads_that_is_no_number(value, monkeypatch):
    """Libraries ignore what they cannot read."""
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    gp.init(workers=1)
    (seen,) = gp.run(lambda: os.environ["OMP_NUM_THREADS"])
    assert int(seen) >= 1


@pytest.mark.parametrize("name", ["start_timeout", "heartbeat_timeout"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), "3", 1e300])
def test_a_timeout_that_makes_no_sense(name, value):
    with pytest.raises((TypeError, ValueError), match=name):
        gp.init(workers=1, **{name: value})


def test_a_second_init_with_other_settings():
    cluster = gp.init(workers=2)
    with pytest.raises(gp.ClusterError, match=r"other settings \(workers=2\): call grampus.stop\(\) first"):
        gp.init(workers=1)
    with pytest.raises(gp.ClusterError, match="threads=None"):
        gp.init(workers=2, threads=1)
    assert gp.run(gp.rank) == [0, 1]
    gp.stop()
    assert gp.init(workers=1) is not cluster


def test_a_second_init_with_the_same_settings_is_the_same_cluster(tmp_path):
    cluster = gp.init(workers=2, preload=["json"], log_dir=tmp_path)
    assert gp.init(workers=2, preload=("json",), log_dir=tmp_path) is cluster
    assert gp.init(2, "local", preload=["json"], log_dir=tmp_path) is cluster


def test_run_after_stop():
    gp.run(gp.rank, workers=1)
    gp.stop()
    with pytest.raises(gp.ClusterError, match=r"was stopped: call grampus.init\(\)"):
        gp.run(gp.rank, workers=1)
    gp.init(workers=1)
    assert gp.run(gp.rank) == [0]


@pytest.mark.parametrize("cluster", ["spork", "", None, 3])
def test_an_unknown_cluster(cluster):
    with pytest.raises(gp.ClusterError, match="unknown cluster"):
        gp.init(workers=1, cluster=cluster)


def test_a_stopped_cluster_given_to_init():
    with gp.Cluster.local(1) as cluster:
        pass
    with pytest.raises(gp.ClusterError, match="stopped"):
        gp.init(cluster=cluster)


def test_what_is_no_function():
    gp.init(workers=1)
    with pytest.raises(TypeError, match="not callable: run takes a function"):
        gp.run(3)
    with pytest.raises(TypeError, match="argument"):
        gp.run(lambda x: x)


@pytest.mark.parametrize(
    "call", [lambda: gp.run(gp.rank), lambda: gp.init(workers=1), lambda: gp.Cluster.local(1)]
)
def test_a_cluster_inside_a_worker(call):
    gp.init(workers=1)
    with pytest.raises(gp.ClusterError, match="in the driver"):
        gp.run(call)
    assert gp.run(gp.rank) == [0]


def test_preload_that_is_one_word():
    """A string is a sequence of letters, which nobody means."""
    with pytest.raises(TypeError, match="preload"):
        gp.init(workers=1, preload="numpy")


def over_a_shell(python, **options):
    """What `Cluster.ssh` does, with a shell of this machine in place of ssh."""
    return gp.Cluster.ssh(
        ["127.0.0.1"], 1, command="sh -c {command}", python=python, address="127.0.0.1", **options
    )


def python_that(path, *lines):
    """An interpreter with a mind of its own."""
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)
    return str(path)


def test_a_python_that_cannot_import_grampus(tmp_path):
    """As one of another version, for which the extension was not built, or one without its dependencies."""
    other = python_that(
        tmp_path / "python", f"exec {sys.executable} -I -c 'import grampus_of_another_python'"
    )
    with pytest.raises(gp.ClusterError) as caught:
        over_a_shell(other)
    assert "the supervisor of 127.0.0.1 exited with code 1" in str(caught.value)
    assert "ModuleNotFoundError: No module named 'grampus_of_another_python'" in str(caught.value)


def test_a_python_that_is_not_there():
    with pytest.raises(gp.ClusterError, match=r"(?s)127.0.0.1.*(127|not found)"):
        over_a_shell("/no/such/python")


def test_a_command_that_is_not_there():
    with pytest.raises(
        gp.ClusterError, match=r"(?s)cannot start the supervisor of 127.0.0.1.*no-such-command"
    ):
        gp.Cluster.ssh(["127.0.0.1"], 1, command="no-such-command {host} {command}", address="127.0.0.1")


def test_a_host_that_talks_before_it_works(tmp_path):
    """As the banner of a login shell does."""
    banner = python_that(
        tmp_path / "python", "echo Welcome to this machine, please read the news", "sleep 600"
    )
    with pytest.raises(gp.ClusterError, match=r"the supervisor of 127\.0\.0\.1 "):
        over_a_shell(banner)


def test_a_command_that_leaves_something_behind_that_holds_its_errors_open(tmp_path):
    """As the master connection of an ssh does."""
    master = python_that(tmp_path / "python", "setsid sleep 600 >/dev/null &", "echo $! >&2", "exit 1")
    with pytest.raises(gp.ClusterError, match="exited with code 1") as caught:
        over_a_shell(master)
    os.kill(int(str(caught.value).split()[-1]), signal.SIGKILL)


def test_no_host():
    with pytest.raises(gp.ClusterError, match="at least one host"):
        gp.Cluster.ssh([])


def test_a_log_folder_holds_a_file_per_rank(tmp_path):
    logs = tmp_path / "deep" / "logs"
    gp.init(workers=2, log_dir=logs)

    def speak():
        print("to out", gp.rank())
        print("to err", gp.rank(), file=sys.stderr)

    gp.run(speak)
    gp.stop()
    assert sorted(path.name for path in logs.iterdir()) == ["rank-0.log", "rank-1.log"]
    for rank in range(2):
        lines = (logs / f"rank-{rank}.log").read_text().splitlines()
        assert sorted(lines) == [f"to err {rank}", f"to out {rank}"]


def test_a_log_folder_that_cannot_be_made(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(gp.ClusterError, match=r"cannot write .*file/logs/rank-\d.log.*log_dir"):
        gp.init(workers=2, log_dir=file / "logs")


@contextlib.contextmanager
def tiny_disk():
    """A disk of 64 KiB; needs the right to mount."""
    folder = tempfile.mkdtemp(dir="/tmp", prefix="gp-disk-")
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder],
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        if mount.returncode != 0:
            pytest.skip(f"cannot mount a small disk: {mount.stderr.strip()}")
        yield Path(folder)
    finally:
        subprocess.run(["umount", "-l", folder], capture_output=True, check=False)
        Path(folder).rmdir()


def test_a_full_disk_under_the_log_folder(capfd):
    with tiny_disk() as disk:
        gp.init(workers=2, log_dir=disk)

        def talk():
            for _ in range(2000):
                print("x" * 100)
            return gp.rank()

        workers = gp.run(os.getpid)
        for _ in range(3):
            assert gp.run(talk) == [0, 1]
        assert gp.run(os.getpid) == workers
        gp.stop()
        said = capfd.readouterr().err
        for rank in (0, 1):
            assert said.count(f"cannot write {disk}/rank-{rank}.log: No space left") == 1, said
        assert re.search(rf"\d+ lines of rank 0 are missing in {disk}/rank-0.log", said), said


def test_a_log_file_that_leads_to_a_full_device(tmp_path, capfd):
    """The same where nobody may mount anything. The other file is written."""
    (tmp_path / "rank-0.log").symlink_to("/dev/full")
    gp.init(workers=2, log_dir=tmp_path)
    for _ in range(3):
        gp.run(lambda: print("one line"))
    gp.stop()
    said = capfd.readouterr().err
    assert said.count(f"cannot write {tmp_path}/rank-0.log: No space left") == 1, said
    assert f"3 lines of rank 0 are missing in {tmp_path}/rank-0.log" in said
    assert (tmp_path / "rank-1.log").read_text() == "one line\n" * 3


def test_a_full_device_keeps_what_was_trained(tmp_path, capfd):
    (tmp_path / "rank-0.log").symlink_to("/dev/full")
    gp.init(workers=2, log_dir=tmp_path)

    class Talks(gp.callbacks.Callback):
        def on_epoch_end(self, *_):
            print("one line")

    est = gp.Estimator.from_native(
        model=gp.nn.Sequential(gp.nn.Linear(1, 1)), loss=gp.nn.MSE(), optimizer=gp.optim.SGD(lr=0.1), lanes=2
    )
    before = est.digest()
    x = np.arange(16, dtype=np.float32).reshape(16, 1) / 16
    history = est.fit({"x": x, "y": 3 * x}, epochs=3, batch_size=4, callbacks=[Talks()])
    assert len(history) == 3
    assert est.digest() != before
    assert f"cannot write {tmp_path}/rank-0.log: No space left" in capfd.readouterr().err


def test_a_full_device_of_the_driver_of_other_hosts_is_a_warning(tmp_path, capfd):
    (tmp_path / "rank-0.log").symlink_to("/dev/full")
    with over_the_network(tmp_path) as cluster:
        for _ in range(3):
            assert cluster.run(lambda: [print("one line"), gp.rank()][1]) == [0, 1]
    said = capfd.readouterr().err
    assert said.count(f"cannot write {tmp_path}/rank-0.log: No space left") == 1, said
    assert f"3 lines of rank 0 are missing in {tmp_path}/rank-0.log" in said
    assert (tmp_path / "rank-1.log").read_text() == "one line\n" * 3


def test_a_log_folder_of_other_hosts_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(gp.ClusterError, match=r"cannot write .*file/rank-0.log.*log_dir"):
        over_the_network(tmp_path / "file")


def over_the_network(log_dir):
    """Workers of this very machine, reached as those of others are: the driver writes their logs."""
    return gp.Cluster.ssh(
        ["127.0.0.1"], 2, command="sh -c {command}", address="127.0.0.1", preload=[], log_dir=log_dir
    )


def test_a_full_disk_under_the_runtime_folder(monkeypatch, capfd):
    with tiny_disk() as disk:
        disk.chmod(0o700)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(disk))
        (disk / "filler").write_bytes(b"x" * 60_000)
        with contextlib.suppress(OSError):
            (disk / "more").write_bytes(b"x" * 10_000)
        gp.init(workers=2)
        for _ in range(3):
            gp.run(lambda: print("x" * 10_000))
        gp.stop()
        assert not (disk / "grampus").exists()
        assert re.search(r"cannot write .*rank-0.log: No space left", capfd.readouterr().err)


def test_a_runtime_folder_that_others_can_read_is_not_used(runtime):
    runtime.chmod(0o755)
    gp.init(workers=1)
    assert not (runtime / "grampus").exists()
    assert gp.run(gp.rank) == [0]
