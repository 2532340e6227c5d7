"""Spark DataFrames through a Connect server: the same as on a classic session."""

import subprocess
import sys
from pathlib import Path

import pytest

FRAMES = Path(__file__).parent / "connect_frames.py"


@pytest.mark.timeout(150)
def test_all_that_frames_can_do(connect, tmp_path):
    """In a process of its own: a process has sessions of one kind."""
    command = [sys.executable, FRAMES, connect, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=140, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == "all is well"
