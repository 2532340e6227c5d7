"""The Python on the page about Ray runs as it stands there."""

import os

import pytest
from pages import blocks
from processes import run_file

pytestmark = pytest.mark.timeout(180)


def test_the_page_about_ray(nodes, tmp_path):
    told = {**os.environ, "RAY_ADDRESS": nodes.address}
    out = run_file(tmp_path / "page.py", "\n".join(blocks("docs/ray.md")), 150, cwd=tmp_path, env=told)
    assert out.splitlines() == ["True", "dict_keys(['x', 'z', 'y', 'prediction'])"]
