"""The same programs on one machine, on Spark, through Spark Connect and on Ray end with the same weights."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from datasets import fashion_mnist
from processes import finish
from standalone import QUIET, TWO_EXECUTORS

TESTS = Path(__file__).parent.parent
EXAMPLES = TESTS.parent / "examples"
LONG = 240
pytestmark = pytest.mark.timeout(2 * LONG)


def programs(folder):
    """The seeds' program on Fashion-MNIST, with dropout and batch norm, and a network on a table."""
    pictures = ["--data", fashion_mnist(), "--rows", 600, "--batch-size", 16, "--epochs", 1, "--net", "noisy"]
    table = ["--data", folder / "table.parquet", "--rows", 5000, "--epochs", 1]
    return {"fashion_mnist.py": pictures, "dataframe.py": table}


def weights(folder, *where, environment=None, inside=()):
    """What each program prints about its weights, on a cluster."""
    found = {}
    for name, arguments in programs(folder).items():
        command = [*inside, sys.executable, EXAMPLES / name, *arguments, *where]
        pipes = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "text": True,
        }
        driver = subprocess.Popen(list(map(str, command)), cwd=folder, env=environment, **pipes)
        code, out, err = finish(driver, LONG)
        assert code == 0, f"{out}\n{err}"
        found[name] = re.search(r"^weights: (.*)$", out, re.MULTILINE).group(1)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("agreement")


@pytest.fixture(scope="module")
def wanted(folder):
    """On local workers, with one thread each as engines have it."""
    return weights(folder, environment={**os.environ, "OMP_NUM_THREADS": "1"})


def on_standalone(standalone, folder):
    settings = {**QUIET, **TWO_EXECUTORS}
    words = " ".join(f"--conf {name}='{value}'" for name, value in settings.items())
    environment = {**os.environ, "PYSPARK_SUBMIT_ARGS": f"{words} pyspark-shell"}
    return weights(folder, "--cluster", "spark", "--master", standalone.master, environment=environment)


def on_connect(standalone, folder):
    with standalone.connected() as address:
        return weights(folder, "--cluster", "spark", "--master", address)


def on_ray(_, folder):
    with tempfile.TemporaryDirectory(prefix="gr-", dir="/tmp") as home:
        script = [sys.executable, str(TESTS / "on_ray" / "nodes.py"), home]
        return weights(folder, "--cluster", "ray", "--master", "127.0.0.2:6379", inside=script)


@pytest.mark.parametrize("cluster", [on_standalone, on_connect, on_ray])
def test_weights_are_the_same_wherever_a_program_runs(standalone, folder, wanted, cluster):
    assert cluster(standalone, folder) == wanted
