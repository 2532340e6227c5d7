"""Writes what the tests expect: results of torch.optim, and of NumPy where PyTorch has no such optimizer.

Run it with torch: it writes expected.json beside the optimizers and the schedules of crates/grampus-native.
"""

import json
import math
import warnings
from pathlib import Path

import numpy as np
import torch
from torch.optim import lr_scheduler

HERE = Path(__file__).parents[2] / "crates" / "grampus-native"
SIZES = [3, 10, 20]
STEPS = 20
SEED = 7

CASES = [
    ("sgd", {"kind": "Sgd", "lr": 0.1}),
    ("sgd with decay", {"kind": "Sgd", "lr": 0.1, "weight_decay": 0.1}),
    (
        "sgd with momentum",
        {"kind": "Sgd", "lr": 0.05, "momentum": 0.9, "dampening": 0.25, "weight_decay": 0.01},
    ),
    (
        "sgd with nesterov",
        {"kind": "Sgd", "lr": 0.05, "momentum": 0.8, "nesterov": True, "weight_decay": 0.01},
    ),
    ("adam", {"kind": "Adam"}),
    ("adam with decay", {"kind": "Adam", "lr": 0.02, "betas": [0.8, 0.95], "eps": 1e-6, "weight_decay": 0.1}),
    ("amsgrad", {"kind": "Adam", "lr": 0.02, "betas": [0.5, 0.7], "amsgrad": True}),
    ("adamw", {"kind": "AdamW"}),
    (
        "adamw with amsgrad",
        {"kind": "AdamW", "lr": 0.03, "betas": [0.7, 0.6], "weight_decay": 0.2, "amsgrad": True},
    ),
    ("adagrad", {"kind": "Adagrad"}),
    (
        "adagrad with all",
        {
            "kind": "Adagrad",
            "lr": 0.1,
            "lr_decay": 0.05,
            "weight_decay": 0.1,
            "initial_accumulator_value": 0.3,
            "eps": 1e-3,
        },
    ),
    ("adadelta", {"kind": "Adadelta"}),
    ("adadelta with all", {"kind": "Adadelta", "lr": 0.7, "rho": 0.8, "eps": 1e-3, "weight_decay": 0.1}),
    ("adamax", {"kind": "Adamax"}),
    (
        "adamax with all",
        {"kind": "Adamax", "lr": 0.05, "betas": [0.6, 0.8], "eps": 1e-4, "weight_decay": 0.1},
    ),
    ("rmsprop", {"kind": "RmsProp"}),
    (
        "rmsprop with momentum",
        {"kind": "RmsProp", "lr": 0.02, "alpha": 0.9, "momentum": 0.8, "weight_decay": 0.1},
    ),
    ("rmsprop centered", {"kind": "RmsProp", "lr": 0.02, "alpha": 0.9, "eps": 1e-3, "centered": True}),
    ("rmsprop with all", {"kind": "RmsProp", "lr": 0.01, "alpha": 0.8, "momentum": 0.5, "centered": True}),
    ("ftrl", {"kind": "Ftrl", "lr": 0.2}),
    (
        "ftrl with all",
        {
            "kind": "Ftrl",
            "lr": 0.1,
            "learning_rate_power": -0.7,
            "initial_accumulator_value": 0.4,
            "l1": 0.6,
            "l2": 0.1,
            "l2_shrinkage": 0.2,
        },
    ),
    ("lamb", {"kind": "Lamb", "lr": 0.02}),
    ("lamb with all", {"kind": "Lamb", "lr": 0.05, "betas": [0.8, 0.9], "eps": 1e-4, "weight_decay": 0.1}),
]
GROUPS = [{"tensors": [1], "lr_factor": 0.1, "weight_decay": 0.3}, {"tensors": [2], "lr_factor": 2.0}]
MORE = [
    ("clipped by norm", {"kind": "Sgd", "lr": 0.1, "momentum": 0.5}, {"clip_norm": 0.75}),
    ("clipped by value", {"kind": "Adam", "lr": 0.01}, {"clip_value": 0.5}),
    ("groups of sgd", {"kind": "Sgd", "lr": 0.05, "momentum": 0.5, "weight_decay": 0.1}, {"groups": GROUPS}),
    ("groups of adamw", {"kind": "AdamW", "lr": 0.01}, {"groups": GROUPS}),
]
TORCH = {
    "Sgd": torch.optim.SGD,
    "Adam": torch.optim.Adam,
    "AdamW": torch.optim.AdamW,
    "Adagrad": torch.optim.Adagrad,
    "Adadelta": torch.optim.Adadelta,
    "Adamax": torch.optim.Adamax,
    "RmsProp": torch.optim.RMSprop,
}


def numbers():
    """Initial parameters and gradients that both precisions hold exactly."""
    generator = torch.Generator().manual_seed(SEED)

    def draw():
        return [
            (torch.randn(size, generator=generator, dtype=torch.float64) * 1024).round() / 1024
            for size in SIZES
        ]

    return draw(), [draw() for _ in range(STEPS)]


def flat(tensors):
    return [float(number) for tensor in tensors for number in tensor]


def by_torch(settings, more, start, gradients, dtype):
    parameters = [torch.nn.Parameter(tensor.to(dtype, copy=True)) for tensor in start]
    options = {key: value for key, value in settings.items() if key != "kind"}
    if "betas" in options:
        options["betas"] = tuple(options["betas"])
    groups = [{"params": [parameter]} for parameter in parameters]
    optimizer = TORCH[settings["kind"]](groups, **options)
    for group in more.get("groups", []):
        for tensor in group["tensors"]:
            of_torch = optimizer.param_groups[tensor]
            of_torch["lr"] *= group["lr_factor"]
            of_torch["weight_decay"] = group.get("weight_decay", of_torch["weight_decay"])
    for gradient in gradients:
        for parameter, value in zip(parameters, gradient, strict=False):
            parameter.grad = value.to(dtype, copy=True)
        if "clip_norm" in more:
            torch.nn.utils.clip_grad_norm_(parameters, more["clip_norm"])
        if "clip_value" in more:
            torch.nn.utils.clip_grad_value_(parameters, more["clip_value"])
        optimizer.step()
    states = [optimizer.state[parameter] for parameter in parameters]
    names = [name for name, value in states[0].items() if name != "step" and value is not None]
    slots = {name: flat(state[name] for state in states) for name in names}
    return flat(parameter.detach() for parameter in parameters), slots


def ftrl(settings, start, gradients, dtype):
    rate, power = dtype(settings["lr"]), dtype(-settings.get("learning_rate_power", -0.5))
    l1, l2, shrinkage = (dtype(settings.get(name, 0.0)) for name in ("l1", "l2", "l2_shrinkage"))
    weights = np.concatenate([tensor.numpy() for tensor in start]).astype(dtype)
    total = np.full_like(weights, settings.get("initial_accumulator_value", 0.1))
    linear = np.zeros_like(weights)
    for gradient in gradients:
        g = np.concatenate([tensor.numpy() for tensor in gradient]).astype(dtype)
        new_total = total + g**2
        sigma = (new_total**power - total**power) / rate
        linear = linear + g + 2 * shrinkage * weights - sigma * weights
        quadratic = new_total**power / rate + 2 * l2
        weights = np.where(np.abs(linear) > l1, (np.sign(linear) * l1 - linear) / quadratic, dtype(0))
        total = new_total
    return weights.tolist(), {"accumulator": total.tolist(), "linear": linear.tolist()}


def lamb(settings, start, gradients, dtype):
    beta1, beta2 = settings.get("betas", [0.9, 0.999])
    eps, decay = settings.get("eps", 1e-6), settings.get("weight_decay", 0.0)
    weights = [tensor.numpy().astype(dtype) for tensor in start]
    means = [np.zeros_like(tensor) for tensor in weights]
    squares = [np.zeros_like(tensor) for tensor in weights]
    for step, gradient in enumerate(gradients, 1):
        for at, tensor in enumerate(gradient):
            g = tensor.numpy().astype(dtype)
            means[at] = dtype(beta1) * means[at] + dtype(1 - beta1) * g
            squares[at] = dtype(beta2) * squares[at] + dtype(1 - beta2) * g * g
            mean = means[at] / dtype(1 - beta1**step)
            square = squares[at] / dtype(1 - beta2**step)
            direction = mean / (np.sqrt(square) + dtype(eps)) + dtype(decay) * weights[at]
            trust = np.linalg.norm(weights[at].astype(np.float64)) / np.linalg.norm(
                direction.astype(np.float64)
            )
            weights[at] = weights[at] - dtype(settings["lr"] * trust) * direction
    return flat(weights), {"exp_avg": flat(means), "exp_avg_sq": flat(squares)}


def run(settings, more, start, gradients, precise):
    if settings["kind"] in TORCH:
        return by_torch(settings, more, start, gradients, torch.float64 if precise else torch.float32)
    rule = {"Ftrl": ftrl, "Lamb": lamb}[settings["kind"]]
    return rule(settings, start, gradients, np.float64 if precise else np.float32)


def optimizers():
    start, gradients = numbers()
    cases = []
    for name, settings, more in [(*case, {}) for case in CASES] + MORE:
        double, slots = run(settings, more, start, gradients, True)
        single, _ = run(settings, more, start, gradients, False)
        assert all(map(math.isfinite, double + single)), name
        cases.append(
            {"name": name, "optimizer": settings, **more, "double": double, "single": single, "slots": slots}
        )
    return {"sizes": SIZES, "start": flat(start), "gradients": [flat(g) for g in gradients], "cases": cases}


def rates(make, steps, base=0.1):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=base)
    schedule = make(optimizer)
    found = []
    for _ in range(steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return found


def plateau(scores, base=0.1, **options):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=base)
    schedule = lr_scheduler.ReduceLROnPlateau(optimizer, threshold_mode="abs", **options)
    found = []
    for score in scores:
        schedule.step(score)
        found.append(optimizer.param_groups[0]["lr"])
    return found


def warmed(optimizer, steps, then):
    line = lr_scheduler.LinearLR(optimizer, start_factor=1 / steps, end_factor=1.0, total_iters=steps - 1)
    return lr_scheduler.SequentialLR(optimizer, [line, then(optimizer)], milestones=[steps])


_STEP = {"kind": "Step", "step_size": 4, "gamma": 0.5}
# What torch has too, and how it is made there.
SCHEDULES = [
    (_STEP, lambda o: lr_scheduler.StepLR(o, 4, gamma=0.5)),
    (
        {"kind": "MultiStep", "step_sizes": [3, 5, 11], "gamma": 0.3},
        lambda o: lr_scheduler.MultiStepLR(o, [3, 5, 11], gamma=0.3),
    ),
    (
        {"kind": "Exponential", "decay_step": 1, "decay_rate": 0.9},
        lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    ),
    (
        {"kind": "Poly", "power": 0.7, "max_iteration": 15},
        lambda o: lr_scheduler.PolynomialLR(o, 15, power=0.7),
    ),
    (
        {"kind": "Cosine", "total": 19, "floor": 0.01},
        lambda o: lr_scheduler.CosineAnnealingLR(o, 19, eta_min=0.01),
    ),
    (
        {"kind": "OneCycle", "max_lr": 0.7, "total_steps": 20},
        lambda o: lr_scheduler.OneCycleLR(o, 0.7, total_steps=20, cycle_momentum=False),
    ),
    (
        {
            "kind": "OneCycle",
            "max_lr": 0.7,
            "total_steps": 20,
            "pct_start": 0.0,
            "div_factor": 4.0,
            "final_div_factor": 9.0,
        },
        lambda o: lr_scheduler.OneCycleLR(
            o,
            0.7,
            total_steps=20,
            pct_start=0.0,
            div_factor=4.0,
            final_div_factor=9.0,
            cycle_momentum=False,
        ),
    ),
    (
        {"kind": "WarmUp", "steps": 5, "then": _STEP},
        lambda o: warmed(o, 5, lambda o: lr_scheduler.StepLR(o, 4, gamma=0.5)),
    ),
    (
        {"kind": "WarmUp", "steps": 5, "then": {"kind": "Cosine", "total": 15}},
        lambda o: warmed(o, 5, lambda o: lr_scheduler.CosineAnnealingLR(o, 15)),
    ),
]
SCORES = [1.0, 0.9, 0.9, 0.95, 0.899, 0.898, 0.9, 0.9, 0.9, 0.2]
SCORES += [0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.1995, 0.1, 0.2, 0.2]
PLATEAUS = [
    {"factor": 0.5, "patience": 0},
    {"factor": 0.5, "patience": 2, "cooldown": 0},
    {"factor": 0.1, "patience": 1, "cooldown": 3, "epsilon": 0.01},
    {"factor": 0.25, "patience": 1, "mode": "max", "min_lr": 0.002},
]


def schedules():
    cases = [{"schedule": settings, "rates": rates(make, 20)} for settings, make in SCHEDULES]
    plateaus = []
    for option in PLATEAUS:
        torch_option = {("threshold" if key == "epsilon" else key): value for key, value in option.items()}
        plateaus.append({"plateau": {"monitor": "loss", **option}, "rates": plateau(SCORES, **torch_option)})
    return {"base": 0.1, "cases": cases, "scores": SCORES, "plateaus": plateaus}


def write(path, found):
    """One line for each case."""

    def lines(rows):
        return "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]"

    def of_rows(value):
        return isinstance(value, list) and isinstance(value[0], (dict, list))

    texts = [
        f"{json.dumps(key)}: {(lines if of_rows(value) else json.dumps)(value)}"
        for key, value in found.items()
    ]
    path.write_text("{\n" + ",\n".join(texts) + "\n}\n")
    assert json.loads(path.read_text()) == found


warnings.simplefilter("ignore")
torch.set_num_threads(1)
write(HERE / "src/optim/expected.json", optimizers())
write(HERE / "src/schedule/expected.json", schedules())
