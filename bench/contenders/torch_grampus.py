"""Two workers that import torch; with the argument `preload` the import is paid once, before the fork."""

import sys

import grampus as gp


def version():
    import torch

    return torch.__version__


gp.init(workers=2, preload=["torch"] if "preload" in sys.argv else [])
assert len(gp.run(version)) == 2
gp.stop()
