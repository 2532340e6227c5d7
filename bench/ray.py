"""How fast Grampus starts and predicts on Ray, beside Ray Train and Ray Data.

A contender is a whole fresh process with a Ray of two CPUs that runs; contenders take turns, after one round
that is not counted, and a figure is the median of its rounds, a ratio that of its turns.

start: from there to the first step of two workers. predict: answers for 1 M rows of a Dataset that lies in
the object store, once all is warm; Ray Data with a function, and with a pool of two actors.
"""

import argparse
import sys

from engine_tables import compare, make_table, run_sections
from turns import Contender, script


def start(options: argparse.Namespace) -> dict:
    contenders = [
        Contender("grampus", script("start_ray.py", "grampus"), "grampus"),
        Contender("Ray Train", script("start_ray.py", "train"), "ray", 0.5),
    ]
    title = "from a Ray that runs to the first step, 2 workers"
    return compare(title, contenders, options, {"returned": "returned"}, at_least=False)


def predict(options: argparse.Namespace) -> dict:
    data = str(make_table(options.scratch, options.predicted))
    contenders = [
        Contender("grampus", script("predict_ray.py", "grampus", data), "grampus"),
        Contender("map_batches, function", script("predict_ray.py", "function", data), "ray", 1.0),
        Contender("map_batches, 2 actors", script("predict_ray.py", "pool", data), "ray", 1.0),
    ]
    return compare(
        f"predict {options.predicted:,} rows", contenders, options, {"first": "first"}, at_least=True
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    run_sections("ray", parser, {"start": start, "predict": predict}, ("grampus", "torch", "ray"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
