"""Checkpoints of every version so far are read, and training goes on from them. See `fixtures/write.py`."""

from __future__ import annotations

import json

import pytest
import torch
from clusters import one_cluster, scratch  # noqa: F401 - a fixture
from fixtures.write import CHECKPOINTS, KEPT, gone_on, weights_of

runtime = one_cluster(workers=2)

PLACES = [
    (version.name, name)
    for version in sorted(CHECKPOINTS.iterdir())
    for name in json.loads((version / "expected.json").read_text())
]


def files():
    return {path: path.read_bytes() for path in CHECKPOINTS.rglob("*") if path.is_file()}


def test_all_are_there():
    assert {name for version, name in PLACES if version == "0.1"} == KEPT.keys()


# A bias before a batch norm has no gradient but the rounding of the processor, which Adam makes as large as
# any: a step moves it by up to the learning rate, and with it the mean of the batch norm.
NOISY = ("0.bias", "1.running_mean")


@pytest.mark.parametrize(("version", "name"), PLACES)
def test_training_goes_on_from_what_an_older_version_saved(version, name):
    """Weights that are read have the same bits; those that come of them are the same up to rounding."""
    expected = json.loads((CHECKPOINTS / version / "expected.json").read_text())[name]
    place, before = CHECKPOINTS / version / name, files()
    found = KEPT[name][0]().load(place)
    assert weights_of(found) == expected["weights"]
    assert found.digest() == expected["digest"]
    later = gone_on(place, name)
    for key, value in expected["later"]["weights"].items():
        mine = torch.tensor(later["weights"][key])
        near = 0.1 if key in NOISY and not name.startswith("native") else 1e-5
        torch.testing.assert_close(mine, torch.tensor(value), rtol=1e-5, atol=near, msg=key)
    assert later["weights"].keys() == expected["later"]["weights"].keys()
    assert later["records"] == [pytest.approx(record, rel=1e-5) for record in expected["later"]["records"]]
    assert files() == before
