"""A GAN with a training step of its own, on two workers, interrupted in the middle and gone on with.

    python examples/gan.py

Two networks learn against each other: the generator makes points of the plane out of noise, the judge tells
them from real ones, which lie around eight places of a ring. One sees how far made points are from real ones
before and after (two draws of real points are as close as one can get), how many made points are near one of
the eight places, and that the interrupted run ends with the very weights of a run in one go.
"""

import argparse
import tempfile

import torch
from torch import nn
from torch.nn.functional import softplus

import grampus as gp

NOISE = 8
ANGLES = torch.arange(8) * (torch.pi / 4)
PLACES = 2 * torch.stack([ANGLES.cos(), ANGLES.sin()], 1)


def real_points(count, seed):
    """Points around the eight places."""
    draw = torch.Generator().manual_seed(seed)
    places = torch.randint(8, (count,), generator=draw)
    return PLACES[places] + 0.2 * torch.randn(count, 2, generator=draw)


def models_creator(config):
    """Generator and judge."""
    hidden = config["hidden"]

    def network(inputs, outputs):
        first, second = nn.Linear(inputs, hidden), nn.Linear(hidden, hidden)
        return nn.Sequential(first, nn.LeakyReLU(0.2), second, nn.LeakyReLU(0.2), nn.Linear(hidden, outputs))

    return [network(NOISE, 2), network(2, 1)]


def optimizers_creator(models, config):
    """One for each model."""
    return [torch.optim.Adam(model.parameters(), lr=config["lr"], betas=(0.5, 0.99)) for model in models]


class Gan(gp.TrainingOperator):
    """What is done with a batch, on every worker: plain PyTorch.

    Grampus sums gradients over all workers at each `step()`, and gives each worker noise of its own.
    """

    def train_batch(self, batch, batch_info):
        (generator, judge), (of_generator, of_judge) = self.models, self.optimizers
        real = batch["x"]
        made = generator(torch.randn(len(real), NOISE, device=self.device))

        of_judge.zero_grad()
        judge_loss = softplus(-judge(real)).mean() + softplus(judge(made.detach())).mean()
        self.backward(judge_loss)
        of_judge.step()

        # The judge has learnt already when the generator asks it.
        of_generator.zero_grad()
        generator_loss = softplus(-judge(made)).mean()
        self.backward(generator_loss)
        of_generator.step()
        said = {"judge_loss": judge_loss.item(), "generator_loss": generator_loss.item()}
        return {**said, "num_samples": len(real)}

    def predict_batch(self, batch):
        """Points for rows of noise."""
        return self.models[0](batch)


def new_estimator(args):
    return gp.Estimator.from_torch(
        model=models_creator,
        optimizer=optimizers_creator,
        training_operator_cls=Gan,
        config={"hidden": 64, "lr": args.lr},
        seed=0,
    )


def train(args, folder, **options):
    """A new estimator that trains up to the last epoch, or goes on to it with what is in the folder."""
    estimator = new_estimator(args)
    estimator.fit(
        {"x": real_points(args.rows, seed=0)},
        epochs=args.epochs,
        batch_size=args.batch_size,
        checkpoint=gp.Checkpoint(folder, every=gp.triggers.EverySteps(100), keep=2),
        **options,
    )
    return estimator


def made_points(estimator, count):
    return estimator.predict(torch.randn(count, NOISE, generator=torch.Generator().manual_seed(9)))


def distance(some, others):
    """The energy distance of two clouds of points: 0 where they are alike."""

    def apart(left, right):
        return torch.cdist(left, right).mean()

    return (2 * apart(some, others) - apart(some, some) - apart(others, others)).item()


def main():
    parser = argparse.ArgumentParser(description="Train a GAN, on several workers.")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=256, help="over all workers together")
    parser.add_argument("--lr", type=float, default=0.004, help="learning rate")
    parser.add_argument("--rows", type=int, default=5120, help="points to learn from")
    args = parser.parse_args()
    half = args.epochs * -(-args.rows // args.batch_size) // 2

    gp.init(args.workers)
    untrained = made_points(new_estimator(args), 1000)
    with tempfile.TemporaryDirectory() as folder:
        train(args, f"{folder}/interrupted", max_steps=half)
        # Another estimator, as it would be in another process: all it knows is in the folder.
        resumed = train(args, f"{folder}/interrupted", resume=True)
        whole = train(args, f"{folder}/whole")
    made = made_points(resumed, 1000)
    gp.stop()

    unseen = real_points(1000, seed=1)
    for name, cloud in (("untrained", untrained), ("trained", made), ("real", real_points(1000, seed=2))):
        print(f"distance of {name} points: {distance(cloud, unseen):.4f}")
    gap, place = torch.cdist(made, PLACES).min(1)
    near = gap < 0.6
    print(
        f"near a place: {near.float().mean():.0%} of the points, at {len(place[near].unique())} of 8 places"
    )
    print(f"weights of a run in one go:          {whole.digest()}")
    print(f"weights of the one that was resumed: {resumed.digest()}")


if __name__ == "__main__":
    main()
