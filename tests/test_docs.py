"""The Python in the texts for users runs as it stands there."""

import json
import os
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
    "running",
    "shards",
    "torch",
)
# Pages whose script is started by a launcher, as they say.
LAUNCHERS = {"torch": ("-m", "grampus", "run", "-n", "2")}
# What stands for other hosts, and for ssh to them: it runs the command here.
HOSTS = {"node-1": "127.0.0.1", "node-2": "127.0.0.2"}
SSH = """#!/bin/sh
while [ "$1" = -o ]; do shift 2; done
shift
exec sh -c "$*"
"""
# Torch is imported by the driver and by its workers, on a machine that may be busy.
LONG = 240


# Each block of the README stands alone; those of a page build on each other.
EXAMPLES = {
    **{f"README {number}": text for number, text in enumerate(blocks("README.md"))},
    **{name: "\n".join(blocks(f"docs/{name}.md")) for name in PAGES},
}


# What each call of `fit` on a page achieves, in order: the share of the loss that it leaves at most, or, of a
# model that has learnt before, the loss itself. An operator has no loss that others could measure.
LEARNS = {
    "README 0": [("share", 0.05)],
    "README 1": [("share", 0.005)],
    "callbacks": [("share", 0.05), *[("loss", 0.1)] * 5],
    "estimator": [
        ("share", 0.05),
        *[("share", 1e-3)] * 2,
        ("loss", 0.3),
        *[("share", 0.5)] * 2,
        ("share", 1e-3),
        *[("share", 0.8)] * 2,
        ("share", 0.2),
        ("share", 0.2),
        *[("share", 0.1)] * 2,
        ("share", 0.5),
    ],
    "native": [("share", 1e-3)],
    "operators": [None, *[("share", 0.06)] * 2, ("share", 0.4)],
    "reliability": [("share", 0.05)] * 2,
    "shards": [("share", 0.5)],
}
# Runs before an example: notes the loss on the data of each `fit`, before and after.
# Models start from a seed, so that a page that fails does so every time.
NOTES = """
import json, pathlib
import torch
import grampus as gp

torch.manual_seed(1)

def _noted(fit):
    def loss(estimator, data, options):
        columns = {name: options[name] for name in ("feature_cols", "label_cols") if name in options}
        found = estimator.evaluate(data, **columns)
        return next(iter(found.values()))

    def noting(self, data, *args, **options):
        operates = self._params["training_operator_cls"] is not None
        before = None if operates else loss(self, data, options)
        history = fit(self, data, *args, **options)
        after = None if operates else loss(self, data, options)
        with open(PATH, "a") as file:
            print(json.dumps([before, after]), file=file)
        return history

    return noting

gp.Estimator.fit = _noted(gp.Estimator.fit)
"""


@pytest.mark.timeout(2 * LONG)
@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_run_and_learn_and_print_what_they_say(name, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "wandb"))
    text = EXAMPLES[name]
    assert text
    noted = tmp_path / "learnt"
    before = NOTES.replace("PATH", repr(str(noted))) if ".fit(" in text else ""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/ssh").write_text(SSH)
    (tmp_path / "bin/ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    for host, stand_in in HOSTS.items():
        text = text.replace(f'"{host}"', f'"{stand_in}"')
    launcher = LAUNCHERS.get(name, ())
    out = run_file(tmp_path / "example.py", before + text, LONG, launcher, cwd=tmp_path)
    learnt = [json.loads(line) for line in noted.read_text("utf-8").splitlines()] if noted.exists() else []
    wanted = LEARNS.get(name, [])
    assert len(learnt) == len(wanted), f"{name} trains {len(learnt)} times: {learnt}"
    for (was, now), limit in zip(learnt, wanted, strict=True):
        if limit is not None:
            kind, most = limit
            assert (now if kind == "loss" else now / was) < most, f"{name} takes losses from and to {learnt}"
    # A launcher names the rank before each line.
    lines = [re.sub(r"^\[rank \d+\] ", "", line) if launcher else line for line in out.splitlines()]
    for promised in re.findall(r"^ *print\(.*\) +# (?:.*: )?(\[.*\])$", text, re.MULTILINE):
        assert promised in lines, out


def test_the_tests_that_tables_name_are_there():
    """A table of promises names tests: one that was renamed or removed would leave a promise unshown."""
    tests = "\n".join(path.read_text("utf-8") for path in TESTS.rglob("test_*.py"))
    known = set(re.findall(r"^def (test_\w+)\(", tests, re.MULTILINE))
    named = set(re.findall(r"`(test_\w+)`", (TESTS.parent / "docs/from-orca.md").read_text("utf-8")))
    assert len(named) > 30
    assert named <= known, sorted(named - known)
    paths = set(re.findall(r"`(tests/[\w/]+\.py)`", (TESTS.parent / "docs/seeds.md").read_text("utf-8")))
    assert not [path for path in paths if not (TESTS.parent / path).exists()]
