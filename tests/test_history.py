"""What a run has measured, as users see it."""

import pickle
import subprocess
import sys

import pytest

import grampus as gp
from grampus import History

RECORDS = [
    {"epoch": 1, "loss": 0.5, "accuracy": 0.75, "samples": 60000, "seconds": 11.25, "learning_rate": 0.001},
    {
        "epoch": 2,
        "loss": 0.25,
        "accuracy": 0.875,
        "val_loss": 0.3,
        "val_accuracy": 0.8,
        "samples": 60000,
        "seconds": 11.0,
        "samples_per_second": 5454.5,
        "data_wait": 0.02,
        "learning_rate": 0.0001,
    },
]


@pytest.fixture(scope="module", autouse=True)
def fonts():
    """matplotlib opens them once for the whole process: here, so that no test seems to leave them."""
    History(RECORDS).plot()._repr_png_()


@pytest.fixture
def history():
    return History(RECORDS, "2 epochs done")


def test_it_is_a_sequence_of_records(history):
    assert len(history) == 2
    assert list(history) == RECORDS
    assert history[-1]["loss"] == 0.25
    assert history[1:] == History(RECORDS[1:], "2 epochs done")
    with pytest.raises(IndexError):
        history[2]


def test_a_name_gives_its_values_over_the_epochs(history):
    assert history["loss"] == [0.5, 0.25]
    assert history["val_loss"] == [None, 0.3]
    with pytest.raises(KeyError, match="no epoch has 'acuracy'; there are: epoch, loss, accuracy"):
        history["acuracy"]


def test_it_is_a_value(history):
    assert pickle.loads(pickle.dumps(history)) == history
    assert history != History(RECORDS, "stopped early")
    assert history != History(RECORDS[:1], "2 epochs done")
    assert history != RECORDS


def test_it_grows_with_events():
    history = History()
    assert repr(history) == "no epochs"
    history.event({"kind": "begin", "epochs": 1})
    history.event({"kind": "epoch", "epoch": 0, "record": RECORDS[0]})
    assert history.reason is None
    history.event({"kind": "end", "reason": "1 epoch done", "step": 938})
    assert history == History(RECORDS[:1], "1 epoch done")


def test_the_table_is_aligned(history):
    assert str(history).splitlines() == [
        "epoch    loss  accuracy  val_loss  val_accuracy  seconds      lr  samples/s  data wait",
        "    1  0.5000    0.7500                             11.2   0.001",
        "    2  0.2500    0.8750    0.3000        0.8000     11.0  0.0001      5,454         2%",
        "each epoch: 60,000 samples",
        "2 epochs done",
    ]


def test_the_page_holds_the_table_and_the_curves(history):
    page = history._repr_html_()
    assert "<th>val_accuracy</th>" in page
    assert "<td>0.8750</td>" in page
    assert "2 epochs done" in page
    assert '<img style="max-width:100%"' in page
    assert "no epochs" in History()._repr_html_()
    assert "&lt;b&gt;" in History([{"epoch": 1, "<b>": 1.0}])._repr_html_()


def test_the_plot_has_loss_and_metrics_of_training_and_validation(history, tmp_path):
    figure = history.plot(tmp_path / "curves.picture")
    assert (tmp_path / "curves.picture").read_bytes().startswith(b"\x89PNG")
    left, right = figure.axes
    assert (left.get_title(), right.get_title()) == ("loss", "accuracy")
    assert left.get_xlabel() == right.get_xlabel() == "epoch"
    assert [line.get_label() for line in left.lines] == ["training", "validation"]
    assert left.lines[0].get_ydata().tolist() == [0.5, 0.25]
    assert left.lines[1].get_xdata().tolist() == [2]
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert len(History([{"epoch": 1, "loss": 0.5}]).plot().axes) == 1


def test_every_curve_has_a_colour_of_its_own(history):
    from matplotlib.colors import to_rgba

    records = [{"epoch": 1, "loss": 1.0, "val_loss": 2.0, "f1": 0.5, "val_f1": 0.4, "r2": 0.1, "val_r2": 0.2}]
    many = [
        {"epoch": 1, "loss": 1.0} | {f"{way}m{number}": 0.1 for number in range(40) for way in ("", "val_")}
    ]
    for axes in [*history.plot().axes, *History(records).plot().axes, *History(many).plot().axes[1:]]:
        # "C10" is another name for "C0".
        colours = [to_rgba(line.get_color()) for line in axes.lines]
        assert len(colours) >= 2
        assert len(set(colours)) == len(colours)


def test_several_metrics_are_told_apart():
    figure = History([{"epoch": 1, "loss": 1.0, "accuracy": 0.5, "f1": 0.4, "classes": [1, 2]}]).plot()
    assert [line.get_label() for line in figure.axes[1].lines] == ["accuracy, training", "f1, training"]


def test_a_data_frame_has_a_row_for_each_epoch(history):
    frame = history.to_pandas()
    assert frame["loss"].tolist() == [0.5, 0.25]
    assert frame["val_loss"].isna().tolist() == [True, False]


@pytest.mark.parametrize(
    ("package", "call", "says"),
    [
        ("matplotlib", "history.plot()", "pip install grampus[plot]"),
        ("pandas", "history.to_pandas()", "pip install pandas"),
    ],
)
def test_what_is_not_installed_is_named(package, call, says):
    code = f"""
import sys
sys.modules[{package!r}] = None
import grampus as gp
history = gp.History([{{"epoch": 1, "loss": 0.5}}])
page = history._repr_html_()
assert "<table>" in page and ("<img" in page) == ({package!r} != "matplotlib")
try:
    {call}
except ImportError as error:
    print(error)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=True)
    assert says in out.stdout


def test_grampus_loads_nothing_for_it():
    code = "import sys, grampus; print({'numpy', 'matplotlib', 'pandas', 'IPython'} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=True)
    assert out.stdout.strip() == "set()"
    assert gp.History is History


def test_what_every_epoch_has_alike_is_said_once_and_no_count_is_drawn():
    same = {"samples": 60000, "steps": 15000, "val_num_samples": 10000, "learning_rate": 0.001}
    history = History([{"epoch": epoch, "loss": 1 / epoch, "val_loss": 1.0, **same} for epoch in (1, 2)])
    assert str(history).splitlines() == [
        "epoch    loss  val_loss",
        "    1  1.0000    1.0000",
        "    2  0.5000    1.0000",
        "each epoch: 60,000 samples, 15,000 steps, 10,000 samples to validate, learning rate 0.001",
    ]
    assert [axes.get_title() for axes in history.plot().axes] == ["loss"]
