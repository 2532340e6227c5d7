"""Tables, files and shards on several hosts, which see neither the driver's memory, nor its files.

Hosts are network namespaces with tables of processes of their own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from namespaces import make_hosts, processes_in, remove_hosts
from test_hosts import GRAMPUS, start

import grampus as gp
from grampus.shards import delivery
from grampus.shards.segments import Segment

SCRIPT = str(Path(__file__).parent / "scripts" / "on_hosts.py")
# Where the folder of the data is empty, and /proc shows the processes of the host alone.
COMMAND = (
    "ip netns exec {{host}} unshare --fork --pid --mount-proc --kill-child "
    "sh -c 'mount -t tmpfs none {folder} && exec sh -c \"$0\"' {{command}}"
)


@pytest.fixture
def hosts():
    made = make_hosts(3)
    yield made
    left = {host.name: processes_in(host) for host in made}
    remove_hosts(made)
    assert not any(left.values()), f"processes were left: {left}"


@pytest.fixture
def run(hosts, tmp_path):
    """Do some work here, or on two hosts; return what it printed."""
    for name in ("data", "out"):
        (tmp_path / name).mkdir()

    def run(work, workers=None, **settings):
        words = [sys.executable, SCRIPT, work, str(tmp_path / "data"), str(tmp_path / "out")]
        if workers is not None:
            command = COMMAND.format(folder=tmp_path / "data")
            words += ["--workers", str(workers), "--address", hosts[0].address, "--command", command]
            words += ["--hosts", *(host.name for host in hosts[1:])]
        settings |= {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor")}
        process = start(hosts[0], *words, home=tmp_path, **settings)
        out, said = process.communicate(timeout=200)
        assert process.returncode == 0, said
        return json.loads(out.splitlines()[-1])

    return run


def received(host):
    """Bytes that have come to a host."""
    told = subprocess.run(
        host.command("cat", "/sys/class/net/up0/statistics/rx_bytes"),
        check=True, capture_output=True, text=True, timeout=10,
    )  # fmt: skip
    return int(told.stdout)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("work", ["tables", "others"])
def test_weights_and_predictions_are_those_of_one_machine(run, work):
    found = run(work, workers=4)
    assert found == run(work)
    assert found.get("left", [0, 0]) == [0, 0]


@pytest.mark.timeout(300)
def test_ranks_of_two_nodes_read_the_table_of_the_first(run, hosts, tmp_path):
    nodes = []
    for rank, host in enumerate(hosts[:2]):
        words = [
            "unshare",
            "--fork",
            "--pid",
            "--mount-proc",
            "--kill-child",
            GRAMPUS,
            "run",
            "--nnodes",
            "2",
        ]
        words += ["--node-rank", str(rank), "--rdzv-endpoint", f"{hosts[0].address}:29400", "-n", "2"]
        words += [SCRIPT, "memory", str(tmp_path / "data"), str(tmp_path / "out")]
        nodes.append(start(host, *words, home=tmp_path, TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "inductor")))
    wanted = run("memory")
    ends = [node.communicate(timeout=200) for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], ends
    lines = [line.partition("] ")[2] for out, _ in ends for line in out.splitlines() if "] [" in line]
    assert [json.loads(line) for line in lines] == [wanted] * 4


@pytest.mark.timeout(300)
def test_a_worker_that_replaces_another_finds_the_rows(run):
    found = run("deaths", workers=4)
    wanted = found["None"][0]
    assert found == {"None": [wanted, False], **{str(rank): [wanted, True] for rank in range(4)}}


@pytest.mark.timeout(300)
def test_each_host_gets_its_rows_once(run, hosts):
    """By one worker a host, by two, and by two of which one is lost."""
    came = {}
    for work, workers in (("large", 2), ("large", 4), ("large_with_a_death", 4)):
        before = [received(host) for host in hosts[1:]]
        found = run(work, workers)
        came[work, workers] = [received(host) - old for host, old in zip(hosts[1:], before, strict=True)]
    assert found[1]
    size = 24_000_000
    assert all(size < count < 1.3 * size for counts in came.values() for count in counts), came


@pytest.mark.timeout(300)
def test_links_that_are_not_sealed_give_the_same(run):
    assert run("memory", workers=4, GRAMPUS_COLLECTIVE_SECURITY="plain") == run("memory")


def bring_changed(load, changed):
    """The first worker has got other bytes than the driver meant; each is taken for a host of its own."""
    os.environ["GRAMPUS_COLLECTIVE_SECURITY"] = "plain"
    delivery.machine = lambda: str(gp.rank())
    if gp.rank() == 0:
        delivery._arrive(load, 0, np.full(load.length, 7 + changed, np.uint8))
    with delivery.brought([load], gp.collective.world()):
        descriptor = load.segment.open(os.O_RDONLY)
        found = os.pread(descriptor, load.length, 0)
        os.close(descriptor)
        return set(found)


def test_memory_that_was_changed_on_its_way_is_refused():
    segment = Segment(on_disk=False)
    os.write(segment._descriptor, bytes([7]) * 5000)
    [load] = delivery.loads_of([segment, segment])
    load.digest = delivery._digest(segment._descriptor, load.length)
    # Where no worker finds it.
    segment._path = "/nowhere"
    gp.init(workers=2)
    assert gp.run(bring_changed, load, 0) == [{7}, {7}]
    with pytest.raises(gp.DataError, match="changed on their way"):
        gp.run(bring_changed, load, 1)
