"""GPUs of Spark's resource profiles, on Workers that say that they have some."""

import os

import pytest

import grampus as gp
from grampus.errors import ClusterError
from on_spark.standalone import TWO_EXECUTORS, Standalone, classic

pytestmark = pytest.mark.timeout(150)


def gpus_of_worker():
    return os.environ.get("CUDA_VISIBLE_DEVICES")


@pytest.fixture(scope="module")
def with_gpus(standalone, tmp_path_factory):
    """A session with two executors of two cores and two GPUs each."""
    folder = tmp_path_factory.mktemp("gpus")
    script = folder / "discover"
    script.write_text("""#!/bin/sh\necho '{"name": "gpu", "addresses": ["4", "5"]}'\n""")
    script.chmod(0o700)
    resource = f"-Dspark.worker.resource.gpu.amount=2 -Dspark.worker.resource.gpu.discoveryScript={script}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_WORKER_OPTS", resource)
        cluster = Standalone(folder, cores=2)
    settings = {
        **TWO_EXECUTORS,
        "spark.executor.cores": "2",
        "spark.cores.max": "4",
        "spark.executor.resource.gpu.amount": "2",
    }
    try:
        session = classic(cluster.master, settings)
        yield session
        session.stop()
    finally:
        cluster.close()


def test_gpus_are_asked_for_and_seen_by_their_workers_alone(with_gpus):
    gp.init(4, "spark", session=with_gpus)
    assert sorted(gp.run(gpus_of_worker)) == ["4", "4", "5", "5"]
    gp.stop()
    assert gp.init(cluster="spark", session=with_gpus, gpus_per_worker=2).workers == 2
    assert gp.run(gpus_of_worker) == ["4,5", "4,5"]
    gp.stop()
    gp.init(4, "spark", session=with_gpus, gpus_per_worker=0)
    assert gp.run(gpus_of_worker) == [""] * 4
    gp.stop()


def test_more_gpus_than_executors_have(with_gpus):
    gp.init(3, "spark", session=with_gpus, gpus_per_worker=2, start_timeout=1)
    with pytest.raises(ClusterError, match=r"3 workers of 1 CPU and 2 GPUs .* 2 slots .* gpus_per_worker=0"):
        gp.run(gpus_of_worker)
