"""The `grampus` command, for `python -m grampus` and the console script."""

import sys

from grampus import _native


def main() -> int:
    """Run the command with the arguments of this process."""
    return _native.command_line(["grampus", *sys.argv[1:]], sys.executable)


if __name__ == "__main__":
    sys.exit(main())
