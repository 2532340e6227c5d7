"""Train a small network on a table of numbers where it is: on this machine, on Spark or on Ray.

    python examples/dataframe.py
    python examples/dataframe.py --cluster spark --master local[2]
    spark-submit --master spark://host:7077 examples/dataframe.py --cluster spark
    python examples/dataframe.py --cluster ray

The rows are those of a Parquet file in every case, and so the weights are the same, to the bit.
"""

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from torch import nn, optim

import grampus as gp

FEATURES = [f"x{number}" for number in range(35)]


def make_table(path, rows):
    """Numbers, and whether a sum of them with some noise is above zero."""
    draw = np.random.default_rng(7)
    numbers = draw.standard_normal((rows, len(FEATURES)))
    score = numbers @ draw.standard_normal(len(FEATURES)) + draw.standard_normal(rows)
    columns = {name: numbers[:, place] for place, name in enumerate(FEATURES)}
    table = pa.table({"id": np.arange(rows), **columns, "label": (score > 0).astype(np.int64)})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=4096)


def model_creator(config):
    hidden = config["hidden"]
    return nn.Sequential(nn.Linear(len(FEATURES), hidden), nn.ReLU(), nn.Linear(hidden, 2))


def optimizer_creator(model, config):
    return optim.Adam(model.parameters(), lr=config["lr"])


def read(args):
    """The table, as users of an engine have it."""
    if args.cluster == "spark":
        from pyspark.sql import SparkSession

        return SparkSession.getActiveSession().read.parquet(args.data)
    if args.cluster == "ray":
        import ray

        return ray.data.read_parquet(args.data)
    return args.data


def first_rows(table, cluster):
    """Three of them, as dicts."""
    if cluster == "spark":
        return [row.asDict() for row in table.orderBy("id").limit(3).collect()]
    return table.take(3) if cluster == "ray" else table.slice(0, 3).to_pylist()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cluster", choices=["local", "spark", "ray"], default="local")
    parser.add_argument("--master", help="of Spark or Ray, such as spark://host:7077 or host:6379")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--data", default="data/table.parquet", help="made where it is not there")
    parser.add_argument("--rows", type=int, default=20_000, help="of a table that is made")
    args = parser.parse_args()
    if not Path(args.data).exists():
        make_table(Path(args.data), args.rows)

    # The only line that knows where the work is done.
    gp.init(args.workers, args.cluster, master=args.master)
    table = read(args)
    estimator = gp.Estimator.from_torch(
        model=model_creator,
        optimizer=optimizer_creator,
        loss=nn.CrossEntropyLoss(),
        metrics=[gp.metrics.Accuracy()],
        config={"hidden": 64, "lr": 0.005},
        lanes=args.workers,
        threads_per_lane=1,
        seed=1,
    )
    columns = {"feature_cols": [FEATURES], "label_cols": "label"}
    history = estimator.fit(table, epochs=args.epochs, batch_size=256, **columns)
    print(history)
    print(f"accuracy: {estimator.evaluate(table, batch_size=1024, **columns)['accuracy']:.2%}")
    # A frame of the engine comes back from one of an engine: nothing is computed before it is asked for.
    for row in first_rows(estimator.predict(table, feature_cols=[FEATURES]), args.cluster):
        print(f"row {row['id']}: {[round(float(number), 4) for number in row['prediction']]}")
    print(f"weights: {estimator.digest()}")
    gp.stop()


if __name__ == "__main__":
    main()
