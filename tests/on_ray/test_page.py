"""The Python on the page about Ray runs as it stands there."""

import pytest
from pages import run_page


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("ray")
def test_the_page_about_ray(capsys):
    """In the connection that there is, which the page's program would make."""
    run_page("docs/ray.md")
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "True",
        "dict_keys(['x', 'z', 'y', 'prediction'])",
    ]
