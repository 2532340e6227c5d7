"""Workers in actors of Ray, and rows of Ray Data."""

import os
import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deadly_runs import COLUMNS, ROWS, Deadly, arrays, estimator, native, native_here, on_local_workers
from processes import wait_until

import grampus as gp
from grampus.errors import ClusterError, DataError
from on_ray.nodes import OTHER

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore:the run goes on", "ignore:the rows of this frame"),
]

# Above a worker: its supervisor, the actor.
ACTOR = 2


def free(ray):
    return ray.available_resources().get("CPU", 0)


def table():
    data = arrays()
    columns = {f"x{at}": data["x"][:, at].numpy() for at in range(3)}
    return pa.table(columns | {"y": data["y"][:, 0].numpy(), "id": np.arange(ROWS)})


def trained(data, loss, **named):
    est = estimator(loss, workers=None, lanes=2, threads_per_lane=1)
    history = est.fit(data, epochs=6, batch_size=12, audit=True, **named)
    assert history["samples"] == [ROWS] * 6
    return est


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The weights of a run on local workers."""
    return on_local_workers(tmp_path_factory.mktemp("run"), lambda: trained(arrays(), Deadly(".")).digest())


def test_functions_run_in_actors_and_hold_cpus_only_meanwhile(ray):
    cluster = gp.init(2, "ray")
    assert repr(cluster) == "<grampus.Cluster of 2 workers on ray>"
    assert gp.run(lambda: (gp.rank(), gp.world_size())) == [(0, 2), (1, 2)]
    assert wait_until(lambda: free(ray) == 4, 10)
    groups = ray.util.placement_group_table().values()
    assert {group["state"] for group in groups} == {"REMOVED"}


@pytest.mark.parametrize("levels", [0, ACTOR], ids=["worker", "actor"])
def test_a_loss_changes_nothing(ray, tmp_path, undisturbed, levels):
    gp.init(2, "ray", preload=["torch"])
    pq.write_table(table(), tmp_path / "t.parquet", row_group_size=20)
    data = ray.data.read_parquet(str(tmp_path / "t.parquet"))
    est = trained(data, Deadly(tmp_path, rows=[40], levels=levels), **COLUMNS)
    assert (tmp_path / "40").exists()
    assert est.digest() == undisturbed
    assert wait_until(lambda: free(ray) == 4, 10)


def late_first(batch):
    """Has the first block come last."""
    time.sleep(1.0 * (0 in batch["id"]))
    return batch


def test_blocks_of_a_dataset_are_read_in_their_order(ray, tmp_path, undisturbed):
    gp.init(2, "ray", preload=["torch"])
    data = ray.data.from_arrow([table().slice(first, 30) for first in range(0, ROWS, 30)])
    est = trained(data.map_batches(late_first), Deadly(tmp_path), **COLUMNS)
    assert est.digest() == undisturbed
    shuffled = data.random_shuffle(seed=3)
    est = trained(shuffled, Deadly(tmp_path), order_by="id", **COLUMNS)
    assert est.digest() == undisturbed


def test_pandas_and_ray_predict_the_same(ray):
    gp.init(2, "ray", preload=["torch"])
    est = estimator(None, workers=None, lanes=2, threads_per_lane=1)
    frame = pd.DataFrame({f"x{at}": np.linspace(-1, 1, 50) * at for at in range(3)})
    features = [["x0", "x1", "x2"]]
    here = est.predict(gp.Shards.from_pandas(frame, 2), feature_cols=features).to_arrow()
    there = est.predict(ray.data.from_pandas(frame), feature_cols=features).to_pandas()
    np.testing.assert_allclose(
        np.stack(here["prediction"].to_numpy()), np.stack(there["prediction"]), atol=1e-5
    )


def test_too_few_cpus_are_named_within_the_time_for_a_start(ray):
    gp.init(9, "ray", start_timeout=1.0)
    with pytest.raises(ClusterError, match=r"9 workers of 1 CPU each were asked for.*this Ray has 4 CPUs"):
        gp.run(lambda: 1)


def test_wrong_rows_are_named(ray):
    gp.init(2, "ray", preload=["torch"])
    est = estimator(None, workers=None)
    with pytest.raises(DataError, match='partition 0, row 2, column "x0" is null'):
        holes = pd.DataFrame({"x0": [1.0, 2.0, None], "x1": 0.0, "x2": 0.0, "y": 0, "id": 0})
        est.fit(ray.data.from_pandas(holes), **COLUMNS)
    with pytest.raises(DataError, match="there are no rows"):
        est.fit(ray.data.from_arrow(table().slice(0, 0)), **COLUMNS)


def test_a_second_connection_is_refused(ray, nodes):
    with pytest.raises(ClusterError, match="Ray is connected already: leave master out"):
        gp.init(2, "ray", master=nodes.address)


def test_a_lost_node_changes_nothing(ray, tmp_path, undisturbed):
    """The last here: the node does not come back."""
    gp.init(2, "ray", preload=["torch"])
    pq.write_table(table(), tmp_path / "t.parquet", row_group_size=20)
    data = ray.data.read_parquet(str(tmp_path / "t.parquet"))
    est = trained(data, KillsRaylet(tmp_path), **COLUMNS)
    assert (tmp_path / "40").exists()
    assert est.digest() == undisturbed


class KillsRaylet(Deadly):
    """A loss that ends the second node's raylet, whoever sees the row."""

    def __init__(self, folder):
        super().__init__(folder, rows=[40])

    def _end(self):
        import psutil

        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or [""]
            if words[0].endswith("/raylet") and f"--node_ip_address={OTHER}" in words:
                os.kill(process.pid, self.how)


@pytest.fixture(scope="module")
def native_undisturbed(tmp_path_factory):
    return native_here(tmp_path_factory.mktemp("native"))


def test_native_models_train_and_answer_as_on_local_workers(ray, native_undisturbed):
    gp.init(2, "ray")
    digest, answers = native_undisturbed
    data = ray.data.from_arrow(table())
    features = [["x0", "x1", "x2"]]
    est = native(data, feature_cols=features, label_cols="y")
    assert est.digest() == digest
    made = est.predict(data, feature_cols=features).to_pandas().sort_values("id")
    np.testing.assert_allclose(np.stack(made["prediction"]), answers, atol=1e-5)
