"""The same calls in a Jupyter kernel."""

import signal
import sys
import time

import pytest
from processes import marked, wait_until

# There the kernel now and then misses a message, with all its threads idle and no frame of ours on any stack.
if sys.version_info < (3, 11):
    pytest.skip("ipykernel loses messages on Python 3.10", allow_module_level=True)

nbformat = pytest.importorskip("nbformat")
client = pytest.importorskip("jupyter_client")

# Interrupt to the end of the cell; two more chances for a machine that is busy with other things.
WITHIN = 1.5


@pytest.fixture(scope="module", autouse=True)
def event_loop():
    """The client makes one for the whole process: here, so that it is not taken for something left behind."""
    from jupyter_core.utils import ensure_event_loop

    return ensure_event_loop()


@pytest.fixture
def kernel(runtime, monkeypatch):
    """A kernel of this interpreter, and a function that runs a cell in it."""
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(runtime / "tmp"))
    monkeypatch.setenv("IPYTHONDIR", str(runtime / "tmp"))
    manager, talker = client.manager.start_new_kernel(kernel_name="python3", startup_timeout=50)
    try:
        yield Kernel(manager, talker)
    finally:
        talker.stop_channels()
        manager.shutdown_kernel(now=False)
        manager.cleanup_resources()
        for entry in sorted((runtime / "tmp").rglob("*"), reverse=True):
            entry.rmdir() if entry.is_dir() else entry.unlink()


class Kernel:
    def __init__(self, manager, talker):
        self.manager = manager
        self.talker = talker

    def begin(self, code):
        return self.talker.execute(code)

    def end(self, cell):
        """Output of a cell by stream, the value of its last line, its displays, and the name of its error."""
        found = {"stdout": "", "stderr": "", "value": None, "error": None, "shown": []}
        while True:
            message = self.talker.get_iopub_msg(timeout=30)
            if message["parent_header"].get("msg_id") != cell:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "stream":
                found[content["name"]] += content["text"]
            elif kind == "execute_result":
                found["value"] = content["data"]["text/plain"]
            elif kind in ("display_data", "update_display_data"):
                found["shown"].append((kind, content["transient"]["display_id"], content["data"]))
            elif kind == "error":
                found["error"] = content["ename"]
                found["traceback"] = "\n".join(content["traceback"])
            elif kind == "status" and content["execution_state"] == "idle":
                return found

    def run(self, code):
        return self.end(self.begin(code))


def test_a_notebook_from_init_to_stop(kernel):
    assert kernel.run("import os, time\nimport grampus as gp")["error"] is None
    assert "2 workers" in kernel.run("gp.init(workers=2)")["value"]
    kernel.run("OFFSET = 10\ndef work(x):\n    print('working on', x)\n    return x + OFFSET + gp.rank()")

    cell = kernel.run("gp.run(work, 1)")
    assert cell["value"] == "[11, 12]"
    assert sorted(cell["stdout"].splitlines()) == ["[rank 0] working on 1", "[rank 1] working on 1"]

    # A function that is defined again is the new one.
    kernel.run("def work(x):\n    return -x")
    assert kernel.run("gp.run(work, 1)")["value"] == "[-1, -1]"

    cell = kernel.run("gp.run(lambda: 1 / (gp.rank() - 1))")
    assert cell["error"] == "ZeroDivisionError"
    assert "rank 1 on" in cell["traceback"]
    # The cell that called, and the lambda in it on the worker: no frame of ours, and the error once.
    assert "/grampus/" not in cell["traceback"]
    assert cell["traceback"].count("division by zero") == 1

    assert kernel.run("gp.stop()")["error"] is None
    assert kernel.run("gp.run(work, 1)")["error"] == "ClusterError"


def test_an_interrupted_cell_ends_and_the_next_one_works(kernel):
    kernel.run("import os, time\nimport grampus as gp\ngp.init(workers=2)\nbefore = gp.run(os.getpid)")
    for _ in range(3):
        cell = kernel.begin("gp.run(time.sleep, 600)")
        time.sleep(0.5)
        began = time.monotonic()
        kernel.manager.interrupt_kernel()
        assert kernel.end(cell)["error"] == "KeyboardInterrupt"
        seconds = time.monotonic() - began
        if seconds < WITHIN:
            break
    assert seconds < WITHIN
    assert kernel.run("gp.run(os.getpid) == before")["value"] == "True"


def test_output_of_a_cell_that_has_ended_is_not_lost(kernel):
    kernel.run("import time\nimport grampus as gp\ngp.init(workers=1)")
    kernel.run(
        "def later():\n"
        "    import threading\n"
        "    threading.Timer(0.3, lambda: print('late words', flush=True)).start()\n"
        "gp.run(later)"
    )
    time.sleep(1)
    assert "[rank 0] late words" in kernel.run("gp.run(gp.rank)")["stdout"]


def test_progress_is_one_display_that_changes_in_place(kernel):
    kernel.run("from grampus.callbacks import Progress\nmoments = iter(range(100))")
    cell = kernel.run(
        "progress = Progress(clock=lambda: next(moments))\n"
        "progress.event({'kind': 'begin', 'epochs': 1, 'steps': 4})\n"
        "for step in (1, 2):\n"
        "    steps = [[step, 0.5, 0.1]]\n"
        "    progress.event({'kind': 'steps', 'epoch': 0, 'step': step, 'steps': steps, 'seconds': 1.0})\n"
        "progress.event({'kind': 'epoch', 'epoch': 0, 'record': {'epoch': 1, 'loss': 0.25, '<b>': 1.0}})\n"
        "progress.event({'kind': 'end', 'reason': '1 epoch done', 'step': 4})\n"
        "progress.close()"
    )
    assert cell["error"] is None
    assert [kind for kind, _, _ in cell["shown"]] == ["display_data"] + 4 * ["update_display_data"]
    assert len({name for _, name, _ in cell["shown"]}) == 1
    pages = [data["text/html"] for _, _, data in cell["shown"]]
    assert '<progress max="1" value="0.500">' in pages[2]
    assert "<td>0.2500</td>" in pages[4]
    assert "&lt;b&gt;" in pages[4]
    assert "<progress" not in pages[4]
    assert "Training ended after 0:04: 1 epoch done" in cell["shown"][4][2]["text/plain"]
    assert cell["stdout"] == cell["stderr"] == ""


def test_a_killed_kernel_leaves_nothing(kernel, runtime):
    """As one that took too much memory, or that was restarted by force."""
    kernel.run("import grampus as gp\ngp.init(workers=2)")
    kernel.manager.signal_kernel(signal.SIGKILL)
    assert wait_until(lambda: not marked(str(runtime)), 3)
