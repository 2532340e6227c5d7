"""The program that disturbs runs: every kind of fault once, played as `make chaos` plays hundreds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from needs import lacking

PROGRAM = Path(__file__).parents[1] / "target" / "debug" / "grampus-chaos"
LOCAL = ["kill", "stop", "pause", "double-kill", "kill-in-recovery", "driver-kill", "disk-full"]
NETWORK = ["partition", "delay", "packet-loss"]
LONG = 240


@pytest.mark.timeout(LONG)
@pytest.mark.parametrize("kinds", [LOCAL, NETWORK], ids=["local", "network"])
def test_every_kind_of_fault_breaks_no_promise(kinds):
    assert PROGRAM.exists(), "grampus-chaos is not built: run `make test`, or `cargo build --workspace`"
    count = str(len(kinds))
    arguments = [
        "--faults",
        count,
        "--per-run",
        count,
        "--kinds",
        ",".join(kinds),
        "--python",
        sys.executable,
    ]
    # The driver is to find the very package that is tested here.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    played = subprocess.run(
        [PROGRAM, *arguments], capture_output=True, text=True, timeout=LONG - 10, env=environment, check=False
    )
    told = f"{played.stdout}\n{played.stderr}"
    if "left out" in played.stdout:
        lacking("NETNS", f"not all faults can be made here: {told}")
    assert played.returncode == 0, told
    words = {line.split()[0]: line.split()[1] for line in played.stdout.splitlines() if line.split()}
    assert {kind: words.get(kind) for kind in kinds} == dict.fromkeys(kinds, "1"), told
    assert "weights and history equal to the undisturbed run: 1 of 1 runs" in played.stdout
    assert "promises broken: 0" in played.stdout
