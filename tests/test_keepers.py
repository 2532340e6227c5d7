"""Rows that stay on executors: every row once, whoever holds it, and nothing left of those who did."""

import contextlib
import io
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from clusters import TORCH, scratch  # noqa: F401 - a fixture
from namespaces import make_hosts, remove_hosts
from PIL import Image
from processes import finish, lives, start, wait_until
from torch import nn

import grampus as gp
from grampus.errors import DataError, FeedLost
from grampus.frames.depositing import Receipt, deposit, deposit_groups
from grampus.frames.feed import Feed
from grampus.shards.batches import batches, wanted

WANTED = wanted([["a", "b"]], "y")


@pytest.fixture
def executors():
    """Processes that stand for executors."""
    started = []

    def make():
        started.append(subprocess.Popen(["sleep", "60"]))
        return started[-1].pid

    yield make
    for one in started:
        one.kill()
        one.wait()


def rows(first, count):
    """Rows that tell which they are."""
    number = np.arange(first, first + count)
    return pa.record_batch({"a": number.astype("f8"), "b": -number.astype("f8"), "y": number})


def keepers(feed):
    """Processes of all keepers."""
    return [pid for _, pid, _, _ in feed._hub.keepers()]


def read(kept, shuffle=True, size=64, seed=7):
    """All rows of an epoch: arrays, and what was said of rows that were left out."""
    loader = kept.loader(2)
    loader.begin(seed, 0, shuffle)
    places = [(first, min(first + size, kept.rows)) for first in range(0, kept.rows, size)]
    found = list(batches(loader, places))
    arrays = [np.concatenate(parts) for parts in zip(*(batch[0] for batch in found), strict=True)]
    return arrays, [why for batch in found for why in batch[2]]


def check(kept, numbers, seed=7):
    """Rows come in the order of the formula, and each is whole."""
    (x, y), _ = read(kept, seed=seed)
    order = np.frombuffer(gp._native.Order(seed, 0, len(numbers)).rows(0, len(numbers)), np.int64)
    np.testing.assert_array_equal(y, np.asarray(numbers)[order])
    np.testing.assert_array_equal(x, np.stack([y, -y], axis=1).astype("f4"))
    (_, y), _ = read(kept, shuffle=False)
    np.testing.assert_array_equal(y, numbers)


def partitions(feed, executors, disk=False):
    """Partitions of many sizes with two executors, the second of which may hold all on disk."""
    here, there = executors(), executors()
    other = replace(feed.order, memory=0) if disk else feed.order
    return [
        deposit([rows(0, 100), rows(100, 41)], feed.order, 0, watched=here),
        deposit([rows(141, 59)], other, 1, watched=there),
        deposit([], other, 2, watched=there),
        deposit([rows(0, 0)], feed.order, 3, watched=here),
        deposit((rows(200 + at, 1) for at in range(9)), other, 4, watched=there),
    ]


@pytest.mark.parametrize("disk", [False, True])
def test_all_rows_of_all_partitions(executors, disk, runtime):
    with Feed(WANTED) as feed:
        # In any order: the number of the partition counts.
        kept = feed.take(reversed(partitions(feed, executors, disk)))
        assert len(keepers(feed)) == 2
        assert (kept.rows, kept.copied_bytes, feed.copied_bytes) == (209, 209 * 16, 209 * 16)
        check(pickle.loads(pickle.dumps(kept)), range(209))
        assert feed.lost() == []
        # What is on disk has no name either.
        assert not [name for _, _, names in os.walk(runtime) for name in names]
        processes = keepers(feed)
    assert wait_until(lambda: not any(map(lives, processes)), 3)
    assert feed.order.join.split("/")[2] not in repr((feed.order, kept))


def test_a_partition_of_several_blocks(executors):
    wide = np.arange(44 * 500_000, dtype="f4").reshape(44, -1)
    batch = pa.record_batch({"x": pa.FixedSizeListArray.from_arrays(pa.array(wide.reshape(-1)), 500_000)})
    with Feed(wanted("x", None)) as feed:
        order = replace(feed.order, memory=70 << 20)
        receipt = deposit([batch.slice(0, 3), batch.slice(3)], order, 0, watched=executors())
        assert (receipt.blocks, receipt.forms) == ((33, 11), (("f32", (500_000,)),))
        # The first is in memory, and the second did not fit.
        (x,), _ = read(feed.take([receipt]), shuffle=False, size=40)
        np.testing.assert_array_equal(x, wide)
        again = deposit([batch], order, 0, watched=executors())
        assert (again.digest, again.deposit != receipt.deposit) == (receipt.digest, True)


def test_files_that_tasks_read_themselves(executors, tmp_path):
    for number in range(2):
        table = pa.Table.from_batches([rows(number * 50, 50)])
        pa.parquet.write_table(table, tmp_path / f"{number}.parquet", row_group_size=20)
    paths = [str(tmp_path / f"{number}.parquet") for number in range(2)]
    with Feed(WANTED) as feed:
        here = executors()
        receipts = [
            deposit_groups(paths, [0, 1, 2], feed.order, 0, watched=here),
            deposit_groups(paths[1:], [0, 1, 2], feed.order, 1, watched=here),
        ]
        check(feed.take(receipts), range(100))
        with pytest.raises(DataError, match="there is no row group 7: there are 6"):
            deposit_groups(paths, [7], feed.order, 0, watched=here)


def test_a_keeper_that_is_killed_is_named_and_its_rows_are_fed_again(executors):
    with Feed(WANTED, wait=10) as feed:
        receipts = partitions(feed, executors, disk=True)
        kept = feed.take(receipts)
        far = kept.loader(1)
        os.kill(receipts[1].keeper.pid, signal.SIGKILL)
        assert wait_until(feed.lost) == [1, 4]
        for attempt in (lambda: read(kept), lambda: list(batches(begun(far), [(0, 209)]))):
            with pytest.raises(
                FeedLost, match=f"{receipts[1].keeper.host}, which held partitions 1, 4"
            ) as lost:
                attempt()
            assert pickle.loads(pickle.dumps(lost.value)).partitions == [1, 4]
        there = executors()
        again = [
            deposit([rows(141, 50), rows(191, 9)], feed.order, 1, watched=there),
            deposit([rows(200, 9)], feed.order, 4, watched=there),
        ]
        other = [deposit([rows(141, 58), rows(141, 1)], feed.order, 1, watched=there), again[1]]
        with pytest.raises(DataError, match=r"rows of partition 1 were not the same.*other values.*cache it"):
            feed.again(other)
        fewer = [deposit([rows(141, 58)], feed.order, 1, watched=there)]
        with pytest.raises(DataError, match="there are 58, there were 59"):
            feed.again(fewer)
        check(feed.again(again), range(209))
        assert feed.lost() == []
        assert feed.copied_bytes == (209 + 68) * 16


def begun(loader):
    """A loader that reads in order."""
    loader.begin(0, 0, False)
    return loader


def test_memory_that_a_worker_has_mapped_outlives_the_keeper(executors):
    with Feed(WANTED) as feed:
        kept = feed.take(partitions(feed, executors))
        loader = kept.loader(1)
        for pid in keepers(feed):
            os.kill(pid, signal.SIGKILL)
        assert wait_until(lambda: feed.lost() == [0, 1, 4])
        (found,) = list(batches(begun(loader), [(0, 209)]))
        np.testing.assert_array_equal(found[0][1], range(209))


def test_deposits_that_do_not_count_are_dropped(executors):
    with Feed(WANTED) as feed:
        here = executors()
        one, other = (deposit([rows(0, 9)], feed.order, 0, watched=here) for _ in range(2))
        kept = feed.take([one])
        check(kept, range(9))
        dropped = replace(kept, receipts=(other,))
        assert wait_until(lambda: raises(FeedLost, lambda: read(dropped)))
        with pytest.raises(DataError, match="partition 0 has two receipts"):
            feed.take([one, other])
        with pytest.raises(DataError, match="partition 5 was not taken before"):
            feed.again([replace(one, partition=5)])


def raises(kind, call):
    """Whether a call raises."""
    try:
        call()
    except kind:
        return True
    return False


def test_a_deposit_that_fails_leaves_nothing(executors):
    def broken():
        yield rows(0, 9)
        raise RuntimeError("the query failed")

    with Feed(WANTED) as feed:
        here = executors()
        with pytest.raises(RuntimeError, match="the query failed"):
            deposit(broken(), feed.order, 0, watched=here)
        check(feed.take([deposit([rows(0, 9)], feed.order, 0, watched=here)]), range(9))


def test_tasks_that_start_at_the_same_time_share_one_keeper(executors):
    with Feed(WANTED) as feed:
        here, receipts = executors(), [None] * 6
        barrier = threading.Barrier(len(receipts))

        def task(number):
            barrier.wait(20)
            receipts[number] = deposit([rows(number * 10, 10)], feed.order, number, watched=here)

        tasks = [threading.Thread(target=task, args=(number,)) for number in range(len(receipts))]
        for one in tasks:
            one.start()
        for one in tasks:
            one.join(30)
        assert len({receipt.keeper for receipt in receipts}) == len(feed._hub.keepers()) == 1
        check(feed.take(receipts), range(60))


def test_a_keeper_ends_with_its_executor():
    executor = subprocess.Popen(["sleep", "60"])
    with contextlib.ExitStack() as after:
        after.callback(executor.wait)
        after.callback(executor.kill)
        feed = after.enter_context(Feed(WANTED))
        feed.take([deposit([rows(0, 9)], feed.order, 0, watched=executor.pid)])
        executor.kill()
        assert wait_until(feed.lost) == [0]
        assert wait_until(lambda: not any(map(lives, keepers(feed))), 3)


def test_keepers_end_with_the_driver(executors):
    driver = start(
        """
        import pickle, sys, time
        from grampus.frames.feed import Feed
        from grampus.shards.batches import wanted
        feed = Feed(wanted([["a", "b"]], "y"))
        sys.stdout.buffer.write(pickle.dumps(feed.order).hex().encode() + b"\\n")
        sys.stdout.flush()
        time.sleep(60)
        """
    )
    order = pickle.loads(bytes.fromhex(driver.stdout.readline()))
    receipt = deposit([rows(0, 9)], order, 0, watched=executors())
    assert lives(receipt.keeper.pid)
    driver.kill()
    finish(driver)
    assert wait_until(lambda: not lives(receipt.keeper.pid), 5)
    with pytest.raises(DataError, match=r"cannot start: cannot connect to tcp:127.0.0.1.*driver still runs"):
        deposit([rows(0, 9)], order, 0, watched=executors())


def test_a_driver_that_is_silent_is_taken_for_gone(executors):
    with Feed(WANTED, silent=0.6) as feed:
        receipt = deposit([rows(0, 9)], feed.order, 0, watched=executors())
        os.kill(receipt.keeper.pid, signal.SIGSTOP)
        feed.take([receipt])
        assert wait_until(feed.lost) == [0]
        assert "silent for 0.6 s" in feed._hub.keepers()[0][3]
        os.kill(receipt.keeper.pid, signal.SIGCONT)
        assert wait_until(lambda: not lives(receipt.keeper.pid), 5)


def test_what_cannot_be_used_is_named_by_partition_and_row(executors):
    batch = pa.record_batch({"a": [1.0, None, 3.0], "b": [1.0, 2.0, 3.0], "y": [0, 1, 2]})
    with Feed(WANTED) as feed:
        here = executors()
        with pytest.raises(DataError, match='partition 3, row 101, column "a" is null'):
            deposit([rows(0, 100), batch], feed.order, 3, watched=here)
        text = pa.record_batch({"a": ["x"], "b": [1.0], "y": [0]})
        with pytest.raises(DataError, match='partition 2, column "a" holds text'):
            deposit([text], feed.order, 2, watched=here)
        with pytest.raises(DataError, match='there is no column "y": there are a, b'):
            deposit([batch.select(["a", "b"])], feed.order, 2, watched=here)
    for memory in (1 << 20, 0):
        with Feed(WANTED, skip=True, memory=memory) as feed:
            receipt = deposit([rows(0, 100), batch], feed.order, 3, watched=executors())
            assert (receipt.rows, receipt.bad) == (103, 1)
            (_, y), skipped = read(feed.take([receipt]))
            assert sorted(y) == [0, 0, 1, 2, 2, *range(3, 100)]
            assert skipped == [
                'partition 3, row 101, column "a" is null, and a model needs a value: fill it, or leave such '
                "rows out (`skip_bad_rows`)"
            ]


def test_rows_that_make_no_batch_and_no_rows_at_all(executors):
    def lists(*lengths):
        return pa.record_batch({"x": [[1.0] * length for length in lengths]})

    with Feed(wanted("x", None)) as feed:
        here = executors()
        with pytest.raises(DataError, match=r"partition 0, row 2: rows of shape \[2\] and of shape \[3\]"):
            deposit([lists(2, 2), lists(3)], feed.order, 0, watched=here)
        receipts = [deposit([lists(length)], feed.order, length, watched=here) for length in (2, 3)]
        with pytest.raises(
            DataError, match=r"partition 3 are arrays of f32 \[3\] and.* partition 2 of f32 \[2\]"
        ):
            feed.take(receipts)
        for nothing in ([], [deposit([], feed.order, 0, watched=here)]):
            with pytest.raises(DataError, match="there are no rows"):
                feed.take(nothing)


def test_image_files_in_memory_and_on_disk(executors):
    random = np.random.default_rng(1)
    files = []
    for _ in range(20):
        image = io.BytesIO()
        Image.fromarray(random.integers(0, 255, (12, 10, 3), "uint8")).save(image, "PNG")
        files.append(image.getvalue())
    files[13] = b"no image"
    batch = pa.record_batch({"image": pa.array(files, pa.binary()), "y": list(range(20))})
    steps = [gp.images.Resize((8, 8)), gp.images.RandomFlip()]
    with Feed(wanted("image", "y", steps), skip=True) as feed:
        cut = [batch.slice(0, 7), batch.slice(7)]
        near = feed.take([deposit(cut, feed.order, 4, watched=executors())])
        found, skipped = read(near)
        order = replace(feed.order, memory=0)
        far = feed.take([deposit(cut, order, 4, watched=executors())])
        again, told = read(far)
        assert found[0].shape == (19, 3, 8, 8)
        for one, other in zip(found, again, strict=True):
            np.testing.assert_array_equal(one, other)
        assert skipped == told
        assert skipped[0].startswith('partition 4, row 13, column "image": ')


class Mlp(nn.Module):
    """A small model."""

    def __init__(self, config):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))

    def forward(self, x):
        return self.layers(x)


def test_weights_are_those_of_the_same_rows_in_memory(executors, tmp_path, monkeypatch):
    # Torch leaves a cache in the temporary folder; ours must stay empty.
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    random = np.random.default_rng(3)
    x, y = random.normal(size=(2, 209, 2))

    def part(first, end):
        columns = {"a": x[first:end, 0], "b": x[first:end, 1]}
        columns |= {"y": y[first:end, 0], "z": y[first:end, 1]}
        return pa.record_batch(columns)

    def fitted(data):
        est = gp.Estimator.from_torch(
            model=Mlp, optimizer="adam", loss=nn.MSELoss(), config={"lr": 0.01}, workers=2, seed=5
        )
        est.fit(data, epochs=2, batch_size=32)
        return est.digest(), est.evaluate(data, batch_size=50)

    gp.init(workers=2, preload=TORCH)
    with Feed(wanted([["a", "b"]], [["y", "z"]])) as feed:
        disk = replace(feed.order, memory=0)
        here, there = executors(), executors()
        receipts = [
            deposit([part(0, 60), part(60, 100)], feed.order, 0, watched=here),
            deposit([part(100, 170)], disk, 1, watched=there),
            deposit([part(170, 209)], feed.order, 2, watched=here),
        ]
        kept = feed.take(receipts)
        assert fitted(kept) == fitted({"x": x.astype("f4"), "y": y.astype("f4")})
        os.kill(receipts[0].keeper.pid, signal.SIGKILL)
        assert wait_until(feed.lost) == [0, 2]
        with pytest.raises(FeedLost) as lost:
            fitted(kept)
        assert lost.value.partitions == [0, 2]


def test_a_keeper_of_another_host_is_asked_over_the_network():
    hosts = make_hosts(2)
    try:
        task = """
        import pickle, sys, os, time
        import numpy as np, pyarrow as pa
        from grampus.frames.depositing import deposit
        order = pickle.loads(bytes.fromhex(sys.stdin.readline()))
        number = np.arange(50, 100)
        batch = pa.record_batch({"a": number.astype("f8"), "b": -number.astype("f8"), "y": number})
        print(deposit([batch], order, 1, watched=os.getpid()).to_json(), flush=True)
        sys.stdin.read()
        """
        driver = """
        import os, pickle, subprocess, sys
        import numpy as np, pyarrow as pa
        from grampus.frames.depositing import Receipt, deposit
        from grampus.frames.feed import Feed
        from grampus.shards.batches import batches, wanted
        address, *command = sys.argv[1:]
        with Feed(wanted([["a", "b"]], "y"), address=address) as feed:
            number = np.arange(50)
            batch = pa.record_batch({"a": number.astype("f8"), "b": -number.astype("f8"), "y": number})
            here = deposit([batch], feed.order, 0, watched=os.getpid())
            task = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            task.stdin.write(pickle.dumps(feed.order).hex() + "\\n")
            task.stdin.flush()
            there = Receipt.from_json(task.stdout.readline())
            loader = feed.take([here, there]).loader(1)
            loader.begin(7, 0, True)
            found = list(batches(loader, [(0, 64), (64, 100)]))
            y = np.concatenate([arrays[1] for arrays, _, _ in found])
            x = np.concatenate([arrays[0] for arrays, _, _ in found])
            assert sorted(y) == list(range(100)) and (x[:, 0] == y).all() and (x[:, 1] == -y).all()
            print(there.keeper.address)
            task.communicate("")
        """
        command = hosts[1].command(sys.executable, "-c", textwrap.dedent(task))
        done = subprocess.run(
            hosts[0].command(sys.executable, "-c", textwrap.dedent(driver), hosts[0].address, *command),
            capture_output=True,
            text=True,
            timeout=40,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"tcp:{hosts[1].address}:")
    finally:
        remove_hosts(hosts)


def test_a_receipt_survives_the_way_back(executors):
    with Feed(WANTED) as feed:
        receipt = deposit([rows(0, 9)], feed.order, 0, watched=executors())
        assert Receipt.from_json(receipt.to_json()) == receipt
