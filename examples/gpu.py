"""Train one model with numbers of several precisions, on GPUs where there are some and on the CPU otherwise.

    python examples/gpu.py
    python examples/gpu.py --device cpu --workers 4

It needs scikit-learn for its digits. Nothing in the model says where it is: each worker puts it, and every
batch, on its GPU. One sees a line for each precision: how much of the test it gets right, and where the time
of a step goes, in milliseconds. A model as small as this one gains nothing by half precision: see what
`--hidden 8192 --batch-size 1024` does on a GPU. At the end the batches are cut into more parts, as one does
where a whole one does not fit into the memory of a GPU; that changes nothing but the last digits of weights.
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn

import grampus as gp

PRECISIONS = {"fp32": None, "bf16": "bf16", "fp16": "fp16"}
# What `profile=True` measures in each step, and what it is.
PARTS = {
    "mean_fwd_s": "forward",
    "mean_bwd_s": "backward",
    "mean_sync_s": "sum of gradients",
    "mean_apply_s": "optimizer",
}


def model_creator(config):
    hidden = config["hidden"]
    return nn.Sequential(
        nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 10)
    )


def optimizer_creator(model, config):
    return torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=0.9)


def digits():
    """Pictures to train on, and every fifth for the test."""
    found = load_digits()
    x, y = torch.tensor(found.data / 16, dtype=torch.float32), torch.tensor(found.target)
    test = torch.arange(len(y)) % 5 == 0
    return {"x": x[~test], "y": y[~test]}, {"x": x[test], "y": y[test]}


def train(args, data, **options):
    """An estimator that has learnt, and its history."""
    estimator = gp.Estimator.from_torch(
        model=model_creator,
        optimizer=optimizer_creator,
        loss=nn.CrossEntropyLoss(),
        metrics=[gp.metrics.Accuracy()],
        config={"hidden": args.hidden, "lr": 0.05},
        device=args.device,
        seed=0,
        **options,
    )
    # What it prints is a table of several runs.
    quiet = [gp.callbacks.Progress(show=False)]
    history = estimator.fit(
        data, epochs=args.epochs, batch_size=args.batch_size, profile=True, callbacks=quiet
    )
    return estimator, history


def main():
    parser = argparse.ArgumentParser(description="Train with several precisions, on GPUs or on the CPU.")
    gpus = torch.cuda.device_count()
    parser.add_argument("--workers", type=int, default=gpus or 2, help="by default one for each GPU")
    parser.add_argument("--device", choices=["cpu", "cuda"], help="by default GPUs where there are some")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64, help="over all workers together")
    parser.add_argument("--hidden", type=int, default=128, help="width of the model")
    parser.add_argument("--lanes", type=int, help="parts of a batch at the end; by default four for a worker")
    args = parser.parse_args()

    train_data, test_data = digits()
    gp.init(args.workers)
    on_gpu = gpus and args.device != "cpu"
    print(f"workers: {args.workers} on {torch.cuda.get_device_name() if on_gpu else 'the CPU'}")
    print("precision  accuracy  " + "  ".join(PARTS.values()))
    models = {}
    for name, precision in PRECISIONS.items():
        models[name], history = train(args, train_data, precision=precision)
        accuracy = models[name].evaluate(test_data, batch_size=360)["accuracy"]
        # One record an epoch: the last one is free of what is done but once, in the first steps.
        times = history[-1]["profile"]
        shown = "  ".join(f"{1000 * times[key]:{len(title)}.2f}" for key, title in PARTS.items())
        print(f"{name:9}  {accuracy:8.2%}  {shown}")

    # A worker takes its lanes one after the other and sums their gradients before the step.
    lanes = args.lanes or 4 * args.workers
    parted, _ = train(args, train_data, lanes=lanes)
    weights = zip(models["fp32"].state_dict().values(), parted.state_dict().values(), strict=True)
    apart = max((one - other).abs().max().item() for one, other in weights)
    rows = -(-args.batch_size // lanes)
    print(f"in {lanes} lanes of {rows} rows: weights differ by {apart:.1e} at most from those in fp32 above")
    gp.stop()


if __name__ == "__main__":
    main()
