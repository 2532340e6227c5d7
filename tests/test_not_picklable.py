"""What cannot be sent says which object it is and where it came from."""

import os
import threading

import pytest

import grampus as gp


def message_of(function, *args, **kwargs):
    with pytest.raises(gp.NotPicklable) as caught:
        gp.run(function, *args, **kwargs)
    assert isinstance(caught.value, TypeError)
    assert gp.run(gp.rank) == [0, 1], "the cluster goes on"
    return str(caught.value)


def place_of(function):
    return f"{__file__}:{function.__code__.co_firstlineno}"


@pytest.fixture(autouse=True)
def cluster(runtime):
    return gp.init(workers=2)


def test_a_lock_in_a_closure():
    guard = threading.Lock()

    def work():
        with guard:
            return 1

    text = message_of(work)
    assert "variable 'guard'" in text
    assert "is a lock" in text
    assert place_of(work) in text


def test_an_open_file_in_a_closure(tmp_path):
    with open(tmp_path / "notes", "w") as notes:

        def work():
            notes.write("x")

        text = message_of(work)
    assert "variable 'notes'" in text
    assert "TextIOWrapper" in text
    assert place_of(work) in text


def test_a_generator_in_a_closure():
    rows = (row for row in range(3))
    work = lambda: next(rows)  # noqa: E731
    text = message_of(work)
    assert "variable 'rows'" in text
    assert "is a generator" in text
    assert place_of(work) in text


def test_a_lock_deep_inside_a_closure():
    class Model:
        def __init__(self):
            self.layers = [{"name": "first"}, {"name": "second", "guard": threading.Lock()}]

    model = Model()

    def work():
        return model

    text = message_of(work)
    for part in ("variable 'model'", "attribute 'layers'", "[1]", "['guard']", "is a lock"):
        assert part in text


def test_a_global_variable():
    # A function of a module that workers can import travels by name, so it has to be one that they cannot.
    space = {"guard": threading.Lock(), "__name__": "__main__"}
    exec(compile("def work():\n    return guard", "somewhere.py", "exec"), space)
    text = message_of(space["work"])
    assert "global variable 'guard'" in text
    assert "somewhere.py:1" in text
    assert "is a lock" in text


def test_an_argument_by_place_and_by_name():
    assert "argument 1 is a lock" in message_of(lambda *args: None, 1, threading.Lock())
    assert "argument 'guard' -> ['a'] is a lock" in message_of(
        lambda **kwargs: None, guard={"a": threading.Lock()}
    )


def test_a_default_value():
    def work(guard=threading.Lock()):  # noqa: B008
        return 1

    assert "default value 0" in message_of(work)


def test_a_method_of_an_object_that_cannot_travel():
    class Trainer:
        def __init__(self):
            self.guard = threading.Lock()

        def fit(self):
            return 1

    text = message_of(Trainer().fit)
    assert "its object" in text
    assert "attribute 'guard' is a lock" in text


def test_a_circle_is_searched_once():
    ring = {"guard": threading.Lock()}
    ring["self"] = ring
    assert "['guard'] is a lock" in message_of(lambda ring: None, ring)


def test_an_object_whose_own_pickling_fails_says_why():
    class Odd:
        def __reduce__(self):
            raise ValueError("I do not travel")

    text = message_of(lambda odd: None, Odd())
    assert "argument 0 is a Odd" in text or "argument 0 is an Odd" in text
    with pytest.raises(gp.NotPicklable) as caught:
        gp.run(lambda odd: None, Odd())
    assert "I do not travel" in f"{caught.value} {caught.value.__cause__}"


def test_a_result_that_cannot_travel():
    def work():
        from threading import Lock

        return {"answer": 42, "guard": Lock()}

    text = message_of(work)
    for part in ("the result of", "work", place_of(work), "['guard']", "is a lock"):
        assert part in text


def test_a_result_that_is_a_generator():
    assert "is a generator" in message_of(lambda: (x for x in range(3)))


class FailsToArrive:
    def __reduce__(self):
        return fail_to_arrive, (os.getpid(),)


def fail_to_arrive(sender):
    raise LookupError("cannot be made again here")


def test_an_argument_that_fails_to_arrive_is_the_workers_error():
    with pytest.raises(LookupError, match="cannot be made again here") as caught:
        gp.run(lambda value: None, FailsToArrive())
    assert isinstance(caught.value.__cause__, gp.WorkerTraceback)
    assert "fail_to_arrive" in str(caught.value.__cause__)
    assert gp.run(gp.rank) == [0, 1]


def test_a_result_that_fails_to_arrive_is_an_error_here():
    with pytest.raises(LookupError, match="cannot be made again here"):
        gp.run(FailsToArrive)
    assert gp.run(gp.rank) == [0, 1]


def test_a_module_that_workers_do_not_have():
    import sys
    import types

    module = types.ModuleType("only_here")
    exec("def work():\n    return 1\n", module.__dict__)
    sys.modules["only_here"] = module
    try:
        with pytest.raises(ModuleNotFoundError, match="only_here"):
            gp.run(module.work)
    finally:
        del sys.modules["only_here"]
