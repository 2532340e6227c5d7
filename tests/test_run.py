"""`gp.run`: who runs, where, with what, and what comes back."""

import os
import sys
import threading
import time
from pathlib import Path

import pytest
from processes import finish, run_file, start

import grampus as gp


def pids(cluster=gp):
    return cluster.run(os.getpid)


def test_results_come_in_order_of_rank():
    gp.init(workers=3)

    def late_first():
        time.sleep(0.2 * (gp.world_size() - gp.rank()))
        return gp.rank()

    assert gp.run(late_first) == [0, 1, 2]


def test_a_lambda_a_closure_and_a_built_in_function_run():
    gp.init(workers=2)
    base = 40
    assert gp.run(lambda: base + gp.rank()) == [40, 41]
    assert gp.run(len, "four") == [4, 4]

    def outer():
        def inner(x):
            return x * base

        return inner

    assert gp.run(outer(), 2) == [80, 80]


def test_arguments_by_place_and_by_name():
    gp.init(workers=2)
    assert (
        gp.run(lambda *args, **kwargs: (args, kwargs), 1, "two", three=3) == [((1, "two"), {"three": 3})] * 2
    )


def test_a_method_and_a_callable_object_run():
    gp.init(workers=2)

    class Scale:
        def __init__(self, factor):
            self.factor = factor

        def __call__(self, x):
            return self.factor * x

        def twice(self, x):
            return self(self(x))

    assert gp.run(Scale(3), 2) == [6, 6]
    assert gp.run(Scale(3).twice, 2) == [18, 18]


def test_every_worker_has_its_own_process_and_none_is_the_driver():
    gp.init(workers=3)
    assert len({*pids(), os.getpid()}) == 4


def test_workers_are_warm_and_keep_what_was_set():
    gp.init(workers=2)
    first = pids()

    def remember(value):
        import builtins

        builtins.kept_by_test = value

    gp.run(remember, "before")
    assert pids() == first
    assert gp.run(lambda: __import__("builtins").kept_by_test) == ["before", "before"]


def test_fewer_workers_than_the_cluster_has():
    gp.init(workers=3)
    everybody = pids()
    assert gp.run(lambda: (gp.rank(), gp.world_size(), os.getpid()), workers=2) == [
        (0, 2, everybody[0]),
        (1, 2, everybody[1]),
    ]
    assert gp.run(gp.world_size) == [3, 3, 3]


def test_more_workers_than_the_cluster_has():
    gp.init(workers=2)
    with pytest.raises(
        gp.ClusterError, match=r"3 workers were asked for, the cluster has 2: call `resize\(3\)`"
    ):
        gp.run(os.getpid, workers=3)
    assert len(pids()) == 2


def test_ranks_of_workers_and_of_the_driver():
    gp.init(workers=2)
    place = lambda: (gp.rank(), gp.world_size(), gp.local_rank(), gp.local_world_size())  # noqa: E731
    assert gp.run(place) == [(0, 2, 0, 2), (1, 2, 1, 2)]
    assert place() == (0, 1, 0, 1)


def test_run_starts_a_cluster_by_itself():
    assert gp.run(gp.rank, workers=2) == [0, 1]
    assert gp.run(gp.rank) == [0, 1]


def test_by_default_there_is_a_worker_for_each_core():
    cluster = gp.init()
    assert cluster.workers <= len(os.sched_getaffinity(0))
    assert len(pids()) == cluster.workers


def test_a_cluster_is_a_context_manager():
    with gp.Cluster.local(2) as cluster:
        assert cluster.run(gp.rank) == [0, 1]
        assert "2 workers" in repr(cluster)
    with pytest.raises(gp.ClusterError, match="stopped"):
        cluster.run(gp.rank)
    assert "stopped" in repr(cluster)


def test_two_clusters_side_by_side():
    with gp.Cluster.local(2) as one, gp.Cluster.local(1) as other:
        assert not set(pids(one)) & set(pids(other))
        assert (one.run(gp.world_size), other.run(gp.world_size)) == ([2, 2], [1])


def test_a_cluster_made_by_hand_serves_run():
    with gp.Cluster.local(2) as cluster:
        assert gp.init(cluster=cluster) is cluster
        assert pids() == pids(cluster)
        gp.stop()


def test_two_threads_of_the_driver_run_at_the_same_time():
    gp.init(workers=2)
    results, errors = {}, []

    def many(name):
        try:
            results[name] = [gp.run(lambda x: (name, x, gp.rank()), number) for number in range(50)]
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=many, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    for name in "ab":
        assert results[name] == [[(name, number, 0), (name, number, 1)] for number in range(50)]


def test_a_cluster_started_in_a_thread_that_has_ended_goes_on():
    thread = threading.Thread(target=lambda: gp.init(workers=2))
    thread.start()
    thread.join()
    time.sleep(0.5)
    assert gp.run(gp.rank) == [0, 1]


def test_workers_work_in_the_folder_of_the_driver(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    gp.init(workers=2)
    assert gp.run(os.getcwd) == [str(tmp_path)] * 2


def test_workers_have_the_environment_of_the_driver(monkeypatch):
    monkeypatch.setenv("GREETING", "hello")
    gp.init(workers=2)
    assert gp.run(lambda: os.environ["GREETING"]) == ["hello", "hello"]


def test_workers_have_an_empty_standard_input():
    gp.init(workers=2)
    assert gp.run(lambda: sys.stdin.read()) == ["", ""]


def test_a_worker_may_start_processes_and_threads():
    gp.init(workers=2)

    def busy():
        import multiprocessing
        import subprocess
        from concurrent.futures import ThreadPoolExecutor

        word = subprocess.run(["echo", "hello"], capture_output=True, text=True, check=True).stdout.strip()
        with ThreadPoolExecutor(2) as pool:
            squares = list(pool.map(lambda x: x * x, range(3)))
        with multiprocessing.get_context("fork").Pool(2) as pool:
            lengths = pool.map(len, ["a", "bb"])
        return word, squares, lengths

    assert gp.run(busy) == [("hello", [0, 1, 4], [1, 2])] * 2


def test_output_is_shown_behind_its_rank():
    driver = start(
        """
        import sys
        import grampus as gp

        def speak():
            print("good day")
            print("oh dear", file=sys.stderr)

        gp.init(workers=2)
        gp.run(speak)
        gp.stop()
        """
    )
    code, out, err = finish(driver)
    assert code == 0, err
    assert sorted(out.splitlines()) == ["[rank 0] good day", "[rank 1] good day"]
    assert sorted(err.splitlines()) == ["[rank 0] oh dear", "[rank 1] oh dear"]


def test_output_without_a_newline_and_of_any_bytes_is_shown():
    driver = start(
        r"""
        import os
        import grampus as gp

        gp.init(workers=1)
        gp.run(lambda: os.write(1, b"\xff\xfe no text\nthe end"))
        gp.stop()
        """
    )
    code, out, err = finish(driver)
    assert code == 0, err
    first, last = out.splitlines()
    assert first.startswith("[rank 0] ")
    assert first.endswith(" no text")
    assert last == "[rank 0] the end"


def test_output_of_c_code_and_of_child_processes_is_shown():
    driver = start(
        """
        import ctypes, subprocess
        import grampus as gp

        def speak():
            subprocess.run(["echo", "from a child"], check=True)
            ctypes.CDLL(None).puts(b"from C")

        gp.init(workers=1)
        gp.run(speak)
        gp.stop()
        """
    )
    code, out, err = finish(driver)
    assert code == 0, err
    assert out.splitlines() == ["[rank 0] from a child", "[rank 0] from C"]


def test_much_output_arrives_whole():
    driver = start(
        """
        import grampus as gp

        def speak():
            for number in range(5000):
                print(f"{number} " + "x" * 100)

        gp.init(workers=2)
        gp.run(speak)
        gp.stop()
        """
    )
    code, out, err = finish(driver)
    assert code == 0, err
    lines = out.splitlines()
    for rank in range(2):
        mine = [line for line in lines if line.startswith(f"[rank {rank}] ")]
        assert [int(line.split()[2]) for line in mine] == list(range(5000))


def test_a_script_needs_no_guard(tmp_path):
    script = """
        import os
        import grampus as gp

        print("the script starts")

        OFFSET = 10

        def add(x):
            return helper(x) + gp.rank()

        def helper(x):
            return x + OFFSET

        gp.init(workers=2)
        print(gp.run(add, 1))
        print(gp.run(lambda: add(2)))
    """
    assert run_file(tmp_path / "job.py", script).splitlines() == [
        "the script starts",
        "[11, 12]",
        "[12, 13]",
    ]


def test_a_class_of_the_script_comes_back_as_the_same_class(tmp_path):
    script = """
        import dataclasses, enum
        import grampus as gp

        class Colour(enum.Enum):
            RED = 1

        @dataclasses.dataclass
        class Point:
            x: int
            colour: Colour

            def moved(self, by):
                return Point(self.x + by, self.colour)

        gp.init(workers=2)
        for result in gp.run(lambda point: point.moved(gp.rank()), Point(5, Colour.RED)):
            assert type(result) is Point and result.colour is Colour.RED, result
            print(result.x)
        made = gp.run(lambda: Point(7, Colour.RED))
        assert all(isinstance(point, Point) for point in made)
        assert made == [Point(7, Colour.RED)] * 2
    """
    assert run_file(tmp_path / "job.py", script).split() == ["5", "6"]


def test_a_neighbour_of_the_script_is_found_by_workers(tmp_path):
    (tmp_path / "neighbour.py").write_text("def double(x):\n    return 2 * x\n")
    script = """
        import grampus as gp
        import neighbour

        gp.init(workers=2)
        print(gp.run(neighbour.double, 21))
    """
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert run_file(tmp_path / "job.py", script, cwd=elsewhere).split("\n")[0] == "[42, 42]"


def test_a_module_on_a_relative_search_path_is_found_by_workers(tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "beside.py").write_text("NAME = 'beside'\n")
    script = """
        import sys
        sys.path.append("lib")
        import grampus as gp

        def name():
            import beside
            return beside.NAME

        gp.init(workers=2)
        print(gp.run(name))
    """
    assert run_file(tmp_path / "job.py", script, cwd=tmp_path).strip() == "['beside', 'beside']"


def test_a_script_on_standard_input_works():
    import subprocess

    script = "import grampus as gp\ndef f():\n    return gp.rank()\nprint(gp.run(f, workers=2))\n"
    result = subprocess.run(
        [sys.executable, "-"], input=script, capture_output=True, text=True, timeout=30, check=False
    )
    assert (result.returncode, result.stdout.strip()) == (0, "[0, 1]"), result.stderr


def test_a_driver_without_standard_streams_works(tmp_path):
    answer = tmp_path / "answer"
    driver = start(
        """
        import os, sys
        import grampus as gp
        for number in range(3):
            os.close(number)
        result = gp.run(gp.rank, workers=2)
        gp.stop()
        with open(sys.argv[1], "w") as file:
            file.write(repr(result))
        """,
        answer,
    )
    driver.communicate(timeout=20)
    assert Path(answer).read_text() == "[0, 1]"
