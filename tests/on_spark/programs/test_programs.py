"""Programs that a user starts on Spark, from beginning to end."""

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path

import pytest
from leftovers import processes
from processes import finish, read_line, start, wait_until

import grampus
from on_spark.standalone import HOME, QUIET, TWO_EXECUTORS

EXAMPLES = Path(__file__).parents[3] / "examples"
TESTS = str(Path(__file__).parents[2])
LONG = 180
pytestmark = pytest.mark.timeout(LONG)

DRIVER = """
import sys, time
sys.path.insert(0, {tests!r})
from pyspark.sql import SparkSession
from deadly_runs import *
builder = SparkSession.builder.master({master!r})
for name, value in {settings!r}.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
gp.init(2, "spark", preload=["torch"], start_timeout=20)

class Tells(gp.callbacks.Logger):
    def event(self, event):
        if event["kind"] == "steps":
            print("training", flush=True)

def fit(loss, **named):
    est = estimator(loss, workers=None, lanes=2, threads_per_lane=1)
    est.fit(arrays(), batch_size=12, **named)
    return est
"""


def driver(master, text, *arguments, **settings):
    head = DRIVER.format(tests=TESTS, master=master, settings={**QUIET, **TWO_EXECUTORS, **settings})
    return start(head + textwrap.dedent(text), *arguments)


def training(standalone):
    """A driver whose workers train, without end."""
    text = "fit(Slow(sys.argv[1]), epochs=10_000, callbacks=[Tells()])"
    running = driver(standalone.master, text, Path.cwd())
    while read_line(running, 60) != "training":
        pass
    return running


@pytest.mark.spark35
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_a_driver_that_is_told_to_end_leaves_no_job_and_no_process(standalone, runtime, number):
    others = standalone.applications()
    running = training(standalone)
    running.send_signal(number)
    code, _, err = finish(running, 30)
    assert code != 0
    assert number == signal.SIGTERM or "KeyboardInterrupt" in err
    assert wait_until(lambda: standalone.applications() == others, 20)
    assert wait_until(lambda: not processes(runtime, engine=True), 10)


def test_a_killed_driver_leaves_no_process(standalone, runtime):
    others = standalone.applications()
    running = training(standalone)
    running.kill()
    finish(running, 30)
    assert wait_until(lambda: not processes(runtime, engine=True), 20)
    assert wait_until(lambda: standalone.applications() == others, 60)


def test_a_packed_environment(standalone, tmp_path):
    """Executors run what is in the archive; the largest packages, torch and pyarrow, stay where they are."""
    archive = packed_environment(tmp_path)
    command = [str(HOME / "bin" / "spark-submit"), "--master", standalone.master, "--deploy-mode", "client"]
    for name, value in {**QUIET, **TWO_EXECUTORS}.items():
        command += ["--conf", f"{name}={value}"]
    command += ["--archives", f"{archive}#environment", str(EXAMPLES / "dataframe.py"), "--cluster", "spark"]
    command += ["--rows", "4000", "--epochs", "1", "--data", str(tmp_path / "table.parquet")]
    environment = {**os.environ, "PYSPARK_PYTHON": "./environment/bin/python"}
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    code, out, err = finish(subprocess.Popen(command, cwd=tmp_path, env=environment, **pipes), LONG)
    assert code == 0, err
    assert "weights: " in out
    unpacked = list(standalone.folder.glob("work-*/app-*/*/environment/bin/python"))
    assert unpacked


def packed_environment(folder):
    """An environment with Grampus and most of what it needs, as `venv-pack` packs it."""
    made, here = folder / "made", Path(sysconfig.get_path("purelib"))
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", made], check=True, timeout=60)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = made / "lib" / version / "site-packages"
    for name in ("numpy", "numpy.libs", "cloudpickle", "psutil"):
        if (here / name).exists():
            shutil.copytree(
                here / name, packages / name, ignore=shutil.ignore_patterns("tests", "include", "*.a")
            )
    shutil.copytree(Path(grampus.__file__).parent, packages / "grampus")
    # Without the .pth files of that folder, by which an editable Grampus would be found there.
    (packages / "others.pth").write_text(f"import sys; sys.path.append({str(here)!r})\n")
    archive = folder / "env.tar.gz"
    pack = [str(Path(sys.executable).with_name("venv-pack")), "-p", made, "-o", archive]
    subprocess.run([*pack, "--compress-level", "1", "-q"], check=True, timeout=120)
    return archive
