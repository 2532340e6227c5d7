"""Real data for tests, from Debian's packages."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")


def fashion_mnist() -> Path:
    """Return the folder; skip the test where it is missing, unless the environment forbids skipping."""
    if not FASHION_MNIST.is_dir():
        words = f"{FASHION_MNIST} is missing: apt-get install dataset-fashion-mnist"
        if os.environ.get("GRAMPUS_REQUIRE_DATA"):
            pytest.fail(words)
        pytest.skip(words)
    return FASHION_MNIST
