"""Hold the arrows between the parts of Grampus.

Crates depend only on crates of a lower layer, only grampus-python names pyo3, only grampus-net opens sockets,
`frameworks/`, `launchers/` and `frames/` never import each other, and `import grampus` loads no framework or
engine.
"""

import argparse
import ast
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from rust_text import code_only, line_of

LAYERS = {
    "grampus-core": 0,
    "grampus-net": 1,
    "grampus-collective": 2,
    "grampus-data": 2,
    "grampus-native": 2,
    "grampus-cluster": 2,
    "grampus-train": 3,
    "grampus": 4,
    "grampus-python": 5,
    "grampus-chaos": 5,
}
PYO3_CRATE = "grampus-python"
SOCKET_CRATE = "grampus-net"

# Files outside grampus-net that may name a socket, each with the reason. Keep it tiny. (What a library opens,
# such as object_store for S3, stands in no file of ours.)
SOCKETS_ALLOWED: dict[str, str] = {}

# `std::net` also holds plain addresses, which open nothing.
_ADDRESSES = "IpAddr|Ipv4Addr|Ipv6Addr|SocketAddr|SocketAddrV4|SocketAddrV6|AddrParseError"
_SOCKETS = re.compile(
    rf"""
      \b(?:Tcp(?:Stream|Listener|Socket)|UdpSocket|Unix(?:Stream|Listener|Datagram|Socket)|ToSocketAddrs)\b
    | \btokio::net\b
    | \bstd::os::(?:unix|linux)::net\b
    | \bstd::net\b(?!::(?:{_ADDRESSES})\b)(?!::\{{\s*(?:(?:{_ADDRESSES})\s*,?\s*)+\}})
    | \brustix::net\b | \brustix::\{{[^}}]*\bnet\b
    | \blibc::(?:socket|socketpair|connect|bind|listen|accept4?|sendmsg|recvmsg)\b
    """,
    re.VERBOSE,
)

HEAVY = ("torch", "tensorflow", "pyspark", "ray", "pyarrow", "numpy")
APART = ("frameworks", "launchers", "frames")

# Notes what is asked for, so that `try: import torch` is seen where torch is not installed too.
_PROBE = """
import sys
heavy, asked = set(sys.argv[1:]), set()
class Recorder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        asked.add(name.partition(".")[0])
sys.meta_path.insert(0, Recorder)
import grampus
print(*sorted(heavy & (asked | set(sys.modules))))
"""


def crate_problems(root: Path) -> Iterator[str]:
    """Yield a line for every arrow between crates that does not point down."""
    for package in _packages(root):
        name, manifest = package["name"], Path(package["manifest_path"])
        if name not in LAYERS:
            where = _manifest_line(root, manifest, "name")
            yield f"{where}: crate {name} has no layer; add it to LAYERS in scripts/check_layering.py"
            continue
        for dependency in package["dependencies"]:
            target = dependency["name"]
            where = _manifest_line(root, manifest, dependency["rename"] or target)
            if target.startswith("pyo3") and name != PYO3_CRATE:
                yield f"{where}: {name} names {target}; only {PYO3_CRATE} may, so move the conversion there"
            if target in LAYERS and LAYERS[target] >= LAYERS[name]:
                yield (
                    f"{where}: {name} (layer {LAYERS[name]}) depends on {target} (layer {LAYERS[target]}); "
                    "arrows point down only, so move what both need to a lower layer"
                )


def _packages(root: Path) -> list[dict]:
    command = ["cargo", "metadata", "--no-deps", "--format-version", "1"]
    command += ["--manifest-path", str(root / "Cargo.toml")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"cargo metadata failed in {root}: {result.stderr.strip()}")
    return json.loads(result.stdout)["packages"]


def _manifest_line(root: Path, manifest: Path, key: str) -> str:
    pattern = re.compile(rf"^\s*(?:\[.*dependencies\.)?\"?{re.escape(key)}\"?\s*[.=\]]")
    lines = manifest.read_text(encoding="utf-8").splitlines()
    line = next((number for number, text in enumerate(lines, 1) if pattern.match(text)), 1)
    return f"{manifest.relative_to(root)}:{line}"


def socket_problems(root: Path) -> Iterator[str]:
    """Yield a line for every socket named outside grampus-net."""
    for path in sorted(root.glob("crates/*/**/*.rs")):
        name = path.relative_to(root)
        if name.parts[1] == SOCKET_CRATE or str(name) in SOCKETS_ALLOWED:
            continue
        code = code_only(path.read_text(encoding="utf-8"))
        for found in _SOCKETS.finditer(code):
            what = " ".join(found.group().split())
            yield (
                f"{name}:{line_of(code, found.start())}: names {what}; "
                f"only {SOCKET_CRATE} opens sockets, so call it instead"
            )


def python_problems(root: Path) -> Iterator[str]:
    """Yield a line for every import between folders that are kept apart."""
    for here, there in itertools.permutations(APART, 2):
        for path in sorted((root / "python" / "grampus" / here).rglob("*.py")):
            name = path.relative_to(root)
            for module, line in imported_modules(path, root / "python"):
                if module == f"grampus.{there}" or module.startswith(f"grampus.{there}."):
                    yield (
                        f"{name}:{line}: {here}/ imports {module}; "
                        "these never meet, so go through Model, Launcher and Loadable"
                    )


def imported_modules(path: Path, top: Path) -> Iterator[tuple[str, int]]:
    """Yield the full name and line of every module that the file imports."""
    package = path.relative_to(top).with_suffix("").parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*base, *filter(None, [node.module])))
            yield module, node.lineno
            yield from ((f"{module}.{alias.name}", node.lineno) for alias in node.names)
        elif isinstance(node, ast.Call) and "import_module" in ast.unparse(node.func):
            names = [part.value for part in node.args if isinstance(part, ast.Constant)]
            yield from ((name, node.lineno) for name in names if isinstance(name, str))


def import_problems(root: Path) -> Iterator[str]:
    """Yield a line if a bare `import grampus` loads a framework or an engine."""
    package = root / "python" / "grampus"
    if not list(package.glob("_native*.so")):
        print("layering: the extension is not built, so `import grampus` was not tried", file=sys.stderr)
        return
    environment = dict(os.environ, PYTHONPATH=str(root / "python"), PYTHONDONTWRITEBYTECODE="1")
    command = [sys.executable, "-c", _PROBE, *HEAVY]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    where = f"{(package / '__init__.py').relative_to(root)}:1"
    if result.returncode != 0:
        yield f"{where}: `import grampus` fails: {result.stderr.strip().splitlines()[-1]}"
    elif loaded := result.stdout.split():
        names = ", ".join(loaded)
        yield f"{where}: `import grampus` imports {names}; import it inside the function that needs it"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    root = parser.parse_args().root.resolve()
    checks = (crate_problems, socket_problems, python_problems, import_problems)
    found = [line for check in checks for line in check(root)]
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
