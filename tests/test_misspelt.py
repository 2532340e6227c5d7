"""A misspelt argument names the right one, and so does a callback's hook."""

import inspect
import pickle
import warnings

import pytest
from clusters import no_cluster
from public_api import CALLABLES, keywords, takes_others

import grampus as gp
from grampus import callbacks, collective, models, nn, optim
from grampus._training.options import parted

runtime = no_cluster()


# Others pass on what they do not know.
CHECKED = {name: function for name, function in CALLABLES.items() if not takes_others(function)}


@pytest.mark.parametrize("name", sorted(CHECKED))
def test_a_misspelt_argument_names_the_right_one(name):
    function = CHECKED[name]
    right = keywords(function)[-1]
    with pytest.raises(TypeError) as error:
        function(**{f"{right}_": None})
    assert str(error.value).endswith(f"an unexpected keyword argument '{right}_': did you mean {right}=?")


def test_there_are_many():
    assert len(CHECKED) > 250


def test_what_users_misspell():
    estimator = gp.Estimator.from_native(model=models.mlp(2, 2), loss=nn.MSE(), optimizer=optim.SGD(lr=0.1))
    with pytest.raises(
        TypeError, match=r"fit\(\) got an unexpected keyword argument 'epoch': did you mean epochs="
    ):
        estimator.fit({}, epoch=3)
    with pytest.raises(TypeError, match=r"init\(\) .*'worker': did you mean workers=\?"):
        gp.init(worker=2)
    with pytest.raises(TypeError, match=r"local\(\) .*'thread': did you mean threads=\?"):
        gp.Cluster.local(2, thread=1)
    with pytest.raises(TypeError, match=r"EarlyStopping\(\) .*'patient': did you mean patience=\?"):
        callbacks.EarlyStopping(patient=3)
    with pytest.raises(TypeError, match=r"Linear\(\) .*'colour': it takes .*bias"):
        nn.Linear(2, 2, colour="red")
    with pytest.raises(ValueError, match=r"no parameter 'sead': did you mean seed=\?"):
        estimator.set_params(sead=3)
    with pytest.raises(TypeError, match=r"fit has no checkpoint_trigger=: pass it as checkpoint="):
        estimator.fit({}, checkpoint_trigger=None)


def test_functions_are_still_found_by_pickle_and_by_inspect():
    for function in (gp.init, gp.read_csv, collective.all_reduce, gp.Estimator.fit, optim.Adam):
        assert pickle.loads(pickle.dumps(function)) is function
    assert list(inspect.signature(gp.read_json).parameters) == ["path", "num_shards"]


class Misspelt(callbacks.Callback):
    def on_epoch_ends(self, run):
        """Would never be called."""

    def on_batch_end(self, run):
        """Of another library."""

    def on_train_start(self, run):
        """Of another one."""

    def on_run_end(self, run):
        """A hook."""


def test_a_hook_that_is_none_is_warned_about():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        parted([Misspelt(), callbacks.EarlyStopping()], None, {})
    assert sorted(str(each.message) for each in caught) == [
        "Misspelt.on_batch_end is no hook and is never called: did you mean on_step_end?",
        "Misspelt.on_epoch_ends is no hook and is never called: did you mean on_epoch_end?",
        "Misspelt.on_train_start is no hook and is never called: did you mean on_run_begin?",
    ]
