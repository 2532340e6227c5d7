"""Spark DataFrames through a Connect server: the same as on a classic session."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.timeout(150)
def test_all_that_frames_can_do(tmp_path):
    """In a process of its own: a process has sessions of one kind."""
    script = Path(__file__).parent / "scripts" / "connect_frames.py"
    done = subprocess.run(
        [sys.executable, script, tmp_path], capture_output=True, text=True, timeout=140, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == "all is well"
