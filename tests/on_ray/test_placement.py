"""Room for workers on Ray: what is waited for, who holds it, and GPUs."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from frame_models import price_learner, prices
from processes import wait_until

import grampus as gp
from grampus.errors import ClusterError
from on_ray.nodes import HEAD

pytestmark = pytest.mark.timeout(240)

HOLDER = """
import sys, ray
ray.init(address=sys.argv[1], _node_ip_address=sys.argv[2], log_to_driver=False, logging_level="error")
group = ray.util.placement_group([{"CPU": 2}] * 2)
ray.get(group.ready())
print("held", flush=True)
sys.stdin.read()
"""


def gpus_of_worker():
    return os.environ.get("CUDA_VISIBLE_DEVICES")


def test_a_start_waits_for_nodes_and_says_so(ray, nodes, capsys):
    """As an autoscaler would bring them."""
    said = []
    gp.init(3, "ray", cores_per_worker=2, start_timeout=150)
    with ThreadPoolExecutor(1) as pool:
        ran = pool.submit(gp.run, gp.world_size)
        words = "waiting up to 150 s for 3 workers of 2 CPUs each; this Ray has 4 CPUs, of which 4 are free"
        assert wait_until(lambda: words in (said.append(capsys.readouterr().err) or "".join(said)), 20)
        assert not ran.done()
        with nodes.third(cpus=2):
            assert ran.result(140) == [3] * 3
            gp.stop()
    assert wait_until(lambda: ray.cluster_resources()["CPU"] == 4, 30)


def test_hosts_are_nodes(ray):
    """Each of them has two CPUs."""
    cluster = gp.init(cluster="ray")
    assert (cluster.workers, cluster.hosts) == (4, 2)
    est = gp.Estimator.from_torch(
        model=torch.nn.Linear(1, 1), optimizer="sgd", config={"lr": 0.1}, workers_per_node=1
    )
    assert est._cluster()[1] == 2
    gp.stop()


@pytest.fixture
def data(ray):
    """Made while there are CPUs, of which Ray takes one for it."""
    return ray.data.from_arrow(prices())


@pytest.fixture
def holder(ray, nodes, tmp_path, data):
    """Another program, which holds all CPUs; as a message names it."""
    program = tmp_path / "holder.py"
    program.write_text(HOLDER)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, program, nodes.address, HEAD], **pipes)
    try:
        assert process.stdout.readline() == b"held\n"
        yield f"holder.py {nodes.address} {HEAD}' (pid {process.pid} on {HEAD})"
    finally:
        process.communicate(b"", timeout=30)
    assert wait_until(lambda: ray.available_resources().get("CPU", 0) == 4, 30)


def test_programs_that_hold_cpus_are_named(holder, data):
    gp.init(2, "ray", start_timeout=1)
    for call, words in [
        (
            lambda: gp.run(lambda: 1),
            "2 workers of 1 CPU each were asked for, and within 1 s there was no room",
        ),
        (lambda: price_learner(data), "there was not a CPU for the tasks that read the rows within 1 s"),
    ]:
        with pytest.raises(ClusterError) as caught:
            call()
        assert words in str(caught.value)
        assert "4 CPUs, of which 0 are free" in str(caught.value)
        assert holder in str(caught.value)


def test_a_cluster_without_room_for_any_worker(ray):
    with pytest.raises(ClusterError, match=r"no node for a worker of 3 CPUs, .* 4 CPUs.*: say how many"):
        gp.init(cluster="ray", cores_per_worker=3)


@pytest.fixture
def gpus(ray, nodes):
    """Two, on a node with two CPUs."""
    with nodes.third(cpus=2, gpus=2):
        assert wait_until(lambda: ray.cluster_resources().get("GPU") == 2, 60)
        yield
        gp.stop()
    assert wait_until(lambda: "GPU" not in ray.cluster_resources(), 30)


@pytest.mark.usefixtures("gpus")
def test_gpus_are_asked_for_and_seen_by_their_workers_alone():
    assert gp.init(cluster="ray").workers == 2
    assert sorted(gp.run(gpus_of_worker)) == ["0", "1"]
    gp.stop()
    gp.init(1, "ray", gpus_per_worker=2)
    assert gp.run(gpus_of_worker) == ["0,1"]
    gp.stop()
    gp.init(2, "ray", gpus_per_worker=0.5)
    assert {*gp.run(gpus_of_worker)} <= {"0", "1"}
    gp.stop()
    gp.init(2, "ray", gpus_per_worker=0)
    assert gp.run(gpus_of_worker) == ["", ""]
    gp.stop()
    with pytest.warns(RuntimeWarning, match="4 workers compute on CPUs, since there are only 2 GPUs"):
        gp.init(4, "ray")
    assert gp.run(gpus_of_worker) == [""] * 4
    gp.stop()
    gp.init(3, "ray", gpus_per_worker=1, start_timeout=1)
    with pytest.raises(
        ClusterError, match=r"3 workers of 1 CPU and 1 GPU each .* 2 GPUs, of which 2 are free"
    ):
        gp.run(gpus_of_worker)


def test_gpus_that_are_no_number():
    with pytest.raises(ValueError, match=r"a whole number, or a part of one GPU, it is 1\.5"):
        gp.init(2, "ray", gpus_per_worker=1.5)
    with pytest.raises(TypeError, match="gpus_per_worker must be a number, it is 'two'"):
        gp.init(2, "ray", gpus_per_worker="two")
