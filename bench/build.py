"""How long a first debug build of a program with the crate takes, what it brings, and how large it gets.

The program has a folder, a profile and a lock of its own, as that of somebody who adds the crate. The binary
is `fashion_mnist`, built with the profile `small`.
"""

import argparse
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from harness import ROOT, example, is_smoke, machine, parse

MINUTES_ASKED = 3
MEGABYTES_ASKED = 15
PROGRAM = "fn main() -> grampus::Result<()> {\n    grampus::init().map(drop)\n}\n"


def first_build() -> None:
    # A smoke run downloads nothing.
    cargo = {**os.environ, "CARGO_NET_OFFLINE": "true"} if is_smoke() else None
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "src").mkdir()
        (folder / "src" / "main.rs").write_text(PROGRAM)
        crate = ROOT / "crates" / "grampus"
        (folder / "Cargo.toml").write_text(
            '[package]\nname = "user"\nversion = "0.1.0"\nedition = "2024"\n\n'
            f'[dependencies]\ngrampus = {{ path = "{crate}" }}\n'
        )
        shutil.copy(ROOT / "Cargo.lock", folder)
        subprocess.run(["cargo", "fetch", "--quiet"], cwd=folder, env=cargo, check=True)
        began = time.perf_counter()
        if is_smoke():
            print("the build, of minutes, is left out")
        else:
            subprocess.run(["cargo", "build", "--quiet"], cwd=folder, check=True)
        seconds = time.perf_counter() - began
        tree = ["cargo", "tree", "--edges", "normal", "--prefix", "none", "--format", "{p}"]
        listed = subprocess.check_output(tree, cwd=folder, env=cargo, text=True)
    crates = {" ".join(line.split()[:2]) for line in listed.splitlines() if line} - {"user v0.1.0"}
    verdict = "met" if seconds < 60 * MINUTES_ASKED else "missed"
    print(
        f"first debug build: {seconds:.0f} s (asked {60 * MINUTES_ASKED} s: {verdict}), {len(crates)} crates"
    )


def size() -> None:
    megabytes = example("grampus", "fashion_mnist", "small").stat().st_size / 1e6
    verdict = "met" if megabytes < MEGABYTES_ASKED else "missed"
    print(f"binary of fashion_mnist: {megabytes:.1f} MB (asked {MEGABYTES_ASKED} MB: {verdict})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parse(parser)
    print(machine())
    first_build()
    size()


if __name__ == "__main__":
    main()
