"""Options of which a flip can be seen at once: a value that is not the default, and what comes out.

`FLIPS[callable][option]` is a pair of functions without arguments, as it is by default and flipped.
"""

import io
import json
from functools import partial

import numpy as np
import pyarrow as pa
from PIL import Image as Picture
from pyarrow import parquet

import grampus as gp
from grampus import _native, images, metrics, nn, optim

# What a layer is made with, the shape of a row, and the options.
ONE_LAYER = {
    "AvgPool2d": ((3,), (2, 7, 6), {"stride": 1, "padding": 1}),
    "MaxPool2d": ((3,), (2, 7, 6), {"stride": 1, "padding": 1}),
    "BatchNorm": ((4,), (4,), {"eps": 0.5, "momentum": 0.9}),
    "Conv1d": ((4, 4, 3), (4, 10), {"stride": 2, "padding": 1, "dilation": 2, "groups": 2, "bias": False}),
    "Conv2d": ((4, 4, 3), (4, 9, 8), {"stride": 2, "padding": 1, "dilation": 2, "groups": 2, "bias": False}),
    "ConvTranspose2d": (
        (4, 4, 3),
        (4, 5, 4),
        {"stride": 2, "padding": 1, "output_padding": 1, "groups": 2, "bias": False},
    ),
    "Dropout": ((), (4,), {"p": 0.1}),
    "ELU": ((), (9,), {"alpha": 0.5}),
    "GELU": ((), (9,), {"approximate": "tanh"}),
    "GRU": ((3, 5), (6, 3), {"return_sequences": True}),
    "LSTM": ((3, 5), (6, 3), {"return_sequences": True}),
    "LayerNorm": (([5],), (5,), {"eps": 0.5}),
    "LeakyReLU": ((), (9,), {"negative_slope": 0.5}),
    "Linear": ((5, 3), (5,), {"bias": False}),
    "LogSoftmax": ((), (4, 5), {"axis": 0}),
    "Softmax": ((), (4, 5), {"axis": 0}),
    "MultiHeadAttention": ((6, 3), (4, 6), {"causal": True}),
    "TransformerEncoderLayer": (
        (6, 3),
        (4, 6),
        {
            "dim_feedforward": 10,
            "dropout": 0.9,
            "activation": "gelu",
            "layer_norm_eps": 0.5,
            "norm_first": True,
        },
    ),
}
LOSSES = {
    "CrossEntropy": {"weights": [1.0, 5.0, 0.5], "label_smoothing": 0.5, "ignore_index": 1},
    "NLL": {"weights": [1.0, 5.0, 0.5], "ignore_index": 1},
    "SmoothL1": {"beta": 0.1},
    "Hinge": {"margin": 0.1},
}
MOMENTUM = {"momentum": 0.9}
# Options, and those that stand beside them in both.
OPTIMIZERS = {
    "SGD": {
        "lr": 0.2,
        "momentum": 0.9,
        "dampening": (0.5, MOMENTUM),
        "weight_decay": 0.1,
        "nesterov": (True, MOMENTUM),
    },
    "Adam": {"lr": 0.2, "betas": (0.5, 0.6), "eps": 0.5, "weight_decay": 0.1, "amsgrad": True},
    "AdamW": {"lr": 0.2, "betas": (0.5, 0.6), "eps": 0.5, "weight_decay": 0.5, "amsgrad": True},
    "Adamax": {"lr": 0.2, "betas": (0.5, 0.6), "eps": 0.5, "weight_decay": 0.1},
    "Adagrad": {
        "lr": 0.2,
        "lr_decay": 0.5,
        "weight_decay": 0.1,
        "initial_accumulator_value": 1.0,
        "eps": 0.5,
    },
    "Adadelta": {"lr": 0.2, "rho": 0.5, "eps": 0.5, "weight_decay": 0.1},
    "RMSprop": {
        **{"lr": 0.2, "alpha": 0.5, "eps": 0.5, "weight_decay": 0.1, "momentum": 0.9, "centered": True}
    },
    "Ftrl": {
        **{"lr": 0.2, "learning_rate_power": -0.3, "initial_accumulator_value": 1.0, "l1": 0.1, "l2": 0.5},
        "l2_shrinkage": 0.5,
    },
    "LAMB": {"lr": 0.2, "betas": (0.5, 0.6), "eps": 0.5, "weight_decay": 0.5},
}
NO_BETTER = {"patience": 0, "factor": 0.5}
SCHEDULES = {
    "Cosine": ((9,), {"floor": 0.5}),
    "Decay": ((), {"decay": 0.5}),
    "Exponential": ((3, 0.5), {"stair_case": True}),
    "OneCycle": ((1.0, 9), {"pct_start": 0.7, "div_factor": 5.0, "final_div_factor": 5.0}),
    "Plateau": (
        (),
        {
            "monitor": ("val_loss", {"patience": 0}),
            "factor": (0.9, {"patience": 0}),
            "patience": 0,
            "mode": ("max", NO_BETTER),
            "epsilon": (0.5, NO_BETTER),
            "cooldown": (3, NO_BETTER),
            "min_lr": (0.4, NO_BETTER),
        },
    ),
}


def learnt(layer, shape):
    """What one layer answers, and what a step makes of it."""
    x = np.random.default_rng(5).standard_normal((8, *shape)).astype("float32")
    model = nn.Sequential(nn.LayerNorm(list(shape)), layer)
    estimator = gp.Estimator.from_native(
        model=model, loss=nn.MSE(), optimizer=optim.SGD(lr=0.5), workers=1, seed=1
    )
    before = estimator.predict(x)
    estimator.fit({"x": x, "y": np.zeros_like(before)}, epochs=2, batch_size=4)
    return before.shape, before.tobytes(), estimator.digest()


def joined(layer):
    """What comes of a row and its double."""
    x = nn.Input()
    model = nn.Model(x, layer(x, nn.Add()(x, x)))
    estimator = gp.Estimator.from_native(model=model, workers=1)
    found = estimator.predict(np.ones((2, 2, 3), "float32"))
    return found.shape, found.tolist()


def fitted(loss, optimizer=None, **other):
    """The weights of a small model after a few steps."""
    x = np.random.default_rng(5).standard_normal((16, 4)).astype("float32")
    y = np.arange(16) % 3
    if not isinstance(loss, nn.CrossEntropy | nn.NLL):
        y = (np.eye(3)[y] * 2 - 1).astype("float32")
    model = nn.Sequential(nn.Linear(4, 3), nn.LogSoftmax())
    optimizer = optim.SGD(lr=0.5) if optimizer is None else optimizer
    estimator = gp.Estimator.from_native(
        model=model, loss=loss, optimizer=optimizer, workers=1, seed=1, **other
    )
    estimator.fit({"x": x, "y": y}, epochs=3, batch_size=4)
    return estimator.digest()


def rates(schedule):
    """Rates of some epochs of two steps, as losses fall, rise, and fall a little."""
    found = _native.Rates(json.dumps(schedule.description()), {})
    seen = []
    for epoch, loss in enumerate([1.0, 1.1, 0.99, 1.2, 0.9, 0.8, 0.85, 0.7]):
        seen += [found.at(1.0, 2 * epoch + step, epoch) for step in range(2)]
        found.observe(2 * epoch + 1, epoch, {"loss": loss, "val_loss": -loss})
    return seen


def measured(metric):
    """The value of a metric of some rows."""
    random = np.random.default_rng(4)
    meter = metrics.meter(metric)
    name = type(metric).__name__
    if name in ("HitRatio", "NDCG"):
        groups = 1 + metric._options["neg_num"]
        targets = np.zeros((20, groups))
        targets[:, 0] = 1
        meter.update(random.random((20, groups)), targets)
    elif name == "MeanAveragePrecisionObjectDetection":
        boxes = random.random((20, 6, 4)).cumsum(-1)
        kinds = random.integers(0, 3, (20, 6, 1)).astype(float)
        found = boxes + random.random(boxes.shape) * 0.3
        scores = random.random((20, 6, 1))
        meter.update(np.concatenate([kinds, scores, found], -1), np.concatenate([kinds, boxes], -1))
    elif name in ("AUC", "BinaryAccuracy") or metric._options.get("average") == "binary":
        meter.update(random.random(50), random.integers(0, 2, 50).astype(float))
    else:
        meter.update(random.random((50, 8)), random.integers(1, 8, 50))
    return meter.value()


METRICS = {
    "AUC": ((), {"threshold_num": 3}),
    "Accuracy": ((), {"zero_based_label": False}),
    "Top1Accuracy": ((), {"zero_based_label": False}),
    "Top5Accuracy": ((), {"zero_based_label": False}),
    "BinaryAccuracy": ((), {"threshold": 0.9}),
    "F1Score": ((), {"average": "macro"}),
    "Precision": ((), {"average": "macro"}),
    "Recall": ((), {"average": "macro"}),
    "HitRatio": ((), {"k": 3, "neg_num": 50}),
    "NDCG": ((), {"k": 3, "neg_num": 50}),
    "MeanAveragePrecisionObjectDetection": ((3,), {"iou": 0.9, "use_voc2007": True, "skip_class": 1}),
}


def flip(make, see, flips):
    """For each option, both sides: `make` with what stands beside it, and with the option, too."""
    pairs = {}
    for option, flipped in flips.items():
        is_pair = isinstance(flipped, tuple) and len(flipped) == 2 and isinstance(flipped[1], dict)
        value, beside = flipped if is_pair else (flipped, {})
        pairs[option] = (
            lambda beside=beside: see(make(**beside)),
            lambda option=option, value=value, beside=beside: see(make(**{**beside, option: value})),
        )
    return pairs


FLIPS = {}
for _name, (_args, _shape, _flips) in ONE_LAYER.items():
    FLIPS[f"gp.nn.{_name}"] = flip(
        partial(getattr(nn, _name), *_args),
        lambda layer, shape=_shape: learnt(layer, shape),
        _flips,
    )
FLIPS["gp.nn.Concat"] = flip(nn.Concat, joined, {"axis": 1})
for _name, _flips in LOSSES.items():
    FLIPS[f"gp.nn.{_name}"] = flip(getattr(nn, _name), fitted, _flips)
for _name, _flips in OPTIMIZERS.items():
    FLIPS[f"gp.optim.{_name}"] = flip(
        getattr(optim, _name), lambda made: fitted(nn.CrossEntropy(), made), _flips
    )
for _name, (_args, _flips) in SCHEDULES.items():
    FLIPS[f"gp.optim.{_name}"] = flip(partial(getattr(optim, _name), *_args), rates, _flips)
for _name, (_args, _flips) in METRICS.items():
    FLIPS[f"gp.metrics.{_name}"] = flip(partial(getattr(metrics, _name), *_args), measured, _flips)
FLIPS["gp.optim.Group"] = flip(
    lambda **options: optim.Group(["0"], **options),
    lambda group: fitted(nn.CrossEntropy(), groups=[group]),
    {"lr_factor": 0.5, "weight_decay": 0.5},
)
for _name, _flips in {
    "lenet": {"classes": 3},
    "resnet18": {"classes": 3},
    "mlp": {"dropout": 0.5},
    "text_classifier": {"size": 3, "hidden": 3},
}.items():
    _args = {"mlp": (4, 3, 2), "text_classifier": (9, 2)}.get(_name, ())
    FLIPS[f"gp.models.{_name}"] = flip(
        partial(getattr(gp.models, _name), *_args),
        lambda model: model.description(),
        _flips,
    )

TABLE = pa.table({"a": [3, 1, 2, 2], "b": [1.0, 2.0, 3.0, 4.0], "c": ["x", "y", "x", "z"]})


def _file(kind):
    """A file of the table's rows, or of pictures."""
    file = gp_folder() / f"rows.{kind}"
    if kind == "csv":
        file.write_text("a,b,c\n3,1.0,x\n1,2.0,y\n2,3.0,x\n")
    elif kind == "json":
        file.write_text("".join(json.dumps({"a": number}) + "\n" for number in range(6)))
    else:
        parquet.write_table(TABLE, file)
    return str(file)


FOLDER = []


def gp_folder():
    """The folder of the test that runs."""
    return FOLDER[-1]


def seen(shards):
    """How many shards there are, and what is in them."""
    return shards.num_partitions(), repr(shards.collect())


for _reader, _kind in (("read_csv", "csv"), ("read_json", "json"), ("read_parquet", "parquet")):
    FLIPS[f"gp.{_reader}"] = flip(
        lambda reader=_reader, kind=_kind, **options: getattr(gp, reader)(_file(kind), **options),
        seen,
        {"num_shards": 3, **({"index_col": "a"} if _kind == "csv" else {})},
    )
FLIPS["gp.read_parquet"] |= flip(
    lambda **options: gp.read_parquet(_file("parquet"), **options), seen, {"columns": ["b"]}
)
for _name, _value in {
    "from_arrow": lambda: TABLE,
    "from_pandas": lambda: TABLE.to_pandas(),
    "from_polars": lambda: __import__("polars").from_arrow(TABLE),
    "from_torch": lambda: [(1.0, 2.0)] * 6,
    "from_huggingface": lambda: __import__("datasets").Dataset(TABLE),
}.items():
    FLIPS[f"gp.Shards.{_name}"] = flip(
        lambda make=_name, value=_value, **options: getattr(gp.Shards, make)(value(), **options),
        seen,
        {"num_shards": 3},
    )


def _shards():
    return gp.Shards.from_arrow(TABLE, 2)


FLIPS["gp.Shards.head"] = flip(lambda **options: _shards().head(**options), repr, {"n": 1})
FLIPS["gp.Shards.describe"] = flip(lambda **options: _shards().describe(**options), repr, {"cols": "a"})
FLIPS["gp.Shards.partition_by"] = flip(
    lambda **options: _shards().partition_by("a", **options), seen, {"num_partitions": 3}
)
FLIPS["gp.Shards.partition"] = flip(
    lambda **options: gp.Shards.partition({"x": np.arange(8)}, **options), seen, {"num_shards": 3}
)


def pictures(step, seed=1):
    """What a step makes of a picture, in the order of many epochs."""
    buffer = io.BytesIO()
    Picture.fromarray(np.random.default_rng(1).integers(0, 255, (24, 32, 3), "uint8")).save(buffer, "PNG")
    steps = [step] if isinstance(step, images.RandomResizedCrop) else [step, images.Resize(8)]
    table = pa.table({"image": [buffer.getvalue()] * 32})
    loader = gp.Shards.from_arrow(table, 1).to_torch(
        32, feature_cols=gp.columns.Image("image", steps), seed=seed, threads=1
    )
    return next(iter(loader)).numpy().tobytes()


FLIPS["gp.images.RandomFlip"] = flip(images.RandomFlip, pictures, {"probability": 1.0})
FLIPS["gp.images.RandomResizedCrop"] = flip(
    lambda **options: images.RandomResizedCrop(8, **options),
    pictures,
    {"ratio": (3.0, 3.0), "scale": (0.1, 0.2)},
)
FLIPS["gp.images.RandomCrop"] = flip(
    lambda **options: images.RandomCrop(20, **options), pictures, {"padding": 4}
)
FLIPS["gp.columns.Image"] = flip(
    lambda **options: gp.columns.Image("image", **options),
    lambda step: step._described(),
    {"steps": [images.Resize(8)]},
)
