"""Models in tasks of engines: what a task that is cancelled leaves behind."""

import subprocess
import sys

import numpy as np
import torch

from grampus._training import answering
from grampus._training.job import Spec
from grampus.shards.batches import wanted

# In a process that has not imported torch: the first task is cancelled while it does, as Ray cancels tasks.
TASKS = """
import _thread
import importlib.abc
import sys

import numpy as np
import pyarrow as pa

from grampus import _native
from grampus._training.answering import answering


class Cancels(importlib.abc.MetaPathFinder):
    cancelled = 0

    def find_spec(self, name, path=None, target=None):
        if name == "torch.nn" and not self.cancelled:
            self.cancelled += 1
            _thread.interrupt_main()


cancels = Cancels()
sys.meta_path.insert(0, cancels)
body = open(sys.argv[1], "rb").read()
try:
    answering("model", lambda: body)
except KeyboardInterrupt:
    print("the first task was cancelled")
rows = pa.table({"a": np.arange(3, dtype="f4"), "b": np.ones(3, "f4")})
answers = answering("model", lambda: body).answers(_native.Table.from_stream(rows))
print(cancels.cancelled, answers["prediction"].ravel().tolist())
"""


def test_a_task_that_is_cancelled_while_it_imports_leaves_the_others_alone(tmp_path):
    model = torch.nn.Linear(2, 1, bias=False)
    torch.nn.init.constant_(model.weight, 2.0)
    snapshot = answering.Model(Spec("torch", model), None, 0).snapshot(wanted([["a", "b"]], None))
    (tmp_path / "body").write_bytes(snapshot.body)
    (tmp_path / "tasks.py").write_text(TASKS)
    command = [sys.executable, tmp_path / "tasks.py", tmp_path / "body"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    told, answers = ran.stdout.splitlines()
    assert told == "the first task was cancelled"
    assert answers == f"1 {(2 * np.arange(3.0) + 2).tolist()}"
