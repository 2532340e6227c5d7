"""Layers as users write them: what they do is in the engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

Pair = int | tuple[int, int]


def _pair(value: Pair) -> list[int]:
    return [value, value] if isinstance(value, int) else list(value)


class Node:
    """What a layer gives, for other layers to take: the way to models that are more than a sequence.

    >>> from grampus import nn
    >>> x = nn.Input("x")
    >>> hidden = nn.Linear(4, 4)(x)
    >>> model = nn.Model(x, nn.Add()(nn.ReLU()(hidden), x))
    """

    def __init__(self, layer: Layer | None, inputs: tuple[Node, ...], name: str | None) -> None:
        """Called by layers; an input has no layer."""
        self.layer = layer
        self.inputs = inputs
        self.name = name


def Input(name: str = "input") -> Node:  # noqa: N802 - it stands among layers
    """Something that comes into a model."""
    return Node(None, (), name)


@dataclass(frozen=True)
class Layer:
    """A layer. Call it with what it takes, or add it to a `Sequential`."""

    kind: ClassVar[str] = ""

    def settings(self) -> dict[str, Any]:
        """What the engine is told."""
        return dict(vars(self))

    def __call__(self, *inputs: Node, name: str | None = None) -> Node:
        """What this gives for what others give."""
        return Node(self, inputs, name)

    def description(self) -> dict[str, Any]:
        """As it stands in a file."""
        return {"kind": self.kind, **self.settings()}


@dataclass(frozen=True)
class Linear(Layer):
    """A product with a matrix, over the last axis."""

    in_features: int
    out_features: int
    bias: bool = True
    kind: ClassVar[str] = "Linear"


@dataclass(frozen=True)
class _Convolution(Layer):
    in_channels: int
    out_channels: int
    kernel_size: Any
    stride: Any = 1
    padding: Any = 0
    dilation: Any = 1
    groups: int = 1
    bias: bool = True


@dataclass(frozen=True)
class Conv2d(_Convolution):
    """A convolution of pictures, channels first."""

    kind: ClassVar[str] = "Conv2d"

    def settings(self) -> dict[str, Any]:
        """Sides are pairs."""
        told = dict(vars(self))
        told["kernel"] = told.pop("kernel_size")
        return told | {name: _pair(told[name]) for name in ("kernel", "stride", "padding", "dilation")}


@dataclass(frozen=True)
class Conv1d(_Convolution):
    """A convolution of series, channels first."""

    kind: ClassVar[str] = "Conv1d"

    def settings(self) -> dict[str, Any]:
        """Under the engine's names."""
        told = dict(vars(self))
        told["kernel"] = told.pop("kernel_size")
        return told


@dataclass(frozen=True)
class ConvTranspose2d(Layer):
    """A convolution the other way round, which makes pictures larger."""

    in_channels: int
    out_channels: int
    kernel_size: Pair
    stride: Pair = 1
    padding: Pair = 0
    output_padding: Pair = 0
    groups: int = 1
    bias: bool = True
    kind: ClassVar[str] = "ConvTranspose2d"

    def settings(self) -> dict[str, Any]:
        """Sides are pairs."""
        told = dict(vars(self))
        told["kernel"] = told.pop("kernel_size")
        return told | {name: _pair(told[name]) for name in ("kernel", "stride", "padding", "output_padding")}


@dataclass(frozen=True)
class _Pool(Layer):
    kernel_size: Pair
    stride: Pair | None = None
    padding: Pair = 0

    def settings(self) -> dict[str, Any]:
        """Windows lie beside each other where nothing else is said."""
        kernel = _pair(self.kernel_size)
        stride = kernel if self.stride is None else _pair(self.stride)
        return {"kernel": kernel, "stride": stride, "padding": _pair(self.padding)}


@dataclass(frozen=True)
class MaxPool2d(_Pool):
    """The greatest pixel of each window."""

    kind: ClassVar[str] = "MaxPool2d"


@dataclass(frozen=True)
class AvgPool2d(_Pool):
    """The mean of each window, in which padding counts as zeros."""

    kind: ClassVar[str] = "AvgPool2d"


@dataclass(frozen=True)
class AdaptiveAvgPool2d(Layer):
    """Means of parts that are as equal as can be."""

    output_size: Pair
    kind: ClassVar[str] = "AdaptiveAvgPool2d"

    def settings(self) -> dict[str, Any]:
        """Sides are pairs."""
        return {"output": _pair(self.output_size)}


@dataclass(frozen=True)
class GlobalAvgPool(Layer):
    """The mean of each channel."""

    kind: ClassVar[str] = "GlobalAvgPool"


@dataclass(frozen=True)
class BatchNorm(Layer):
    """Each channel over all rows of a lane, and over all pixels."""

    num_features: int
    eps: float = 1e-5
    momentum: float = 0.1
    kind: ClassVar[str] = "BatchNorm"

    def settings(self) -> dict[str, Any]:
        """Under the engine's names."""
        return {"features": self.num_features, "eps": self.eps, "momentum": self.momentum}


# PyTorch has one for each number of axes.
BatchNorm1d = BatchNorm2d = BatchNorm


@dataclass(frozen=True)
class LayerNorm(Layer):
    """Each row by itself, over its last axes."""

    normalized_shape: int | Sequence[int]
    eps: float = 1e-5
    kind: ClassVar[str] = "LayerNorm"

    def settings(self) -> dict[str, Any]:
        """The axes are a list."""
        shape = self.normalized_shape
        return {"shape": [shape] if isinstance(shape, int) else list(shape), "eps": self.eps}


@dataclass(frozen=True)
class Dropout(Layer):
    """Zeros by chance, while the model is trained."""

    p: float = 0.5
    kind: ClassVar[str] = "Dropout"


@dataclass(frozen=True)
class Embedding(Layer):
    """A vector for each of some whole numbers."""

    num_embeddings: int
    embedding_dim: int
    padding_idx: int | None = None
    kind: ClassVar[str] = "Embedding"

    def settings(self) -> dict[str, Any]:
        """Under the engine's names."""
        return {"count": self.num_embeddings, "size": self.embedding_dim, "padding": self.padding_idx}


@dataclass(frozen=True)
class ReLU(Layer):
    """Zero where it was below zero."""

    kind: ClassVar[str] = "Relu"


@dataclass(frozen=True)
class LeakyReLU(Layer):
    """Less steep below zero."""

    negative_slope: float = 0.01
    kind: ClassVar[str] = "LeakyRelu"

    def settings(self) -> dict[str, Any]:
        """Under the engine's names."""
        return {"slope": self.negative_slope}


@dataclass(frozen=True)
class ELU(Layer):
    """Bent below zero."""

    alpha: float = 1.0
    kind: ClassVar[str] = "Elu"


@dataclass(frozen=True)
class GELU(Layer):
    """`x` times how probable less than `x` is; `approximate="tanh"` is faster."""

    approximate: str = "none"
    kind: ClassVar[str] = "Gelu"

    def settings(self) -> dict[str, Any]:
        """Under the engine's names."""
        if self.approximate not in ("none", "tanh"):
            raise ValueError(f"approximate must be 'none' or 'tanh', it is {self.approximate!r}")
        return {"tanh": self.approximate == "tanh"}


@dataclass(frozen=True)
class SiLU(Layer):
    """`x` times its sigmoid."""

    kind: ClassVar[str] = "Silu"


@dataclass(frozen=True)
class Sigmoid(Layer):
    """Between zero and one."""

    kind: ClassVar[str] = "Sigmoid"


@dataclass(frozen=True)
class Tanh(Layer):
    """Between minus one and one."""

    kind: ClassVar[str] = "Tanh"


@dataclass(frozen=True)
class Softmax(Layer):
    """Probabilities from scores, along an axis of a row."""

    axis: int = -1
    kind: ClassVar[str] = "Softmax"


@dataclass(frozen=True)
class LogSoftmax(Layer):
    """Logarithms of probabilities from scores, along an axis of a row."""

    axis: int = -1
    kind: ClassVar[str] = "LogSoftmax"


@dataclass(frozen=True)
class Flatten(Layer):
    """All axes of a row in one."""

    kind: ClassVar[str] = "Flatten"


@dataclass(frozen=True)
class Reshape(Layer):
    """Other lengths of the axes of a row; one may be -1."""

    shape: Sequence[int]
    kind: ClassVar[str] = "Reshape"

    def settings(self) -> dict[str, Any]:
        """As a list."""
        return {"shape": list(self.shape)}


@dataclass(frozen=True)
class Permute(Layer):
    """The axes of a row in another order."""

    axes: Sequence[int]
    kind: ClassVar[str] = "Permute"

    def settings(self) -> dict[str, Any]:
        """As a list."""
        return {"axes": list(self.axes)}


@dataclass(frozen=True)
class Add(Layer):
    """The sum of all inputs."""

    kind: ClassVar[str] = "Add"


@dataclass(frozen=True)
class Multiply(Layer):
    """The product of all inputs."""

    kind: ClassVar[str] = "Multiply"


@dataclass(frozen=True)
class Concat(Layer):
    """All inputs one behind the other, along an axis of a row."""

    axis: int = 0
    kind: ClassVar[str] = "Concat"


@dataclass(frozen=True)
class _Recurrent(Layer):
    input_size: int
    hidden_size: int
    return_sequences: bool = False

    def settings(self) -> dict[str, Any]:
        """Under the engine's names."""
        return {"input": self.input_size, "hidden": self.hidden_size, "sequences": self.return_sequences}


@dataclass(frozen=True)
class LSTM(_Recurrent):
    """A long short-term memory over `steps x input_size`; its last step, or all of them."""

    kind: ClassVar[str] = "Lstm"


@dataclass(frozen=True)
class GRU(_Recurrent):
    """Gated recurrent units over `steps x input_size`; their last step, or all of them."""

    kind: ClassVar[str] = "Gru"


@dataclass(frozen=True)
class MultiHeadAttention(Layer):
    """Attention of a series to itself; with three inputs, of who asks to who answers, and with what."""

    embed_dim: int
    num_heads: int
    causal: bool = False
    kind: ClassVar[str] = "MultiHeadAttention"

    def settings(self) -> dict[str, Any]:
        """Under the engine's names."""
        return {"size": self.embed_dim, "heads": self.num_heads, "causal": self.causal}


@dataclass(frozen=True)
class TransformerEncoderLayer:
    """A block of an encoder: attention and two linear layers, each with a way round it and a norm.

    It is made of layers with PyTorch's names, and stands where a layer does.
    """

    d_model: int
    nhead: int
    dim_feedforward: int = 2048
    dropout: float = 0.1
    activation: str = "relu"
    layer_norm_eps: float = 1e-5
    norm_first: bool = False

    def __call__(self, x: Node, name: str = "encoder") -> Node:
        """What this gives for what another gives."""
        kinds = {"relu": ReLU, "gelu": GELU}
        if self.activation not in kinds:
            raise ValueError(f"activation must be 'relu' or 'gelu', it is {self.activation!r}")

        def attention(x: Node) -> Node:
            looks = MultiHeadAttention(self.d_model, self.nhead)(x, name=f"{name}.self_attn")
            return Dropout(self.dropout)(looks)

        def feed_forward(x: Node) -> Node:
            inner = Linear(self.d_model, self.dim_feedforward)(x, name=f"{name}.linear1")
            inner = Dropout(self.dropout)(kinds[self.activation]()(inner))
            return Dropout(self.dropout)(
                Linear(self.dim_feedforward, self.d_model)(inner, name=f"{name}.linear2")
            )

        def norm(x: Node, number: int) -> Node:
            return LayerNorm(self.d_model, self.layer_norm_eps)(x, name=f"{name}.norm{number}")

        for number, part in ((1, attention), (2, feed_forward)):
            x = Add()(x, part(norm(x, number))) if self.norm_first else norm(Add()(x, part(x)), number)
        return x
