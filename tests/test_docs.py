"""The Python in the texts for users runs as it stands there."""

import re
from pathlib import Path

import pytest
from pages import blocks
from processes import run_file

TESTS = Path(__file__).parent
PAGES = (
    "callbacks",
    "checkpoints",
    "collectives",
    "estimator",
    "metrics",
    "native",
    "operators",
    "reliability",
    "shards",
)
# Torch is imported by the driver and by its workers, on a machine that may be busy.
LONG = 240


# Each block of the README stands alone; those of a page build on each other.
EXAMPLES = {
    **{f"README {number}": text for number, text in enumerate(blocks("README.md"))},
    **{name: "\n".join(blocks(f"docs/{name}.md")) for name in PAGES},
}


@pytest.mark.timeout(2 * LONG)
@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_run_and_print_what_they_say(name, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "wandb"))
    text = EXAMPLES[name]
    assert text
    out = run_file(tmp_path / "example.py", text, LONG, cwd=tmp_path)
    for promised in re.findall(r"^print\(.*\) +# (\[.*\])$", text, re.MULTILINE):
        assert promised in out.splitlines()


def test_the_tests_that_tables_name_are_there():
    """A table of promises names tests: one that was renamed or removed would leave a promise unshown."""
    tests = "\n".join(path.read_text("utf-8") for path in TESTS.rglob("test_*.py"))
    known = set(re.findall(r"^def (test_\w+)\(", tests, re.MULTILINE))
    named = set(re.findall(r"`(test_\w+)`", (TESTS.parent / "docs/from-orca.md").read_text("utf-8")))
    assert len(named) > 30
    assert named <= known, sorted(named - known)
    paths = set(re.findall(r"`(tests/[\w/]+\.py)`", (TESTS.parent / "docs/seeds.md").read_text("utf-8")))
    assert not [path for path in paths if not (TESTS.parent / path).exists()]
