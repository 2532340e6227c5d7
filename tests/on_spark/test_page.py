"""The Python on the page about Spark runs as it stands there."""

import pytest
from pages import run_page


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("spark")
def test_the_page_about_spark(capsys):
    """In the session that there is, which the page's program would make."""
    run_page("docs/spark.md")
    assert capsys.readouterr().out.split()[-2:] == ["True", "500"]
