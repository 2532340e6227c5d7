"""Ray Train with DDP; the loop is the one that is written by hand."""

import os

import ray
import torch.distributed as dist
from ray import train
from ray.train.torch import TorchConfig, TorchTrainer, prepare_model

import fashion


def loop(config):
    images, labels = fashion.load(config["options"])
    tuned = {"gradient_as_bucket_view": True, "static_graph": True}
    model = prepare_model(fashion.LeNet(), parallel_strategy_kwargs=tuned)
    context = train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    epochs = fashion.train(model, images, labels, config["options"].epochs, rank, world, dist.barrier)
    return fashion.summed_rate(epochs), epochs[-1][2]


def main():
    options = fashion.arguments()
    # As its documentation advises for a small local run: no dashboard, no more workers than are asked for.
    ray.init(num_cpus=options.procs, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    trainer = TorchTrainer(
        loop,
        train_loop_config={"options": options},
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=train.ScalingConfig(num_workers=options.procs, use_gpu=False),
        run_config=train.RunConfig(storage_path=os.environ["RAY_TMPDIR"]),
    )
    rate, loss = trainer.fit().return_value
    ray.shutdown()
    fashion.report(rate, loss)


if __name__ == "__main__":
    main()
