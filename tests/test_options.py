"""Every option of the public API has an effect, or an error says why not.

Options are found by the signatures: one that is new fails here until it has a case. A case is a flip in
`option_flips` or `option_estimators`, or in `option_cases` the name of the test that shows the effect, or of
the function or table that the test uses: this very function must call the callable, or a helper that is
listed there, and pass the option by its name. Tests that show only that a value is refused are marked, and
are no case.
"""

import ast
import math
import re
import textwrap
from contextlib import suppress
from functools import cache
from pathlib import Path

import option_estimators
import option_flips
import pytest
from clusters import one_cluster, scratch  # noqa: F401 - a fixture
from option_cases import CITED, EQUAL, HELPERS, INTERNAL, ONLY_REFUSED, REFUSED, TABLE, WITHOUT
from public_api import options
from small_models import classifier, line, points, rows

import grampus as gp

runtime = one_cluster(1)

TESTS = Path(__file__).parent
FLIPS = {**option_flips.FLIPS, **option_estimators.FLIPS}
ALL = sorted(options())


@pytest.mark.parametrize(("name", "option"), ALL, ids=[f"{name}-{option}" for name, option in ALL])
def test_every_option_has_a_case(name, option):
    if name in INTERNAL or (name, option) in WITHOUT or option in FLIPS.get(name, {}):
        return
    assert option in CITED.get(name, {}), (
        f"{name}({option}=) has no case: add one to option_flips or option_cases"
    )
    cited = CITED[name][option]
    effects = [
        case for case in ((cited,) if isinstance(cited, str) else cited) if not case.startswith(REFUSED)
    ]
    assert effects or (name, option) in ONLY_REFUSED, f"{name}({option}=) is only refused: show an effect"
    assert not (effects and (name, option) in ONLY_REFUSED)
    for case in (cited,) if isinstance(cited, str) else cited:
        check_passed(name, option, case.removeprefix(REFUSED))


def check_passed(name, option, case):
    file, _, test = case.removeprefix(TABLE).partition("::")
    assert test in passed_by_name(file), f"there is no {test} in {file}"
    called = {None} if case.startswith(TABLE) else callees(name, file)
    found = {callee for callee, passed in passed_by_name(file)[test] if passed == option}
    assert called & found, f"{test} in {file} passes {option}= to {found}, and not to {called}"


def callees(name, file):
    """What stands in a test where it calls this: its name, that of an equal one, or that of a helper."""
    own = {name.rpartition(".")[2], *EQUAL.get(name, ())}
    return own | {helper for helper, of in HELPERS.get(file, {}).items() if own & set(of.split())}


@cache
def passed_by_name(file):
    """For each function and table of a file, which arguments it passes to what; to `None`, those in dicts."""
    tree = ast.parse((TESTS / file).read_text("utf-8"))
    found = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    tables = [node for node in tree.body if isinstance(node, ast.Assign)]
    found |= {
        target.id: table for table in tables for target in table.targets if isinstance(target, ast.Name)
    }
    return {name: set(arguments_in(node)) for name, node in found.items()}


def arguments_in(definition):
    for node in ast.walk(definition):
        if isinstance(node, ast.Call):
            callee = getattr(node.func, "attr", getattr(node.func, "id", ""))
            yield from ((callee, each.arg) for each in node.keywords)
        elif isinstance(node, ast.Dict):
            yield from ((None, key.value) for key in node.keys if isinstance(key, ast.Constant))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" in node.value:
            # A program that the test starts.
            with suppress(SyntaxError):
                yield from arguments_in(ast.parse(textwrap.dedent(node.value)))


def test_a_name_that_stands_elsewhere_in_a_file_is_no_case():
    """`FLIPS` is there, in this file and in this text, and no function passes it."""
    found = passed_by_name(Path(__file__).name)
    assert ("trained", "seed") in found["test_settings_of_estimators_change_the_weights"]
    assert not any(name == "seed" for _, name in found["test_arguments_of_fit_change_the_run"])
    assert not any(name == "FLIPS" for names in found.values() for _, name in names)


def test_an_option_of_another_callable_is_no_case():
    """`GradientNorm(every=2)` says nothing of `LearningRates(every=…)`."""
    check_passed("gp.callbacks.GradientNorm", "every", "test_trackers.py::told")
    with pytest.raises(AssertionError, match=r"passes every= to \{'GradientNorm'\}"):
        check_passed("gp.callbacks.LearningRates", "every", "test_trackers.py::told")
    with pytest.raises(AssertionError, match=r"passes memory= to \{None\}"):
        check_passed("gp.init", "memory", "test_engine.py::test_what_is_asked_for_wrongly_starts_nothing")


def test_no_case_is_left_of_an_option_that_went():
    known = set(ALL)
    listed = {(name, option) for table in (CITED, FLIPS) for name, cases in table.items() for option in cases}
    assert not (listed | WITHOUT.keys()) - known
    assert not INTERNAL.keys() - {name for name, _ in ALL}


SEEN = [(name, option) for name, flips in FLIPS.items() for option in flips]


@pytest.mark.parametrize(("name", "option"), SEEN, ids=[f"{name}-{option}" for name, option in SEEN])
def test_flipped_options_are_seen(name, option, tmp_path, monkeypatch):
    monkeypatch.setattr(option_flips, "FOLDER", [tmp_path])
    plain, flipped = FLIPS[name][option]
    before = plain()
    try:
        after = flipped()
    except (TypeError, ValueError) as error:
        assert is_named(option, str(error))
        return
    assert differs(after, before)


def is_named(option, text):
    """Whether an error is about an option: as `name=`, quoted, or as a word that is no article.

    >>> is_named("a", "a matrix"), is_named("lr", "lr= must be above 0"), is_named("mode", "modest")
    (False, True, False)
    """
    word = re.escape(option)
    return bool(
        re.search(rf"\b{word}=|['\"`]{word}['\"`]" + (rf"|\b{word}\b" if len(option) > 2 else ""), text)
    )


def differs(after, before):
    """Whether two results do; what is not a number differs from nothing."""
    if isinstance(after, tuple | list) and isinstance(before, tuple | list) and len(after) == len(before):
        return any(differs(*pair) for pair in zip(after, before, strict=True))
    if isinstance(after, dict) and isinstance(before, dict) and after.keys() == before.keys():
        return any(differs(after[name], before[name]) for name in after)
    if isinstance(after, float) and math.isnan(after):
        return False
    return bool(after != before)


def test_what_is_not_a_number_is_no_difference():
    nan = float("nan")
    assert not differs((1, nan, [{"a": nan}]), (1, 0.5, [{"a": 1.0}]))
    assert differs((1, nan, [{"a": 2.0}]), (1, 0.5, [{"a": 1.0}]))
    assert not is_named("a", "this is a word")
    assert is_named("a", "a= is negative") and is_named("step", "'step' is negative")
    assert not is_named("step", "steps are negative")


def test_settings_of_estimators_change_the_weights():
    """`seed` and `lanes`, by which the random numbers of a run are drawn."""

    def trained(**other):
        estimator = classifier(**other)
        estimator.fit(rows(), batch_size=16)
        return estimator.digest()

    plain = trained()
    assert trained() == plain
    assert trained(seed=4) != plain
    assert trained(lanes=2) != plain


def test_arguments_of_fit_change_the_run():
    def steps(**other):
        history = line().fit(points(), epochs=2, **other)
        return sum(record["steps"] for record in history), "val_loss" in history[-1]

    assert steps() == (2, False)
    assert steps(batch_size=4) == (8, False)
    assert steps(batch_size=4, max_steps=3) == (3, False)
    assert steps(validation_data=points()) == (2, True)


def test_labels_may_stand_beside_the_rows():
    x, y = points()["x"], points()["y"]
    together, apart = line(), line()
    together.fit(points(), batch_size=4)
    apart.fit(x, y=y, batch_size=4)
    assert apart.digest() == together.digest()
    assert apart.evaluate(x, y=y) == together.evaluate(points())
    assert apart.score(x, y=y) > apart.score(x, y=y + 1)


def test_the_mode_of_a_checkpoint_says_which_is_the_best(tmp_path):
    values = {}
    for mode in ("min", "max"):
        estimator = line()
        estimator.fit(
            points(), epochs=3, checkpoint=gp.Checkpoint(path=tmp_path / mode, best="loss", mode=mode)
        )
        values[mode] = line().load(tmp_path / mode, best=True).evaluate(points())["loss"]
    assert values["min"] < values["max"]
    with pytest.raises(ValueError, match="mode='max' of Checkpoint says how to compare, and nothing what"):
        gp.Checkpoint("runs", mode="max")


def test_the_size_of_batches_of_a_score_is_that_of_its_evaluation():
    def counts(output, target):
        return output.sum() * 0 + len(output)

    estimator = line(loss=counts, lanes=1, workers=1)
    assert [estimator.score(points(), batch_size=size) for size in (4, 8)] == [-4, -8]


def test_rates_are_logged_every_few_steps():
    class Keeps(gp.callbacks.Logger):
        def __init__(self):
            self.told = []

        def event(self, event):
            if "learning_rate/0" in str(event):
                self.told.append(event)

    counts = []
    for every in (1, 2, 4):
        keeps = Keeps()
        line().fit(points(), batch_size=2, callbacks=[gp.callbacks.LearningRates(every=every), keeps])
        counts.append(str(keeps.told).count("learning_rate/0"))
    assert counts == [8, 4, 2]


def test_an_input_is_named_in_the_model_and_in_errors():
    named, other = gp.nn.Input(name="orca"), gp.nn.Input(name="dolphin")
    model = gp.nn.Model(named, gp.nn.Linear(3, 2)(named))
    assert model.description()["inputs"] == ["orca"]
    with pytest.raises(ValueError, match="the input 'dolphin' is not among the inputs of the model"):
        gp.nn.Model(named, gp.nn.ReLU()(other)).summary([3])


def test_a_size_that_is_none_is_refused_by_score():
    with pytest.raises(ValueError, match="batch_size must be a whole number"):
        line().score(points(), batch_size=0)


def plateau(optimizer, config):
    from torch.optim.lr_scheduler import ReduceLROnPlateau

    return ReduceLROnPlateau(optimizer, factor=0.5, patience=0)


def test_a_metric_is_for_plateaus_alone():
    def rate(scheduler, *metrics):
        estimator = line(scheduler=scheduler, scheduler_step_freq="manual")
        estimator.fit(points())
        for metric in metrics:
            estimator.update_schedulers(metric=metric)
        return estimator.fit(points())[-1]["learning_rate"]

    assert rate(plateau, 1.0, 0.5) == pytest.approx(0.1)
    assert rate(plateau, 1.0, 2.0) == pytest.approx(0.05)
    with pytest.raises(ValueError, match="StepLR looks at no metric: leave it out"):
        rate(falling, 1.0)
    with pytest.raises(ValueError, match="ReduceLROnPlateau looks at a metric: pass it"):
        rate(plateau, None)


def falling(optimizer, config):
    from torch.optim.lr_scheduler import StepLR

    return StepLR(optimizer, 1, 0.5)


def test_options_of_early_stopping():
    def epochs(**other):
        stopping = gp.callbacks.EarlyStopping("loss", **{"patience": 1, **other})
        return len(line(config={"lr": 0.9}).fit(points(), epochs=9, callbacks=[stopping]))

    # Each step takes the loss to 0.64 of what it was.
    assert epochs() == 9
    assert epochs(min_delta=1e9) == 2
    assert epochs(min_delta=1e9, patience=0) == 2
    assert epochs(min_delta=1e9, patience=3) == 4
    assert epochs(min_delta=1e9, start=2) == 4
    assert epochs(mode="max") == 2


def test_pictures_are_cut_into_shards(tmp_path):
    import numpy as np
    from PIL import Image

    for number in range(4):
        Image.fromarray(np.full((6, 6, 3), 60 * number, "uint8")).save(tmp_path / f"{number}.png")
    assert gp.read_images(tmp_path, num_shards=4).num_partitions() == 4
    shards = gp.read_images(tmp_path, num_shards=1)
    assert shards.num_partitions() == 1
    sizes = [next(iter(shards.to_torch(4, images=[gp.images.Resize(size)]))).shape[-1] for size in (3, 5)]
    assert sizes == [3, 5]


def numbered(tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.table({"a": range(64)}), tmp_path / "rows.parquet", row_group_size=4)
    return gp.read_parquet(tmp_path / "rows.parquet", num_shards=1)


def order(shards, **other):
    return [int(row) for batch in shards.to_torch(8, feature_cols="a", **other) for row in batch.flatten()]


def test_a_window_changes_the_order_of_a_stream(tmp_path):
    orders = [order(numbered(tmp_path).stream(window=window), shuffle=True, seed=1) for window in (1, 8)]
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(64))


def test_loops_are_shuffled_by_the_seed(tmp_path):
    shards = numbered(tmp_path)
    assert order(shards) == list(range(64))
    first, second = (order(shards, shuffle=True, seed=seed) for seed in (1, 2))
    assert sorted(first) == list(range(64))
    assert len({tuple(first), tuple(second), tuple(range(64))}) == 3


def scaled(scaler):
    frame = scaler.fit_transform(option_flips._shards()).to_pandas()
    return sorted(frame.columns), frame.select_dtypes("number").round(6).to_numpy().tolist()


def test_options_of_scalers():
    kinds = {
        gp.shards.MinMaxScaler: {"min": -1.0, "max": 2.0, "outputCol": "z"},
        gp.shards.StandardScaler: {"withMean": True, "withStd": False, "outputCol": "z"},
    }
    for kind, flips in kinds.items():
        plain = scaled(kind(inputCol="a"))
        found = [scaled(kind(**{"inputCol": "a", option: value})) for option, value in flips.items()]
        found.append(scaled(kind(inputCol="b")))
        named = kind()
        named.setInputOutputCol("a", outputCol="w")
        found.append(scaled(named))
        assert plain not in found
        assert [other for other in found if found.count(other) > 1] == []


def test_options_of_indexers():
    import pyarrow as pa

    texts = ["y;x,q", "x,q", "z;x;y,p", "x,q;y", "x,q", "w"]
    shards = gp.Shards.from_arrow(pa.table({"t": texts, "u": texts[::-1]}), 2)
    kind = gp.shards.StringIndexer
    plain = kind.gen_string_idx(shards, "t")[0].to_dict()
    split = kind.gen_string_idx(shards, "t", do_split=True)[0].to_dict()
    found = [
        plain,
        split,
        kind.gen_string_idx(shards, "t", freq_limit=2)[0].to_dict(),
        kind.gen_string_idx(shards, "t", order_by_freq=True)[0].to_dict(),
        kind.gen_string_idx(shards, "t", do_split=True, sep=";")[0].to_dict(),
    ]
    assert all(
        list(each.items()) != list(other.items()) for n, each in enumerate(found) for other in found[:n]
    )

    # Without parts, a text that is split elsewhere is another.
    index = kind.gen_string_idx(shards, "t", do_split=True, sep=";")[0]
    parts = [
        kind.encode_string(shards, "t", index, do_split=True, sep=sep).to_arrow()["t"].to_pylist()
        for sep in (";", ",")
    ]
    assert parts[0] != parts[1]

    def encoded(**other):
        result, (index,) = kind.category_encode(shards, "t", **other)
        return result.to_arrow()["t"].to_pylist(), index.to_dict()

    split = {"do_split": True}
    results = [
        encoded(),
        encoded(freq_limit=2),
        encoded(order_by_freq=True),
        encoded(**split),
        encoded(**split, sep=";"),
        encoded(**split, sep=";", sort_for_array=True),
        encoded(**split, sep=";", keep_most_frequent=True),
    ]
    assert all(each != other for n, each in enumerate(results) for other in results[:n])
    found = [kind(inputCol=column).fit_transform(shards).to_pandas().to_dict() for column in ("t", "u")]
    assert found[0] != found[1]


def test_a_plot_is_saved_where_it_is_asked_for(tmp_path):
    gp.History([{"epoch": 1, "loss": 0.5}]).plot(path=tmp_path / "loss.png")
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_of_mlflow_is_named(tmp_path, monkeypatch):
    import mlflow

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    place = f"file://{tmp_path}/mlruns"
    for name in ("orcas", "dolphins"):
        tracker = gp.callbacks.MLflow(experiment=name, run_name=f"first of {name}", tracking_uri=place)
        line().fit(points(), callbacks=[tracker])
        client = mlflow.MlflowClient(place)
        run = client.get_run(tracker.run_id)
        assert client.get_experiment(run.info.experiment_id).name == name
        assert run.info.run_name == f"first of {name}"


def test_workers_of_init_are_ended_by_force_alone():
    """Last in this file: the next call would start workers anew."""
    estimator = line()
    estimator.fit(points())
    estimator.shutdown()
    assert gp.run(lambda: 1) == [1]
    estimator.shutdown(force=True)
    with pytest.raises(gp.ClusterError, match="stopped"):
        gp.run(lambda: 1)
    gp.init(workers=1)


def refusing(use):
    return pytest.param(use, id=use.__name__)


def info():
    line().fit(points(), info={"asked": 1})


def info_of_evaluate():
    line().evaluate(points(), info={"asked": 1})


def example():
    line().save("weights.safetensors", example=points()["x"])


def feature_cols_of_arrays():
    line().fit(points()["x"], points()["y"], feature_cols=["x"])


def label_cols_of_a_data_set():
    line().fit(pairs(), label_cols="y")


def feature_cols_of_predict():
    line().predict(points()["x"], feature_cols="x")


def columns_of_evaluate():
    line().evaluate(pairs(), feature_cols="x", label_cols="y")


def label_cols_alone():
    line().fit(points(), label_cols="y")


def pairs():
    from torch.utils.data import TensorDataset

    return TensorDataset(points()["x"], points()["y"])


def settings_of_a_cluster_made_by_hand():
    gp.stop()
    with gp.Cluster.local(1) as cluster:
        gp.init(cluster=cluster, threads=3)


def min_workers():
    gp.stop()
    gp.init(workers=2)
    try:
        line(backend="torch_distributed", lanes=2).fit(points(), min_workers=2)
    finally:
        gp.stop()


def step_freq_without_a_scheduler():
    line(scheduler_step_freq="manual")


def step_freq_of_each_batch_without_a_scheduler():
    line(scheduler_step_freq="batch")


def seed_of_rows_as_they_come():
    option_flips._shards().to_torch(2, seed=1, feature_cols="a")


def seed_of_arrays_as_they_come():
    arrays().to_torch(2, seed=1)


def seed_of_images_that_are_only_resized():
    image = gp.columns.Image("c", [gp.images.Resize(8)])
    option_flips._shards().to_torch(2, seed=1, feature_cols=image)


def threads_of_arrays():
    arrays().to_torch(2, threads=1)


def arrays():
    return gp.Shards.partition({"x": points()["x"].numpy()}, 2)


def nesterov_without_momentum():
    gp.optim.SGD(nesterov=True)


def nesterov_beside_dampening():
    gp.optim.SGD(momentum=0.9, dampening=0.5, nesterov=True)


def dampening_without_momentum():
    gp.optim.SGD(dampening=0.5)


WITHOUT_EFFECT = (
    info,
    info_of_evaluate,
    example,
    feature_cols_of_arrays,
    label_cols_of_a_data_set,
    feature_cols_of_predict,
    columns_of_evaluate,
    label_cols_alone,
    settings_of_a_cluster_made_by_hand,
    min_workers,
    step_freq_without_a_scheduler,
    step_freq_of_each_batch_without_a_scheduler,
    seed_of_rows_as_they_come,
    seed_of_arrays_as_they_come,
    seed_of_images_that_are_only_resized,
    threads_of_arrays,
    nesterov_without_momentum,
    nesterov_beside_dampening,
    dampening_without_momentum,
)


@pytest.mark.parametrize("use", list(map(refusing, WITHOUT_EFFECT)))
def test_what_would_have_no_effect_is_refused(use):
    with pytest.raises((TypeError, ValueError), match="leave it out"):
        use()
    gp.init(workers=1)


def test_an_operator_is_told_of_a_step_frequency_without_a_scheduler():
    class Told(gp.TrainingOperator):
        def train_batch(self, batch, batch_info):
            assert batch_info["scheduler_step"] == "manual"
            return super().train_batch(batch, batch_info)

    estimator = line(scheduler_step_freq="manual", training_operator_cls=Told)
    assert estimator.fit(points())[-1]["steps"] == 1


def test_seeds_are_those_of_random_images():
    """Rows come as they are, and each row's image depends on the seed; each random step is known as such."""
    random = [each for each in gp.images.__all__ if each.startswith("Random")]
    assert len(random) == len(gp.images.RANDOM) == 3
    for name in random:
        step = getattr(gp.images, name)(*([] if name == "RandomFlip" else [8]))
        assert option_flips.pictures(step) == option_flips.pictures(step)
        assert option_flips.pictures(step) != option_flips.pictures(step, seed=2)


def test_no_metrics_are_measured_where_none_are_asked_for():
    estimator = line(metrics=["mae"])
    assert estimator.evaluate(points(), metrics=[]).keys() == {"loss", "num_samples"}
    assert "mae" in estimator.evaluate(points())


def test_columns_are_of_all_data_of_a_call():
    """Names may be those of the training rows or of the validation rows alone."""
    import pandas as pd

    frame = pd.DataFrame({name: values[:, 0].numpy() for name, values in points().items()})
    columns = {"feature_cols": [["x"]], "label_cols": [["y"]]}
    for data, validation in ((frame, pairs()), (pairs(), frame)):
        assert "val_loss" in line().fit(data, validation_data=validation, **columns)[-1]


def test_the_size_of_batches_that_a_sampler_makes_is_not_asked_for():
    from torch.utils.data import DataLoader

    loader = DataLoader(pairs(), batch_sampler=[[0, 1, 2], [3]])
    with pytest.raises(ValueError, match="batch_size=8 was asked for, and the loader's sampler"):
        line().fit(loader, batch_size=8)
    assert line().fit(loader, batch_size=None)[-1]["steps"] == 2
