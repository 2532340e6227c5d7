"""Lightning's Trainer with DDP, and with all switched off that is not training."""

import time

import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy

import fashion


class Module(LightningModule):
    def __init__(self):
        super().__init__()
        self.model = fashion.LeNet()
        self.loss = torch.nn.CrossEntropyLoss()
        self.epochs = []

    def configure_optimizers(self):
        return fashion.optimizer(self.model)

    def on_train_epoch_start(self):
        torch.distributed.barrier()
        self.rows, self.total, self.began = 0, 0.0, time.perf_counter()

    def training_step(self, batch, _):
        inputs, targets = batch
        loss = self.loss(self.model(inputs), targets)
        self.rows += len(targets)
        self.total += loss.item() * len(targets)
        return loss

    def on_train_epoch_end(self):
        self.epochs.append((self.rows, time.perf_counter() - self.began, self.total / self.rows))


class Batches:
    """A rank's batches, as a loader that is asked once an epoch."""

    def __init__(self, images, labels, module):
        self.images, self.labels, self.module = images, labels, module

    def __len__(self):
        share = len(range(self.module.global_rank, len(self.labels), self.module.trainer.world_size))
        return -(-share // fashion.BATCH)

    def __iter__(self):
        rank, world = self.module.global_rank, self.module.trainer.world_size
        return fashion.batches(self.images, self.labels, self.module.current_epoch, rank, world)


def main():
    options = fashion.arguments()
    images, labels = fashion.load(options)
    module = Module()
    strategy = DDPStrategy(process_group_backend="gloo", gradient_as_bucket_view=True, static_graph=True)
    trainer = Trainer(
        accelerator="cpu",
        devices=options.procs,
        strategy=strategy,
        max_epochs=options.epochs,
        barebones=True,
        use_distributed_sampler=False,
    )
    trainer.fit(module, Batches(images, labels, module))
    rate = fashion.summed_rate(module.epochs)
    if trainer.is_global_zero:
        fashion.report(rate, module.epochs[-1][2])


if __name__ == "__main__":
    main()
