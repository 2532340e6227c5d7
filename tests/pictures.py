"""Real data for tests, from Debian's packages."""

from __future__ import annotations

from pathlib import Path

from needs import lacking

FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")


def fashion_mnist() -> Path:
    """Return the folder; skip the test where it is missing, unless the environment forbids skipping."""
    if not FASHION_MNIST.is_dir():
        lacking("DATA", f"{FASHION_MNIST} is missing: apt-get install dataset-fashion-mnist")
    return FASHION_MNIST
