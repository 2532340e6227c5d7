"""The folder of a run is one driver's at a time."""

import os
import socket
import threading

import pytest
from clusters import TORCH
from processes import end, read_line, start
from small_models import classifier, rows

import grampus as gp
from grampus._training.claim import claimed, shared

HOLDS = """
    import sys, time
    from grampus._training.claim import claimed, shared

    with {"claimed": lambda: claimed([sys.argv[2]]), "shared": lambda: shared(sys.argv[2])}[sys.argv[1]]():
        print("holds", flush=True)
        time.sleep(60)
"""


@pytest.fixture
def hold(tmp_path):
    """Let another process claim the folder."""
    begun = []

    def begin(how):
        begun.append(start(HOLDS, how, tmp_path / "run"))
        assert read_line(begun[-1]) == "holds"
        return begun[-1]

    yield begin
    for process in begun:
        process.kill()
        process.communicate()


def test_a_second_driver_is_told_of_the_first_and_a_killed_one_holds_nothing(tmp_path, hold):
    first = hold("claimed")
    words = (
        f"run is in use by another driver, process {first.pid} on {socket.gethostname()}: wait for its end"
    )
    with pytest.raises(gp.errors.RunInUse, match=words), claimed([tmp_path / "run"]):
        pass
    end(first.pid)
    first.wait()
    assert (tmp_path / "run" / ".grampus.lock").exists()
    with claimed([str(tmp_path / "run"), tmp_path / "run", None, "s3://bucket/run"]):
        assert str(os.getpid()) in (tmp_path / "run" / ".grampus.lock").read_text()


def test_workers_of_a_killed_driver_are_waited_for(tmp_path, hold):
    first, worker = hold("claimed"), hold("shared")
    end(first.pid)
    first.wait()
    timer = threading.Timer(0.3, worker.kill)
    timer.start()
    with claimed([tmp_path / "run"]):
        assert worker.wait(5) != 0
    timer.join()


def test_a_claim_leaves_nothing_behind(tmp_path):
    with claimed([tmp_path / "a" / "b"]), shared(str(tmp_path / "a" / "b")), shared(None):
        assert (tmp_path / "a" / "b").exists()
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    # Whoever writes there names the mistake.
    with claimed([tmp_path / "file" / "inside"]):
        pass


class Second(gp.callbacks.Logger):
    """Starts another run in the folder of this one."""

    def __init__(self, **settings):
        self.settings, self.said = settings, None

    def event(self, event):
        if event["kind"] == "begin":
            with pytest.raises(gp.errors.RunInUse) as caught:
                fitted(**self.settings)
            self.said = str(caught.value)


def fitted(model_dir, checkpoint, callbacks=()):
    classifier(model_dir=model_dir, workers=1).fit(rows(), checkpoint=checkpoint, callbacks=list(callbacks))


def test_two_runs_in_one_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    gp.init(workers=1, preload=TORCH)
    for model_dir, checkpoint in (("run", None), (None, "other")):
        second = Second(model_dir=model_dir, checkpoint=checkpoint)
        fitted(model_dir, checkpoint, [second])
        assert f"process {os.getpid()} on" in second.said
