"""Checkpoints as Python sees them: real files, real kills, a real server that speaks S3."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import threading
import time

import numpy as np
import pytest
from object_store import point_at, serving
from processes import PATIENCE, finish, read_line, start

from grampus import _native
from grampus.errors import CheckpointError, GrampusError

MODEL = "model.safetensors"


def given(array, dtype="F32"):
    return (array.shape, dtype, array)


def weights(value, count=1000):
    return {MODEL: {"weight": given(np.full(count, value, dtype=np.float32))}}


def name(step):
    return f"step-{step:08}"


def array(found, dtype):
    shape, _, memory = found
    return np.asarray(memory).view(dtype).reshape(shape)


def save(store, step, **options):
    store.begin(name(step), weights(step), json.dumps({"step": step}), **options)
    return store.wait()


@pytest.fixture
def store(tmp_path):
    return _native.CheckpointStore(str(tmp_path / "store"))


def test_a_checkpoint_comes_back(store):
    rng = np.random.default_rng(0)
    model = {"w": rng.normal(size=(3, 4)).astype(np.float32), "empty": np.zeros((0, 2), dtype=np.float32)}
    state = {"step": np.array(7), "short": np.arange(6, dtype=np.int16), "odd": np.array([True, False])}
    meta = {"lr": 0.1, "third": 1 / 3, "tiny": 5e-324, "seed": 2**100, "text": 'a "quoted" ü'}
    files = {
        MODEL: {key: given(value) for key, value in model.items()},
        "optimizer.safetensors": {
            "step": given(state["step"], "I64"),
            "short": given(state["short"], "I16"),
            "odd": given(state["odd"], "BOOL"),
        },
    }
    assert store.begin(name(7), files, json.dumps(meta)) is None
    assert store.wait() == (name(7), [])
    assert store.wait() is None
    assert store.list() == [(name(7), 7)]
    text, found = store.read(name(7))
    assert json.loads(text) == meta
    assert set(found) == {MODEL, "optimizer.safetensors"}
    assert np.array_equal(array(found[MODEL]["w"], np.float32), model["w"])
    assert found[MODEL]["empty"][:2] == ([0, 2], "F32")
    assert array(found["optimizer.safetensors"]["step"], np.int64) == 7
    assert np.array_equal(array(found["optimizer.safetensors"]["short"], np.int16), state["short"])
    assert found["optimizer.safetensors"]["odd"][1] == "BOOL"


def test_types_that_numpy_lacks_travel_as_bytes(tmp_path):
    raw = np.arange(8, dtype=np.uint8)
    bare = (raw.ctypes.data, 8, 5, raw)
    path = str(tmp_path / "half.safetensors")
    _native.write_tensors(path, {"a": ((2, 2), "BF16", raw), "b": ([4], "BF16", bare)}, {"format": "pt"})
    found = _native.read_tensors(path)
    assert {key: value[:2] for key, value in found.items()} == {"a": ([2, 2], "BF16"), "b": ([4], "BF16")}
    assert np.asarray(found["a"][2]).tobytes() == np.asarray(found["b"][2]).tobytes() == raw.tobytes()
    assert [path.name for path in tmp_path.iterdir()] == ["half.safetensors"]


def test_what_is_read_can_be_written_to_and_outlives_the_store(store):
    save(store, 1)
    _, found = store.read(name(1))
    view = array(found[MODEL]["weight"], np.float32)
    store.remove(name(1))
    del found, store
    assert view.flags.writeable
    view += 1
    assert (view == 2).all()


def test_the_file_stays_as_it_is_when_memory_is_written_to(store):
    save(store, 1)
    array(store.read(name(1))[1][MODEL]["weight"], np.float32)[:] = 5
    assert (array(store.read(name(1))[1][MODEL]["weight"], np.float32) == 1).all()


def test_begin_copies(store):
    array_ = np.ones(1 << 20, dtype=np.float32)
    store.begin(name(1), {MODEL: {"weight": given(array_)}}, "{}")
    array_[:] = 2
    store.wait()
    assert (array(store.read(name(1))[1][MODEL]["weight"], np.float32) == 1).all()


def test_old_ones_go_and_the_best_stays(store):
    for step in (1, 2, 3):
        save(store, step, keep=2, pinned=[name(1)])
    done = save(store, 4, keep=2, pinned=[name(1)])
    assert done == (name(4), [(name(2), "it is neither one of the last 2 nor pinned")])
    assert [step for _, step in store.list()] == [1, 3, 4]


def test_a_damaged_newest_one_is_passed_over_and_named(store, tmp_path):
    for step in (1, 2):
        save(store, step)
    path = tmp_path / "store" / name(2) / MODEL
    text = bytearray(path.read_bytes())
    text[-1] ^= 1
    path.write_bytes(text)
    latest, reasons = store.latest()
    assert latest == name(1)
    assert len(reasons) == 1 and str(path) in reasons[0] and "checksum" in reasons[0]
    found, _ = store.read_latest()
    assert found[0] == name(1) and json.loads(found[1]) == {"step": 1}
    with pytest.raises(CheckpointError, match=r"model\.safetensors is damaged: its checksum"):
        store.read(name(2))


def test_wrong_arguments_are_told(store, tmp_path):
    assert issubclass(CheckpointError, GrampusError)
    with pytest.raises(CheckpointError, match="hdfs:// is not supported; use a folder"):
        _native.CheckpointStore("hdfs://host/path")
    with pytest.raises(CheckpointError, match=r'"weight": 4 bytes do not make a F32 of shape \[2\]'):
        store.begin(name(1), {MODEL: {"weight": ([2], "F32", np.zeros(1, dtype=np.float32))}}, "{}")
    with pytest.raises(ValueError, match='no type "float32"'):
        store.begin(name(1), {MODEL: {"weight": ([1], "float32", np.zeros(1, dtype=np.float32))}}, "{}")
    with pytest.raises(ValueError, match="not contiguous"):
        store.begin(name(1), {MODEL: {"w": given(np.zeros((2, 2), dtype=np.float32).T)}}, "{}")
    with pytest.raises(TypeError, match="is no buffer"):
        store.begin(name(1), {MODEL: {"w": ([1], "U8", "text")}}, "{}")
    with pytest.raises(CheckpointError, match="NaN and Infinity are none"):
        store.begin(name(1), {}, json.dumps({"loss": float("nan")}))
    with pytest.raises(CheckpointError, match="use step- and a number"):
        store.read("best")
    with pytest.raises(CheckpointError, match="it is empty or not there"):
        _native.read_checkpoint(str(tmp_path / "nowhere"))
    with pytest.raises(CheckpointError, match="there is no such file"):
        _native.read_tensors(str(tmp_path / "no.safetensors"))
    assert store.latest() == (None, [])


def test_an_error_in_the_background_is_raised_by_the_next_call(store, tmp_path):
    (tmp_path / "store").write_text("a file where the folder should be")
    store.begin(name(1), weights(1), "{}")
    with pytest.raises(CheckpointError, match="store"):
        store.wait()
    (tmp_path / "store").unlink()
    assert save(store, 2) == (name(2), [])


WRITES = """
    import itertools, json, sys
    import numpy as np
    from grampus import _native

    store = _native.CheckpointStore(sys.argv[1])
    newest, reasons = store.latest()
    first = int(newest[5:]) + 1 if newest else 1
    for step in itertools.count(first):
        weight = np.full(300_000, step, dtype=np.float32)
        file = {"weight": (weight.shape, "F32", weight)}
        files = {"a.safetensors": file, "b.safetensors": file}
        store.begin(f"step-{step:08}", files, json.dumps({"step": step}), keep=3)
        store.wait()
        print(step, flush=True)
"""


def test_kill_at_any_moment_leaves_a_whole_latest(tmp_path):
    """The store gives the last checkpoint that was said to be there, or the one after it."""
    folder, moments = tmp_path / "store", random.Random(1)
    last = 0
    for _ in range(20):
        writer = start(WRITES, folder)
        try:
            last = int(read_line(writer))
            time.sleep(moments.uniform(0, 0.06))
        finally:
            writer.send_signal(signal.SIGKILL)
            rest, _ = writer.communicate(timeout=PATIENCE)
        last = int((rest.split() or [last])[-1])
        found, reasons = _native.CheckpointStore(str(folder)).read_latest()
        assert reasons == []
        newest, meta, files = found
        step = int(newest[5:])
        assert step in (last, last + 1)
        assert json.loads(meta) == {"step": step}
        for tensors in files.values():
            assert (array(tensors["weight"], np.float32) == step).all()
    # What the kills left is cleaned by whoever writes next.
    save(_native.CheckpointStore(str(folder)), last + 10, keep=1)
    assert [path.name for path in folder.iterdir()] == [name(last + 10)]


FULL = """
    import os, resource, sys
    import numpy as np
    from grampus import _native
    from grampus.errors import CheckpointError

    folder, limit = sys.argv[1], int(sys.argv[2])
    store = _native.CheckpointStore(folder)
    def save(step, count):
        weight = np.zeros(count, dtype=np.float32)
        store.begin(f"step-{step:08}", {"model.safetensors": {"w": (weight.shape, "F32", weight)}}, "{}")
        store.wait()
    save(1, 10)
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        save(2, 1 << 20)
    except CheckpointError as error:
        print(error)
    print(os.listdir(folder), store.latest())
"""


def check_full(folder, limit):
    code, out, err = finish(start(FULL, folder, limit))
    assert code == 0, err
    said, left = out.splitlines()
    assert said.startswith(f"no room to write {folder}/{name(2)}/{MODEL}")
    assert left == f"{[name(1)]} {(name(1), [])}"


def test_a_file_that_may_not_grow(tmp_path):
    check_full(tmp_path / "store", 1 << 20)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
def test_a_full_disk(tmp_path):
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(tmp_path)], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr}")
    try:
        check_full(tmp_path, 0)
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_wait_has_an_end_and_hears_ctrl_c(monkeypatch):
    """The server takes the connection and says nothing."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        point_at(monkeypatch, f"http://127.0.0.1:{silent.getsockname()[1]}")
        store = _native.CheckpointStore("s3://bucket/runs")
        store.begin(name(1), weights(1), "{}")
        with pytest.raises(TimeoutError, match=r"s3://bucket/runs/step-00000001 was not written after 0.1 s"):
            store.wait(timeout=0.1)
        threading.Timer(0.2, signal.raise_signal, [signal.SIGINT]).start()
        with pytest.raises(KeyboardInterrupt):
            store.wait()
    # Nobody listens any more, so the write ends, too.
    with pytest.raises(CheckpointError, match="s3://bucket/runs/step-00000001"):
        store.wait()


@pytest.fixture
def bucket(monkeypatch, tmp_path):
    """A bucket on a server of our own."""
    with serving(monkeypatch, tmp_path / "moto.log") as url:
        yield url


def test_an_object_store(bucket):
    store = _native.CheckpointStore("s3://bucket/runs/a")
    assert store.latest() == (None, [])
    for step in (1, 2, 3):
        done = save(store, step, keep=2)
    assert done == (name(3), [(name(1), "it is neither one of the last 2 nor pinned")])
    assert [step for _, step in store.list()] == [2, 3]
    found, reasons = store.read_latest()
    assert (found[0], json.loads(found[1]), reasons) == (name(3), {"step": 3}, [])
    view = array(found[2][MODEL]["weight"], np.float32)
    view += 1
    assert (view == 4).all()
    text, files = _native.read_checkpoint(f"s3://bucket/runs/a/{name(2)}")
    assert json.loads(text) == {"step": 2} and (array(files[MODEL]["weight"], np.float32) == 2).all()
    # A crash before the manifest, and bytes that changed.
    for step in (5, 3):
        _native.write_tensors(f"s3://bucket/runs/a/{name(step)}/{MODEL}", weights(0)[MODEL], {})
    latest, reasons = store.latest()
    assert latest == name(2)
    assert f"no checkpoint in s3://bucket/runs/a/{name(5)}" in reasons[0] and "never finished" in reasons[0]
    assert f"s3://bucket/runs/a/{name(3)}/{MODEL} is damaged: its checksum" in reasons[1]
    # What was never finished goes with the others.
    done = save(store, 6, keep=3)
    assert done == (name(6), [(name(5), "it was never finished")])


def test_large_files_in_an_object_store_travel_in_parts(bucket):
    path = "s3://bucket/large.safetensors"
    large = np.arange(6 << 20, dtype=np.float64)
    _native.write_tensors(path, {"a": given(large, "F64"), "b": given(large[:10], "F64")}, {})
    found = _native.read_tensors(path)
    assert np.array_equal(array(found["a"], np.float64), large)
    assert np.array_equal(array(found["b"], np.float64), large[:10])


def test_an_object_store_that_refuses_is_no_empty_one(bucket, monkeypatch):
    with pytest.raises(CheckpointError, match=r"s3://nobody/runs.*NoSuchBucket.*check the bucket"):
        _native.CheckpointStore("s3://nobody/runs").latest()
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{closed.getsockname()[1]}")
        with pytest.raises(CheckpointError, match=r"s3://bucket/runs.*[Rr]efused.*AWS_ENDPOINT_URL"):
            _native.CheckpointStore("s3://bucket/runs").latest()
