"""Programs in Rust and in Python train the same model to the same bits, and go on with each other's runs."""

import gzip
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from pictures import fashion_mnist

import grampus as gp

PROGRAM = Path(__file__).parents[1] / "target" / "debug" / "examples" / "fashion_mnist"
ROWS, EPOCHS = 320, 2


def rust(folder, *words):
    assert PROGRAM.exists(), (
        "the example is not built: run `make test`, or `cargo build --workspace --examples`"
    )
    command = [PROGRAM, "--data", fashion_mnist(), "--rows", ROWS, "--workers", 2, *words]
    ran = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=50, check=False, cwd=folder
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def pictures():
    folder = Path(fashion_mnist())
    images = gzip.decompress((folder / "train-images-idx3-ubyte.gz").read_bytes())[16:]
    classes = gzip.decompress((folder / "train-labels-idx1-ubyte.gz").read_bytes())[8:]
    pixels = np.frombuffer(images, np.uint8)[: ROWS * 784].reshape(ROWS, 1, 28, 28)
    # In the precision in which the other program divides.
    return {
        "x": pixels.astype("f4") / np.float32(255),
        "y": np.frombuffer(classes, np.uint8)[:ROWS].astype("f4"),
    }


def estimator(**other):
    return gp.Estimator.from_native(
        model=gp.models.lenet(),
        loss=gp.nn.CrossEntropy(),
        optimizer=gp.optim.SGD(0.02, momentum=0.9),
        scheduler=gp.optim.Cosine(EPOCHS * ROWS // 32),
        seed=0,
        lanes=2,
        threads_per_lane=max((os.cpu_count() or 1) // 2, 1),
        workers=2,
        **other,
    )


@pytest.fixture
def trained(tmp_path):
    """By the program in Rust."""
    rust(tmp_path, "--epochs", EPOCHS, "--checkpoint", "runs", "--save", "rust.safetensors")
    return tmp_path


def test_weights_are_equal_to_the_bit(trained):
    here = estimator()
    here.fit(pictures(), epochs=EPOCHS, batch_size=32)
    there = estimator().load(trained / "rust.safetensors")
    assert here.digest() == there.digest()


def test_python_goes_on_where_rust_has_saved(trained):
    longer = estimator()
    longer.fit(pictures(), epochs=EPOCHS + 1, batch_size=32)
    goes_on = estimator()
    history = goes_on.fit(
        pictures(), epochs=EPOCHS + 1, batch_size=32, checkpoint=str(trained / "runs"), resume=True
    )
    assert history["epoch"] == [1, 2, 3]
    assert goes_on.digest() == longer.digest()


def test_rust_goes_on_where_python_has_saved(tmp_path):
    first = estimator()
    first.fit(pictures(), epochs=1, batch_size=32, checkpoint=str(tmp_path / "runs"))
    # The program says how long its schedule is by its epochs.
    rust(tmp_path, "--epochs", EPOCHS, "--checkpoint", "runs", "--save", "rust.safetensors")
    whole = estimator()
    whole.fit(pictures(), epochs=EPOCHS, batch_size=32)
    assert estimator().load(tmp_path / "rust.safetensors").digest() == whole.digest()
