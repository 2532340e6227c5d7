"""How many instructions the hot loops take for one element, held against what is kept in instructions.json.

Instructions do not depend on what else the machine does, so this can be a gate where a time cannot. A loop
runs a few times, and then more times, under callgrind; the difference of the two counts, divided by the
elements in between, is free of start-up. Valgrind shows programs a processor without AVX-512, so what is
counted is the way with AVX2, on any machine that has it.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from harness import HERE, ROOT, Failed, example, is_smoke, miss, parse

KEPT = HERE / "instructions.json"
TOLERANCE = 0.02
# Whole blocks of every kind, in the first cache but for sum16, and enough runs to make rounding vanish.
ELEMENTS = 16_384
FEW, MANY = 2, 18
LIMIT = 300.0


CRATE, EXAMPLE = "grampus-collective", "kernels"
LOOPS = ("sum2", "sum16", "bf16_sum2", "norm")


def build() -> Path:
    """Return the program that runs a loop as `PROGRAM LOOP ELEMENTS TIMES`."""
    for program, hint in (("cargo", "https://rustup.rs"), ("valgrind", "apt-get install -y valgrind")):
        if not shutil.which(program) and not is_smoke():
            raise Failed(f"{program} is not installed: {hint}")
    return example(CRATE, EXAMPLE)


def run_loop(program: Path, loop: str, times: int, *under: str) -> None:
    command = [*under, str(program), loop, str(ELEMENTS), str(times)]
    end = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    if end.returncode != 0:
        last = (end.stderr.strip().splitlines() or ["no output"])[-1]
        raise Failed(f"{' '.join(command)}: exit status {end.returncode}: {last}")


def counted(program: Path, loop: str, times: int) -> int:
    """Run under callgrind and return all instructions of the process."""
    with tempfile.TemporaryDirectory() as scratch:
        output = f"{scratch}/callgrind.out"
        run_loop(program, loop, times, "valgrind", "--tool=callgrind", f"--callgrind-out-file={output}")
        totals = re.findall(r"^(?:summary|totals): (\d+)", Path(output).read_text(), re.MULTILINE)
    if not totals:
        raise Failed("callgrind's output has no total")
    return int(totals[-1])


def per_element(program: Path, loop: str) -> float:
    more = counted(program, loop, MANY) - counted(program, loop, FEW)
    return more / (ELEMENTS * (MANY - FEW))


def first_line(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0].strip()


def judge(now: float, before: float | None) -> tuple[str, str, bool]:
    """Return the change, a word on it, and whether it may stay."""
    if before is None:
        return "", "new: keep it with --write", False
    # Rounded as it is shown; the zero takes the sign from nothing.
    change = round(now / before - 1, 3) + 0.0
    if change > TOLERANCE:
        return f"{change:+.1%}", "MORE than is kept", False
    if change < -TOLERANCE:
        return f"{change:+.1%}", "fewer: keep it with --write", False
    return f"{change:+.1%}", "as kept", True


def compare(found: dict[str, float], kept: dict) -> bool:
    """Print the table; return whether nothing has changed."""
    before = kept.get("instructions", {})
    print(f"instructions for one element, kept within {TOLERANCE:.0%}")
    print(f"  {'':12}{'now':>9}  {'kept':>9}  {'change':>7}")
    good = True
    for name, now in found.items():
        change, word, stays = judge(now, before.get(name))
        was = f"{before[name]:9.4f}" if name in before else f"{'—':>9}"
        print(f"  {name:12}{now:9.4f}  {was}  {change:>7}   {word}")
        good = good and stays
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"write {KEPT.relative_to(ROOT)} anew")
    parser.add_argument("--only", nargs="+", choices=LOOPS, metavar="LOOP", help=", ".join(LOOPS))
    options = parse(parser)
    loops = [name for name in LOOPS if name in (options.only or LOOPS)]
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    try:
        program = build()
        if not shutil.which("valgrind"):
            miss("the count", "valgrind is not installed; the loops only run")
            for name in loops:
                run_loop(program, name, FEW)
            return 0
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            found = dict(zip(loops, pool.map(partial(per_element, program), loops), strict=True))
    except (Failed, subprocess.SubprocessError) as error:
        print(f"instructions cannot be counted: {error}", file=sys.stderr)
        return 2
    tools = {"rustc": first_line("rustc", "--version"), "valgrind": first_line("valgrind", "--version")}
    good = compare(found, kept)
    for name, text in tools.items():
        if kept and kept.get(name) != text:
            print(f"  {name} is another: {text}, the kept figures are from {kept.get(name)}")
    if options.write:
        rounded = {name: round(value, 4) for name, value in found.items()}
        together = {**tools, "instructions": {**kept.get("instructions", {}), **rounded}}
        KEPT.write_text(json.dumps(together, indent=2) + "\n")
        print(f"  written to {KEPT.relative_to(ROOT)}")
        return 0
    # What is kept is of a release.
    return 0 if good or options.smoke else 1


if __name__ == "__main__":
    sys.exit(main())
