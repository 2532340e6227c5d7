"""The Python in the texts for users runs as it stands there."""

import re

import pytest
from pages import blocks
from processes import run_file

PAGES = ("callbacks", "checkpoints", "collectives", "estimator", "metrics", "native", "reliability", "shards")
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
