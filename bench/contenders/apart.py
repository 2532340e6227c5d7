"""Programs in Rust that train at once and know nothing of each other: their rates are added up."""

import re
import statistics
import subprocess
import sys


def main():
    program, data, procs, rows, batch, epochs = sys.argv[1:]
    words = [program, "--data", data, "--workers", "1", "--threads", "1", "--epochs", epochs]
    words += ["--rows", str(int(rows) // int(procs)), "--batch-size", batch]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    running = [subprocess.Popen(words, **pipes) for _ in range(int(procs))]
    total = 0.0
    for one in running:
        _, errors = one.communicate(timeout=600)
        if one.returncode:
            sys.exit(errors)
        told = [float(found) for found in re.findall(r"(\d+) rows/s", errors)]
        total += statistics.mean(told[1:] or told)
    print(f"{total:.0f} rows/s")


if __name__ == "__main__":
    main()
