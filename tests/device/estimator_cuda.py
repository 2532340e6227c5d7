"""Check the Estimator on a GPU, alone and shared by two workers: `python tests/device/estimator_cuda.py`."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

import grampus as gp

ROWS = 512


def rows():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, 16, generator=generator)
    return {"x": x, "y": (x[:, 0] * x[:, 1] > 0).long() + (x[:, 2] > 0.5).long()}


class Net(nn.Module):
    """Says where it is."""

    def __init__(self, config=None):
        super().__init__()
        norm = nn.BatchNorm1d(64) if (config or {}).get("norm") else nn.Identity()
        self.layers = nn.Sequential(nn.Linear(16, 64), norm, nn.ReLU(), nn.Linear(64, 3))

    def forward(self, x):
        assert x.is_cuda or not torch.cuda.is_available() or os.environ.get("ON_CPU"), (
            "a batch is on the host"
        )
        return self.layers(x)


def adam(model, config):
    return torch.optim.Adam(model.parameters(), lr=config.get("lr", 0.01))


def estimator(**other):
    given = {"model": Net, "optimizer": adam, "loss": nn.CrossEntropyLoss(), "seed": 1}
    given["metrics"] = [gp.metrics.Accuracy()]
    return gp.Estimator.from_torch(**{**given, **other})


def close(one, other, within):
    both = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return max((a.float() - b.float()).abs().max().item() for a, b in both) <= within


def trained(epochs=3, data=None, **other):
    own = estimator(**other)
    return own, own.fit(rows() if data is None else data, epochs=epochs, batch_size=64)


def on_cpu(config):
    os.environ["ON_CPU"] = "1"
    return Net(config)


def placement():
    own, history = trained(workers=1)
    host, expected = trained(workers=1, model=on_cpu, device="cpu")
    assert close(own, host, 1e-3), "a GPU learns something else"
    assert abs(history["loss"][-1] - expected["loss"][-1]) < 1e-3
    assert abs(history["accuracy"][-1] - expected["accuracy"][-1]) < 0.01
    assert {value.device.type for value in own.state_dict().values()} == {"cpu"}


class Looks(gp.callbacks.Callback):
    """Asks for each loss, so that none comes late."""

    def __init__(self):
        self.losses = []

    def on_step_end(self, run):
        self.losses.append(run.loss)


def losses_that_come_late():
    _, late = trained(workers=1)
    looks = Looks()
    own = estimator(workers=1)
    now = own.fit(rows(), epochs=3, batch_size=64, callbacks=[looks])
    assert late["loss"] == now["loss"] and late["accuracy"] == now["accuracy"]
    assert len(looks.losses) == 3 * 8
    assert (
        sum(looks.losses[-8:]) / 8 == now["loss"][-1]
        or abs(sum(looks.losses[-8:]) / 8 - now["loss"][-1]) < 1e-6
    )


def two_workers_on_one_gpu():
    one, _ = trained(workers=1)
    both, history = trained(workers=2)
    accumulated, _ = trained(workers=1, lanes=2)
    assert close(one, both, 1e-3) and close(one, accumulated, 1e-3)
    assert history["samples"] == [ROWS] * 3


def batch_norm_of_lanes():
    both, _ = trained(workers=2, config={"norm": True})
    accumulated, _ = trained(workers=1, lanes=2, config={"norm": True})
    assert close(both, accumulated, 1e-3), "statistics are lane 0's on both"


def half_precision():
    for precision in ("bf16", "fp16"):
        for workers in (1, 2):
            own, history = trained(workers=workers, precision=precision, epochs=4)
            assert history["loss"][-1] < history["loss"][0]
            assert {value.dtype for value in own.state_dict().values()} == {torch.float32}
            expected = {"bf16": torch.bfloat16, "fp16": torch.float16}[precision]
            assert own.predict(rows()["x"][:8]).dtype == expected


def answers():
    own, _ = trained(workers=2)
    found = own.evaluate(rows(), batch_size=100)
    model = own.get_model()
    os.environ["ON_CPU"] = "1"
    output = model(rows()["x"]).detach()
    assert found["num_samples"] == ROWS
    assert abs(found["accuracy"] - (output.argmax(1) == rows()["y"]).float().mean().item()) < 0.01
    assert torch.allclose(own.predict(rows()["x"]), output, atol=1e-3)


def going_on():
    with tempfile.TemporaryDirectory() as folder:
        saved = estimator(workers=1, precision="fp16")
        saved.fit(rows(), epochs=4, batch_size=64, checkpoint=f"{folder}/a", max_steps=12)
        later = estimator(workers=1, precision="fp16")
        later.fit(rows(), epochs=4, batch_size=64, checkpoint=f"{folder}/a", resume=True)
        straight, _ = trained(workers=1, precision="fp16", epochs=4)
        assert close(later, straight, 5e-3)
        host = estimator(workers=1, model=on_cpu, device="cpu").load(f"{folder}/a")
        assert close(host, later, 0.0)


class Gan(gp.TrainingOperator):
    def train_batch(self, batch, batch_info):
        (generator, judge), (of_generator, of_judge) = self.models, self.optimizers
        real = batch["x"]
        assert real.is_cuda and self.use_gpu
        fake = generator(torch.randn(len(real), 16, device=self.device))
        of_judge.zero_grad()
        judged = (
            nn.functional.softplus(-judge(real)).mean() + nn.functional.softplus(judge(fake.detach())).mean()
        )
        self.backward(judged)
        of_judge.step()
        of_generator.zero_grad()
        made = nn.functional.softplus(-judge(fake)).mean()
        self.backward(made)
        of_generator.step()
        return {"loss_g": made.item(), "loss_d": judged.item(), "num_samples": len(real)}


def operators():
    for precision in (None, "fp16"):
        own = estimator(
            model=lambda config: [nn.Linear(16, 16), nn.Linear(16, 1)],
            optimizer=lambda models, config: [adam(model, config) for model in models],
            loss=None,
            metrics=None,
            training_operator_cls=Gan,
            workers=2,
            precision=precision,
        )
        history = own.fit({"x": rows()["x"]}, epochs=2, batch_size=64)
        assert history[-1]["loss_d"] > 0


class Deadly(Net):
    """Dies once, in the midst of a run."""

    def __init__(self, config):
        super().__init__()
        self.place = Path(config["place"])
        self.seen = 0

    def forward(self, x):
        self.seen += self.training
        if self.seen == 10 and gp.rank() == 1 and not self.place.exists():
            self.place.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(x)


def a_worker_that_is_killed():
    with tempfile.TemporaryDirectory() as folder:
        own, history = trained(workers=2, model=Deadly, config={"place": f"{folder}/died"})
        assert Path(folder, "died").exists() and history["samples"] == [ROWS] * 3
        calm, _ = trained(workers=2)
        assert close(own, calm, 1e-3)


def convolutions(config):
    net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 36, 3))
    net = net.to(memory_format=torch.channels_last)
    return torch.compile(net) if config.get("compiled") else net


def compiled_and_channels_last():
    data = {"x": torch.randn(64, 3, 8, 8), "y": torch.arange(64) % 3}
    found = [
        trained(workers=1, model=convolutions, config={"compiled": c}, data=data)[0] for c in (False, True)
    ]
    assert close(*found, 5e-3)


def loaders_and_streams():
    data = rows()
    pairs = torch.utils.data.TensorDataset(data["x"], data["y"])
    loader = torch.utils.data.DataLoader(pairs, batch_size=64, num_workers=2, shuffle=True)
    own = estimator(workers=1)
    history = own.fit(loader, epochs=2, batch_size=None)
    assert history["samples"] == [ROWS] * 2 and history["loss"][1] < history["loss"][0]


def losses_that_are_no_mean_over_rows():
    """Labels that do not count lie in some lanes more than in others; one process has the whole batch."""
    x, y = rows()["x"], rows()["y"]
    y[:30] = -100
    pairs = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=40)
    weight = torch.tensor([1.0, 5.0, 0.2])
    for options in ({"reduction": "sum"}, {"weight": weight}, {}):
        torch.manual_seed(3)
        plain = nn.Linear(16, 3)
        own = gp.Estimator.from_torch(
            model=nn.Linear(16, 3),
            optimizer=lambda model, config: torch.optim.SGD(model.parameters(), lr=0.01),
            loss=nn.CrossEntropyLoss(**options),
        )
        own.load_state_dict(plain.state_dict())
        own.fit(pairs, epochs=2, batch_size=None)
        plain.cuda()
        sgd, loss = torch.optim.SGD(plain.parameters(), lr=0.01), nn.CrossEntropyLoss(**options).cuda()
        for _ in range(2):
            for features, labels in pairs:
                sgd.zero_grad()
                loss(plain(features.cuda()), labels.cuda()).backward()
                sgd.step()
        assert close(own, plain.cpu(), 1e-4)


def torch_distributed():
    own, _ = trained(workers=1, backend="torch_distributed")
    assert close(own, trained(workers=1)[0], 1e-3)


CHECKS = [
    placement,
    losses_that_come_late,
    two_workers_on_one_gpu,
    batch_norm_of_lanes,
    half_precision,
    answers,
    going_on,
    operators,
    a_worker_that_is_killed,
    loaders_and_streams,
    losses_that_are_no_mean_over_rows,
    torch_distributed,
    compiled_and_channels_last,
]


def main():
    if not torch.cuda.is_available():
        sys.exit("there is no GPU here")
    print(torch.cuda.get_device_name(), "torch", torch.__version__, flush=True)
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        gp.init(workers=2)
        for check in CHECKS:
            began = time.perf_counter()
            try:
                check()
            except Exception as error:
                failed.append(check.__name__)
                print(f"FAILED {check.__name__}: {type(error).__name__}: {error}", flush=True)
            else:
                print(f"ok {check.__name__} ({time.perf_counter() - began:.1f} s)", flush=True)
        gp.stop()
    sys.exit(f"{len(failed)} failed" if failed else 0)


if __name__ == "__main__":
    main()
