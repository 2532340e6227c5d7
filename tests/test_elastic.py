"""Workers come and go while a model is trained; what comes out is what would have come out without."""

import os
import threading

import pytest
from clusters import one_cluster, scratch  # noqa: F401 - a fixture
from deadly_runs import ROWS, Deadly, Slow, arrays, estimator, of_every_kind

import grampus as gp

runtime = one_cluster(workers=4)
pytestmark = pytest.mark.filterwarnings("ignore:the run goes on")


@pytest.fixture
def cluster():
    """The cluster, of four workers before and after."""
    cluster = gp.init()
    yield cluster
    cluster.resize(4)
    assert len(gp.run(os.getpid)) == 4


class Resizes(gp.callbacks.Logger):
    """Gives the cluster another size each time that a run has the last; keeps how many workers it had."""

    def __init__(self, cluster, sizes):
        self.cluster, self.asked, self.sizes, self.workers = cluster, cluster.workers, list(sizes), []

    def event(self, event):
        if event["kind"] in ("begin", "recovered"):
            self.workers.append(event["workers"])
        if event["kind"] == "steps" and self.sizes and self.workers[-1] == self.asked:
            self.asked = self.sizes.pop(0)
            self.cluster.resize(self.asked)


def trained(tmp_path, data=None, callbacks=(), **named):
    est = estimator(Slow(tmp_path), workers=None, lanes=4)
    history = est.fit(
        arrays() if data is None else data, epochs=6, batch_size=12, callbacks=callbacks, **named
    )
    assert history["samples"] == [ROWS] * 6
    return est.digest(), history


def test_four_then_two_then_three_workers_change_nothing(tmp_path, cluster):
    for source, named in [(None, {}), *of_every_kind(tmp_path)]:
        wanted, plain = trained(tmp_path, source, **named)
        cluster.resize(4)
        resizes = Resizes(cluster, [2, 3])
        digest, history = trained(tmp_path, source, [resizes], **named)
        assert resizes.workers == [4, 2, 3]
        assert digest == wanted
        assert history["loss"] == plain["loss"]


def test_one_worker_becomes_four(tmp_path, cluster):
    wanted = trained(tmp_path)[0]
    cluster.resize(1)
    resizes = Resizes(cluster, [4])
    assert trained(tmp_path, None, [resizes])[0] == wanted
    assert resizes.workers[0] == 1
    assert resizes.workers[-1] == 4


class Counts(gp.callbacks.Callback):
    """Has nothing before a run begins."""

    def on_run_begin(self, run):
        self.epochs = []

    def on_epoch_end(self, run):
        self.epochs.append(run.epoch)


def test_callbacks_go_on_when_a_run_of_one_worker_grows(tmp_path, cluster):
    cluster.resize(1)
    resizes, counts = Resizes(cluster, [2]), Counts()
    trained(tmp_path, None, [resizes, counts])
    assert resizes.workers == [1, 2]
    assert counts.epochs == [1, 2, 3, 4, 5, 6]


def test_more_workers_than_lanes_are_of_no_use(tmp_path, cluster):
    resizes = Resizes(cluster, [6])
    trained(tmp_path, None, [resizes])
    assert resizes.workers == [4]
    assert len(gp.run(os.getpid)) == 6


def test_idle_workers_come_and_go(cluster):
    before = gp.run(os.getpid)
    cluster.resize(2)
    assert gp.run(os.getpid) == before[:2]
    cluster.resize(3)
    now = gp.run(os.getpid)
    assert now[:2] == before[:2]
    assert now[2] not in before


def test_workers_that_are_too_many_end_their_call_first(cluster):
    timer = threading.Timer(0.2, cluster.resize, [1])
    timer.start()
    assert gp.run(lambda rank: __import__("time").sleep(0.6) or rank, 7) == [7] * 4
    timer.join()
    assert len(gp.run(os.getpid)) == 1


class Hides(gp.callbacks.Logger):
    """From the first step on new workers do not find the socket at which they join, until the run goes on."""

    def __init__(self, folder):
        (self.socket,) = folder.glob("grampus/*/coordinator")
        self.aside = self.socket.with_name("aside")
        self.workers = []

    def event(self, event):
        if event["kind"] == "begin":
            self.socket.rename(self.aside)
        if event["kind"] == "recovered":
            self.workers.append(event["workers"])
            self.found()

    def found(self):
        if self.aside.exists():
            self.aside.rename(self.socket)


def test_a_place_that_cannot_be_filled_is_done_without(tmp_path, runtime, cluster):
    wanted = trained(tmp_path)[0]
    hides = Hides(runtime)
    est = estimator(Deadly(tmp_path, (40,)), workers=None, lanes=4)
    est.fit(arrays(), epochs=6, batch_size=12, callbacks=[hides])
    assert hides.workers == [3]
    assert est.digest() == wanted
    # A new place is tried at once.
    cluster.resize(3)


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"min_workers": 5}, "min_workers=5 is more than the run has a use for, which is 4"),
        ({"min_workers": 0}, "min_workers must be a whole number of at least 1, it is 0"),
        ({"min_workers": 1.5}, "min_workers must be a whole number, it is 1.5"),
    ],
)
def test_wrong_numbers_are_named(tmp_path, asked, text):
    with pytest.raises((TypeError, ValueError), match=text):
        estimator(Deadly(tmp_path), workers=None, lanes=4).fit(arrays(), **asked)


@pytest.mark.parametrize("size", [0, -1, 2.5, True, "two"])
def test_wrong_sizes_are_named(cluster, size):
    with pytest.raises((TypeError, ValueError), match="workers must be"):
        cluster.resize(size)
    assert cluster.workers == 4


def test_a_cluster_that_is_over_has_no_size(cluster):
    with gp.Cluster.local(1) as other:
        pass
    with pytest.raises(gp.errors.ClusterError, match="was stopped"):
        other.resize(2)


@pytest.mark.filterwarnings("ignore")
def test_a_run_that_cannot_have_its_least_workers_ends_with_the_reason(tmp_path, runtime):
    """Last in this file: nothing is left of the cluster."""
    hides = Hides(runtime)
    est = estimator(Deadly(tmp_path, (40,)), workers=None, lanes=4)
    with pytest.raises(
        gp.errors.ClusterError, match=r"could not start: rank \d on this host exited with code"
    ):
        est.fit(arrays(), epochs=6, batch_size=12, callbacks=[hides], min_workers=4)
    assert hides.workers == []
    gp.stop()
