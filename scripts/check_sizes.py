"""Hold the size limits of the house style: 600 lines a file, 60 lines a function.

Rust functions are found by a scan for braces, not by a parser: close enough for a limit. Functions in tests
may be longer.
"""

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from rust_text import closing_brace, code_only, line_of

FILE_CAP = 600
FUNCTION_CAP = 60
SKIPPED_FOLDERS = {"target", "__pycache__"}

_FUNCTION = re.compile(r"\bfn\s+(\w+)")
_TEST_MODULE = re.compile(r"#\[cfg\(test\)\]\s*(?:#\[[^\]]*\]\s*)*(?:pub\s+)?mod\s+\w+\s*\{")
_TEST_ATTRIBUTE = re.compile(r"#\[(?:\w+::)*test\b")


def source_files(root: Path) -> list[Path]:
    """Return the .rs and .py files that git tracks or would track, or all of them where there is no git."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        text=True,
    )
    if listing.returncode == 0:
        paths = [root / name for name in listing.stdout.split("\0") if name]
    else:
        paths = [path for path in root.rglob("*") if not _is_skipped(path.relative_to(root))]
    return sorted(path for path in set(paths) if path.suffix in {".rs", ".py"} and path.is_file())


def _is_skipped(path: Path) -> bool:
    return any(part in SKIPPED_FOLDERS or part.startswith(".") for part in path.parts)


def is_test_file(path: Path) -> bool:
    """Say whether the file at this path, relative to the root, holds only tests and their helpers."""
    return "tests" in path.parts or path.stem in {"tests", "conftest"} or path.stem.startswith("test_")


def rust_functions(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield name, first line and length of every Rust function outside tests."""
    code = code_only(text)
    tests = [(found.start(), closing_brace(code, found.end() - 1)) for found in _TEST_MODULE.finditer(code)]
    for found in _FUNCTION.finditer(code):
        opening = _body(code, found.end())
        if opening is None or any(first <= found.start() <= last for first, last in tests):
            continue
        before = max(code.rfind(mark, 0, found.start()) for mark in "{};")
        if _TEST_ATTRIBUTE.search(code, before + 1, found.start()):
            continue
        first, last = line_of(code, found.start()), line_of(code, closing_brace(code, opening))
        yield found.group(1), first, last - first + 1


def _body(code: str, at: int) -> int | None:
    """Return where the body opens, or nothing if the function is only declared."""
    depth = 0
    for mark in re.finditer(r"[()\[\]{;]", code[at:]):
        if mark.group() in "([":
            depth += 1
        elif mark.group() in ")]":
            depth -= 1
        elif depth == 0:
            return at + mark.start() if mark.group() == "{" else None
    return None


def python_functions(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield name, first line and length of every Python function."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1


def problems(root: Path) -> Iterator[str]:
    """Yield one line for every file and function over its limit."""
    for path in source_files(root):
        name = path.relative_to(root)
        text = path.read_text(encoding="utf-8")
        lines = len(text.splitlines())
        if lines > FILE_CAP:
            yield f"{name}:{FILE_CAP + 1}: the file has {lines} lines of at most {FILE_CAP}; split it by noun"
        if is_test_file(name):
            continue
        functions = rust_functions(text) if path.suffix == ".rs" else python_functions(text)
        for function, line, length in functions:
            if length > FUNCTION_CAP:
                yield (
                    f"{name}:{line}: function {function} has {length} lines of at most {FUNCTION_CAP}; "
                    "give a part of it a name of its own"
                )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    found = list(problems(parser.parse_args().root.resolve()))
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
