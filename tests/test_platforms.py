"""Workers that differ in what bits depend on are named, and so is a run that is resumed elsewhere."""

import json
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from clusters import one_cluster, scratch  # noqa: F401 - a fixture

import grampus as gp
from grampus import _native
from grampus._training import platforms, saved

runtime = one_cluster(workers=2, preload=("numpy",))


def fit(**more):
    """The warnings of a run."""
    x = np.linspace(-1, 1, 16, dtype="f4").reshape(-1, 1)
    model = gp.nn.Sequential().add(gp.nn.Linear(1, 1))
    est = gp.Estimator.from_native(model=model, loss=gp.nn.MSE(), optimizer=gp.optim.SGD(0.1), seed=1)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        est.fit({"x": x, "y": x}, batch_size=4, **more)
    return [str(each.message) for each in seen if "equal bits" in str(each.message)]


@pytest.fixture
def mixed():
    """Ranks 0 and 1 say different things of one variable."""
    gp.run(lambda: os.environ.__setitem__("ATEN_CPU_CAPABILITY", ["avx2", "default"][gp.rank()]))
    yield
    gp.run(lambda: os.environ.pop("ATEN_CPU_CAPABILITY", None))


def test_equal_workers_are_not_warned_about():
    assert fit() == []


def test_a_difference_is_one_warning_that_names_both(mixed):
    [told] = fit()
    assert 'ATEN_CPU_CAPABILITY: "avx2" (rank 0 on' in told and '"default" (rank 1 on' in told
    assert "use hosts with the same processors and libraries" in told


LIMITS = ["MKL_CBWR", "DNNL_MAX_CPU_ISA", "OPENBLAS_CORETYPE", "NPY_DISABLE_CPU_FEATURES"]


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("rank", [0, 1])
def test_a_limit_of_one_worker_alone_is_seen(name, rank):
    gp.run(limit, name, rank)
    try:
        [told] = fit()
    finally:
        gp.run(limit, name, None)
    assert f"{name}: " in told
    assert f'"AVX2" (rank {rank} on' in told and f'"not set" (rank {1 - rank} on' in told
    assert fit() == []


def limit(name, rank):
    if gp.rank() == rank:
        os.environ[name] = "AVX2"
    else:
        # It may be set for all tests.
        os.environ.pop(name, None)


def test_a_checkpoint_of_a_version_that_kept_less_is_no_difference():
    here = platforms.here(None)
    known = [{"who": "rank 0 on a", "platform": {"cpu features": here["cpu features"]}}]
    assert _native.compare_platforms(json.dumps(known), [("b", here)], False)[1] is None


def test_a_checkpoint_keeps_where_it_was_trained():
    assert fit(checkpoint="runs") == []
    newest = saved.latest(str(Path("runs").absolute()))[0]
    [platform] = newest.meta["platforms"]
    assert platform["who"].startswith("ranks 0-1 on ")
    assert platform["platform"]["cpu features"] == _native.processor()["cpu features"]


def test_a_run_that_is_resumed_elsewhere_is_told():
    assert fit(checkpoint="runs") == []
    gp.run(change_version, "1.0")
    try:
        [told] = fit(checkpoint="runs", epochs=2, resume=True)
    finally:
        gp.run(change_version, None)
    assert "numpy: " in told and "before" in told and '"1.0" (ranks 0-1 on' in told


def change_version(version):
    """As another environment would have it."""
    np.__version__ = np.version.version if version is None else version


def test_learning_it_imports_nothing():
    assert {"cpu features", "architecture", "python", "grampus"} <= platforms.here(None).keys()
