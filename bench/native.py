"""How fast the native engine is on one thread, beside PyTorch in the same process.

Blocks of steps of both take turns; a figure is the CPU milliseconds of one step, the median of its blocks,
and a ratio the median over pairs of blocks. step: forward, cross entropy, backward and SGD with momentum, 64
rows. answer: forward alone, with 1 and 64 rows.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable

from harness import machine, parse, version

ASKED_STEP = {"lenet": 0.55, "mlp": 0.85, "conv net": 1.15, "resnet-18": 1.4}
ASKED_ANSWER = 0.7
SHAPES = {"lenet": (1, 28, 28), "mlp": (784,), "conv net": (3, 32, 32), "resnet-18": (3, 32, 32)}
ROWS = 64
# Seconds of a block.
BLOCK = 0.4


def ours(name: str) -> object:
    from grampus import models, nn

    if name == "lenet":
        return models.lenet()
    if name == "mlp":
        return models.mlp(784, 512, 256, 10)
    if name == "resnet-18":
        return models.resnet18()
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(64, 128, 3, stride=2, padding=1), nn.ReLU(), nn.GlobalAvgPool(), nn.Linear(128, 10),
    )  # fmt: skip


def theirs(name: str) -> object:
    from torch import nn

    class Block(nn.Module):
        def __init__(self, before: int, size: int, stride: int) -> None:
            super().__init__()
            self.one = nn.Conv2d(before, size, 3, stride, 1, bias=False)
            self.norm_one = nn.BatchNorm2d(size)
            self.two = nn.Conv2d(size, size, 3, 1, 1, bias=False)
            self.norm_two = nn.BatchNorm2d(size)
            self.down = None
            if stride != 1 or before != size:
                conv = nn.Conv2d(before, size, 1, stride, bias=False)
                self.down = nn.Sequential(conv, nn.BatchNorm2d(size))

        def forward(self, x: object) -> object:
            inner = self.norm_one(self.one(x)).relu_()
            inner = self.norm_two(self.two(inner))
            return (inner + (x if self.down is None else self.down(x))).relu_()

    if name == "lenet":
        return nn.Sequential(
            nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
        )  # fmt: skip
    if name == "mlp":
        return nn.Sequential(
            nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10)
        )
    if name == "conv net":
        return nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(64, 128, 3, stride=2, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            nn.Linear(128, 10),
        )  # fmt: skip
    blocks = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1)]
    blocks += [(128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1)]
    stem = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    return nn.Sequential(
        *stem, *(Block(*each) for each in blocks), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)
    )


def contenders(name: str, total: int) -> dict[str, dict[str, Callable[[], object]]]:
    """What each does: in a worker, because gradients lie in the memory of a group."""
    import numpy as np
    import torch

    from grampus import _native, collective

    torch.set_num_threads(1)
    random = np.random.default_rng(0)
    x = random.standard_normal((total, *SHAPES[name]), dtype=np.float32)
    y = random.integers(0, 10, total)
    model = _native.NativeModel(
        json.dumps(ours(name).description()), 1, 1, False,
        '{"kind": "CrossEntropy"}', '{"kind": "Sgd", "lr": 0.01, "momentum": 0.9}',
    )  # fmt: skip
    group = collective.world()._native
    gradients = _native.Gradients(group, (0, 1), 1, model.parameters())
    batch = ([x], y.astype(np.float32), total)

    def step() -> None:
        loss = model.train(gradients, 0, batch, 1.0, 1)
        gradients.end(loss, 0.0, False)
        gradients.finish()
        model.update(gradients, 0.01, group)

    module, loss_of = theirs(name), torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)
    rows, labels = torch.from_numpy(x), torch.from_numpy(y)

    def torch_step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss_of(module(rows), labels).backward()
        optimizer.step()

    def torch_answer(count: int) -> None:
        module.eval()
        with torch.inference_mode():
            module(rows[:count])
        module.train()

    found = {"step": {"grampus": step, "torch": torch_step}}
    if name in ("lenet", "mlp"):
        for count in (1, total):
            found[f"answer {count}"] = {
                "grampus": lambda count=count: model.predict([x[:count]], count),
                "torch": lambda count=count: torch_answer(count),
            }
    return found


def calls_within(seconds: float, call: Callable[[], object]) -> int:
    """How many calls fill a block; one where it has no length, as in a smoke run, without a try."""
    if not seconds:
        return 1
    call()
    began = time.process_time()
    call()
    return max(1, int(seconds / max(time.process_time() - began, 1e-6)))


def measured(name: str, rounds: int, rows: int, block: float) -> dict[str, dict[str, list[float]]]:
    """CPU milliseconds of one call, for each block."""
    results = {}
    for what, both in contenders(name, rows).items():
        counts = {who: calls_within(block, call) for who, call in both.items()}
        blocks: dict[str, list[float]] = {who: [] for who in both}
        uncounted = 1 if block else 0
        for turn in range(uncounted + rounds):
            for who, call in both.items():
                began = time.process_time()
                for _ in range(counts[who]):
                    call()
                if turn >= uncounted:
                    blocks[who].append((time.process_time() - began) / counts[who] * 1e3)
        results[what] = blocks
    return results


def main() -> int:
    import grampus as gp

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    options = parse(parser, rounds=1)
    work = (1, 0.0) if options.smoke else (ROWS, BLOCK)
    here = machine()
    print(f"{here['cpu']}, {here['cores']} cores, load {here['load']}, {here['when']}")
    print(f"grampus {version('grampus')}, torch {version('torch')}; CPU ms of a step, one thread")
    print(f"{'':24}{'grampus':>9}{'torch':>9}  grampus ÷ torch")
    for name in options.only:
        with gp.init(1):
            [found] = gp.run(measured, name, options.rounds, *work)
        for what, blocks in found.items():
            ratio = statistics.median(a / b for a, b in zip(blocks["grampus"], blocks["torch"], strict=True))
            asked = ASKED_STEP[name] if what == "step" else ASKED_ANSWER
            middle = {who: statistics.median(values) for who, values in blocks.items()}
            verdict = "met" if ratio <= asked else "missed"
            label = f"{name}, {what}"
            print(
                f"{label:24}{middle['grampus']:9.3f}{middle['torch']:9.3f}  {ratio:.2f}  ≤ {asked} {verdict}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
