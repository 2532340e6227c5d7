"""The checks of the repository find what they are there to find."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ROOT / "scripts"


def made(*arguments, **variables):
    """The commands that `make` would run, or what it prints."""
    outer = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")
    environment = {name: value for name, value in os.environ.items() if name not in outer}
    words = [
        "make",
        "--no-print-directory",
        *arguments,
        *(f"{name}={each}" for name, each in variables.items()),
    ]
    result = subprocess.run(
        words, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, cwd=ROOT, env=environment
    )
    return result.returncode, result.stdout, result.stderr


def test_the_demo_runs_an_optimised_build():
    """A wheel is a release; `maturin develop` builds for tests, and JPEGs decode several times slower."""
    code, commands, err = made("--dry-run", "--always-make", "demo")
    assert code == 0, err
    lines = commands.splitlines()
    assert "maturin" not in commands
    (build,) = [place for place, line in enumerate(lines) if " build --wheel " in line]
    (install,) = [place for place, line in enumerate(lines) if line.endswith(" target/dist/*.whl")]
    assert build < install
    assert "--python .venv-demo " in lines[install]
    assert lines[-1].startswith(".venv-demo/bin/python examples/")


def smoke(folder, seconds, **scripts):
    """Run small scripts as benchmarks; nothing is built for it."""
    for name, text in scripts.items():
        (folder / f"{name}.py").write_text(text)
    needs = (".venv/.stamp-native", ".venv/.stamp-torch", "rust-tests")
    names = " ".join(str(folder / f"{name}.py") for name in scripts)
    began = time.monotonic()
    found = made(
        *(f"--old-file={name}" for name in needs),
        "bench-smoke",
        PY=sys.executable,
        BENCHES=names,
        SMOKE_SECONDS=seconds,
    )
    return *found, time.monotonic() - began


PRINTS = "import sys; print('hello', sys.argv[1:])"


def test_benchmarks_are_run_one_after_another(tmp_path):
    code, out, err, _ = smoke(tmp_path, 60, one=PRINTS, two="raise SystemExit(3)", three=PRINTS)
    assert out.count("hello ['--smoke']") == 2
    assert "status 3:" in out
    assert code != 0
    assert "two.py" in err
    assert "one.py" not in err


def test_all_benchmarks_together_have_one_limit(tmp_path):
    sleeps = "import time; time.sleep(1.2)"
    hangs = "import time; print('hangs', flush=True); time.sleep(60)"
    code, out, err, seconds = smoke(tmp_path, 10, one=sleeps, two=sleeps, three=hangs, four=PRINTS)
    assert "hangs" in out
    assert "hello" not in out
    assert code != 0
    assert "three.py" in err
    assert "four.py" in err
    assert "one.py" not in err
    assert 8 < seconds < 30


def check(script, root):
    command = [sys.executable, str(SCRIPTS / script), "--root", str(root)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert result.returncode in (0, 1), result.stderr
    found = [line for line in result.stderr.splitlines() if not line.startswith("layering: ")]
    assert (result.returncode == 1) == bool(found)
    return found


def write(root, path, text):
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def crate(root, name, *dependencies, source=""):
    lines = ["[package]", f'name = "{name}"', 'version = "0.1.0"', 'edition = "2024"', "[dependencies]"]
    write(root, f"crates/{name}/Cargo.toml", "\n".join([*lines, *dependencies]) + "\n")
    write(root, f"crates/{name}/src/lib.rs", source)


def path_to(name):
    return f'{name} = {{ path = "../{name}" }}'


@pytest.fixture
def tree(tmp_path):
    write(tmp_path, "Cargo.toml", '[workspace]\nresolver = "3"\nmembers = ["crates/*"]\n')
    crate(tmp_path, "grampus-core", source="use std::net::{IpAddr, SocketAddr};\n// TcpStream\n")
    crate(tmp_path, "grampus-net", path_to("grampus-core"), source="use tokio::net::TcpStream;\n")
    write(tmp_path, "python/grampus/__init__.py", "")
    write(tmp_path, "python/grampus/frameworks/torch.py", "from ..model import Model\n")
    write(tmp_path, "python/grampus/launchers/spark.py", "import grampus.cluster\n")
    return tmp_path


def test_layering_accepts_a_good_tree(tree):
    assert check("check_layering.py", tree) == []


def test_layering_finds_an_arrow_between_crates_of_one_layer(tree):
    crate(tree, "grampus-data")
    crate(tree, "grampus-cluster", path_to("grampus-core"), path_to("grampus-data"))
    (line,) = check("check_layering.py", tree)
    assert line.startswith("crates/grampus-cluster/Cargo.toml:7: grampus-cluster (layer 2) depends on")


def test_layering_finds_an_arrow_that_points_up(tree):
    crate(tree, "grampus-net")
    crate(tree, "grampus-core", "[dev-dependencies]", path_to("grampus-net"))
    (line,) = check("check_layering.py", tree)
    assert "arrows point down only" in line


def test_layering_finds_a_crate_without_a_layer(tree):
    crate(tree, "grampus-extra")
    (line,) = check("check_layering.py", tree)
    assert line.startswith("crates/grampus-extra/Cargo.toml:2: crate grampus-extra has no layer")


def test_layering_finds_pyo3_outside_its_crate(tree):
    crate(tree, "grampus-cluster", 'py = { package = "pyo3-ffi", version = "1" }')
    crate(tree, "grampus-python", 'pyo3 = "1"')
    (line,) = check("check_layering.py", tree)
    assert line.startswith("crates/grampus-cluster/Cargo.toml:6: grampus-cluster names pyo3-ffi")


@pytest.mark.parametrize(
    "source",
    [
        "use tokio::net::UnixListener;",
        "use std::net::TcpListener;",
        "use std::net;",
        "use std::net::{SocketAddr,\n    TcpStream};",
        "use std::{io, net::UdpSocket};",
        "use std::os::unix::net::UnixStream;",
        "use rustix::net::sendmsg;",
        "use rustix::{fs, net};",
        "let fd = unsafe { libc::socket(1, 2, 3) };",
    ],
)
def test_layering_finds_a_socket_outside_its_crate(tree, source):
    crate(tree, "grampus-cluster", source=f'/* tokio::net */ const A: &str = "tokio::net";\n{source}\n')
    lines = check("check_layering.py", tree)
    assert lines
    assert all(line.startswith("crates/grampus-cluster/src/lib.rs:") for line in lines)
    assert not any(":1: " in line for line in lines)


@pytest.mark.parametrize(
    "source",
    [
        "import grampus.launchers.spark",
        "from grampus.launchers import spark",
        "from ..launchers.spark import Spark",
        "from .. import launchers",
        "def late():\n    from ..launchers import spark",
        "import importlib\nimportlib.import_module('grampus.launchers.spark')",
    ],
)
def test_layering_finds_a_framework_that_imports_a_launcher(tree, source):
    write(tree, "python/grampus/frameworks/torch.py", source + "\n")
    lines = check("check_layering.py", tree)
    assert lines
    assert all(line.startswith("python/grampus/frameworks/torch.py:") for line in lines)


def test_layering_finds_a_launcher_that_imports_a_framework(tree):
    write(tree, "python/grampus/launchers/spark.py", "\nfrom ..frameworks import torch\n")
    lines = check("check_layering.py", tree)
    assert lines[0].startswith("python/grampus/launchers/spark.py:2: launchers/ imports grampus.frameworks")


def test_layering_finds_a_heavy_import_even_of_what_is_not_installed(tree):
    write(tree, "python/grampus/_native.abi3.so", "")
    assert check("check_layering.py", tree) == []
    write(tree, "python/grampus/__init__.py", "try:\n    import pyspark.sql\nexcept ImportError:\n    pass\n")
    (line,) = check("check_layering.py", tree)
    assert "`import grampus` imports pyspark;" in line


def rust_function(name, lines):
    return f"fn {name}() {{\n" + "    call();\n" * (lines - 2) + "}\n"


def test_sizes_accepts_what_is_at_the_limit(tmp_path):
    write(tmp_path, "a.rs", rust_function("a", 60) * 10)
    write(tmp_path, "a.py", "def a():\n" + "    a()\n" * 59 + "\n" * 540)
    assert check("check_sizes.py", tmp_path) == []


def test_sizes_finds_long_files(tmp_path):
    write(tmp_path, "sub/a.rs", "\n" * 601)
    write(tmp_path, "tests/test_a.py", "\n" * 700)
    write(tmp_path, "target/b.rs", "\n" * 700)
    assert check("check_sizes.py", tmp_path) == [
        "sub/a.rs:601: the file has 601 lines of at most 600; split it by noun",
        "tests/test_a.py:601: the file has 700 lines of at most 600; split it by noun",
    ]


def test_sizes_finds_long_functions(tmp_path):
    declared = "trait T { fn only(x: [u8; 2]); }\n"
    write(tmp_path, "a.rs", declared + "impl A {\n" + rust_function("long", 61) + "}\n")
    write(tmp_path, "a.py", "class A:\n    async def long(self):\n" + "        a()\n" * 60)
    assert check("check_sizes.py", tmp_path) == [
        "a.py:2: function long has 61 lines of at most 60; give a part of it a name of its own",
        "a.rs:3: function long has 61 lines of at most 60; give a part of it a name of its own",
    ]


def test_sizes_is_not_fooled_by_braces_outside_code(tmp_path):
    lines = ["// {", "/* { /* { */ */", 'f("{\\"{");', 'f(r#"{"{"#);', "f('{');", "f(b'\"');"]
    odd = "fn odd<'a>(x: &'a str) {\n" + "\n".join(lines) + "\n}\n"
    write(tmp_path, "a.rs", odd + rust_function("next", 58))
    assert check("check_sizes.py", tmp_path) == []


def test_sizes_lets_tests_have_long_functions(tmp_path):
    long = rust_function("long", 80)
    write(tmp_path, "src/a.rs", "#[cfg(test)]\nmod tests {\n#[test]\n" + long + "}\n")
    write(tmp_path, "src/b.rs", "#[tokio::test]\nasync " + long)
    write(tmp_path, "src/c/tests.rs", long)
    write(tmp_path, "tests/d.rs", long)
    assert check("check_sizes.py", tmp_path) == []
