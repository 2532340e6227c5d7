"""Runs in MLflow, Weights & Biases and TensorBoard: curves, pictures, graphs."""

import io
import pickle
import sys
from types import SimpleNamespace

import mlflow
import numpy as np
import pytest
import torch
import wandb
import wandb.sdk.data_types.image
from clusters import one_cluster, scratch  # noqa: F401 - a fixture
from PIL import Image
from small_models import classifier, line, points, rows
from telling import Fails, LogsMuch, Shows
from tracked_runs import board, board_curve, mlflow_curve, mlflow_runs, wandb_curve, wandb_runs

import grampus as gp
from grampus._training.parcel import Parcels, cut
from grampus._training.picture import pictured
from grampus.callbacks import (
    GradientNorm,
    LearningRates,
    MLflow,
    ModelGraph,
    TensorBoard,
    WandB,
)

runtime = one_cluster(workers=2)


@pytest.fixture(scope="module", autouse=True)
def folders_of_wandb(tmp_path_factory):
    """Nothing is written to the folders of the user."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("wandb")
        for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
            patch.setenv(name, str(folder))
        patch.setenv("WANDB_SILENT", "true")
        # Of all stores of MLflow, the only one that needs no other packages.
        patch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        yield


def quiet(folder, **other):
    settings = wandb.Settings(console="off", disable_git=True, x_disable_stats=True)
    return WandB("whales", mode="offline", dir=str(folder), settings=settings, **other)


@pytest.fixture(scope="module")
def told(tmp_path_factory, runtime, folders_of_wandb):
    """The folder of one run on two workers that all of them were told of."""
    folder = tmp_path_factory.mktemp("told")
    trackers = [
        MLflow("orcas", "first", f"file://{folder}/mlruns", tags={"pod": "J"}),
        quiet(folder, name="first"),
        TensorBoard(folder / "logs"),
    ]
    graph = ModelGraph(example=torch.zeros(2, 4))
    callbacks = [*trackers, LearningRates(), GradientNorm(every=2), Shows(), graph]
    estimator = classifier(model_dir=folder / "run")
    history = estimator.fit(rows(), epochs=2, batch_size=16, validation_data=rows(32), callbacks=callbacks)
    return SimpleNamespace(folder=folder, uri=f"file://{folder}/mlruns", history=history)


STEPS = list(range(1, 9))


def test_mlflow_has_one_run_with_its_curves(told):
    client, (run,) = mlflow_runs(told.uri)
    assert (run.info.status, run.info.run_name, run.data.tags["pod"]) == ("FINISHED", "first", "J")
    assert client.get_experiment(run.info.experiment_id).name == "orcas"
    sizes = {"batch_size": "16", "lanes": "4", "workers": "2", "epochs": "2", "threads": "1"}
    assert run.data.params == sizes
    assert [step for step, _ in mlflow_curve(told.uri, run, "train/loss")] == STEPS
    assert [step for step, _ in mlflow_curve(told.uri, run, "learning_rate/0")] == STEPS
    judged = mlflow_curve(told.uri, run, "validation/accuracy")
    assert judged == list(zip([4, 8], told.history["val_accuracy"], strict=True))
    assert mlflow_curve(told.uri, run, "train/doubled") == [(4, 2.0), (8, 4.0)]
    assert mlflow_curve(told.uri, run, "twice/step") == [(step, 2.0 * step) for step in STEPS]
    names = [entry.path for entry in client.list_artifacts(run.info.run_id, "images")]
    assert sum(name.startswith("images/weights") and name.endswith(".png") for name in names) == 2


def test_wandb_has_one_run_with_its_curves(told):
    (run,) = wandb_runs(told.folder)
    assert run["exit"] == 0
    sizes = {"batch_size": 16, "lanes": 4, "workers": 2, "epochs": 2, "threads": 1}
    assert sizes.items() <= run["config"].items()
    assert [step for step, _ in wandb_curve(run, "train/loss")] == STEPS
    assert wandb_curve(run, "validation/loss") == list(zip([4, 8], told.history["val_loss"], strict=True))
    assert [step for step, _ in wandb_curve(run, "gradient_norm")] == [2, 4, 6, 8]
    assert wandb_curve(run, "weights/_type") == [(4, "image-file"), (8, "image-file")]
    assert len(list(told.folder.glob("wandb/offline-run-*/files/media/images/weights_*.png"))) == 2
    assert (told.folder / "run" / "wandb_run_id").read_text().strip() == run["id"]


def test_options_of_wandb(tmp_path, folders_of_wandb):
    settings = wandb.Settings(console="off", disable_git=True, x_disable_stats=True)
    for mode in ("disabled", "offline"):
        tracker = WandB(
            project="orcas", name="second", every=4, mode=mode, dir=str(tmp_path), settings=settings
        )
        classifier(model_dir=tmp_path / mode).fit(rows(), epochs=2, batch_size=16, callbacks=[tracker])
        found = wandb_runs(tmp_path)
        assert len(found) == (mode == "offline")
    assert (found[0]["project"], found[0]["name"]) == ("orcas", "second")
    assert [step for step, _ in wandb_curve(found[0], "train/loss")] == [4, 8]


def test_tensorboard_reads_pictures_curves_and_the_graph(told):
    read = board(told.folder / "logs")
    assert board_curve(read, "twice/step") == [(step, 2.0 * step) for step in STEPS]
    assert [step for step, _ in board_curve(read, "gradient_norm")] == [2, 4, 6, 8]
    rates = [value for _, value in board_curve(read, "learning_rate/0")]
    assert rates == pytest.approx([0.01, 0.01, 0.009, 0.009, 0.009, 0.0081, 0.0081, 0.0081])
    (noise,) = read.Images("noise")
    assert (noise.step, noise.width, noise.height) == (3, 600, 700)
    drawn = np.random.default_rng(0).integers(0, 256, (700, 600, 3), dtype=np.uint8)
    seen = np.asarray(Image.open(io.BytesIO(noise.encoded_image_string)))
    assert np.array_equal(seen, drawn)
    weights = read.Images("weights")
    assert [(image.step, image.width, image.height) for image in weights] == [(4, 4, 8), (8, 4, 8)]
    names = [node.name for node in read.Graph().node]
    assert any("BatchNorm1d" in name for name in names)


def test_a_run_that_failed_goes_on_as_itself(tmp_path):
    uri = f"file://{tmp_path}/mlruns"

    def fit(*callbacks, **other):
        trackers = MLflow("orcas", tracking_uri=uri), quiet(tmp_path)
        saving = gp.Checkpoint("saved", every=gp.triggers.EverySteps(1))
        given = {"checkpoint": saving, "callbacks": [*trackers, *callbacks], **other}
        return line(workers=1).fit(points(), epochs=2, batch_size=8, **given)

    with pytest.raises(RuntimeError, match="the net is torn"):
        fit(Fails())
    _, (run,) = mlflow_runs(uri)
    assert run.info.status == "FAILED"
    assert [step for step, _ in mlflow_curve(uri, run, "train/loss")] == [1, 2, 3]
    (first,) = wandb_runs(tmp_path)
    assert first["exit"] == 1
    # In another folder of a run: the checkpoints are where it is known.
    fit(resume=True)
    _, (again,) = mlflow_runs(uri)
    assert (again.info.run_id, again.info.status) == (run.info.run_id, "FINISHED")
    assert {step for step, _ in mlflow_curve(uri, again, "train/loss")} == {1, 2, 3, 4}
    second = wandb_runs(tmp_path)[1]
    assert (second["id"], second["exit"]) == (first["id"], 0)
    assert wandb_curve(second, "train/loss")[-1][0] == 4


class Hears(gp.callbacks.Logger):
    def __init__(self):
        self.values = []

    def event(self, event):
        self.values += event.get("values", [])


def begin(**other):
    return {"kind": "begin", "epochs": 1, "workers": 1, "run": None, "resumed_from": None, **other}


def steps(*numbers):
    return {"kind": "steps", "steps": [[number, 0.5 / number, 0.001] for number in numbers]}


def log(logger, *events):
    for event in events:
        logger.event(event)
    logger.close()


END = {"kind": "end", "reason": "done", "step": 1}


def test_mlflow_gets_all_steps_of_a_fast_model_in_few_calls(tmp_path, monkeypatch):
    uri, sizes = f"file://{tmp_path}/mlruns", []
    sent = mlflow.MlflowClient.log_batch

    def counted(client, run_id, metrics=(), **other):
        sizes.append(len(metrics))
        return sent(client, run_id, metrics, **other)

    monkeypatch.setattr(mlflow.MlflowClient, "log_batch", counted)
    logger = MLflow(tracking_uri=uri, every=2)
    some = [steps(*range(start, start + 100)) for start in range(1, 2001, 100)]
    log(logger, begin(), *some, {"kind": "weather"}, END)
    _, (run,) = mlflow_runs(uri)
    found = [step for step, _ in mlflow_curve(uri, run, "train/loss")]
    assert found == list(range(2, 2001, 2))
    assert sum(sizes) == 2000
    assert len(sizes) < len(some)
    pickle.dumps(logger)


def test_a_run_that_mlflow_does_not_know_goes_on_as_another(tmp_path):
    uri = f"file://{tmp_path}/mlruns"
    (tmp_path / "mlflow_run_id").write_text("0" * 32)
    with pytest.warns(RuntimeWarning, match="MLflow does not know the run 000"):
        log(MLflow(tracking_uri=uri), begin(run=str(tmp_path), resumed_from="step-3"), steps(4), END)
    client, (run,) = mlflow_runs(uri)
    assert (tmp_path / "mlflow_run_id").read_text().strip() == run.info.run_id
    client.delete_run(run.info.run_id)
    with pytest.warns(RuntimeWarning, match=f"MLflow does not know the run {run.info.run_id}"):
        log(MLflow(tracking_uri=uri), begin(run=str(tmp_path), resumed_from="step-3"), steps(4), END)


@pytest.mark.parametrize("kept", [b"", b"\xff"])
def test_a_file_that_names_no_run_is_as_none(tmp_path, kept):
    uri = f"file://{tmp_path}/mlruns"
    for make in (lambda: MLflow(tracking_uri=uri), lambda: quiet(tmp_path)):
        logger = make()
        name = tmp_path / logger._NAME_FILE
        name.write_bytes(kept)
        log(logger, begin(run=str(tmp_path), resumed_from="step-3"), steps(4), END)
        assert name.read_text().strip() == logger.run_id


def test_names_that_mlflow_does_not_take_are_changed(tmp_path):
    uri, png = f"file://{tmp_path}/mlruns", pictured(COLOURS).png
    values = {"kind": "scalars", "values": [[1, "f1@5", 0.5], [1, "/top//(3) é", 0.25], [1, "..", 0.125]]}
    image = {"kind": "image", "name": "f1@5 é", "step": 1, "bytes": png}
    log(MLflow(tracking_uri=uri), begin(), values, {**values, "values": [[1, "x" * 300, 1.0]]}, image, END)
    client, (run,) = mlflow_runs(uri)
    assert run.data.metrics == {"f1_5": 0.5, "top/_3_ é": 0.25, "_": 0.125, "x" * 250: 1.0}
    assert any(
        entry.path.startswith("images/f1_5 _") for entry in client.list_artifacts(run.info.run_id, "images")
    )


def test_a_tracker_that_fails_on_the_way_loses_no_training(tmp_path, monkeypatch):
    uri = f"file://{tmp_path}/mlruns"
    tracker, log_batch = MLflow(tracking_uri=uri), mlflow.MlflowClient.log_batch

    def fails(client, run_id, metrics=(), params=(), **other):
        if metrics:
            raise ConnectionError("the sea is rough")
        return log_batch(client, run_id, metrics, params, **other)

    monkeypatch.setattr(mlflow.MlflowClient, "log_batch", fails)
    estimator = line(workers=1)
    with pytest.warns(RuntimeWarning, match="MLflow fails, and the run goes on: the sea is rough"):
        history = estimator.fit(points(), epochs=2, batch_size=8, callbacks=[tracker])
    assert len(history) == 2 and estimator.state_dict()["weight"].item() > 0
    assert mlflow_runs(uri)[1][0].info.status == "FINISHED"

    def away(*_, **__):
        raise ConnectionError("the sea is rough")

    # One that fails as the run begins is a mistake that the user can still mend.
    monkeypatch.setattr(mlflow.MlflowClient, "create_run", away)
    with pytest.raises(ConnectionError, match="the sea is rough"):
        estimator.fit(points(), epochs=2, batch_size=8, callbacks=[tracker])


def test_more_values_than_a_report_carries():
    told = Hears()
    line(workers=1).fit(points(), epochs=1, batch_size=2, callbacks=[LogsMuch(), told])
    assert len(told.values) == 8 * LogsMuch.EACH


def test_a_run_that_begins_again_within_one_call_stays_one(tmp_path):
    uri = f"file://{tmp_path}/mlruns"
    logger = MLflow(tracking_uri=uri)
    log(logger, begin(), steps(1, 2), begin(resumed_from="step-1"), steps(2, 3), END)
    _, (run,) = mlflow_runs(uri)
    assert run.info.status == "FINISHED"
    # One that does not go on is another.
    log(logger, begin(), steps(1))
    assert [run.info.status for run in mlflow_runs(uri)[1]] == ["FINISHED", "FAILED"]


def test_a_wandb_run_of_the_users_own_stays_open(tmp_path):
    settings = wandb.Settings(console="off", disable_git=True, x_disable_stats=True)
    with wandb.init(project="own", mode="offline", dir=str(tmp_path / "own"), settings=settings) as own:
        log(quiet(tmp_path), begin(), steps(*range(1, 1001)), END)
        own.log({"mine": 1.0})
    wandb.teardown()
    (mine,) = wandb_runs(tmp_path / "own")
    assert mine["rows"][0]["mine"] == 1.0
    (run,) = wandb_runs(tmp_path)
    assert run["id"] != mine["id"]
    # W&B takes points one by one, so that of many only some are kept.
    assert [step for step, _ in wandb_curve(run, "train/loss")] == list(range(20, 1001, 20))


@pytest.mark.parametrize(
    ("make", "module", "package"), [(MLflow, "mlflow", "mlflow-skinny"), (WandB, "wandb", "wandb")]
)
def test_a_tracker_that_is_not_installed_is_named(make, module, package, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ModuleNotFoundError, match=f"needs {package}, .*: pip install {package}"):
        make()


@pytest.mark.parametrize("make", [MLflow, WandB, LearningRates, GradientNorm])
def test_every_step_is_the_most(make):
    with pytest.raises(ValueError, match=f"every of {make.__name__} must be at least 1, it is 0"):
        make(every=0)


# Monitors


@pytest.mark.parametrize("settings", [{"workers": 1}, {"workers": 2}, {"workers": 1, "lanes": 1}])
def test_the_norm_is_that_of_the_gradients_of_all_workers(settings):
    # The loss is (w - 3)² and its slope 2 (w - 3), whoever sees which rows.
    line(**settings).fit(
        points(), epochs=1, batch_size=8, callbacks=[GradientNorm(), LearningRates(), TensorBoard("logs")]
    )
    read = board("logs")
    assert board_curve(read, "gradient_norm") == [(1, pytest.approx(6.0)), (2, pytest.approx(4.8))]
    assert board_curve(read, "learning_rate/0") == [(1, pytest.approx(0.1)), (2, pytest.approx(0.1))]


def test_monitors_name_models_that_they_cannot_read():
    run = SimpleNamespace(step=1, model=object(), optimizer=object())
    with pytest.raises(TypeError, match="LearningRates reads the groups of a torch optimizer"):
        LearningRates().on_step_end(run)
    with pytest.raises(TypeError, match="GradientNorm reads the gradients of a torch module"):
        GradientNorm().on_step_end(run)


def test_rows_of_a_sparse_gradient_are_summed_before_the_norm():
    table = torch.nn.Embedding(4, 1, sparse=True)
    table(torch.tensor([2, 2, 3])).sum().backward()
    told = {}
    GradientNorm().on_step_end(SimpleNamespace(step=1, model=table, log_step=told.__setitem__))
    assert told["gradient_norm"] == pytest.approx(5**0.5)


def test_the_norm_of_parameters_of_several_types():
    model = torch.nn.ParameterList(
        [torch.zeros(2, dtype=torch.float64), torch.zeros(2).half(), torch.zeros(1)]
    )
    told = {}
    run = SimpleNamespace(step=1, model=model, log_step=told.__setitem__)
    GradientNorm().on_step_end(run)
    assert told["gradient_norm"] == 0.0
    model[0].grad = torch.full((2,), 60000.0, dtype=torch.float64)
    model[1].grad = torch.full((2,), 60000.0).half()
    GradientNorm().on_step_end(run)
    assert told["gradient_norm"] == pytest.approx(120000.0, rel=1e-3)


# Graphs


class Counting(torch.nn.Module):
    """Counts its calls in a buffer, draws, and has a part that is not trained."""

    def __init__(self):
        super().__init__()
        self.part = torch.nn.Linear(2, 2).eval()
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("last", torch.zeros(()))
        self.rounds = 0

    def forward(self, x):
        self.calls += 1
        self.rounds += 1
        self.last = self.calls.clone()
        return self.part(x + torch.rand(()))


def test_a_graph_leaves_the_model_as_it_is():
    model, graphs = Counting(), []
    run = SimpleNamespace(model=model, graph=graphs.append)
    random = torch.get_rng_state()
    ModelGraph(torch.zeros(1, 2)).on_run_begin(run)
    assert len(graphs[0]) > 0
    assert (model.calls, model.last, model.rounds) == (0, 0, 0)
    assert (model.training, model.part.training) == (True, False)
    assert torch.equal(torch.get_rng_state(), random)
    with pytest.raises(ValueError, match=r"pass ModelGraph\(example=batch\)"):
        ModelGraph().on_run_begin(run)
    model.example_input_array = (torch.zeros(1, 2),)
    ModelGraph().on_run_begin(run)
    assert len(graphs) == 2


# Pictures


def opened(array):
    """A picture as others read it."""
    picture = pictured(array)
    image = Image.open(io.BytesIO(picture.png))
    assert image.size == (picture.width, picture.height)
    return np.asarray(image)


COLOURS = np.arange(5 * 7 * 3, dtype=np.uint8).reshape(5, 7, 3)


@pytest.mark.parametrize(
    ("array", "seen"),
    [
        (COLOURS, COLOURS),
        (COLOURS.transpose(2, 0, 1), COLOURS),
        (COLOURS[:, :, 0], COLOURS[:, :, 0]),
        (COLOURS[:, :, :1], COLOURS[:, :, 0]),
        (torch.from_numpy(COLOURS), COLOURS),
        (COLOURS / 255, COLOURS),
        (torch.tensor([[0.0, 0.5], [1.0, 7.0]], dtype=torch.bfloat16), [[0, 128], [255, 255]]),
        (torch.tensor([[0.25]], requires_grad=True), [[64]]),
        (np.array([[-1.0, np.nan, np.inf]]), [[0, 0, 255]]),
        (np.array([[True, False]]), [[255, 0]]),
    ],
)
def test_a_picture_is_what_was_passed(array, seen):
    assert np.array_equal(opened(array), seen)


@pytest.mark.parametrize(
    ("array", "error", "says"),
    [
        (np.zeros(4), ValueError, r"an image of shape \(4,\) cannot be shown: pass height x width"),
        (np.zeros((2, 5, 4)), ValueError, "cannot be shown"),
        (np.zeros((0, 5)), ValueError, "without empty axes"),
        (np.zeros((2, 2), int), TypeError, "an image of int64 cannot be shown: pass uint8, or floats"),
    ],
)
def test_what_is_no_picture_is_named(array, error, says):
    with pytest.raises(error, match=says):
        pictured(array)


def test_pictures_before_the_first_step_are_drawn(tmp_path):
    png, width, height, channels = pictured(COLOURS)
    image = {"kind": "image", "name": "sea", "bytes": png, "width": width, "height": height}
    first = {**image, "step": 0, "channels": channels}
    values = {"kind": "scalars", "values": [[2, "depth", 9.0]]}
    log(TensorBoard(tmp_path), begin(), first, steps(1, 2), values, {**first, "step": 2})
    assert [each.step for each in board(tmp_path).Images("sea")] == [0, 2]
    # It goes on from step 1.
    log(TensorBoard(tmp_path), begin(), steps(2), {"kind": "scalars", "values": [[2, "depth", 8.0]]})
    read = board(tmp_path)
    assert [each.step for each in read.Images("sea")] == [0]
    assert board_curve(read, "depth") == [(2, 8.0)]


def test_a_parcel_whose_sender_was_lost_is_forgotten():
    parcels = Parcels()
    reports = cut({"kind": "image", "name": "a\nb"}, b"\n12345\n", most=3)
    assert len(reports) == 3
    whole = {"kind": "image", "name": "a\nb", "bytes": b"\n12345\n"}
    assert [parcels.take(report) for report in reports] == [None, None, whole]
    # The end is missing, then the middle, then the beginning.
    for lost in (reports[:2], [reports[0], reports[2]], reports[1:]):
        assert [parcels.take(report) for report in lost] == [None] * len(lost)
    assert parcels.take(b'{"kind": "note"}') == {"kind": "note"}
    assert [parcels.take(report) for report in reports] == [None, None, whole]
    assert parcels.take(cut({"kind": "graph"}, b"")[0]) == {"kind": "graph", "bytes": b""}
