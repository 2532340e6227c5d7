"""A cluster that was asked for and is gone: nothing begins on local workers in its place."""

import os
import signal

import numpy as np
import pytest
from processes import run_file, wait_until

import grampus as gp
from grampus import session

CALLS = ("fit", "evaluate", "predict", "transform")


def ssh():
    """Two hosts that are this one."""
    command = "sh -c {command}"
    return gp.Cluster.ssh(["one", "two"], command=command, address="127.0.0.1", preload=["numpy"])


def ours():
    return gp.Estimator.from_native(
        model=gp.nn.Sequential(gp.nn.Linear(2, 1)), loss=gp.nn.MSE(), optimizer=gp.optim.SGD(), seed=1
    )


def call(name):
    x = np.ones((8, 2), "float32")
    data = {"x": x, "y": x[:, :1]}
    if name == "transform":
        return gp.Shards.partition(x, 2).transform_shard(len).collect()
    return getattr(ours(), name)(x if name == "predict" else data, **({"epochs": 1} if name == "fit" else {}))


def refused(match):
    left = session._session.cluster
    for name in CALLS:
        with pytest.raises(gp.ClusterError, match=match):
            call(name)
    # None was started.
    assert session._session.cluster is left


def test_after_stop_no_local_workers_replace_others():
    gp.init(cluster=ssh())
    for name in CALLS:
        call(name)
    gp.stop()
    refused(r"the cluster was stopped: call grampus.init\(\)")
    # Another stop changes nothing of that; asking for local workers does.
    gp.stop()
    refused("the cluster was stopped")
    gp.init(workers=1)
    call("fit")


def test_after_the_stop_of_the_cluster_itself():
    with gp.init(cluster=ssh()):
        call("fit")
    refused("the cluster was stopped")


def test_where_shutdown_of_an_estimator_has_stopped_it():
    gp.init(cluster=ssh())
    ours().shutdown(force=True)
    refused("the cluster was stopped")


@pytest.mark.parametrize(
    ("kind", "why"), [("local", "was killed by signal 9"), ("ssh", "could not be started")]
)
def test_a_cluster_that_has_ended_is_not_replaced(tmp_path, kind, why):
    """Its only supervisor is killed; another host could not be reached again, either."""
    reach = tmp_path / "reach"
    reach.write_text('#!/bin/sh\nexec sh -c "$1"\n')
    reach.chmod(0o755)
    if kind == "local":
        cluster = gp.init(workers=1)
    else:
        cluster = gp.init(
            cluster=gp.Cluster.ssh(["one"], command=f"{reach} {{command}}", address="127.0.0.1")
        )
    [supervisor] = gp.run(os.getppid)
    reach.unlink()
    os.kill(supervisor, signal.SIGKILL)
    assert wait_until(lambda: not cluster.is_running())
    refused(rf"the cluster has ended \(.*{why}.*\): call grampus.init\(\)")
    gp.init(workers=1)
    call("fit")


def test_local_workers_that_were_stopped_are_started_again():
    gp.init(workers=1)
    gp.stop()
    for name in CALLS:
        call(name)
        gp.stop()
    with gp.init(cluster=gp.Cluster.local(1)):
        call("fit")
    call("fit")


def test_a_forked_child_does_not_train_beside_its_parent(tmp_path):
    text = """
import os, sys, numpy as np, grampus as gp
if __name__ == "__main__":
    gp.init(cluster=gp.Cluster.ssh(["one"], command="sh -c {command}", address="127.0.0.1"))
    child = os.fork()
    if child == 0:
        try:
            gp.Shards.partition(np.arange(4), 2).transform_shard(len).collect()
        except gp.ClusterError as error:
            print(error, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""
    assert "belongs to the process that forked this one" in run_file(tmp_path / "script.py", text, 50)
