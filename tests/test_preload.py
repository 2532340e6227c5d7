"""What is imported before the workers are forked, and what each of them gets of the machine."""

import contextlib
import itertools
import os
import signal
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from processes import command_line, finish, start, supervisor_of

import grampus as gp


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Write a module that workers can import."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name, text):
        (tmp_path / f"{name}.py").write_text(text)
        return name

    return write


def test_a_preloaded_module_is_imported_once(module):
    name = module("marker", "import os, time\nWHO = (os.getpid(), time.monotonic_ns())\n")
    gp.init(workers=3, preload=[name])
    seen = gp.run(lambda: __import__(name).WHO)
    assert len(set(seen)) == 1
    workers = gp.run(os.getpid)
    assert len(set(workers)) == 3
    assert seen[0][0] == supervisor_of(workers[0])
    assert {supervisor_of(worker) for worker in workers} == {seen[0][0]}


def test_without_preload_every_worker_imports_for_itself(module):
    name = module("marker", "import os\nWHO = os.getpid()\n")
    gp.init(workers=2)
    assert gp.run(lambda: __import__(name).WHO) == gp.run(os.getpid)


def test_modules_of_the_driver_that_are_worth_it_are_preloaded():
    assert "numpy" in sys.modules
    gp.init(workers=2)
    assert gp.run(lambda: "numpy" in __import__("sys").modules) == [True, True]
    gp.stop()
    gp.init(workers=2, preload=[])
    assert gp.run(lambda: "numpy" in __import__("sys").modules) == [False, False]


def test_a_module_that_starts_a_thread_makes_workers_fresh_processes(module, capfd):
    name = module(
        "threaded",
        "import os, threading, time\nWHO = os.getpid()\n"
        "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n",
    )
    gp.init(workers=2, preload=[name])
    workers = gp.run(os.getpid)
    for worker in workers:
        assert "grampus._worker" in command_line(worker)
    assert gp.run(lambda: __import__(name).WHO) == workers
    assert gp.run(gp.rank) == [0, 1]
    assert gp.run(os.getcwd) == [str(Path.cwd())] * 2
    assert "threads" in capfd.readouterr().err, "the reason is told"
    # They are owned like any other.
    with pytest.raises(gp.WorkerDied, match="exited with code 4"):
        gp.run(lambda: gp.rank() or os._exit(4))
    after = gp.run(os.getpid)
    assert after[0] != workers[0]
    assert after[1] == workers[1]


def test_fresh_processes_end_with_a_killed_supervisor(module):
    name = module(
        "threaded",
        "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n",
    )
    gp.init(workers=2, preload=[name])
    os.kill(supervisor_of(gp.run(os.getpid)[0]), signal.SIGKILL)
    # The fixture looks whether they are gone.


def test_a_module_whose_thread_has_ended_is_forked(module):
    name = module(
        "brief", "import threading\nthread = threading.Thread(target=print)\nthread.start()\nthread.join()\n"
    )
    gp.init(workers=2, preload=[name])
    assert "grampus._supervisor" in command_line(gp.run(os.getpid)[0])


@pytest.mark.parametrize(
    "text",
    [None, "raise ValueError('not today')\n", "def broken(:\n"],
    ids=["missing", "raises", "no Python"],
)
def test_a_module_that_cannot_be_imported_is_the_functions_business(module, text, capfd):
    name = module("trouble", text) if text else "no_such_module"
    gp.init(workers=2, preload=[name])
    assert gp.run(gp.rank) == [0, 1]
    assert f"{name} could not be preloaded" in capfd.readouterr().err
    with pytest.raises((ModuleNotFoundError, ValueError, SyntaxError)):
        gp.run(lambda: __import__(name))


def test_a_module_that_exits_does_not_take_the_cluster_with_it(module, capfd):
    name = module("quits", "import sys\nsys.exit('I do not like this machine')\n")
    gp.init(workers=2, preload=[name])
    assert gp.run(gp.rank) == [0, 1]
    assert "quits could not be preloaded: I do not like this machine" in capfd.readouterr().err


def test_what_a_module_prints_while_it_is_imported_is_no_output_of_a_worker(module, capfd):
    name = module("chatty", "print('hello from the import')\n")
    gp.init(workers=2, preload=[name])
    gp.run(lambda: print("hello from the worker"))
    gp.stop()
    out = capfd.readouterr().out
    assert out.count("hello from the worker") == 2
    assert "[rank 0] hello from the import" not in out
    assert "[rank 1] hello from the import" not in out


def test_a_module_may_import_its_neighbours_and_use_the_folder(module, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.txt").write_text("some data")
    module("neighbour", "NAME = 'neighbour'\n")
    name = module("reader", "import neighbour\nDATA = open('data.txt').read()\n")
    gp.init(workers=1, preload=[name])
    assert gp.run(lambda: __import__(name).DATA) == ["some data"]


def test_preloaded_workers_draw_different_numbers():
    gp.init(workers=3, preload=["numpy", "random"])

    def draw():
        import random

        return float(np.random.rand()), float(np.random.default_rng().random()), random.random()

    for numbers in zip(*gp.run(draw), strict=True):
        assert len(set(numbers)) == 3


def test_threads_are_the_cores_divided_by_the_workers(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    gp.init(workers=2)
    assert gp.run(lambda: os.environ["OMP_NUM_THREADS"]) == [str(max(1, gp._native.host_cores() // 2))] * 2


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"])
def test_threads_can_be_told(name):
    gp.init(workers=2, threads=3)
    assert gp.run(lambda: os.environ[name]) == ["3", "3"]


def test_the_variable_of_the_driver_is_respected(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    gp.init(workers=2)
    assert gp.run(lambda: os.environ["OMP_NUM_THREADS"]) == ["5", "5"]


def test_the_threads_of_a_preloaded_library_are_set_after_the_fork():
    """numpy's OpenBLAS was loaded with one thread and must use as many as the worker may."""
    gp.init(workers=1, threads=2, preload=["numpy"])

    def threads():
        import ctypes
        import re
        from pathlib import Path

        paths = set(re.findall(r"\s(/\S*openblas\S*)", Path("/proc/self/maps").read_text()))
        for path in paths:
            library = ctypes.CDLL(path)
            for name in (
                "scipy_openblas_get_num_threads64_",
                "openblas_get_num_threads64_",
                "openblas_get_num_threads",
            ):
                if hasattr(library, name):
                    return getattr(library, name)()
        return None

    (found,) = gp.run(threads)
    if found is None:
        pytest.skip("this numpy has no OpenBLAS")
    assert found == 2


def test_the_driver_keeps_its_own_thread_counts():
    before = dict(os.environ)
    gp.run(gp.rank, workers=2)
    assert {name: value for name, value in os.environ.items() if "THREADS" in name} == {
        name: value for name, value in before.items() if "THREADS" in name
    }


def test_the_affinity_of_the_driver_is_respected():
    driver = start(
        """
        import os
        os.environ.pop("OMP_NUM_THREADS", None)
        core = min(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {core})
        import grampus as gp
        cluster = gp.init()
        look = lambda: (os.sched_getaffinity(0) == {core}, os.environ["OMP_NUM_THREADS"])
        print(cluster.workers, gp.run(look))
        """
    )
    code, out, err = finish(driver)
    assert (code, out.strip()) == (0, "1 [(True, '1')]"), err


def test_only_the_supervisor_forks_beside_threads_without_a_warning(module):
    """Python 3.12 warns of it, in the process that forks; here, every version does."""
    name = module(
        "warns_at_forks",
        textwrap.dedent(
            """
            import os, warnings

            fork = os.fork

            def forks_and_warns():
                if pid := fork():
                    text = f"This process (pid={os.getpid()}) is multi-threaded, use of fork() may ..."
                    warnings.warn_explicit(text, DeprecationWarning, "script.py", 1, "__main__")
                return pid

            os.fork = forks_and_warns
            """
        ),
    )
    driver = start(
        """
        import os, sys
        import grampus as gp

        def forks():
            if (pid := os.fork()) == 0:
                os._exit(0)
            else:
                os.waitpid(pid, 0)

        sys.path.insert(0, sys.argv[1])
        gp.init(workers=2, preload=[sys.argv[2]])
        gp.run(gp.rank)
        print("started", file=sys.stderr, flush=True)
        gp.run(forks, workers=1)
        """,
        sys.path[0],
        name,
    )
    code, _, err = finish(driver)
    before, _, after = err.partition("started\n")
    assert (code, "multi-threaded" in before) == (0, False), err
    assert "DeprecationWarning: This process" in after


def test_the_join_string_stands_in_no_argument_and_no_environment(module):
    name = module(
        "threaded",
        "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n",
    )
    for preload in ([], [name]):
        gp.init(workers=2, preload=preload)
        workers = gp.run(os.getpid)
        for pid in {*workers, supervisor_of(workers[0])}:
            for file in ("cmdline", "environ"):
                with open(f"/proc/{pid}/{file}", "rb") as content:
                    assert b"grampus1/" not in content.read()
        assert not any(
            "grampus1/" in value for here in gp.run(lambda: list(os.environ.values())) for value in here
        )
        gp.stop()


def links(process="self"):
    """What the descriptors of a process lead to."""
    found = set()
    for entry in Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(OSError):  # the one that reads the folder
            found.add(str(entry.readlink()))
    return found


def test_workers_hold_no_descriptor_of_the_supervisor_or_of_each_other():
    # What was open and inheritable before is nobody's fault.
    before = links()
    gp.init(workers=3)
    workers = gp.run(os.getpid)
    pipes = [{link for link in links(pid) - before if link.startswith("pipe:")} for pid in workers]
    for one, other in itertools.combinations(pipes, 2):
        assert not one & other
    for mine in pipes:
        assert len(mine) == 3, "output, errors and notices"


def test_workers_share_what_was_preloaded_with_their_parent():
    """One import of a large module costs its memory once."""
    gp.init(workers=2, preload=["numpy"])
    worker = psutil.Process(gp.run(os.getpid)[0])
    memory = worker.memory_full_info()
    assert memory.uss < memory.rss / 2


def test_a_start_that_takes_too_long_is_given_up(module):
    name = module("sleepy", "import time\ntime.sleep(600)\n")
    began = time.monotonic()
    with pytest.raises(gp.ClusterError, match="start_timeout"):
        gp.init(workers=2, preload=[name], start_timeout=1)
    assert time.monotonic() - began < 5
