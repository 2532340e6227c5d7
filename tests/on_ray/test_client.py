"""Programs that are connected to Ray by `ray://`, through a server on a node."""

import pytest
from processes import finish, start

from grampus.errors import ClusterError
from grampus.launchers.ray import _join
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


class Losing:
    """Stands in for Ray: a real server loses the process of a client only where a fork goes wrong."""

    def __init__(self, losses):
        """The first tries end as they do there."""
        self.losses, self.tries = losses, 0

    def init(self, **_named):
        """One try."""
        self.tries += 1
        if self.tries <= self.losses:
            raise ConnectionAbortedError(
                "Initialization failure from server:\n  Starting Ray client server failed."
            )


def test_a_server_that_loses_the_process_of_a_client_is_asked_again():
    ray = Losing(2)
    _join(ray, "ray://head:10001")
    assert ray.tries == 3


def test_a_server_that_takes_no_client_is_named():
    wanted = (
        r"Ray at ray://head:10001 took no client in 3 tries \(Starting Ray client server failed.\): look at"
    )
    with pytest.raises(ClusterError, match=wanted):
        _join(Losing(9), "ray://head:10001")
