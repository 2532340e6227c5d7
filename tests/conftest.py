"""Every test proves that it left nothing behind."""

from __future__ import annotations

import os
import signal
from pathlib import PurePath

import pytest
from leftovers import leaving_nothing
from xdist.scheduler import LoadScopeScheduling

# Trackers tell their makers of every use, and read this when they are imported: from tests nobody is called.
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
os.environ["WANDB_ERROR_REPORTING"] = "false"
# Some virtual machines report AMX and do not allow it: products in bf16 then end a process with SIGILL.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
# A background job of a shell without job control ignores Ctrl-C, and Python leaves it so. Tests press it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def runtime(monkeypatch):
    """A private runtime folder, whose name marks every process of the test; empty at the end."""
    with leaving_nothing(monkeypatch) as folder:
        yield folder


class OneProcessForEach(LoadScopeScheduling):
    """Where several processes run the tests, one runs those of a file, and one those that share an engine."""

    def _split_scope(self, nodeid):
        path = PurePath(nodeid.split("::")[0])
        engine = any(folder.startswith("on_") for folder in path.parts)
        return str(path.parent if engine else path)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """In the order of the folders and files: engines take longest, and are first."""
    config.option.loadscopereorder = False
    return OneProcessForEach(config, log)
