"""Two workers that import torch; with the argument `preload` the import is paid once, before the fork."""

import sys

import grampus as gp


def version():
    import torch

    # As plain text: torch's own type for it would make the driver import torch as well, only to read it.
    return str(torch.__version__)


gp.init(workers=2, preload=["torch"] if "preload" in sys.argv else [])
assert len(gp.run(version)) == 2
gp.stop()
