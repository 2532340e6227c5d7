"""The same programs on one machine, on Spark, through Spark Connect and on Ray end with the same weights."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from pictures import fashion_mnist
from processes import finish
from programs import run_all

TESTS = Path(__file__).parents[2]
EXAMPLES = TESTS.parent / "examples"
LONG = 150
pytestmark = pytest.mark.timeout(2 * LONG)


def programs(folder):
    """The seeds' program on Fashion-MNIST, with dropout and batch norm, and a network on a table."""
    pictures = ["--data", fashion_mnist(), "--rows", 600, "--batch-size", 16, "--epochs", 1, "--net", "noisy"]
    table = ["--data", folder / "table.parquet", "--rows", 5000, "--epochs", 1]
    programs = [[EXAMPLES / "fashion_mnist.py", *pictures], [EXAMPLES / "dataframe.py", *table]]
    return [[str(word) for word in program] for program in programs]


def weights(out):
    """What each of them printed about its weights."""
    found = re.findall(r"^weights: (.*)$", out, re.MULTILINE)
    assert len(found) == 2, out
    return found


def elsewhere(folder, *where, environment=None, inside=()):
    """What they print in a process of their own."""
    command = [*inside, sys.executable, str(TESTS / "programs.py")]
    for program in programs(folder):
        command += [*program, *where, "--then"]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    code, out, err = finish(subprocess.Popen(command, cwd=folder, env=environment, **pipes), LONG)
    assert code == 0, f"{out}\n{err}"
    return out


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("agreement")


@pytest.fixture(scope="module")
def wanted(folder):
    """On local workers, with one thread each as engines have it."""
    return weights(elsewhere(folder, environment={**os.environ, "OMP_NUM_THREADS": "1"}))


def on_standalone(folder, request):
    """Here, where a session is active."""
    request.getfixturevalue("spark")
    capture = request.getfixturevalue("capsys")
    run_all([[*program, "--cluster", "spark"] for program in programs(folder)])
    return capture.readouterr().out


def on_connect(folder, request):
    return elsewhere(folder, "--cluster", "spark", "--master", request.getfixturevalue("connect"))


def on_ray(folder, _):
    pytest.importorskip("ray")
    with tempfile.TemporaryDirectory(prefix="gr-", dir="/tmp") as home:
        script = [sys.executable, str(TESTS / "on_ray" / "nodes.py"), home]
        return elsewhere(folder, "--cluster", "ray", "--master", "127.0.0.2:6379", inside=script)


@pytest.mark.parametrize("cluster", [on_standalone, on_connect, on_ray])
def test_weights_are_the_same_wherever_a_program_runs(folder, wanted, cluster, request):
    assert weights(cluster(folder, request)) == wanted
