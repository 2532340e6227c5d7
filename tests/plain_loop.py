"""Training as one would write it without Grampus, on the batches that an Estimator takes."""

import torch

from grampus import _native
from grampus._training import creator


def batches(data, size, seed, epoch):
    """The batches of an epoch, as the formula orders rows."""
    count = len(data["y"])
    order = _native.Order(seed, epoch, count)
    for start in range(0, count, size):
        rows = torch.frombuffer(order.rows(start, min(start + size, count)), dtype=torch.int64)
        yield data["x"][rows], data["y"][rows]


def train(
    model,
    optimizer,
    loss,
    data,
    *,
    seed=0,
    epochs=1,
    batch_size=32,
    config=None,
    scheduler=None,
    per_batch=False,
    clip=None,
):
    """Train on one thread; `clip` is called with the parameters before each step. Returns the model."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        creator.seed_all(creator.make_seed(seed, 0))
        module = model(config or {})
        creator.seed_all(creator.make_seed(seed, 1))
        stepper = optimizer(module, config or {})
        schedule = None if scheduler is None else scheduler(stepper, config or {})
        for epoch in range(epochs):
            module.train()
            for step, (x, y) in enumerate(batches(data, batch_size, seed, epoch)):
                creator.seed_all(_native.lane_seed("model", seed, epoch, step, 0))
                stepper.zero_grad()
                loss(module(x), y).backward()
                if clip is not None:
                    clip(list(module.parameters()))
                stepper.step()
                if schedule is not None and per_batch:
                    schedule.step()
            if schedule is not None and not per_batch:
                schedule.step()
        return module
    finally:
        torch.set_num_threads(threads)


def same_bits(weights, others):
    """Names of the tensors that differ, in bits or in type."""
    assert weights.keys() == others.keys()
    return [
        name
        for name, value in weights.items()
        if value.dtype != others[name].dtype or not torch.equal(value, others[name])
    ]


def assert_close(weights, others, rtol=1e-4, atol=1e-5):
    """All tensors are equal to rounding."""
    assert weights.keys() == others.keys()
    for name, value in weights.items():
        torch.testing.assert_close(
            value, others[name], rtol=rtol, atol=atol, msg=lambda m, n=name: f"{n}: {m}"
        )
