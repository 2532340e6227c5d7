"""The resume tests of PyTorch models, unchanged, on native ones."""

import importlib.util
from pathlib import Path

import pytest
import small_models

import grampus as gp

FIXTURES = ("runtime", "scratch", "whole", "trained")
TESTS = (
    "test_a_run_that_was_cut_off_goes_on_to_the_same_bits",
    "test_a_run_that_failed_goes_on_from_its_last_checkpoint",
    "test_a_run_is_cut_off_again_and_again",
    "test_a_checkpoint_may_lie_elsewhere_and_be_named",
    "test_without_a_checkpoint_a_run_starts",
    "test_a_finished_run_is_not_trained_again",
    "test_the_end_of_a_run_is_saved_whatever_the_trigger_says",
    "test_triggers_that_end_a_run_count_over_its_pieces",
    "test_max_steps_counts_over_the_pieces_of_a_run",
    "test_a_second_fit_goes_on_like_the_first",
    "test_a_run_does_not_go_on_as_another",
    "test_a_run_that_goes_on_with_other_data_is_said_to_be_another",
    "test_a_damaged_checkpoint_is_passed_over",
    "test_a_run_that_starts_anew_is_not_mixed_with_an_older_one",
    "test_a_run_whose_only_checkpoint_is_spoilt_does_not_start_anew_beside_it",
    "test_a_trigger_that_has_ended_a_run_ends_it_again",
)


def classifier(**other):
    """As that of the PyTorch tests: it draws numbers, keeps statistics of batches, and its rate falls."""
    nn = gp.nn
    layers = (nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.25), nn.Linear(8, 3))
    given = {
        "model": nn.Sequential(*layers),
        "optimizer": gp.optim.Adam(0.01),
        "loss": nn.CrossEntropy(),
        "metrics": [gp.metrics.Accuracy()],
        "scheduler": gp.optim.Step(3, 0.9),
        "seed": 3,
        "lanes": 4,
        "threads_per_lane": 1,
    }
    return gp.Estimator.from_native(**{**given, **other})


def borrowed():
    """The module of those tests, with another model in it."""
    path = Path(__file__).with_name("test_estimator_resume.py")
    spec = importlib.util.spec_from_file_location("resume_of_native_models", path)
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(small_models, "classifier", classifier)
        spec.loader.exec_module(module)
    return module


_tests = borrowed()
globals().update({name: getattr(_tests, name) for name in (*FIXTURES, *TESTS)})
