"""Several hosts: real network namespaces, TLS between them, links that are cut."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from namespaces import Host, make_hosts, processes_in, remove_hosts

GRAMPUS = str(Path(sys.executable).with_name("grampus"))
# The default deadline for silence, and what a busy machine may add.
SILENCE, SLACK = 3.0, 4.0


@pytest.fixture
def hosts():
    made = make_hosts(3)
    yield made
    left = {host.name: processes_in(host) for host in made}
    remove_hosts(made)
    assert not any(left.values()), f"processes were left: {left}"


@pytest.fixture
def script(tmp_path):
    def write(body: str) -> str:
        path = tmp_path / "script.py"
        path.write_text(textwrap.dedent(body))
        return str(path)

    return write


def start(host: Host, *words: str, home: Path, **settings: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "HOME": str(home), "XDG_CONFIG_HOME": str(home / "config"), **settings}
    return subprocess.Popen(
        host.command(*words),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        env=environment,
    )


def node(hosts: list[Host], rank: int, *words: str, home: Path) -> subprocess.Popen[str]:
    flags = ["--nnodes", "2", "--node-rank", str(rank), "--rdzv-endpoint", f"{hosts[0].address}:29400"]
    return start(hosts[rank], GRAMPUS, "run", *flags, *words, home=home)


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=40)
    return process.returncode, out, err


def test_two_nodes_share_one_world(hosts, script, tmp_path):
    program = script("""
        import json, os, socket
        rank = int(os.environ["RANK"])
        endpoint = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        if rank == 0:
            server = socket.create_server(endpoint, reuse_port=False)
            server.settimeout(20)
            for _ in range(int(os.environ["WORLD_SIZE"]) - 1):
                server.accept()[0].sendall(b"hello")
        else:
            for attempt in range(200):
                try:
                    peer = socket.create_connection(endpoint, timeout=20)
                    break
                except ConnectionRefusedError:
                    import time; time.sleep(0.05)
            assert peer.recv(5) == b"hello"
        names = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR"]
        print(json.dumps([os.environ[name] for name in names]))
    """)
    first = node(hosts, 0, "-n", "1", program, home=tmp_path)
    second = node(hosts, 1, "-n", "2", program, home=tmp_path)
    ends = [finish(first), finish(second)]
    assert [code for code, _, _ in ends] == [0, 0], ends
    lines = [line.split("] ", 1)[1] for _, out, _ in ends for line in out.splitlines()]
    address = hosts[0].address
    assert sorted(map(json.loads, lines)) == [
        ["0", "3", "0", "1", "0", address],
        ["1", "3", "0", "2", "1", address],
        ["2", "3", "1", "2", "1", address],
    ]


def test_a_failure_on_one_node_ends_the_other_with_the_first_cause(hosts, script, tmp_path):
    program = script("""
        import os, sys, time
        if os.environ["RANK"] == "1":
            print("the disk is on fire", file=sys.stderr)
            sys.exit(7)
        time.sleep(60)
    """)
    first = node(hosts, 0, program, home=tmp_path)
    second = node(hosts, 1, program, home=tmp_path)
    (code, _, said), (other, _, _) = finish(first), finish(second)
    assert (code, other) == (7, 7)
    assert "rank 1 on" in said and hosts[1].address in said
    assert "exited with code 7" in said and "the disk is on fire" in said


def test_a_cut_link_ends_both_sides_with_a_named_error_within_the_deadline(hosts, script, tmp_path):
    marker = tmp_path / "running"
    program = script(f"""
        import os, time
        open({str(marker)!r} + os.environ["RANK"], "w").close()
        time.sleep(60)
    """)
    first = node(hosts, 0, program, home=tmp_path)
    second = node(hosts, 1, program, home=tmp_path)
    deadline = time.monotonic() + 30
    while not all(Path(f"{marker}{rank}").exists() for rank in (0, 1)):
        assert time.monotonic() < deadline, "the ranks did not start"
        time.sleep(0.05)
    hosts[1].cut()
    cut = time.monotonic()
    (code, _, said), (other, _, other_said) = finish(first), finish(second)
    assert time.monotonic() - cut < SILENCE + SLACK
    assert (code, other) == (1, 1)
    assert "rank 1 on" in said and "no sign of life" in said
    assert "lost node 0" in other_said


def test_a_node_with_another_key_is_told_what_to_do(hosts, script, tmp_path):
    program = script("print('never')")
    first = node(hosts, 0, "--start-timeout", "8", program, home=tmp_path)
    time.sleep(1)
    second = node(hosts, 1, program, home=tmp_path / "other")
    code, out, said = finish(second)
    assert code == 1 and "never" not in out
    assert "the key of this node is not that of node 0" in said and "copy" in said
    code, out, said = finish(first)
    assert code == 1 and "never" not in out
    assert "1 of 2 members are in" in said and "the job key does not match" in said


def test_what_crosses_the_network_is_encrypted(hosts, script, tmp_path):
    """The driver's function holds a marker; a third host on the bridge sees every packet of the others."""
    if os.geteuid() != 0:
        pytest.skip("reading packets needs root")
    driver = script(f"""
        import socket, threading, grampus as gp
        sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        sniffer.bind(("up0", 0))
        sniffer.settimeout(0.2)
        seen, over = bytearray(), threading.Event()
        def sniff():
            while not over.is_set():
                try: seen.extend(sniffer.recv(65535))
                except TimeoutError: pass
        thread = threading.Thread(target=sniff); thread.start()
        marker = "attack at dawn" * 3
        with gp.Cluster.ssh([{hosts[1].name!r}], 1, command="ip netns exec {{host}} sh -c {{command}}",
                            address={hosts[0].address!r}) as cluster:
            assert cluster.run(lambda: marker) == [marker]
        over.set(); thread.join()
        print(len(seen) > 2000, marker.encode() in seen)
    """)
    code, out, said = finish(start(hosts[0], sys.executable, driver, home=tmp_path))
    assert (code, out.strip()) == (0, "True False"), said


def ssh_driver(hosts: list[Host], body: str) -> str:
    names = [host.name for host in hosts[1:]]
    return f"""
        import os, signal, subprocess, sys, time
        import grampus as gp
        cluster = gp.Cluster.ssh({names!r}, 4, command="ip netns exec {{host}} sh -c {{command}}",
                                 address={hosts[0].address!r}, heartbeat_timeout=2.0)
    """ + textwrap.indent(textwrap.dedent(body), " " * 8)


def test_a_cluster_over_a_command_template_runs_functions_on_every_host(hosts, script, tmp_path):
    driver = script(
        ssh_driver(
            hosts,
            """
        import json
        def place():
            print("hello")
            show = ["ip", "-4", "-o", "addr", "show", "up0"]
            link = subprocess.run(show, capture_output=True, text=True).stdout
            return gp.rank(), gp.local_rank(), os.environ["GROUP_RANK"], link.split()[3]
        print(json.dumps(cluster.run(place)))
        data = bytes(range(256)) * 40_000
        assert cluster.run(lambda: data) == [data] * 4
        cluster.resize(6)
        print(json.dumps(cluster.run(place)))
        cluster.stop()
    """,
        )
    )
    code, out, said = finish(start(hosts[0], sys.executable, driver, home=tmp_path))
    assert code == 0, said
    few, many = (json.loads(line) for line in out.splitlines() if line.startswith("[["))
    assert few == [
        [0, 0, "0", "10.77.0.2/24"],
        [1, 1, "0", "10.77.0.2/24"],
        [2, 0, "1", "10.77.0.3/24"],
        [3, 1, "1", "10.77.0.3/24"],
    ]
    # The two that came stand with those of their hosts.
    assert [place[:2] for place in many] == [[0, 0], [1, 1], [2, 2], [3, 0], [4, 1], [5, 2]]
    assert [place[3] for place in many] == ["10.77.0.2/24"] * 3 + ["10.77.0.3/24"] * 3
    hellos = [line for line in out.splitlines() if "hello" in line]
    assert sorted(hellos) == sorted(f"[rank {rank}] hello" for rank in [*range(4), *range(6)])


def test_a_host_that_is_cut_off_is_named_and_its_processes_end(hosts, script, tmp_path):
    driver = script(
        ssh_driver(
            hosts,
            f"""
        from grampus import WorkerDied
        cluster.run(lambda: None)
        def work():
            if gp.rank() == 0:
                open({str(tmp_path / "running")!r}, "w").close()
            time.sleep(60)
        begun = time.monotonic()
        try:
            cluster.run(work)
        except WorkerDied as error:
            print(error.rank in (2, 3), {hosts[2].address!r} in str(error), time.monotonic() - begun < 30)
        cluster.stop()
    """,
        )
    )
    process = start(hosts[0], sys.executable, driver, home=tmp_path)
    deadline = time.monotonic() + 30
    while not (tmp_path / "running").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    hosts[2].cut()
    cut = time.monotonic()
    code, out, said = finish(process)
    assert (code, out.strip()) == (0, "True True True"), said
    assert time.monotonic() - cut < 2 * SILENCE + SLACK


@pytest.mark.timeout(120)
def test_a_host_whose_supervisor_dies_is_lost_and_comes_back(hosts, script, tmp_path):
    driver = script(
        ssh_driver(
            hosts,
            """
        import torch
        from torch import nn

        gp.init(cluster=cluster)
        x = torch.randn(96, 3, generator=torch.Generator().manual_seed(0))
        supervisor = cluster.run(os.getppid)[3]

        class Slow(nn.Linear):
            def forward(self, x):
                time.sleep(0.02)
                return super().forward(x)

        class Kills(gp.callbacks.Logger):
            workers = []
            def event(self, event):
                if event["kind"] == "recovered":
                    self.workers.append(event["workers"])
                if event["kind"] == "steps" and not self.workers and supervisor:
                    os.kill(supervisor, signal.SIGKILL)

        def trained(*loggers):
            est = gp.Estimator.from_torch(
                model=lambda config: Slow(3, 1), optimizer="adam", loss=nn.MSELoss(), seed=1, lanes=4
            )
            est.fit({"x": x, "y": x.sum(1, keepdim=True)}, epochs=4, batch_size=8, callbacks=loggers)
            return est.digest()

        wanted = trained()
        found = trained(Kills())
        print(found == wanted, len(Kills.workers) > 0, len(set(cluster.run(os.getppid))))
        gp.stop()
    """,
        )
    )
    # Torch leaves a cache in the temporary folder; ours must stay empty.
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor")}
    process = start(hosts[0], sys.executable, driver, home=tmp_path, **cache)
    out, said = process.communicate(timeout=110)
    assert (process.returncode, out.splitlines()[-1:]) == (0, ["True True 2"]), said


def test_a_killed_driver_leaves_nothing_on_other_hosts(hosts, script, tmp_path):
    driver = script(
        ssh_driver(
            hosts,
            """
        cluster.run(lambda: subprocess.Popen(["sleep", "60"]).pid)
        os.kill(os.getpid(), signal.SIGKILL)
    """,
        )
    )
    process = start(hosts[0], sys.executable, driver, home=tmp_path)
    finish(process)
    deadline = time.monotonic() + 5
    while any(processes_in(host) for host in hosts):
        assert time.monotonic() < deadline, "processes outlived their driver"
        time.sleep(0.05)
