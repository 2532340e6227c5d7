"""Programs one after the other in one process, each as if it were alone: what they import is loaded once."""

import runpy
import sys


def run_all(programs, between=lambda: None):
    """Run each, which is the path of its file and its arguments."""
    before = sys.argv
    try:
        for program in programs:
            sys.argv = program
            runpy.run_path(program[0], run_name="__main__")
            between()
    finally:
        sys.argv = before


def leave_engines():
    """End what connects this process to an engine, as the end of a program would."""
    if "pyspark" in sys.modules:
        from pyspark.sql import SparkSession

        session = SparkSession.getActiveSession()
        if session is not None:
            session.stop()
    if "ray" in sys.modules:
        sys.modules["ray"].shutdown()


def main():
    """`programs.py one.py ARGUMENTS --then two.py ARGUMENTS --then`."""
    programs, words = [], []
    for word in sys.argv[1:]:
        if word == "--then":
            programs.append(words)
            words = []
        else:
            words.append(word)
    run_all(programs, leave_engines)


if __name__ == "__main__":
    main()
