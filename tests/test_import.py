"""`import grampus` is light, and the examples in its documentation are true."""

import doctest
import importlib
import subprocess
import sys

import pytest

HEAVY = [
    "torch",
    "tensorflow",
    "numpy",
    "pandas",
    "pyarrow",
    "pyspark",
    "ray",
    "cloudpickle",
    "asyncio",
    "ctypes",
]
MODULES = [
    "grampus",
    "grampus._console",
    "grampus._exception",
    "grampus._explain",
    "grampus.cluster",
    "grampus.columns",
    "grampus.context",
    "grampus.frameworks._torch_formats",
    "grampus.metrics",
    "grampus.models",
    "grampus.nn",
    "grampus.nn.layers",
    "grampus.optim",
    "grampus.session",
    "grampus.shards",
    "grampus.shards.batches",
    "grampus.shards.collection",
    "grampus.shards.keys",
    "grampus.shards.labels",
    "grampus.shards.rows",
    "grampus.shards.segments",
    "grampus.shards.shared_value",
]


def fresh(code):
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


def test_import_loads_no_framework():
    loaded = fresh("import sys, grampus; print(*sys.modules)")
    assert "grampus" in loaded
    assert not set(HEAVY) & set(loaded)


def test_import_starts_nothing():
    code = "import os, grampus; print(len(os.listdir('/proc/self/task')), len(os.listdir('/proc/self/fd')))"
    bare = "import os; print(len(os.listdir('/proc/self/task')), len(os.listdir('/proc/self/fd')))"
    assert fresh(code) == fresh(bare)


def test_a_worker_loads_no_framework_either():
    code = "import sys, grampus as gp; print(*gp.run(lambda: list(sys.modules), workers=1)[0])"
    loaded = fresh(code)
    assert "grampus" in loaded
    assert not {"torch", "tensorflow", "numpy", "pandas", "pyarrow", "pyspark", "ray"} & set(loaded)


def test_all_public_names_exist_and_are_documented():
    grampus = importlib.import_module("grampus")
    for name in grampus.__all__:
        value = getattr(grampus, name)
        assert name.startswith("_") or value.__doc__, name


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_the_documentation(name):
    module = importlib.import_module(name)
    failed, tried = doctest.testmod(module)
    assert failed == 0
    assert tried > 0, "nothing was tried"
