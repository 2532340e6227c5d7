"""What a terminal shows for an error: the user's frames, a line that says where, and nothing twice."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from processes import finish, start

import grampus as gp

PACKAGE = str(Path(gp.__file__).parent)
HOST = os.uname().nodename
# A fit imports torch in two processes, on a machine that may be busy.
LONG = 150.0


def run_script(tmp_path, text, *arguments, **environment):
    """Run a script as a user would; return what it writes to the terminal for its error."""
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(text).lstrip())
    driver = subprocess.Popen(
        [sys.executable, str(path), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"), **environment},
    )
    code, _, err = finish(driver, LONG)
    assert code == 1, err
    # Where the machine is busy.
    return re.sub(r"\Astarting \d workers? …\n", "", err)


def places(shown):
    """File, line and function of each frame, the folder left out."""
    return [
        f"{Path(path).name}:{line} {name}"
        for path, line, name in re.findall(r'File "(.*?)", line (\d+), in (.*)', shown)
    ]


def assert_no_frame_of_ours(shown):
    assert PACKAGE not in shown, shown


RUN = """
    import grampus as gp

    def inner(x):
        return 1 / x

    def work():
        if gp.rank() == 1:
            inner(0)

    gp.run(work, workers=2)
"""


def test_a_function_that_raises(tmp_path):
    shown = run_script(tmp_path, RUN)
    assert_no_frame_of_ours(shown)
    assert places(shown) == ["script.py:8 work", "script.py:4 inner", "script.py:10 <module>"]
    head = rf"grampus\.errors\.WorkerTraceback: rank 1 on {HOST} \(pid \d+\).*\n"
    assert re.match(head, shown), shown
    assert shown.count("ZeroDivisionError: division by zero") == 1
    assert shown.endswith("ZeroDivisionError: division by zero\n")
    assert len(shown.splitlines()) <= 16


def test_a_program_on_the_command_line():
    code, _, shown = finish(start(RUN))
    assert code == 1
    assert_no_frame_of_ours(shown)
    assert places(shown) == ["<string>:9 work", "<string>:5 inner", "<string>:11 <module>"]


def test_all_frames_where_they_are_asked_for(tmp_path):
    shown = run_script(tmp_path, RUN, GRAMPUS_TRACEBACK="full")
    worker, driver = shown.split("The above exception was the direct cause")
    for part, name in ((worker, "_worker.py"), (driver, "cluster.py")):
        assert str(Path(PACKAGE, name)) in part, shown


def test_the_log_has_all_frames(tmp_path):
    text = RUN.replace("def inner", "gp.init(workers=2, log_dir='logs')\n\n    def inner", 1)
    assert_no_frame_of_ours(run_script(tmp_path, text))
    log = (tmp_path / "logs" / "rank-1.log").read_text()
    assert str(Path(PACKAGE, "_worker.py")) in log
    assert log.endswith("ZeroDivisionError: division by zero\n")
    # It was written once, for the rank that raised.
    assert log.count("Traceback (most recent call last)") == 1
    assert (tmp_path / "logs" / "rank-0.log").read_text() == ""


def test_exceptions_that_led_to_another(tmp_path):
    shown = run_script(
        tmp_path,
        """
        import grampus as gp

        def inner():
            return {}["missing"]

        def work():
            try:
                inner()
            except KeyError as error:
                raise ValueError("no such name") from error

        gp.run(work, workers=1)
        """,
    )
    assert_no_frame_of_ours(shown)
    expected = ["script.py:8 work", "script.py:4 inner", "script.py:10 work", "script.py:12 <module>"]
    assert places(shown) == expected
    assert shown.count("KeyError: 'missing'") == shown.count("ValueError: no such name") == 1


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no groups")
def test_a_group_of_exceptions(tmp_path):
    shown = run_script(
        tmp_path,
        """
        import grampus as gp

        def fail(text):
            raise ValueError(text)

        def work():
            found = []
            for text in ("one", "two"):
                try:
                    fail(text)
                except ValueError as error:
                    found.append(error)
            raise ExceptionGroup("both", found)

        gp.run(work, workers=1)
        """,
    )
    assert_no_frame_of_ours(shown)
    assert places(shown).count("script.py:4 fail") == 2
    assert places(shown).count("script.py:13 work") == 1
    for text in ("ValueError: one", "ValueError: two", "ExceptionGroup: both (2 sub-exceptions)"):
        assert shown.count(text) == 1, shown


def test_an_exception_whose_class_cannot_travel(tmp_path):
    shown = run_script(
        tmp_path,
        """
        import grampus as gp

        def work():
            from threading import Lock

            class Odd(Exception):
                lock = Lock()

            raise Odd("the message")

        gp.run(work, workers=1)
        """,
    )
    assert_no_frame_of_ours(shown)
    assert places(shown) == ["script.py:9 work", "script.py:11 <module>"]
    assert shown.count("the message") == 2  # once in the source


FIT = """
    import sys
    import traceback
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, Dataset
    import grampus as gp

    case = ""

    def fail_in(place):
        if case == place:
            raise ArithmeticError("as asked")

    class Net(nn.Linear):
        def forward(self, x):
            fail_in("model")
            return super().forward(x)

    class Rows(Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, row):
            fail_in("dataset")
            return torch.zeros(3 if case == "shape" else 1), torch.zeros(1)

    class Watch(gp.callbacks.Callback):
        def on_step_end(self, run):
            fail_in("callback")

    def loss(output, target):
        fail_in("loss")
        return (output - target).square().mean()

    def make(config):
        fail_in("creator")
        return Net(1, 1)

    def optimizer(model, config):
        fail_in("optimizer")
        return torch.optim.SGD(model.parameters(), lr=0.1)

    def fit(rows, **settings):
        est = gp.Estimator.from_torch(model=make, optimizer=optimizer, loss=loss, workers=2, model_dir="run")
        est.fit(rows, **{"batch_size": 4, "callbacks": [Watch()], **settings})

    gp.init(workers=2)
    calls = {
        "argument": lambda: fit(Rows(), epochs="two"),
        "misspelt": lambda: fit(Rows(), epoks=2),
        "loader": lambda: fit(DataLoader(Rows(), batch_size=4, num_workers=1)),
    }
    cases = ["model", "dataset", "callback", "loss", "creator", "optimizer", "shape"]
    for name in [*cases, *calls]:
        case = "dataset" if name == "loader" else name
        print(f"== {name}", file=sys.stderr)
        try:
            calls.get(name, lambda: fit(Rows()))()
        except Exception:
            # What the interpreter prints for an exception that nothing catches.
            traceback.print_exc()
    sys.exit(1)
"""


@pytest.mark.timeout(200)
def test_code_of_the_user_that_fails_in_a_fit(tmp_path):
    """One script for all: each start of PyTorch takes seconds."""
    parts = re.split(r"^== (.*)\n", run_script(tmp_path, FIT), flags=re.MULTILINE)
    shown = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert len(shown) == 10
    for text in shown.values():
        assert_no_frame_of_ours(text)
    for name in ("model", "dataset", "callback", "loss", "creator", "optimizer"):
        assert_users_frames_alone(shown[name])
    assert_where_a_layer_failed(shown["shape"])
    for name in ("argument", "misspelt"):
        assert {place.split(":")[0] for place in places(shown[name])} == {"script.py"}
        assert places(shown[name])[-1].endswith(" fit")
    assert_once_from_a_process_of_a_loader(shown["loader"])
    assert str(Path(PACKAGE, "_worker.py")) in (tmp_path / "run" / "error.txt").read_text()


def assert_users_frames_alone(shown):
    assert {place.split(":")[0] for place in places(shown)} == {"script.py"}, shown
    assert places(shown)[-1].endswith(" fit")
    assert "in fail_in\n" in shown
    assert shown.count("ArithmeticError: as asked") == 1
    assert re.search(rf"WorkerTraceback: rank \d on {HOST} \(pid \d+\)", shown)
    # Python's own lines: two headings, the sentence between them, and two or three lines a frame.
    assert len(shown.splitlines()) <= 25, shown


def assert_where_a_layer_failed(shown):
    """The frame of torch that raises is shown, since it says which layer; those on the way to it are not."""
    found = [place.split(":")[0] for place in places(shown)]
    assert [name for name in found if name != "script.py"] == ["linear.py"], shown
    assert shown.count("mat1 and mat2 shapes cannot be multiplied") == 1
    assert re.search(r"grampus: in lane \d, a batch of 2 rows .* at step 1 of the run\n", shown), shown


def assert_once_from_a_process_of_a_loader(shown):
    """PyTorch writes its traceback into the message."""
    assert "_worker_loop" not in shown
    assert shown.count("in fail_in\n") == shown.count("ArithmeticError: as asked") == 1
    assert "ArithmeticError: Caught ArithmeticError in DataLoader worker process 0.\n" in shown


@pytest.mark.timeout(120)
def test_functions_of_shards(tmp_path):
    shown = run_script(
        tmp_path,
        """
        import numpy as np
        import grampus as gp

        def pick(part):
            return part["y"]

        gp.init(workers=1)
        found = gp.Shards.partition({"x": np.arange(6)}, 3).transform_shard(pick)
        for part in found:
            print(part)
        """,
    )
    assert_no_frame_of_ours(shown)
    assert places(shown) == ["script.py:5 pick", "script.py:9 <module>"]
    assert shown.count("KeyError: 'y'\ngrampus: in shard 0 of 3\n") == 1


def test_a_file_that_is_not_there(tmp_path):
    shown = run_script(tmp_path, "import grampus as gp\ngp.read_csv('no/such.csv').collect()\n")
    assert_no_frame_of_ours(shown)
    assert places(shown) == ["script.py:2 <module>"]


def test_what_cannot_be_sent_names_no_frame_of_a_pickler(tmp_path):
    shown = run_script(
        tmp_path,
        """
        import threading
        import grampus as gp

        lock = threading.Lock()
        gp.run(lambda: lock, workers=1)
        """,
    )
    assert_no_frame_of_ours(shown)
    assert places(shown) == ["script.py:5 <module>"]


def test_a_fault_of_grampus_keeps_its_frames(monkeypatch):
    """Without them nobody could report it."""
    from grampus import cluster

    monkeypatch.setattr(cluster, "packed", None)
    gp.init(workers=1)
    with pytest.raises(TypeError, match="'NoneType' object is not callable") as caught:
        gp.run(len, [])
    assert any("cluster.py" in str(entry.path) for entry in caught.traceback)


def test_an_exception_inside_grampus_calls_is_not_cut_off_for_the_caller():
    """The user's frames around a call stay, whatever they are called through."""
    gp.init(workers=1)

    def call(function):
        return gp.run(function)

    with pytest.raises(ZeroDivisionError) as caught:
        call(lambda: 1 / 0)
    assert [entry.name for entry in caught.traceback][-1] == "call"


def test_output_of_a_rank_that_died_is_shown_once(tmp_path):
    shown = run_script(
        tmp_path,
        """
        import os, sys
        import grampus as gp

        def work():
            print("last words", file=sys.stderr, flush=True)
            os._exit(3)

        try:
            gp.run(work, workers=1)
        except gp.WorkerDied as error:
            assert error.output.strip() == "last words", error.output
            raise
        """,
    )
    assert shown.count("last words\n") == 1, shown
    assert "exited with code 3" in shown
    assert_no_frame_of_ours(shown)


def test_a_script_under_grampus_run_is_shown_once(tmp_path):
    path = tmp_path / "script.py"
    path.write_text("import os\nif os.environ['RANK'] == '1':\n    raise ValueError('as asked')\n")
    command = [sys.executable, "-m", "grampus", "run", "-n", "2", str(path)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=LONG, cwd=tmp_path)
    assert found.returncode == 1
    shown = found.stdout + found.stderr
    assert shown.count("ValueError: as asked") == 1, shown
    assert re.search(r"grampus: rank 1 on \S+ \(pid \d+\) exited with code 1\n$", found.stderr), shown


def test_output_that_the_console_does_not_show_is_in_the_error(tmp_path):
    path = tmp_path / "script.py"
    path.write_text("raise ValueError('as asked')\n")
    flags = ["--log-dir", str(tmp_path / "logs"), "--redirects", "3"]
    command = [sys.executable, "-m", "grampus", "run", "-n", "1", *flags, str(path)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=LONG, cwd=tmp_path)
    assert (found.stdout + found.stderr).count("ValueError: as asked") == 1
