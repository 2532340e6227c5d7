"""The process of a keeper: `python -m grampus._keeper`.

What it is told, the key included, comes on standard input.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from grampus import _native


def main() -> int:
    """Serve until the executor or the driver is gone."""
    # Those who send them mean the executor, with whose end this one ends.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    setup = json.load(sys.stdin)
    # The task waits for the process that it started; nobody has to wait for this one.
    if os.fork():
        os._exit(0)
    try:
        _native.keep(**setup, started=lambda here: _say({"here": here}))
    except Exception as error:
        _say({"why": str(error)})
        return 1
    return 0


def _say(answer: dict[str, object]) -> None:
    """Tell the task that waits; after that nobody reads, or is kept waiting for the end of what is said."""
    try:
        os.write(1, json.dumps(answer).encode() + b"\n")
    except OSError:
        return
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 1)
    os.close(nothing)


if __name__ == "__main__":
    sys.exit(main())
