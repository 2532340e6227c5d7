"""Collectives between hosts: real network namespaces, sealed or plain, with the bits of one host."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest
from test_hosts import finish, hosts, script, start

__all__ = ["hosts", "script"]  # fixtures

FOLDER = str(Path(__file__).parent)


def driver(hosts, body, workers=4):
    """A program whose cluster is on the second and third host."""
    names = [host.name for host in hosts[1:]]
    return textwrap.dedent(f"""
        import os, signal, socket, subprocess, sys, threading, time
        sys.path.append({FOLDER!r})
        import collective_calls as calls
        import numpy as np
        import grampus as gp
        cluster = gp.Cluster.ssh({names!r}, {workers}, command="ip netns exec {{host}} sh -c {{command}}",
                                 address={hosts[0].address!r})
    """) + textwrap.dedent(body)


@pytest.mark.parametrize("security", ["tls", "plain"])
@pytest.mark.parametrize("workers", [2, 3, 4])
def test_results_are_right_and_the_bits_are_those_of_one_host(hosts, script, tmp_path, security, workers):
    """CL-1 and CL-2."""
    body = f"""
        def everything():
            assert calls.reductions() == []
            calls.sizes()
            calls.movements()
            calls.partial_sums()
            calls.nothing()
            calls.in_flight()
            random = np.random.default_rng(gp.rank()).standard_normal(700_001).astype("float32")
            dealing = [[3, 1], [0, 2, 4]] if gp.world_size() == 2 else [[4], [], [0, 1], [3, 2]]
            if gp.world_size() == 3:
                dealing = [[4], [0, 1], [3, 2]]
            sums = gp.collective.all_reduce(random).tobytes(), calls.lane_sums(dealing), calls.norms()[0]
            return calls.ring(), sums
        with cluster, gp.Cluster.local({workers}) as local:
            print(cluster.run(everything) == local.run(everything))
    """
    program = script(driver(hosts, body, workers))
    started = start(hosts[0], sys.executable, program, home=tmp_path, GRAMPUS_COLLECTIVE_SECURITY=security)
    code, out, said = finish(started)
    assert (code, out) == (0, "True\n"), said


@pytest.mark.parametrize("security", ["tls", "plain"])
def test_what_a_third_host_sees(hosts, script, tmp_path, security):
    """The bridge is on the driver's host, so that it sees every packet between the other two."""
    body = """
        sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        sniffer.bind(("port2", 0))
        sniffer.settimeout(0.2)
        seen, over = bytearray(), threading.Event()
        def sniff():
            while not over.is_set():
                try: seen.extend(sniffer.recv(65535))
                except TimeoutError: pass
        marker = b"attack at dawn" * 3
        def tell():
            text = np.frombuffer(marker, "uint8").copy() * (gp.rank() == 0)
            return gp.collective.broadcast(text).tobytes()
        with cluster:
            cluster.run(gp.rank)
            thread = threading.Thread(target=sniff); thread.start()
            # The function holds the marker as well, but its way is always sealed.
            assert cluster.run(tell) == [marker] * 2
        over.set(); thread.join()
        print(len(seen) > 1000, marker in seen)
    """
    program = script(driver(hosts, body, workers=2))
    started = start(hosts[0], sys.executable, program, home=tmp_path, GRAMPUS_COLLECTIVE_SECURITY=security)
    code, out, said = finish(started)
    assert (code, out) == (0, f"True {security == 'plain'}\n"), said


def test_a_worker_that_is_killed_on_another_host_is_named(hosts, script, tmp_path):
    body = """
        def work(count):
            array = np.ones(count, "float32")
            gp.collective.all_reduce(array)
            if gp.rank() == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            while True:
                gp.collective.all_reduce(array)
        with cluster:
            for count in (10, 3_000_000):
                began = time.monotonic()
                try:
                    cluster.run(work, count)
                except gp.WorkerDied as error:
                    print(error.rank, "SIGKILL" in str(error), time.monotonic() - began < 10)
            print(cluster.run(lambda: int(gp.collective.all_reduce(np.array([1]))[0])))
    """
    code, out, said = finish(start(hosts[0], sys.executable, script(driver(hosts, body)), home=tmp_path))
    assert (code, out) == (0, "3 True True\n" * 2 + "[4, 4, 4, 4]\n"), said


def test_a_worker_that_leaves_on_another_host_is_named_on_all(hosts, script, tmp_path):
    """CL-6 and CL-7."""
    body = """
        def work():
            gp.collective.barrier()
            if gp.rank() == 2:
                return None
            try:
                gp.collective.barrier()
            except gp.PeerLost as error:
                return error.rank, error.host, "it left the group" in str(error)
        with cluster:
            print(cluster.run(work))
    """
    code, out, said = finish(start(hosts[0], sys.executable, script(driver(hosts, body)), home=tmp_path))
    named = 2, hosts[2].name, True
    assert (code, out) == (0, f"{[named, named, None, named]}\n"), said


def test_a_worker_that_was_away_is_told_like_all_others(hosts, script, tmp_path):
    """CL-7."""
    body = """
        def work():
            gp.collective.barrier()
            if gp.rank() == 3:
                # Longer than a group's own thread waits between two looks at its connections.
                time.sleep(2)
            try:
                gp.collective.all_reduce(np.ones(2 + (gp.rank() > 1)))
            except gp.CollectiveError as error:
                return type(error).__name__
        with cluster:
            print(cluster.run(work))
    """
    code, out, said = finish(start(hosts[0], sys.executable, script(driver(hosts, body)), home=tmp_path))
    assert (code, out) == (0, f"{['CallMismatch'] * 4}\n"), said


def test_calls_that_differ_between_hosts_are_named_and_a_new_group_works(hosts, script, tmp_path):
    body = """
        def work():
            try:
                gp.collective.all_reduce(np.ones(2 + (gp.rank() > 1)))
            except gp.CallMismatch as error:
                text = str(error)
            group = gp.collective.form()
            return text, group.generation, int(group.all_reduce(np.array([1]))[0])
        with cluster:
            for text, generation, total in cluster.run(work):
                print(generation, total, "of 2 f64" in text and "of 3 f64" in text)
    """
    code, out, said = finish(start(hosts[0], sys.executable, script(driver(hosts, body)), home=tmp_path))
    assert (code, out) == (0, "2 4 True\n" * 4), said


def test_hosts_that_disagree_on_security_are_told(hosts, script, tmp_path):
    body = """
        def work():
            os.environ["GRAMPUS_COLLECTIVE_SECURITY"] = "plain" if gp.rank() else "tls"
            gp.collective.barrier()
        with cluster:
            began = time.monotonic()
            try:
                cluster.run(work)
            except gp.CollectiveError as error:
                print(error, time.monotonic() - began < 10)
    """
    program = script(driver(hosts, body, workers=2))
    code, out, said = finish(start(hosts[0], sys.executable, program, home=tmp_path))
    assert code == 0, said
    assert "plain" in out and "tls" in out and out.endswith("True\n"), out


# A rank of which user code keeps the interpreter lock: no thread of Python gets on meanwhile.
AWAY = """
        import ctypes
        def away(seconds):
            ctypes.PyDLL(None).usleep(int(seconds * 1e6))
"""


@pytest.mark.parametrize(("workers", "count"), [(2, 16_000_000), (4, 5_000)])
def test_a_rank_that_is_late_in_user_code_is_waited_for(hosts, script, tmp_path, workers, count):
    """CL-9, with default settings: longer than a process may be silent, and than TCP waits for a reader."""
    body = (
        AWAY
        + f"""
        def work():
            gp.collective.barrier()
            if gp.rank() == {workers - 1}:
                away(18)
            return float(gp.collective.all_reduce(np.ones({count}, "float32")).sum())
        with cluster:
            print(cluster.run(work))
    """
    )
    program = script(driver(hosts, body, workers))
    started = start(hosts[0], sys.executable, program, home=tmp_path)
    out, said = started.communicate(timeout=120)
    assert (started.returncode, out) == (0, f"{[float(workers * count)] * workers}\n"), said


@pytest.mark.parametrize("workers", [2, 4])
def test_a_rank_that_is_late_is_named_at_the_deadline(hosts, script, tmp_path, workers):
    """CL-14: neither its signs of life nor the bytes that wait for it count as progress."""
    body = f"""
        def work(count, late_to_form):
            if gp.rank() == {workers - 1} and late_to_form:
                time.sleep(60)
            gp.collective.form(deadline=4)
            if gp.rank() == {workers - 1}:
                time.sleep(60)
            gp.collective.all_reduce(np.ones(count, "float32"))
        with cluster:
            cluster.run(gp.rank)
            cases = [(5_000, False), (2_000_000, False), (16_000_000, False), (5_000, True)]
            for count, late_to_form in cases:
                began = time.monotonic()
                try:
                    cluster.run(work, count, late_to_form)
                except gp.CollectiveError as error:
                    print("rank {workers - 1} on" in str(error), 3 < time.monotonic() - began < 9)
                    print(count, error, file=sys.stderr)
    """
    program = script(driver(hosts, body, workers))
    started = start(hosts[0], sys.executable, program, home=tmp_path)
    out, said = started.communicate(timeout=280)
    assert (started.returncode, out) == (0, "True True\n" * 4), said


def test_ranks_that_wait_for_bytes_on_a_slow_network_are_not_late(hosts, script, tmp_path):
    """CL-14: one host's link is slow, and on each host a rank waits for another one whose bytes move."""
    body = """
        def slow():
            if gp.rank() == 0:
                link = "tc qdisc add dev up0 root tbf rate 1mbit burst 3200 latency 1s"
                subprocess.run(link.split(), check=True)
        def work(call):
            group = gp.collective.form(deadline=4)
            group.barrier()
            began = time.monotonic()
            array = np.full(375_000, gp.rank() + 1, "float32")
            result = getattr(group, call)(array)
            return float(np.asarray(result).max()), time.monotonic() - began > 8
        with cluster:
            cluster.run(slow)
            for call in ("broadcast", "all_reduce"):
                print(cluster.run(work, call))
    """
    # The driver's own signs of life share the link.
    body = driver(hosts, body).replace("address=", "heartbeat_timeout=60, address=")
    started = start(hosts[0], sys.executable, script(body), home=tmp_path)
    out, said = started.communicate(timeout=120)
    wanted = [[(1.0, True)] * 4, [(10.0, True)] * 4]
    assert (started.returncode, out) == (0, "".join(f"{line}\n" for line in wanted)), said


def test_a_rank_that_is_stopped_is_silent(hosts, script, tmp_path):
    """CL-6: what lives and is late is waited for, but what does not run is not."""
    body = """
        def work():
            gp.collective.barrier()
            if gp.rank() == 3:
                os.kill(os.getpid(), signal.SIGSTOP)
            gp.collective.all_reduce(np.ones(5_000))
        with cluster:
            try:
                cluster.run(work)
            except gp.PeerLost as error:
                print(error.rank, error.host, "no sign of life" in str(error))
    """
    # The driver gives it up much sooner, unless it is told not to.
    body = driver(hosts, body).replace("address=", "heartbeat_timeout=60, address=")
    started = start(hosts[0], sys.executable, script(body), home=tmp_path)
    out, said = started.communicate(timeout=120)
    assert (started.returncode, out) == (0, f"3 {hosts[2].name} True\n"), said


def test_ports_of_collectives_are_at_the_address_of_the_job(hosts, script, tmp_path):
    body = """
        def listens():
            gp.collective.barrier()
            mine = {os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
                    if os.path.exists(f"/proc/self/fd/{fd}")}
            found = []
            for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
                for line in open(table).read().splitlines()[1:]:
                    _, place, _, state, *_, = line.split()
                    if state == "0A" and f"socket:[{line.split()[9]}]" in mine:
                        found.append(place.split(":")[0])
            return found
        with cluster:
            print(cluster.run(listens))
    """
    program = script(driver(hosts, body, workers=2))
    code, out, said = finish(start(hosts[0], sys.executable, program, home=tmp_path))
    # The kernel writes an address as a number in the order of the machine.
    places = [bytes(map(int, reversed(host.address.split(".")))).hex().upper() for host in hosts[1:]]
    assert (code, out) == (0, f"{[[place] for place in places]}\n"), said
