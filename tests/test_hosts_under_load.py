"""Several hosts whose network is slow or flooded, or whose disk stalls: workers that live are not lost."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import textwrap
import time

from test_hosts import finish, hosts, node, script, start

__all__ = ["hosts", "script"]  # fixtures

# Connections that say nothing, or the first byte of a greeting, until the standard input ends.
FLOOD = """
import resource, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
address = sys.argv[1], int(sys.argv[2])
held = []
for number in range(int(sys.argv[3])):
    held.append(socket.create_connection(address, timeout=20))
    if number % 2:
        held[-1].sendall(bytes([22]))
print("begun", flush=True)
sys.stdin.read()
"""


def driver(hosts, body, settings=""):
    names = [host.name for host in hosts[1:]]
    return textwrap.dedent(f"""
        import os, signal, subprocess, sys, time
        import grampus as gp
        cluster = gp.Cluster.ssh({names!r}, 4, command="ip netns exec {{host}} sh -c {{command}}", preload=[],
                                 address={hosts[0].address!r}, {settings})
    """) + textwrap.dedent(body)


def test_a_worker_whose_result_crosses_a_slow_link_is_not_lost(hosts, script, tmp_path):
    """Two at once: packets are lost, and what comes behind them is held back for longer than the limit."""
    body = """
        def slow():
            if gp.local_rank() == 0:
                link = "tc qdisc add dev up0 root tbf rate 1mbit burst 3200 latency 1s"
                subprocess.run(link.split(), check=True)
        with cluster:
            cluster.run(slow)
            print([len(result) for result in cluster.run(os.urandom, 900_000)])
    """
    process = start(hosts[0], sys.executable, script(driver(hosts, body)), home=tmp_path)
    out, said = process.communicate(timeout=110)
    assert (process.returncode, out) == (0, f"{[900_000] * 4}\n"), said


def test_a_flood_from_another_host_does_not_delay_a_replacement(hosts, script, tmp_path):
    """As many connections as a process may have descriptors, and more."""
    body = f"""
        def die():
            if gp.rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)
        def replaced():
            try:
                cluster.run(die)
            except gp.WorkerDied as error:
                began = time.monotonic()
                assert error.rank == 1
            assert cluster.run(gp.rank) == [0, 1, 2, 3]
            return time.monotonic() - began
        with cluster:
            cluster.run(gp.rank)
            usual = max(replaced() for _ in range(3))
            listening = [line.split()[1] for line in open("/proc/self/net/tcp") if line.split()[3] == "0A"]
            port = int(listening[0].split(":")[1], 16)
            flood = ["ip", "netns", "exec", {hosts[2].name!r}, sys.executable, "-c", {FLOOD!r}]
            flood = subprocess.Popen([*flood, {hosts[0].address!r}, str(port), "600"],
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert flood.stdout.readline() == b"begun\\n"
            flooded = replaced()
            # Strangers leave this program most of its descriptors.
            files = [open(os.devnull) for _ in range(300)]
            flood.communicate()
            print(flooded < usual + 2, len(files))
            print(usual, flooded, file=sys.stderr)
    """
    limited = ["sh", "-c", 'ulimit -Sn 512; exec "$@"', "sh"]
    process = start(hosts[0], *limited, sys.executable, script(driver(hosts, body)), home=tmp_path)
    out, said = process.communicate(timeout=110)
    assert (process.returncode, out) == (0, "True 300\n"), said


def test_workers_on_other_hosts_outlive_a_log_folder_that_stalls(hosts, script, tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    os.mkfifo(logs / "rank-0.log")
    body = """
        def talk():
            for _ in range(20 << 10 if gp.rank() in (0, 3) else 1):
                print("x" * 1023)
        with cluster:
            workers = cluster.run(os.getpid)
            cluster.run(talk)
            # Longer than a worker or the driver may be silent.
            time.sleep(5)
            print(cluster.run(os.getpid) == workers)
    """
    settings = f"heartbeat_timeout=2.0, log_dir={str(logs)!r}"
    process = start(hosts[0], sys.executable, script(driver(hosts, body, settings)), home=tmp_path)
    try:
        code, out, said = finish(process)
    finally:
        with contextlib.suppress(OSError):
            os.close(os.open(logs / "rank-0.log", os.O_RDONLY | os.O_NONBLOCK))
    assert (code, out.splitlines()[-1:]) == (0, ["True"]), said
    assert "left out of the log files" in said


def test_ranks_of_two_nodes_meet_despite_strangers_and_a_guest_that_dies(hosts, script, tmp_path):
    program = script(f"""
        import os, pathlib, signal, sys, time
        import grampus as gp

        folder, rank = pathlib.Path({str(tmp_path)!r}), int(os.environ["RANK"])
        def wait_for(name):
            end = time.monotonic() + 30
            while not (folder / name).exists():
                assert time.monotonic() < end, name
                time.sleep(0.05)
        if rank == 0:
            (folder / "port.new").write_text(os.environ["MASTER_PORT"])
            (folder / "port.new").rename(folder / "port")
        if rank == 3 and (guest := os.fork()) == 0:
            # It gives its card, waits for the others, and dies.
            gp.collective.form(deadline=30)
            os._exit(1)
        if rank == 3:
            wait_for("silent")
            time.sleep(3)
            os.kill(guest, signal.SIGKILL)
            os.waitpid(guest, 0)
            (folder / "dead").touch()
        if rank == 2:
            wait_for("dead")
        began = time.monotonic()
        group = gp.collective.form(deadline=30)
        group.barrier()
        (folder / f"met-{{rank}}").write_text(str(time.monotonic() - began))
    """)
    nodes = [node(hosts, rank, "-n", "2", program, home=tmp_path) for rank in (0, 1)]
    end = time.monotonic() + 20
    while not (tmp_path / "port").exists():
        assert time.monotonic() < end
        time.sleep(0.05)
    knock = f"""
import socket, sys, time
for _ in range(400):
    try:
        held = socket.create_connection(({hosts[0].address!r}, int(sys.argv[1])), timeout=20)
        break
    except ConnectionRefusedError:
        time.sleep(0.05)
open({str(tmp_path / "silent")!r}, "w").close()
sys.stdin.read()
"""
    words = hosts[2].command(sys.executable, "-c", knock, (tmp_path / "port").read_text())
    with subprocess.Popen(words, stdin=subprocess.PIPE) as stranger:
        ended = [finish(process) for process in nodes]
        stranger.communicate()
    assert [code for code, _, _ in ended] == [0, 0], ended
    # The last two have nobody to wait for.
    assert float((tmp_path / "met-2").read_text()) < 4
