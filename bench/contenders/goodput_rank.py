"""The training of bench/goodput.py under torchrun, with checkpoints and restarts as its documents show."""

from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import fashion
from victims import Progress, sign_in

# Steps between two checkpoints: about three a second, which cost next to nothing.
EVERY = 50


def main():
    options = fashion.arguments("folder")
    images, labels = fashion.load(options)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(fashion.LeNet(), gradient_as_bucket_view=True, static_graph=True)
    rule, loss_of = fashion.optimizer(model), nn.CrossEntropyLoss()
    place = Path(options.folder, "checkpoint.pt")
    done = 0
    if place.exists():
        saved = torch.load(place)
        model.load_state_dict(saved["model"])
        rule.load_state_dict(saved["optimizer"])
        done = saved["done"]
    sign_in(options.folder)
    progress = Progress(options.folder)
    steps = -(-len(labels) // (fashion.BATCH * world))
    for epoch in range(done // steps, options.epochs):
        for number, (inputs, targets) in enumerate(fashion.batches(images, labels, epoch, rank, world)):
            if epoch * steps + number < done:
                continue
            rule.zero_grad()
            loss_of(model(inputs), targets).backward()
            rule.step()
            done += 1
            if rank == 0:
                progress.set(done * fashion.BATCH * world)
                if done % EVERY == 0:
                    state = {"model": model.state_dict(), "optimizer": rule.state_dict(), "done": done}
                    torch.save(state, place.with_suffix(".new"))
                    place.with_suffix(".new").replace(place)


if __name__ == "__main__":
    main()
