"""Learn from a table in Parquet files who buys, on two workers, and write a prediction for each row.

    python examples/tabular.py
    python examples/tabular.py --data 'customers/*.parquet' --label buys --out predicted.parquet

Any table will do that has a label of 0 and 1: columns of numbers are scaled, columns of texts become classes.
Every fifth row is kept for the test. Without `--data` a table of customers is made up first. One sees a line
for each epoch, accuracy and area under the ROC curve on the test rows, and the first rows of the result.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from torch import nn

import grampus as gp


def make_table(folder, rows, files=4):
    """Customers, and whether they buy: the young in the south, the rich elsewhere, and some by chance."""
    draw = np.random.default_rng(0)
    for number in range(files):
        count = rows // files
        age, income = draw.integers(18, 80, count), draw.lognormal(10, 0.5, count).round()
        region = draw.choice(["north", "south", "west"], count)
        score = np.where(region == "south", (45 - age) / 5, (income - 22_000) / 4_000)
        buys = (score + draw.logistic(0, 0.5, count) > 0).astype(np.int64)
        table = pa.table({"age": age, "income": income, "region": region, "buys": buys})
        pq.write_table(table, Path(folder) / f"part-{number}.parquet")


def fifth_rows(table, chosen):
    """Every fifth row of a shard, or all the others."""
    return table.filter(pa.array((np.arange(len(table)) % 5 == 0) == chosen))


def features_of(table, label):
    """The names of columns with numbers, and of columns with texts."""
    columns = [column for column in table.schema if column.name != label]
    texts = [column.name for column in columns if pa.types.is_string(column.type)]
    return [column.name for column in columns if column.name not in texts], texts


def model_creator(config):
    return nn.Sequential(
        nn.Linear(config["inputs"], config["hidden"]),
        nn.ReLU(),
        nn.Linear(config["hidden"], config["hidden"]),
        nn.ReLU(),
        nn.Linear(config["hidden"], 1),
        nn.Sigmoid(),
        nn.Flatten(0),  # one probability for each row, as the label is one number
    )


def train(args, data):
    """Train on the rows of files; print what comes out, and write predictions."""
    gp.init(args.workers)
    rows = gp.read_parquet(data)
    train, test = rows.transform_shard(fifth_rows, False), rows.transform_shard(fifth_rows, True)
    numbers, texts = features_of(rows.first(), args.label)

    # Means and deviations are those of the rows to train on; the test rows are scaled with the same.
    scaled = [f"{name}_scaled" for name in numbers]
    scaler = gp.shards.StandardScaler(withMean=True, inputCol=numbers, outputCol=scaled).fit(train)
    train, test = scaler.transform(train), scaler.transform(test)
    # Each step makes columns of a batch when it is read; all of them stand side by side in one matrix.
    classes = {name: rows[name].unique().tolist() for name in texts}
    columns = [*scaled, *(gp.columns.OneHot(name, classes[name]) for name in texts)]
    inputs = len(scaled) + sum(map(len, classes.values()))
    label = gp.columns.Cast(args.label, "float32")

    estimator = gp.Estimator.from_torch(
        model=model_creator,
        optimizer="adam",
        loss=nn.BCELoss(),
        metrics=[gp.metrics.Accuracy(), gp.metrics.AUC()],
        config={"inputs": inputs, "hidden": 32, "lr": args.lr},
        seed=0,
    )
    history = estimator.fit(
        train, epochs=args.epochs, batch_size=args.batch_size, feature_cols=[columns], label_cols=label
    )
    print(history)
    found = estimator.evaluate(test, batch_size=1000, feature_cols=[columns], label_cols=label)
    print(f"accuracy: {found['accuracy']:.2%} of {found['num_samples']:,} test rows")
    print(f"auc: {found['auc']:.4f}")

    # The workers write while they predict, so that this works for tables of any size, too.
    estimator.predict(test, feature_cols=[columns], out=args.out)
    for row in pq.read_table(args.out).slice(0, 3).to_pylist():
        known = {name: row[name] for name in (*numbers, *texts, args.label)}
        print(f"{row['prediction']:.2f} for {known}")
    gp.stop()


def main():
    parser = argparse.ArgumentParser(description="Learn a label of 0 and 1 from a table.")
    parser.add_argument("--data", help="Parquet files, a folder or pattern; by default a table is made up")
    parser.add_argument("--label", default="buys", help="column with 0 and 1")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64, help="over all workers together")
    parser.add_argument("--lr", type=float, default=0.01, help="learning rate")
    parser.add_argument("--rows", type=int, default=10_000, help="of the table that is made up")
    parser.add_argument("--out", default="predicted.parquet", help="where predictions are written")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        if args.data is None:
            make_table(made, args.rows)
        train(args, args.data or made)


if __name__ == "__main__":
    main()
