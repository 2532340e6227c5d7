"""Parts of a machine that some tests need, and that a developer's machine may lack."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def lacking(part: str, reason: str) -> NoReturn:
    """Skip the test, or fail it where `GRAMPUS_REQUIRE_{part}` says that the machine has the part."""
    if os.environ.get(f"GRAMPUS_REQUIRE_{part}"):
        pytest.fail(f"required here: {reason}")
    pytest.skip(reason)
