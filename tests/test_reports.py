"""Reports: what a function says while it runs, seen by its driver before the call ends."""

import os
import signal
import sys
import threading
import time

import pytest
from processes import finish, read_line, start, wait_until

import grampus as gp
from grampus import _report

LARGEST = 1 << 20


def here(workers):
    return gp.Cluster.local(workers)


def there(workers):
    """As over ssh, with a shell of this machine in its place: TCP and TLS."""
    return gp.Cluster.ssh(["127.0.0.1"], workers, command="sh -c {command}", address="127.0.0.1")


both = pytest.mark.parametrize("cluster_of", [here, there])


def call(cluster, function, *args, workers=None):
    """Call a function; return the results and all reports."""
    reports = []
    results = cluster._call(function, args, {}, workers, lambda rank, body: reports.append((rank, body)))
    return results, reports


def number(body):
    return int.from_bytes(body, "little")


@both
def test_many_arrive_in_order_before_the_call_returns(cluster_of):
    def work(count):
        for position in range(count):
            _report.send(position.to_bytes(4, "little"))
        return "done"

    with cluster_of(1) as cluster:
        results, reports = call(cluster, work, 5000)
    assert results == ["done"]
    assert [(rank, number(body)) for rank, body in reports] == [(0, position) for position in range(5000)]


@both
def test_they_arrive_while_the_function_runs(cluster_of, tmp_path):
    seen = tmp_path / "seen"

    def work():
        _report.send(b"hello")
        end = time.monotonic() + 20
        while not seen.exists() and time.monotonic() < end:
            time.sleep(0.01)
        return seen.exists()

    with cluster_of(1) as cluster:
        results = cluster._call(work, (), {}, None, lambda rank, body: seen.write_bytes(body))
    assert results == [True]
    assert seen.read_bytes() == b"hello"


@both
def test_every_rank_may_report(cluster_of):
    def work():
        for position in range(100):
            _report.send(b"%d of %d" % (position, gp.rank()))

    with cluster_of(2) as cluster:
        _, reports = call(cluster, work)
    for rank in range(2):
        own = [body for sender, body in reports if sender == rank]
        assert own == [b"%d of %d" % (position, rank) for position in range(100)]


def test_they_are_said_before_what_a_function_raises():
    def work():
        _report.send(b"soon")
        raise ValueError("now")

    reports = []
    with here(1) as cluster, pytest.raises(ValueError, match="now"):
        cluster._call(work, (), {}, None, lambda rank, body: reports.append(body))
    assert reports == [b"soon"]


@both
def test_large_ones_are_carried_and_larger_ones_refused(cluster_of):
    def work():
        for letter in b"abc":
            _report.send(bytes([letter]) * LARGEST)
        _report.send(b"")
        try:
            _report.send(bytes(LARGEST + 1))
        except gp.GrampusError as error:
            return str(error)

    with cluster_of(1) as cluster:
        results, reports = call(cluster, work)
    assert reports == [*((0, letter * LARGEST) for letter in (b"a", b"b", b"c")), (0, b"")]
    assert "1048577 bytes is too large, at most 1048576" in results[0]


def test_what_is_no_bytes_is_refused_where_it_is_sent():
    with here(1) as cluster, pytest.raises(TypeError):
        cluster.run(lambda: _report.send("text"))


def test_threads_may_report():
    def work():
        def talk(letter):
            for position in range(200):
                _report.send(letter + position.to_bytes(4, "little"))

        threads = [threading.Thread(target=talk, args=(letter,)) for letter in (b"a", b"b", b"c")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    with here(1) as cluster:
        _, reports = call(cluster, work)
    for letter in (b"a", b"b", b"c"):
        own = [number(body[1:]) for _, body in reports if body[:1] == letter]
        assert own == list(range(200))


def test_after_the_end_nothing_is_sent(tmp_path):
    sent = tmp_path / "sent"

    def outlive():
        def talk():
            while _report._present is not None:
                time.sleep(0.001)
            _report.send(b"late")
            sent.touch()

        threading.Thread(target=talk, daemon=True).start()
        _report.send(b"in time")

    with here(1) as cluster:
        assert call(cluster, outlive) == ([None], [(0, b"in time")])
        assert wait_until(sent.exists)
        assert call(cluster, _report.send, b"next") == ([None], [(0, b"next")])


def test_outside_a_task_and_in_a_forked_child_nothing_is_sent():
    _report.send(b"the driver is no worker")

    def work():
        child = os.fork()
        if child == 0:
            _report.send(b"child")
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        _report.send(b"parent")

    with here(1) as cluster:
        assert call(cluster, work)[1] == [(0, b"parent")]


def test_a_run_that_nobody_listens_to_is_a_plain_run():
    with here(2) as cluster:
        assert cluster.run(lambda: _report.send(b"unheard") or gp.rank()) == [0, 1]


def test_an_exception_of_the_listener_ends_the_function_everywhere(tmp_path):
    def work():
        mark = tmp_path / str(gp.rank())
        try:
            mark.touch()
            end = time.monotonic() + 20
            while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < end:
                time.sleep(0.01)
            _report.send(b"now")
            time.sleep(60)
        except KeyboardInterrupt:
            mark.write_text("interrupted")
            raise

    calls = []

    def listen(rank, body):
        calls.append(rank)
        raise LookupError("no such thing")

    with here(2) as cluster:
        before = cluster.run(os.getpid)
        with pytest.raises(LookupError, match="no such thing"):
            cluster._call(work, (), {}, None, listen)
        assert len(calls) == 1
        assert cluster.run(os.getpid) == before
    assert [(tmp_path / rank).read_text() for rank in ("0", "1")] == ["interrupted"] * 2


def test_an_exception_of_the_listener_at_the_last_moment():
    """The function has returned; the exception is raised all the same."""
    with here(1) as cluster:
        with pytest.raises(ZeroDivisionError):
            cluster._call(_report.send, (b"only",), {}, None, lambda rank, body: time.sleep(0.3) or 1 / 0)
        assert cluster.run(gp.rank) == [0]


def test_ctrl_c_in_the_listener_interrupts_the_function():
    def work():
        _report.send(b"now")
        time.sleep(60)

    with here(2) as cluster:
        before = cluster.run(os.getpid)
        with pytest.raises(KeyboardInterrupt):
            cluster._call(work, (), {}, None, lambda rank, body: signal.raise_signal(signal.SIGINT))
        assert cluster.run(os.getpid) == before


def exit_at_once():
    os._exit(3)


def kill_itself():
    os.kill(os.getpid(), signal.SIGKILL)


def leave_politely():
    sys.exit(3)


@both
@pytest.mark.parametrize("die", [exit_at_once, kill_itself, leave_politely])
def test_what_a_worker_said_before_it_died_is_heard_first(cluster_of, die):
    def work():
        for position in range(100):
            _report.send(position.to_bytes(4, "little"))
        die()

    with cluster_of(1) as cluster:
        for _ in range(5):
            reports = []
            with pytest.raises(gp.WorkerDied):
                cluster._call(work, (), {}, None, lambda rank, body, to=reports: to.append(number(body)))
            assert reports == list(range(100))


def test_a_death_and_the_words_before_it_that_come_at_once():
    """Where a stopped driver goes on, both are there: the words over one way, the death over another."""
    driver = start(
        """
        import os, time
        import grampus as gp
        from grampus import _report

        def work():
            _report.send(b"ready")
            time.sleep(0.7)
            for _ in range(100):
                _report.send(b"word")
            os._exit(3)

        heard = []
        def listen(rank, body):
            heard.append(body)
            if body == b"ready":
                print("ready", flush=True)

        with gp.Cluster.local(1, heartbeat_timeout=1) as cluster:
            for _ in range(5):
                try:
                    cluster._call(work, (), {}, None, listen)
                except gp.WorkerDied:
                    heard.append(b"died")
        print(heard == 5 * [b"ready", *(100 * [b"word"]), b"died"])
        """
    )
    for _ in range(5):
        assert read_line(driver) == "ready"
        driver.send_signal(signal.SIGSTOP)
        time.sleep(1.2)
        driver.send_signal(signal.SIGCONT)
    assert finish(driver)[:2] == (0, "True\n")


def test_a_child_that_keeps_the_connection_open_does_not_hide_a_death():
    def work():
        if os.fork() == 0:
            os.setsid()
            time.sleep(60)
        _report.send(b"last words")
        os._exit(3)

    reports = []
    with here(1) as cluster:
        with pytest.raises(gp.WorkerDied) as caught:
            cluster._call(work, (), {}, None, lambda rank, body: reports.append(body))
        assert cluster.run(gp.rank) == [0]
    assert caught.value.exit_code == 3
    assert reports == [b"last words"]


def test_a_listener_that_is_too_slow_misses_the_oldest(tmp_path, capsys):
    sent = tmp_path / "sent"

    def work():
        for position in range(12_000):
            _report.send(position.to_bytes(4, "little"))
        sent.touch()

    heard = []

    def listen(rank, body):
        heard.append(number(body))
        assert wait_until(sent.exists, 50)

    with here(1) as cluster:
        cluster._call(work, (), {}, None, listen)
    assert heard == sorted(heard)
    assert heard[-10_000:] == list(range(2_000, 12_000))
    missed = 12_000 - len(heard)
    assert missed > 0
    assert f"[grampus] {missed} reports were dropped" in capsys.readouterr().err


def test_a_driver_that_is_stopped_for_long_misses_nothing():
    """Ctrl-Z ends nothing, also where a worker has more to say than a socket holds."""
    driver = start(
        """
        import time
        import grampus as gp
        from grampus import _report

        def work():
            for _ in range(100):
                _report.send(bytes(1 << 16))
                time.sleep(0.01)

        heard = []
        def listen(rank, body):
            if not heard:
                print("ready", flush=True)
            heard.append(len(body))

        with gp.Cluster.local(2, heartbeat_timeout=1) as cluster:
            cluster._call(work, (), {}, None, listen)
        print(heard == [1 << 16] * 200)
        """
    )
    assert read_line(driver) == "ready"
    driver.send_signal(signal.SIGSTOP)
    # Longer than a link otherwise lets a write take.
    time.sleep(12)
    driver.send_signal(signal.SIGCONT)
    assert finish(driver)[:2] == (0, "True\n")
