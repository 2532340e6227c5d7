"""The Python on the page about Spark runs as it stands there."""

import pytest
from pages import blocks
from processes import run_file
from standalone import QUIET, environment

pytestmark = pytest.mark.timeout(180)


def test_the_page_about_spark(tmp_path):
    settings = " ".join(f"--conf {name}='{value}'" for name, value in QUIET.items())
    told = {**environment(), "PYSPARK_SUBMIT_ARGS": f"{settings} pyspark-shell"}
    out = run_file(tmp_path / "page.py", "\n".join(blocks("docs/spark.md")), 150, cwd=tmp_path, env=told)
    assert out.split() == ["True", "500"]
