"""Every option of the public API has an effect, or an error says why not.

Options are found by the signatures: one that is new fails here until it has a case. A case is a flip in
`option_flips` or `option_estimators`, or in `option_cases` the name of the test that shows the effect, or of
the function or table that the test uses: this very function must pass the option by its name.
"""

import ast
from functools import cache
from pathlib import Path

import option_estimators
import option_flips
import pytest
from clusters import one_cluster, scratch  # noqa: F401 - a fixture
from option_cases import CITED, INTERNAL, WITHOUT
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
    file, _, test = CITED[name][option].partition("::")
    assert test in passed_by_name(file), f"there is no {test} in {file}"
    assert option in passed_by_name(file)[test], f"{test} in {file} does not pass {option}= by its name"


@cache
def passed_by_name(file):
    """For each function and table of a file, the names of arguments that it passes, also in dicts."""
    tree = ast.parse((TESTS / file).read_text("utf-8"))
    found = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    tables = [node for node in tree.body if isinstance(node, ast.Assign)]
    found |= {
        target.id: table for table in tables for target in table.targets if isinstance(target, ast.Name)
    }
    return {name: set(names_of_arguments(node)) for name, node in found.items()}


def names_of_arguments(definition):
    for node in ast.walk(definition):
        if isinstance(node, ast.keyword):
            yield node.arg
        elif isinstance(node, ast.Dict):
            yield from (key.value for key in node.keys if isinstance(key, ast.Constant))


def test_a_name_that_stands_elsewhere_in_a_file_is_no_case():
    """`FLIPS` is there, in this file and in this text, and no function passes it."""
    found = passed_by_name(Path(__file__).name)
    assert "seed" in found["test_settings_of_estimators_change_the_weights"]
    assert "seed" not in found["test_arguments_of_fit_change_the_run"]
    assert not any("FLIPS" in names for names in found.values())


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
        assert option in str(error)
        return
    assert after != before


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
