"""Operators that do something around what an operator does by itself."""

from __future__ import annotations

import pytest
import torch
from clusters import one_cluster, scratch  # noqa: F401 - a fixture
from operator_models import ROWS, Steps, data, estimator

import grampus as gp

runtime = one_cluster(workers=2)
pytestmark = pytest.mark.filterwarnings("ignore:the operator changes weights more than once")


class Around(Steps):
    """Each method calls the one that it stands for."""

    def train_epoch(self, iterator, info):
        return {**super().train_epoch(iterator, info), "began_at": info["global_step"]}

    def train_batch(self, batch, batch_info):
        return {**super().train_batch(batch, batch_info), "at": batch_info["global_step"]}

    def validate(self, val_iterator, info):
        return {**super().validate(val_iterator, info), "validated": 1}

    def validate_batch(self, batch, batch_info):
        return {**super().validate_batch(batch, batch_info), "batch": batch_info["batch_idx"]}

    def predict_batch(self, batch):
        return super().predict_batch(batch) * 2


class Bare(gp.TrainingOperator):
    """Trains as an Estimator does, and says so."""

    def train_batch(self, batch, batch_info):
        return {**super().train_batch(batch, batch_info), "mine": 1}


@pytest.mark.parametrize("workers", [1, 2])
def test_methods_may_call_those_that_they_stand_for(workers):
    own = estimator(Around, workers=workers)
    history = own.fit(data(), epochs=2, batch_size=32, validation_data=data())
    plain = estimator(None, workers=workers)
    expected = plain.fit(data(), epochs=2, batch_size=32, validation_data=data())
    assert own.digest() == plain.digest()
    assert history["loss"] == pytest.approx(expected["loss"])
    assert history["val_loss"] == pytest.approx(expected["val_loss"])
    assert history["samples"] == [ROWS] * 2
    # Three batches of 32 rows and one of 4.
    assert history["began_at"] == [0, 4]
    assert history["at"][1] == pytest.approx(4 + (32 * (0 + 1 + 2) + 4 * 3) / ROWS)
    assert history[-1]["val_validated"] == 1
    assert history[-1]["val_batch"] > 0
    assert torch.allclose(own.predict(data()["x"]), 2 * plain.predict(data()["x"]))


class Mute(gp.TrainingOperator):
    def train_epoch(self, iterator, info):
        return super().train_epoch(iterator, info)

    def train_batch(self, batch, batch_info):
        super().train_batch(batch, batch_info)


def test_a_batch_of_which_nothing_is_said_is_named():
    with pytest.raises(TypeError, match=r"train_batch of the operator returned a NoneType: return a dict"):
        estimator(Mute, workers=2).fit(data(), batch_size=32)


def test_a_step_around_that_of_an_operator():
    own, plain = estimator(Bare, workers=2), estimator(None, workers=2)
    history = own.fit(data(), epochs=2, batch_size=32)
    assert history["mine"] == [1, 1]
    assert history["loss"] == pytest.approx(plain.fit(data(), epochs=2, batch_size=32)["loss"])
    assert own.digest() == plain.digest()


def test_batches_are_counted_on_where_a_run_goes_on(tmp_path):
    first = estimator(Around, workers=2)
    first.fit(data(), epochs=1, batch_size=32, checkpoint=tmp_path)
    later = estimator(Around, workers=2)
    assert later.fit(data(), epochs=2, batch_size=32, checkpoint=tmp_path, resume=True)["began_at"][-1] == 4
