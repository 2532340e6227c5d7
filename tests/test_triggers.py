"""When something happens in a run."""

import json
import pickle

import numpy as np
import pytest

import grampus as gp
from grampus import _native, triggers
from grampus._training import options
from grampus.triggers import And, EveryEpoch, EverySteps, MaxEpoch, MaxScore, MaxSteps, MinLoss, Or


def fires(trigger, **at):
    return trigger.fires(**{"epoch": 0, "step": 0, "epoch_end": False, **at})


@pytest.mark.parametrize(
    ("trigger", "yes", "no"),
    [
        (EveryEpoch(), {"epoch": 1, "epoch_end": True}, {"epoch": 1}),
        (EverySteps(3), {"step": 6}, {"step": 7}),
        (MaxEpoch(2), {"epoch": 2}, {"epoch": 1}),
        (MaxSteps(5), {"step": 5}, {"step": 4}),
        (MinLoss(0.5), {"loss": 0.4}, {"loss": 0.5}),
        (MaxScore(0.5), {"score": 0.6}, {"score": 0.5}),
        (EveryEpoch() & MinLoss(1), {"epoch_end": True, "loss": 0.5}, {"loss": 0.5}),
        (EveryEpoch() & MinLoss(1), {"epoch_end": True, "loss": 0.5}, {"epoch_end": True}),
        (MaxEpoch(2) | MinLoss(1), {"loss": 0.5}, {"epoch": 1}),
        (MaxEpoch(2) | MinLoss(1), {"epoch": 2}, {}),
    ],
    ids=repr,
)
def test_each_fires_where_it_should_and_says_why(trigger, yes, no):
    assert fires(trigger, **yes)
    assert fires(trigger, **no) is None


def test_the_reason_names_what_was_reached():
    assert fires(MaxEpoch(2), epoch=2) == "2 epochs done"
    assert fires(And(MaxEpoch(2), MinLoss(0.5)), epoch=2, loss=0.25) == (
        "2 epochs done and the loss 0.25 is below 0.5"
    )


def test_names_from_elsewhere():
    assert triggers.SeveralIteration(7) == EverySteps(7)
    assert triggers.MaxIteration(7) == MaxSteps(7)


def test_each_epoch_by_name():
    assert gp.Checkpoint("runs", every="EveryEpoch").every == EveryEpoch()
    assert And("EveryEpoch", MinLoss(1)) == EveryEpoch() & MinLoss(1)
    # A trigger, not a folder of that name: checkpoints go to where the run is.
    saving = options.saving("EveryEpoch", "runs/here", "grampus", {})
    assert saving.every == EveryEpoch().to_json()
    assert saving.url.endswith("runs/here")


def test_triggers_are_values():
    trigger = (EveryEpoch() & MinLoss(0.1)) | MaxSteps(10)
    assert eval(repr(trigger)) == trigger == pickle.loads(pickle.dumps(trigger))
    assert len({trigger, pickle.loads(pickle.dumps(trigger)), EverySteps(1)}) == 2
    assert EverySteps(2) != EverySteps(3)
    assert EverySteps(2) != MaxSteps(2)
    assert EverySteps(2) != "every two"
    assert json.loads(trigger.to_json())["kind"] == "or"


def test_numbers_may_be_those_of_numpy():
    assert EverySteps(np.int64(3)).to_json() == EverySteps(3).to_json()
    assert MinLoss(np.float32(0.5)) == MinLoss(0.5)


def test_a_chain_is_one_list():
    one, two, three = EverySteps(1), EverySteps(2), EverySteps(3)
    assert one & two & three == And(one, And(two, three)) == And(one, two, three)
    assert repr(one | two | three) == "Or(EverySteps(1), EverySteps(2), EverySteps(3))"


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: EverySteps(0), ValueError, "n of EverySteps must be from 1 to .*, it is 0"),
        (lambda: EverySteps(2**64), ValueError, "from 1 to 18446744073709551615"),
        (lambda: MaxEpoch(1.5), TypeError, "n of MaxEpoch must be a whole number"),
        (lambda: MaxSteps(True), TypeError, "whole number"),
        (lambda: MinLoss("low"), TypeError, "bound of MinLoss must be a number"),
        (lambda: MaxScore(float("nan")), ValueError, "finite"),
        (lambda: And(), TypeError, "at least one"),
        (lambda: Or(EveryEpoch(), 3), TypeError, "3 is no trigger: pass one of grampus.triggers"),
        (lambda: gp.Checkpoint(every="every epoch"), TypeError, "'every epoch' is no trigger"),
        (lambda: EveryEpoch() & 3, TypeError, "unsupported operand"),
        (lambda: _native.trigger_fires("{}", 0, 0, False, None, None), _native.GrampusError, "not a trigger"),
    ],
)
def test_wrong_use_is_named(make, error, says):
    with pytest.raises(error, match=says):
        make()
