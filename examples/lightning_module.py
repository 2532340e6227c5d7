"""Train a LightningModule on two workers, without a Trainer.

Run it with `python examples/lightning_module.py` where grampus is installed with lightning and scikit-learn.
The module is written as for Lightning's Trainer, and would train there as well; its steps, optimizer and
scheduler run on Grampus's workers. It learns to read scikit-learn's digits. One sees what the module logs in
each epoch, its accuracy on every fifth picture, kept for the test, and what it reads in the first of these.
"""

import argparse

import lightning
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import grampus as gp


class Reader(lightning.LightningModule):
    """Reads digits in pictures of 8 x 8."""

    def __init__(self, hidden=32, lr=0.01):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Dropout(0.1), nn.Linear(hidden, 10))

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = cross_entropy(self(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        output = self(x)
        self.log("val_loss", cross_entropy(output, y))
        self.log("val_accuracy", (output.argmax(1) == y).float().mean())

    def predict_step(self, batch, batch_idx):
        return self(batch).argmax(1)

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=self.hparams.lr)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)]


def model_creator(config):
    return Reader(lr=config["lr"])


def pictures():
    """Pictures and digits to train on, and every fifth for the test."""
    digits = load_digits()
    x, y = torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target)
    test = torch.arange(len(y)) % 5 == 0
    return TensorDataset(x[~test], y[~test]), TensorDataset(x[test], y[test])


def main():
    parser = argparse.ArgumentParser(description="Train a LightningModule, on several workers.")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=32, help="over all workers together")
    parser.add_argument("--lr", type=float, default=0.01, help="learning rate")
    args = parser.parse_args()

    train, test = pictures()
    loader = DataLoader(train, batch_size=args.batch_size, shuffle=True)
    test_loader = DataLoader(test, batch_size=100)
    # Lightning takes seconds to import: so it is done once, not by each worker.
    gp.init(args.workers, preload=["torch", "lightning"])
    estimator = gp.Estimator.from_lightning(model=model_creator, config={"lr": args.lr}, seed=0)
    # With None, the size of a batch is the loader's.
    history = estimator.fit(loader, epochs=args.epochs, batch_size=None, validation_data=test_loader)
    print(history)
    found = estimator.evaluate(test_loader, batch_size=None)
    print(f"accuracy: {found['val_accuracy']:.2%} of {found['num_samples']} test pictures")
    x, y = test.tensors
    read = estimator.predict(x)
    print(f"read:  {' '.join(map(str, read[:12].tolist()))}")
    print(f"truth: {' '.join(map(str, y[:12].tolist()))}")
    # The module itself, trained: for Lightning, or for anything else that takes one.
    assert torch.equal(estimator.get_model().eval()(x).argmax(1), read)
    gp.stop()


if __name__ == "__main__":
    main()
