"""Layers and losses of the native engine beside PyTorch's: the same weights and rows, the same numbers."""

import json

import numpy as np
import pytest
import torch
from torch import nn as tnn

from grampus import _native, nn

ROWS = 3
# Layers of torch draw their weights here, once.
torch.manual_seed(0)


class Side:
    """A native model that is asked for numbers only, for one dtype."""

    def __init__(self, model, dtype=np.float64, loss=None):
        self.dtype = dtype
        text = json.dumps(model.description())
        loss = None if loss is None else json.dumps(loss.description())
        self.native = _native.NativeModel(text, 1, 1, dtype == np.float64, loss)

    def weights(self):
        return {
            name: np.frombuffer(data, self.dtype).reshape(shape)
            for name, (data, shape) in self.native.weights()
        }

    def load(self, weights):
        named = [(name, np.ascontiguousarray(value, self.dtype)) for name, value in weights.items()]
        self.native.set_weights(named)

    def predict(self, *inputs):
        arrays = [np.ascontiguousarray(each, self.dtype) for each in inputs]
        [(data, shape)] = self.native.predict(arrays, len(arrays[0]))
        return np.frombuffer(data, self.dtype).reshape(shape)


class Turned(tnn.Module):
    """A recurrent layer of torch whose last step, or all of them, comes out."""

    def __init__(self, layer, sequences):
        super().__init__()
        self.layer, self.sequences = layer, sequences

    def forward(self, x):
        found = self.layer(x)[0]
        return found if self.sequences else found[:, -1]


class Looking(tnn.Module):
    def __init__(self, size, heads, causal):
        super().__init__()
        self.layer = tnn.MultiheadAttention(size, heads, batch_first=True)
        self.causal = causal

    def forward(self, x):
        mask = None
        if self.causal:
            mask = torch.triu(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool), 1)
        return self.layer(x, x, x, attn_mask=mask, need_weights=False)[0]


CASES = {
    "linear": (nn.Linear(5, 7), tnn.Linear(5, 7), (5,)),
    "linear of series": (nn.Linear(5, 2, bias=False), tnn.Linear(5, 2, bias=False), (4, 5)),
    "conv2d": (nn.Conv2d(3, 8, 3, padding=1), tnn.Conv2d(3, 8, 3, padding=1), (3, 9, 7)),
    "conv2d, strides": (
        nn.Conv2d(4, 6, (3, 5), stride=(2, 3), padding=(1, 2), groups=2),
        tnn.Conv2d(4, 6, (3, 5), stride=(2, 3), padding=(1, 2), groups=2),
        (4, 11, 12),
    ),
    "conv2d, dilated": (
        nn.Conv2d(2, 12, 3, dilation=2, bias=False),
        tnn.Conv2d(2, 12, 3, dilation=2, bias=False),
        (2, 8, 9),
    ),
    "depthwise": (nn.Conv2d(6, 6, 3, groups=6), tnn.Conv2d(6, 6, 3, groups=6), (6, 5, 5)),
    "conv1d": (nn.Conv1d(3, 4, 3, stride=2, padding=1), tnn.Conv1d(3, 4, 3, stride=2, padding=1), (3, 10)),
    "transposed": (
        nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1),
        tnn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1),
        (3, 4, 5),
    ),
    "max pool": (nn.MaxPool2d(2), tnn.MaxPool2d(2), (2, 7, 6)),
    "max pool, padded": (nn.MaxPool2d(3, 2, 1), tnn.MaxPool2d(3, 2, 1), (2, 7, 6)),
    "mean pool": (nn.AvgPool2d(3, 2, 1), tnn.AvgPool2d(3, 2, 1), (2, 7, 6)),
    "adaptive pool": (nn.AdaptiveAvgPool2d((3, 2)), tnn.AdaptiveAvgPool2d((3, 2)), (2, 7, 5)),
    "batch norm": (nn.BatchNorm2d(4), tnn.BatchNorm2d(4), (4, 3, 5)),
    "layer norm": (nn.LayerNorm([2, 5]), tnn.LayerNorm([2, 5]), (3, 2, 5)),
    "relu": (nn.ReLU(), tnn.ReLU(), (9,)),
    "leaky relu": (nn.LeakyReLU(0.1), tnn.LeakyReLU(0.1), (9,)),
    "elu": (nn.ELU(0.5), tnn.ELU(0.5), (9,)),
    "gelu": (nn.GELU(), tnn.GELU(), (9,)),
    "gelu, tanh": (nn.GELU("tanh"), tnn.GELU("tanh"), (9,)),
    "silu": (nn.SiLU(), tnn.SiLU(), (9,)),
    "sigmoid": (nn.Sigmoid(), tnn.Sigmoid(), (9,)),
    "tanh": (nn.Tanh(), tnn.Tanh(), (9,)),
    "softmax": (nn.Softmax(), tnn.Softmax(-1), (4, 5)),
    "log softmax": (nn.LogSoftmax(0), tnn.LogSoftmax(1), (4, 5)),
    "dropout": (nn.Dropout(0.3), tnn.Dropout(0.3), (9,)),
    "flatten": (nn.Flatten(), tnn.Flatten(), (2, 3)),
    "lstm": (nn.LSTM(3, 5), Turned(tnn.LSTM(3, 5, batch_first=True), False), (6, 3)),
    "lstm, all": (nn.LSTM(3, 5, True), Turned(tnn.LSTM(3, 5, batch_first=True), True), (6, 3)),
    "gru": (nn.GRU(3, 5), Turned(tnn.GRU(3, 5, batch_first=True), False), (6, 3)),
    "gru, all": (nn.GRU(3, 5, True), Turned(tnn.GRU(3, 5, batch_first=True), True), (6, 3)),
    "attention": (nn.MultiHeadAttention(6, 3), Looking(6, 3, False), (4, 6)),
    "encoder": (
        nn.TransformerEncoderLayer(6, 3, 10),
        tnn.TransformerEncoderLayer(6, 3, 10, batch_first=True),
        (4, 6),
    ),
    "encoder, norms first": (
        nn.TransformerEncoderLayer(6, 2, 10, activation="gelu", norm_first=True),
        tnn.TransformerEncoderLayer(6, 2, 10, activation="gelu", norm_first=True, batch_first=True),
        (4, 6),
    ),
    "causal attention": (nn.MultiHeadAttention(6, 3, True), Looking(6, 3, True), (4, 6)),
}


def moved(side, layer):
    """The weights of a torch layer, under the names of a native one."""
    found = {name.removeprefix("layer."): value for name, value in layer.state_dict().items()}
    side.load({f"0.{name}": value.double().numpy() for name, value in found.items()})


@pytest.mark.parametrize("dtype, near", [(np.float64, 1e-12), (np.float32, 2e-5)], ids=["double", "single"])
@pytest.mark.parametrize("case", CASES)
def test_a_layer_answers_as_in_pytorch(case, dtype, near):
    ours, theirs, shape = CASES[case]
    theirs = theirs.double().eval()
    side = Side(nn.Sequential(ours), dtype)
    moved(side, theirs)
    x = np.random.default_rng(0).standard_normal((ROWS, *shape))
    with torch.no_grad():
        wanted = theirs(torch.from_numpy(x.astype(dtype)).double()).numpy()
    np.testing.assert_allclose(side.predict(x), wanted, rtol=near, atol=near)


@pytest.mark.parametrize("case", CASES)
def test_first_weights_are_drawn_as_in_pytorch(case):
    ours, theirs, _ = CASES[case]
    found = Side(nn.Sequential(ours)).weights()
    wanted = {f"0.{name.removeprefix('layer.')}": value for name, value in theirs.state_dict().items()}
    wanted.pop("0.num_batches_tracked", None)
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert found[name].shape == tuple(value.shape)
        # Of one distribution: as far from zero, within what chance allows for so few.
        size, far = value.numel(), float(value.abs().mean())
        assert abs(found[name]).mean() == pytest.approx(far, abs=3 * (far + 1e-12) / size**0.5)


def test_embeddings_answer_as_in_pytorch():
    theirs = tnn.Embedding(7, 3, padding_idx=2).double()
    side = Side(nn.Sequential(nn.Embedding(7, 3, padding_idx=2)))
    moved(side, theirs)
    x = np.array([[0, 2, 6], [5, 1, 2]])
    np.testing.assert_array_equal(side.predict(x), theirs(torch.from_numpy(x)).detach().numpy())


LOSSES = {
    "cross entropy": (nn.CrossEntropy(), tnn.CrossEntropyLoss(), "classes"),
    "cross entropy, weighted": (
        nn.CrossEntropy(weights=[1.0, 2.0, 0.5], label_smoothing=0.1, ignore_index=1),
        tnn.CrossEntropyLoss(torch.tensor([1.0, 2.0, 0.5]).double(), label_smoothing=0.1, ignore_index=1),
        "classes",
    ),
    "nll": (nn.NLL(), tnn.NLLLoss(), "classes"),
    "mse": (nn.MSE(), tnn.MSELoss(), "numbers"),
    "l1": (nn.L1(), tnn.L1Loss(), "numbers"),
    "smooth l1": (nn.SmoothL1(0.5), tnn.SmoothL1Loss(beta=0.5), "numbers"),
    "bce": (nn.BCE(), tnn.BCELoss(), "shares"),
    "bce with logits": (nn.BCEWithLogits(), tnn.BCEWithLogitsLoss(), "shares"),
    "kl": (nn.KL(), tnn.KLDivLoss(reduction="batchmean"), "shares"),
    "poisson": (nn.Poisson(), tnn.PoissonNLLLoss(), "shares"),
    "cosine": (nn.Cosine(), lambda x, y: (1 - tnn.functional.cosine_similarity(x, y)).mean(), "numbers"),
}


@pytest.mark.parametrize("case", LOSSES)
def test_a_loss_is_that_of_pytorch(case):
    ours, theirs, kind = LOSSES[case]
    random = np.random.default_rng(1)
    output = random.standard_normal((6, 3))
    if case == "bce":
        output = 1 / (1 + np.exp(-output))
    if kind == "classes":
        target = np.array([0, 2, 1, 2, 0, 2])
        wanted = theirs(torch.from_numpy(output), torch.from_numpy(target))
    else:
        target = random.random((6, 3)) if kind == "shares" else random.standard_normal((6, 3))
        wanted = theirs(torch.from_numpy(output), torch.from_numpy(target))
    side = Side(nn.Sequential(nn.Flatten()), loss=ours)
    found, _ = side.native.evaluate([output], target.astype(np.float64), 6)
    assert found == pytest.approx(float(wanted), rel=1e-12)
