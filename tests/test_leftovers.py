"""The checks around every test: they see what Grampus started, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from leftovers import leaving_nothing
from processes import end, lives

from grampus import _programs

ROOT = Path(__file__).parent.parent


def sleeper(tmp_path, **variables):
    """Start a process of somebody else, in a folder called grampus."""
    program = tmp_path / "grampus" / "sleeper.py"
    program.parent.mkdir(exist_ok=True)
    program.write_text("import time\ntime.sleep(60)\n")
    return subprocess.Popen([sys.executable, program], env={**os.environ, **variables})


def test_an_engine_in_a_folder_named_grampus_is_left_alone(tmp_path):
    with pytest.MonkeyPatch.context() as patch, leaving_nothing(patch, engine=True):
        engine = sleeper(tmp_path)
    try:
        assert lives(engine.pid)
    finally:
        end(engine.pid)
        engine.wait()


def test_a_process_with_a_role_is_found_and_ended(tmp_path):
    with (
        pytest.MonkeyPatch.context() as patch,
        pytest.raises(AssertionError, match="left something behind"),
        leaving_nothing(patch, engine=True),
    ):
        ours = sleeper(tmp_path, **dict([_programs.role("worker")]))
    assert ours.wait(10) < 0


@pytest.mark.timeout(120)
def test_a_crashed_pytest_worker_ends_the_run_with_an_error(tmp_path):
    (tmp_path / "conftest.py").symlink_to(ROOT / "tests" / "conftest.py")
    (tmp_path / "test_crash.py").write_text("import os\ndef test_crash():\n    os.kill(os.getpid(), 9)\n")
    for name in "abc":
        (tmp_path / f"test_{name}.py").write_text("def test_one():\n    pass\n")
    command = [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "--rootdir", tmp_path]
    command += ["-p", "no:cacheprovider", "--basetemp", tmp_path / "base", "-n", "2", tmp_path]
    run = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        # Of the run in which this test stands.
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        | {"PYTHONPATH": str(ROOT / "tests")},
        cwd=tmp_path,
    )
    assert run.returncode == 1, run.stdout
    assert "crashed while running" in run.stdout
    # A worker in the place of the crashed one could hang as it did.
    assert "worker restarting disabled" in run.stdout
