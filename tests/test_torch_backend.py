"""`torch.distributed` on our collectives: the same results as with gloo, and errors that name the rank."""

import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
import torch_operations
from processes import PATIENCE, finish, read_line, start

import grampus as gp

TUTORIAL = Path(__file__).parent / "scripts" / "ddp_tutorial.py"
FINDS_BY_NAME = hasattr(torch.distributed.Backend, "_ensure_backend_registered")


@pytest.fixture(autouse=True)
def torch_has_its_own_folder(runtime, monkeypatch, tmp_path):
    """torch and its launcher leave caches and logs in the temporary folder; ours must stay empty."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    return tmp_path


@pytest.mark.parametrize("workers", [2, 3, 4])
def test_every_operation_gives_what_gloo_gives(workers):
    assert gp.run(torch_operations.differences, workers=workers) == [{}] * workers


def test_what_gloo_cannot_do():
    gp.run(torch_operations.beyond_gloo, workers=3)


def test_sub_groups():
    found = gp.run(torch_operations.sub_groups, workers=4)
    assert found == [(2, 2, 6), (4, 3, 6), (2, 2, 6), (4, 3, 6)]


def test_unequal_inputs_join():
    expected = gp.run(torch_operations.joined, "gloo", workers=2)
    assert gp.run(torch_operations.joined, "grampus", workers=2) == expected


def test_calls_that_differ_end_in_an_error_on_all():
    for text in gp.run(torch_operations.mismatch, workers=2):
        assert text.startswith("CallMismatch: ")
        assert "rank 0" in text
        assert "rank 1" in text


def test_a_group_that_is_destroyed_leaves_nothing():
    gp.init(workers=2)
    # The first server of torch's store leaves a pipe of its own, whatever the backend.
    gp.run(torch_operations.use_futures)
    assert gp.run(torch_operations.left_behind) == [[], []]


@pytest.mark.skipif(not FINDS_BY_NAME, reason="this torch finds no backends by entry point")
@pytest.mark.parametrize("launcher", ["torchrun", "grampus run"])
def test_an_unchanged_script_has_the_same_losses(launcher, tmp_path):
    ours, gloo = losses(launcher, "grampus", tmp_path), losses(launcher, "gloo", tmp_path)
    assert len(gloo) == 16
    assert ours == gloo


def losses(launcher, backend, logs):
    commands = {
        "torchrun": [
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            "2",
            "--log-dir",
            str(logs),
        ],
        "grampus run": ["grampus", "run", "-n", "2"],
    }
    command = [sys.executable, "-m", *commands[launcher], str(TUTORIAL), backend]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    # A process of Gloo may be aborted by its own threads when it ends; it is asked for losses only.
    for _ in range(3 if backend == "gloo" else 1):
        code, out, err = finish(subprocess.Popen(command, **pipes), 2 * PATIENCE)
        if code == 0:
            break
    assert code == 0, f"{out}\n{err}"
    return sorted(re.findall(r"rank \d epoch \d loss \S+", out))


START = """
    import os, signal, time
    import torch
    import torch.distributed as dist
    import grampus.frameworks.torch_backend
    torch.set_num_threads(1)
    dist.init_process_group("grampus")
    rank = dist.get_rank()
    x = torch.ones(4)
    dist.all_reduce(x)
    print("ready", flush=True)
"""


def ranks(number, script):
    """Start processes as any launcher would; all have formed their group."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    variables = {"WORLD_SIZE": str(number), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    text = textwrap.dedent(START) + textwrap.dedent(script)
    started = [start(text, env={**os.environ, **variables, "RANK": str(rank)}) for rank in range(number)]
    for process in started:
        assert read_line(process) == "ready"
    return started


@pytest.mark.parametrize(
    "call",
    [
        "dist.all_reduce(x)",
        "dist.all_reduce(x, async_op=True).wait()",
        "dist.all_reduce(x, async_op=True).get_future().wait()",
        "model(x).sum().backward()",
    ],
)
def test_a_rank_that_is_killed_is_named_by_the_others(call):
    script = f"""
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
        if rank == 1:
            time.sleep(0.3)
            os.kill(os.getpid(), signal.SIGKILL)
        {call}
    """
    processes = ranks(3, script)
    for rank, process in enumerate(processes):
        code, _, err = finish(process)
        if rank == 1:
            assert code == -signal.SIGKILL
        else:
            assert code == 1
            assert re.search(r"PeerLost: lost rank 1 .* during all_reduce", err), err


def test_control_c_ends_a_wait():
    first, second = ranks(2, "dist.all_reduce(x) if rank == 0 else time.sleep(60)")
    first.send_signal(signal.SIGINT)
    code, _, err = finish(first, 5)
    assert code == -signal.SIGINT
    assert "KeyboardInterrupt" in err
    second.kill()
    finish(second)
