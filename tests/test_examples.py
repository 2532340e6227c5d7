"""Every example runs, as a user would start it."""

import re
import subprocess
import sys
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
    """Without Debian's folder and without a network."""
    script = EXAMPLES / "fashion_mnist.py"
    text = script.read_text()
    assert "/usr/share/datasets" in text and "https://github.com" in text
    alone = tmp_path / "alone.py"
    alone.write_text(text.replace("/usr/share/datasets", "/nowhere").replace("github.com", "localhost:1"))
    out = run(tmp_path, alone, "--epochs", 1, "--rows", 200, "--batch-size", 8)
    assert "Scikit-learn's digits take its place" in out
    assert sum(worker_rows(out).values()) == 200
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
