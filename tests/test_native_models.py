"""Models that are ready: as large as their originals, and able to learn."""

import numpy as np
import pytest

import grampus as gp

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(autouse=True)
def place(monkeypatch, tmp_path):
    """Runs, and torch's cache, go elsewhere."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))


def count(model, *shapes):
    return int(model.summary(*shapes).splitlines()[-1].replace(",", ""))


def test_models_are_as_large_as_their_originals():
    assert count(gp.models.lenet(), [1, 28, 28]) == 44_426
    assert count(gp.models.mlp(784, 512, 256, 10), [784]) == 535_818
    # That of torchvision has 11,689,512: a first kernel of 7 x 7, and 1,000 classes.
    assert count(gp.models.resnet18(), [3, 32, 32]) == 11_689_512 - 64 * 3 * (49 - 9) - 513 * 990
    assert count(gp.models.text_classifier(100, 3), [20]) == 100 * 64 + 4 * 128 * (64 + 128 + 2) + 129 * 3


def test_too_few_sizes_are_refused():
    with pytest.raises(ValueError, match=r"mlp needs at least two sizes, .* not \[5\]"):
        gp.models.mlp(5)


def test_a_text_classifier_learns_which_word_came():
    random = np.random.default_rng(0)
    words = random.integers(3, 20, (240, 8))
    labels = random.integers(0, 2, 240)
    words[np.arange(240), random.integers(0, 8, 240)] = labels + 1
    estimator = gp.Estimator.from_native(
        model=gp.models.text_classifier(20, 2, size=8, hidden=16),
        loss=gp.nn.CrossEntropy(),
        optimizer=gp.optim.Adam(lr=0.02),
        metrics=[gp.metrics.Accuracy()],
        workers=2,
    )
    estimator.fit({"x": words, "y": labels}, epochs=30, batch_size=24)
    assert estimator.evaluate({"x": words, "y": labels})["accuracy"] > 0.95


def test_a_word_that_is_not_known_names_its_row():
    words = np.ones((10, 4))
    words[6, 2] = 20
    estimator = gp.Estimator.from_native(
        model=gp.models.text_classifier(20, 2),
        loss=gp.nn.CrossEntropy(),
        optimizer=gp.optim.SGD(0.1),
        workers=1,
    )
    with pytest.raises(ValueError, match="Embedding has vectors for 0 to 19, and 20 came in") as raised:
        estimator.fit({"x": words, "y": np.zeros(10)}, batch_size=10)
    assert any("row 6 of the data" in note for note in raised.value.__notes__)


def test_a_resnet_takes_a_step():
    random = np.random.default_rng(0)
    data = {"x": random.standard_normal((2, 3, 32, 32), dtype="f4"), "y": random.integers(0, 10, 2)}
    estimator = gp.Estimator.from_native(
        model=gp.models.resnet18(), loss=gp.nn.CrossEntropy(), optimizer=gp.optim.SGD(0.05), workers=1
    )
    losses = estimator.fit(data, epochs=2, batch_size=2)["loss"]
    assert losses[-1] < losses[0]
