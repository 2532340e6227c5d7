"""One rank of bench/train.py under torchrun: `ddp` trains with the others, `alone` only beside them."""

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import fashion


def main():
    options = fashion.arguments("kind")
    images, labels = fashion.load(options)
    dist.init_process_group("gloo")
    model = fashion.LeNet()
    if options.kind == "ddp":
        model = DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True)
    rank, world = dist.get_rank(), dist.get_world_size()
    epochs = fashion.train(model, images, labels, options.epochs, rank, world, dist.barrier)
    rate = fashion.summed_rate(epochs)
    if rank == 0:
        fashion.report(rate, epochs[-1][2])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
