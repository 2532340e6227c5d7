"""The program that disturbs runs: a small plan, played as `make chaos` plays a large one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "target" / "debug" / "grampus-chaos"


@pytest.mark.timeout(180)
def test_a_killed_and_a_stopped_worker_break_no_promise():
    assert PROGRAM.exists(), "grampus-chaos is not built: run `make test`, or `cargo build --workspace`"
    arguments = ["--faults", "2", "--per-run", "2", "--kinds", "kill,stop", "--python", sys.executable]
    # The driver is to find the very package that is tested here.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    played = subprocess.run(
        [PROGRAM, *arguments], capture_output=True, text=True, timeout=170, env=environment, check=False
    )
    assert played.returncode == 0, f"{played.stdout}\n{played.stderr}"
    words = {line.split()[0]: line.split()[1] for line in played.stdout.splitlines() if line.split()}
    assert (words["kill"], words["stop"]) == ("1", "1")
    assert "weights and history equal to the undisturbed run: 1 of 1 runs" in played.stdout
    assert "promises broken: 0" in played.stdout
