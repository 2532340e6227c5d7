"""Every example runs, as a user would start it."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from pictures import fashion_mnist
from processes import finish

EXAMPLES = Path(__file__).parent.parent / "examples"
# An example starts torch in the driver and in its workers, on a machine that may be busy.
LONG = 240


@pytest.fixture(autouse=True)
def caches(tmp_path, monkeypatch):
    """What torch, matplotlib and Jupyter keep for the next process does not count as left behind."""
    for name in ("TORCHINDUCTOR_CACHE_DIR", "MPLCONFIGDIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name))


def run(folder, name, *arguments):
    """Run an example in a folder of its own; return what it prints."""
    command = [sys.executable, str(EXAMPLES / name), *map(str, arguments)]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    code, out, err = finish(subprocess.Popen(command, cwd=folder, **pipes), LONG)
    assert code == 0, f"{out}\n{err}"
    return out


def said(out, name):
    return re.search(rf"^{name}: (.*)$", out, re.MULTILINE).group(1)


def worker_rows(out):
    """Process id and rows of every worker."""
    found = re.findall(r"^rank \d+: process (\d+) trained ([\d,]+) rows$", out, re.MULTILINE)
    return {int(pid): int(rows.replace(",", "")) for pid, rows in found}


@pytest.mark.timeout(5 * LONG)
def test_fashion_mnist_has_one_hash_at_any_number_of_workers(tmp_path):
    """With dropout and batch norm, at four lanes."""
    hashes = {}
    for workers in (1, 2, 3, 4):
        out = run(
            tmp_path,
            "fashion_mnist.py",
            *("--data", fashion_mnist(), "--rows", 600, "--batch-size", 16, "--epochs", 1),
            *("--net", "noisy", "--lanes", 4, "--workers", workers, "--out", f"run-{workers}"),
        )
        rows = worker_rows(out)
        assert len(rows) == workers
        assert all(rows.values())
        assert sum(rows.values()) == 600
        assert "of 600 test pictures" in said(out, "accuracy")
        hashes[workers] = said(out, "weights")
        assert re.fullmatch("[0-9a-f]{64}", hashes[workers])
        assert (tmp_path / f"run-{workers}" / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert len(set(hashes.values())) == 1, hashes


@pytest.mark.timeout(2 * LONG)
def test_fashion_mnist_takes_digits_where_it_cannot_be_had(tmp_path):
    """Without Debian's folder and without a network, with the settings of `make demo`: a result to show."""
    script = EXAMPLES / "fashion_mnist.py"
    text = script.read_text()
    assert "/usr/share/datasets" in text and "https://github.com" in text
    alone = tmp_path / "alone.py"
    alone.write_text(text.replace("/usr/share/datasets", "/nowhere").replace("github.com", "localhost:1"))
    demo = re.search(r"examples/fashion_mnist.py (.*)", (EXAMPLES.parent / "Makefile").read_text()).group(1)
    out = run(tmp_path, alone, *demo.split())
    assert "Scikit-learn's 1,797 digits take its place" in out
    assert float(said(out, "accuracy").partition("%")[0]) > 95
    assert not (tmp_path / "data").exists()


def test_fashion_mnist_says_what_is_missing_in_a_folder(tmp_path):
    command = [sys.executable, str(EXAMPLES / "fashion_mnist.py"), "--data", str(tmp_path)]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LONG)
    assert ended.returncode == 1
    assert f"{tmp_path} does not hold Fashion-MNIST: it needs train-images-idx3-ubyte.gz" in ended.stderr


@pytest.mark.timeout(2 * LONG)
def test_resume_ends_with_the_weights_of_a_run_without_accidents(tmp_path):
    out = run(tmp_path, "resume.py")
    assert "was killed by signal 9" in said(out, "an accident")
    digests = {
        said(out, name).strip()
        for name in ("without an accident", "with a lost worker", "after the accident")
    }
    assert len(digests) == 1
    assert out.endswith("the weights are equal to the last bit\n")


@pytest.fixture(scope="module")
def event_loop():
    """The client makes one for the whole process: here, so that it is not taken for something left behind."""
    from jupyter_core.utils import ensure_event_loop

    return ensure_event_loop()


@pytest.mark.timeout(2 * LONG)
@pytest.mark.usefixtures("event_loop")
@pytest.mark.skipif(sys.version_info < (3, 11), reason="ipykernel loses messages on Python 3.10")
def test_the_notebook_runs(tmp_path):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    notebook = nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "outputs are not kept in the repository"
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=LONG, kernel_name="python3", resources=resources).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    pages = [output.data["text/html"] for output in shown if "text/html" in output.get("data", {})]
    assert any("<th>val_accuracy</th>" in page and "data:image/png" in page for page in pages)
    prints = "".join(output.text for output in shown if output.output_type == "stream")
    assert re.search(r"^\d+ of 297 are wrong", prints, re.MULTILINE)
    assert re.search(r"^[0-9a-f]{64}$", prints, re.MULTILINE)


@pytest.mark.timeout(2 * LONG)
@pytest.mark.parametrize(
    ("model", "rows", "epochs", "least"),
    [("lenet", 200, 4, 0.9), ("mlp", 300, 8, 0.9), ("text", 600, 12, 0.9), ("resnet18", 2, 1, 0.0)],
)
def test_models_of_our_own_learn(tmp_path, model, rows, epochs, least):
    out = run(tmp_path, "native.py", "--model", model, "--rows", rows, "--epochs", epochs)
    accuracy, *words = said(out, "accuracy").split()
    assert float(accuracy) >= least
    assert words == ["on", str(rows), "rows"]


@pytest.mark.timeout(2 * LONG)
def test_a_model_of_hugging_face_is_fine_tuned(tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    pytest.importorskip("datasets")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    out = run(tmp_path, "finetune.py", "--workers", 2, "--epochs", 2, "--out", "tuned")
    share, *words = said(out, "accuracy").split()
    assert float(share.rstrip("%")) > 70
    assert words == ["of", "500", "sentences"]
    assert {"config.json", "model.safetensors"} <= {path.name for path in (tmp_path / "tuned").iterdir()}
    assert re.search(r"the (sun|moon) comes first$", out, re.MULTILINE)


def share(out, name):
    """A share in percent, and what is said behind it."""
    found, *words = said(out, name).split()
    return float(found.rstrip("%")), " ".join(words)


@pytest.mark.timeout(2 * LONG)
def test_pictures_in_parquet_files_are_learnt(tmp_path):
    small = ("--rows", 400, "--width", 4, "--batch-size", 16)
    out = run(tmp_path, "cifar10.py", "--workers", 2, *small)
    right, words = share(out, "accuracy")
    assert right > 30  # of ten classes
    assert words == "of 100 test pictures"
    assert "each epoch: 400 samples, 25 steps" in out


@pytest.mark.timeout(2 * LONG)
def test_a_table_is_learnt_and_predictions_are_written(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    out = run(tmp_path, "tabular.py", "--rows", 4000, "--epochs", 3, "--out", "result.parquet")
    right, words = share(out, "accuracy")
    assert right > 80
    assert words == "of 800 test rows"
    assert float(said(out, "auc")) > 0.9
    table = parquet.read_table(tmp_path / "result.parquet")
    buys, predicted = table["buys"].to_numpy(), table["prediction"].to_numpy()
    assert len(table) == 800
    assert {"age", "income", "region"} <= set(table.column_names)
    assert 100 * ((predicted > 0.5) == buys).mean() == pytest.approx(right, abs=0.2)


@pytest.mark.timeout(2 * LONG)
def test_a_gan_learns_and_is_resumed(tmp_path):
    out = run(tmp_path, "gan.py", "--epochs", 6)
    untrained, trained, real = (
        float(said(out, f"distance of {name} points")) for name in ("untrained", "trained", "real")
    )
    assert real < trained < 0.3
    assert untrained > 0.5
    near, words = share(out, "near a place")
    assert near > 15
    assert words.startswith("of the points, at ")
    whole, resumed = re.findall(r"^weights of .*: +([0-9a-f]{64})$", out, re.MULTILINE)
    assert resumed == whole


@pytest.mark.timeout(2 * LONG)
@pytest.mark.skipif(find_spec("lightning") is None, reason="lightning is not installed")
def test_a_lightning_module_learns(tmp_path):
    out = run(tmp_path, "lightning_module.py", "--epochs", 3)
    right, words = share(out, "accuracy")
    assert right > 85
    assert words == "of 360 test pictures"
    assert re.search(r"^epoch +loss +train_loss +val_loss +val_accuracy", out, re.MULTILINE)
    read, truth = (said(out, name).split() for name in ("read", "truth"))
    assert len(read) == len(truth) == 12
    assert sum(map(str.__eq__, read, truth)) >= 9


@pytest.mark.timeout(2 * LONG)
def test_precisions_and_lanes_learn_the_same(tmp_path):
    out = run(tmp_path, "gpu.py", "--workers", 2, "--device", "cpu", "--epochs", 3)
    assert said(out, "workers") == "2 on the CPU"
    rows = re.findall(r"^(\w+) +([\d.]+)% +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+)$", out, re.MULTILINE)
    assert [name for name, *_ in rows] == ["fp32", "bf16", "fp16"]
    assert all(float(right) > 70 for _, right, *_ in rows)
    assert all(float(forward) > 0 and float(backward) > 0 for _, _, forward, backward, *_ in rows)
    lanes, size, apart = re.search(r"^in (\d+) lanes of (\d+) rows: .* by (\S+)", out, re.MULTILINE).groups()
    assert (lanes, size) == ("8", "8")
    assert float(apart) < 1e-3
