"""Programs that are connected to Ray by `ray://`, through a server on a node."""

import pytest
from processes import finish, start

from on_ray.nodes import HEAD

PROGRAM = f"""
import ray
import grampus as gp

def refused(**named):
    try:
        gp.init(2, "ray", **named)
    except gp.errors.ClusterError as error:
        print("refused at init:", error)

# Kept for documentation: nobody has this address.
refused(master="ray://{HEAD}:10001", address="192.0.2.1")
gp.init(2, "ray")
print("runs:", gp.run(lambda: (gp.rank(), gp.world_size())))
gp.stop()
"""


@pytest.mark.timeout(180)
@pytest.mark.usefixtures("nodes")
def test_a_client_that_nodes_cannot_reach_is_refused_at_init():
    """One that they reach runs."""
    code, out, err = finish(start(PROGRAM), 170)
    assert code == 0, err
    refused, runs = [line for line in out.splitlines() if line.startswith(("refused", "runs"))]
    assert "cannot reach the driver at 192.0.2.1:" in refused
    assert "name an address of this machine that the nodes reach, grampus.init(address=…)" in refused
    assert "ray job submit" in refused
    assert runs == "runs: [(0, 2), (1, 2)]"
