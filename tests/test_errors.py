"""What a user's function raises is what `gp.run` raises."""

import contextlib
import json
import os
import signal
import sys
import threading
import time
import traceback

import pytest
from processes import finish, start

import grampus as gp

HOST = os.uname().nodename
# A run that waits for a rank that sleeps for a minute has not cancelled it.
SOON = 10.0


def pids():
    return gp.run(os.getpid)


def shown(error):
    """What Python prints for an exception that nobody catches."""
    return "".join(traceback.format_exception(error))


class FromModule(Exception):
    """Importable by the workers."""


class NeedsArguments(Exception):
    def __init__(self, code, *, reason):
        super().__init__(f"code {code}: {reason}")
        self.code = code
        self.reason = reason


class HoldsLock(Exception):
    def __init__(self, text):
        super().__init__(text)
        self.lock = threading.Lock()
        self.detail = "kept"


class TakesTrouble(Exception):
    def __reduce__(self):
        raise RuntimeError("not even pickling works")


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    "error",
    [ValueError("bad value"), KeyError("key"), FromModule("mine"), ZeroDivisionError()],
    ids=lambda error: type(error).__name__,
)
def test_the_same_exception_is_raised(error):
    gp.init(workers=2)

    def fail():
        raise error

    with pytest.raises(type(error)) as caught:
        gp.run(fail)
    assert type(caught.value) is type(error)
    assert caught.value.args == error.args


def test_an_exception_with_state_of_the_system_keeps_it():
    gp.init(workers=2)
    with pytest.raises(FileNotFoundError) as caught:
        gp.run(open, "/no/such/file")
    assert (caught.value.errno, caught.value.filename) == (2, "/no/such/file")


def test_an_exception_whose_constructor_wants_arguments():
    gp.init(workers=2)

    def fail():
        raise NeedsArguments(5, reason="just so")

    with pytest.raises(NeedsArguments, match="code 5: just so") as caught:
        gp.run(fail)
    assert (caught.value.code, caught.value.reason) == (5, "just so")


def test_an_exception_that_holds_something_that_cannot_travel():
    gp.init(workers=2)

    def fail():
        raise HoldsLock("locked")

    with pytest.raises(HoldsLock, match="locked") as caught:
        gp.run(fail)
    assert caught.value.detail == "kept"


def test_an_exception_that_refuses_to_be_pickled():
    gp.init(workers=2)

    def fail():
        raise TakesTrouble("the message")

    with pytest.raises(TakesTrouble, match="the message"):
        gp.run(fail)


def test_an_exception_with_an_argument_that_cannot_travel():
    gp.init(workers=2)

    def fail():
        raise ValueError("the lock", threading.Lock())

    with pytest.raises(ValueError, match="the lock") as caught:
        gp.run(fail)
    assert "lock" in str(caught.value.args[1])


def test_an_exception_whose_class_cannot_travel_is_told_in_words():
    gp.init(workers=2)

    def fail():
        from threading import Lock

        class Odd(Exception):
            lock = Lock()

        raise Odd("the message")

    with pytest.raises(gp.GrampusError, match="Odd: the message"):
        gp.run(fail)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no notes and no groups")
def test_a_group_and_the_notes_of_an_exception():
    gp.init(workers=2)

    def fail():
        error = ExceptionGroup("both", [ValueError("one"), NeedsArguments(2, reason="two")])  # noqa: F821
        error.add_note("a note")
        raise error

    with pytest.raises(BaseException, match="both") as caught:
        gp.run(fail)
    assert caught.value.__notes__ == ["a note"]
    assert "NeedsArguments: code 2: two" in shown(caught.value)


def test_an_exception_that_cannot_even_be_printed():
    gp.init(workers=2)
    before = pids()

    def fail():
        raise Unprintable

    with pytest.raises(Unprintable):
        gp.run(fail)
    assert pids() == before


def test_a_class_of_the_script_is_the_same_class(tmp_path):
    driver = start(
        """
        import grampus as gp

        class Mine(Exception):
            pass

        def fail():
            raise Mine("from the script")

        gp.init(workers=2)
        try:
            gp.run(fail)
        except Mine as error:
            print(error)
        """
    )
    code, out, err = finish(driver)
    assert (code, out.strip()) == (0, "from the script"), err


def test_the_traceback_starts_in_the_users_code_and_names_rank_and_host():
    gp.init(workers=2)

    def inner():
        return {}["missing"]

    def outer():
        if gp.rank() == 1:
            inner()

    with pytest.raises(KeyError) as caught:
        gp.run(outer)
    cause = caught.value.__cause__
    assert isinstance(cause, gp.WorkerTraceback)
    assert (cause.rank, cause.host, cause.folded) == (1, HOST, [])
    text = str(cause)
    head, rest = text.split("Traceback (most recent call last):\n")
    assert f"rank 1 on {HOST} (pid {cause.pid})" in head
    places = [line for line in rest.splitlines() if line.strip().startswith("File ")]
    line = outer.__code__.co_firstlineno + 2
    assert places[0].strip() == f'File "{__file__}", line {line}, in outer'
    assert places[1].strip().endswith(f"line {inner.__code__.co_firstlineno + 1}, in inner")
    assert "grampus/" not in rest.replace(__file__, "")
    # Once, below the line of the driver.
    assert shown(caught.value).count("KeyError: 'missing'") == 1
    assert "rank 1 on" in shown(caught.value)


def test_the_cause_of_the_users_exception_is_shown():
    gp.init(workers=1)

    def fail():
        try:
            raise ValueError("first")
        except ValueError as error:
            raise RuntimeError("second") from error

    with pytest.raises(RuntimeError, match="second") as caught:
        gp.run(fail)
    assert "ValueError: first" in shown(caught.value)


def test_a_rank_that_sleeps_is_cancelled_and_stays_warm():
    gp.init(workers=2)
    before = pids()

    def fail():
        if gp.rank() == 0:
            raise ValueError("rank 0 gives up")
        time.sleep(60)

    began = time.monotonic()
    with pytest.raises(ValueError, match="rank 0 gives up"):
        gp.run(fail)
    assert time.monotonic() - began < SOON
    assert pids() == before


def test_a_rank_that_waits_in_a_lock_or_a_loop_is_cancelled():
    gp.init(workers=3)
    before = pids()

    def fail():
        if gp.rank() == 0:
            raise ValueError("rank 0 gives up")
        if gp.rank() == 1:
            threading.Event().wait(60)
        while True:
            pass

    with pytest.raises(ValueError, match="rank 0 gives up"):
        gp.run(fail)
    assert pids() == before


def test_a_rank_that_ignores_the_interrupt_is_replaced():
    gp.init(workers=2)
    before = pids()

    def stubborn():
        if gp.rank() == 0:
            time.sleep(0.5)  # until the other one is deep in its loop
            raise ValueError("rank 0 gives up")
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with contextlib.suppress(KeyboardInterrupt):
                time.sleep(60)

    began = time.monotonic()
    with pytest.raises(ValueError, match="rank 0 gives up"):
        gp.run(stubborn)
    assert time.monotonic() - began < SOON
    after = pids()
    assert after[0] == before[0]
    assert after[1] != before[1]


def test_errors_of_other_ranks_are_counted():
    gp.init(workers=3)

    def fail():
        if gp.rank() == 0:
            time.sleep(0.2)
            raise ValueError("first")
        try:
            time.sleep(60)
        finally:
            raise RuntimeError("later")

    with pytest.raises(ValueError, match="first") as caught:
        gp.run(fail)
    cause = caught.value.__cause__
    assert sorted(cause.folded) == [1, 2]
    assert "2 other ranks failed after it" in str(cause)


def test_all_ranks_raise_at_once():
    gp.init(workers=3)

    def fail():
        raise ValueError(gp.rank())

    with pytest.raises(ValueError) as caught:
        gp.run(fail)
    assert caught.value.args == (caught.value.__cause__.rank,)


def test_the_next_run_after_an_error_is_clean():
    gp.init(workers=2)
    for number in range(20):
        with pytest.raises(ValueError, match=str(number)):
            gp.run(lambda number: [][:1] or int(f"x{number}"), number)
        assert gp.run(gp.rank) == [0, 1]


def test_the_broken_connection_to_a_dead_rank_is_not_the_cause():
    gp.init(workers=2)

    def talk():
        import socket

        host, port = json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"][1].rsplit(":", 1)
        if gp.rank() == 1:
            with socket.create_server((host, int(port))) as server:
                connection, _ = server.accept()
                connection.recv(1)
                os.kill(os.getpid(), signal.SIGKILL)
        for _ in range(200):
            try:
                connection = socket.create_connection((host, int(port)))
                break
            except ConnectionRefusedError:
                time.sleep(0.02)
        connection.sendall(b"x")
        if not connection.recv(1):
            raise EOFError("the other rank has gone")

    for _ in range(5):
        with pytest.raises(gp.WorkerDied) as caught:
            gp.run(talk)
        assert (caught.value.rank, caught.value.exit_code) == (1, 128 + signal.SIGKILL)


def test_a_connection_error_of_the_users_own_is_raised_as_such():
    gp.init(workers=2)

    def fail():
        if gp.rank() == 0:
            raise ConnectionRefusedError("no server there")

    with pytest.raises(ConnectionRefusedError, match="no server there"):
        gp.run(fail)


def test_a_keyboard_interrupt_raised_by_the_function_itself():
    gp.init(workers=2)
    before = pids()

    def fail():
        if gp.rank() == 1:
            raise KeyboardInterrupt("by hand")
        time.sleep(60)

    with pytest.raises(KeyboardInterrupt, match="by hand") as caught:
        gp.run(fail)
    assert caught.value.__cause__.rank == 1
    assert pids() == before


def test_an_exception_beside_exceptions_is_raised():
    gp.init(workers=2)

    class Stop(BaseException):
        pass

    def fail():
        raise Stop("enough")

    with pytest.raises(BaseException, match="enough") as caught:
        gp.run(fail)
    assert type(caught.value).__name__ == "Stop"


def test_a_deep_recursion_is_an_error_like_any_other():
    gp.init(workers=2)

    def down(depth):
        return down(depth + 1)

    before = pids()
    with pytest.raises(RecursionError):
        gp.run(down, 0)
    assert pids() == before


def test_an_exception_with_a_large_message():
    gp.init(workers=2)

    def fail():
        raise ValueError("x" * 10_000_000)

    with pytest.raises(ValueError, match="xxx") as caught:
        gp.run(fail)
    assert len(caught.value.args[0]) == 10_000_000


def test_a_closed_standard_output_is_the_functions_business():
    gp.init(workers=2)
    assert gp.run(lambda: sys.stdout.close()) == [None, None]
    assert gp.run(gp.rank) == [0, 1]
