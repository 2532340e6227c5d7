"""Models of Grampus's own engine: layers and losses in Rust, no other framework needed.

>>> import grampus as gp
>>> model = gp.nn.Sequential().add(gp.nn.Linear(4, 8)).add(gp.nn.ReLU()).add(gp.nn.Linear(8, 2))
>>> print(model.summary([4]))
layer  kind          output  parameters
0      Linear(4, 8)  8               40
1      ReLU()        8                0
2      Linear(8, 2)  2               18
                                     58

Names and settings are PyTorch's, and so are the names of parameters: weights go from one to the other. Shapes
never name the axis of the rows.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from grampus import _native

Pair = int | tuple[int, int]


def _pair(value: Pair) -> list[int]:
    return [value, value] if isinstance(value, int) else list(value)


class Node:
    """What a layer gives, for other layers to take: the way to models that are more than a sequence.

    >>> x = Input("x")
    >>> hidden = Linear(4, 4)(x)
    >>> model = Model(x, Add()(ReLU()(hidden), x))
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


class Described:
    """A model without numbers: what it computes."""

    def description(self) -> dict[str, Any]:
        """As it stands in a file."""
        raise NotImplementedError

    def summary(self, *shapes: Sequence[int]) -> str:
        """A table of its layers, for rows of these shapes, one for each input."""
        text: str = _native.describe_network(
            json.dumps(self.description()), [list(shape) for shape in shapes]
        )
        return text


class Sequential(Described):
    """Layers one behind the other, called by their number as in PyTorch."""

    def __init__(self, *layers: Layer) -> None:
        """With these layers."""
        self._layers = list(layers)

    def add(self, layer: Layer) -> Sequential:
        """Add a layer behind the last."""
        self._layers.append(layer)
        return self

    def description(self) -> dict[str, Any]:
        """As it stands in a file."""
        names = ["input", *(str(number) for number in range(len(self._layers)))]
        nodes = [
            {"name": name, "layer": layer.description(), "inputs": [before]}
            for layer, (before, name) in zip(self._layers, itertools.pairwise(names), strict=True)
        ]
        return {"inputs": names[:1], "nodes": nodes, "outputs": names[-1:]}


class Model(Described):
    """A graph of layers, from what comes in to what comes out."""

    def __init__(self, inputs: Node | Sequence[Node], outputs: Node | Sequence[Node]) -> None:
        """Layers are what stands between `Input`s and what they give."""
        self._inputs = [inputs] if isinstance(inputs, Node) else list(inputs)
        self._outputs = [outputs] if isinstance(outputs, Node) else list(outputs)

    def description(self) -> dict[str, Any]:
        """As it stands in a file."""
        names = {id(node): node.name for node in self._inputs}
        nodes: list[dict[str, Any]] = []

        def name_of(node: Node) -> str:
            if id(node) not in names:
                if node.layer is None:
                    raise ValueError(f"the input {node.name!r} is not among the inputs of the model")
                taken = [name_of(one) for one in node.inputs]
                names[id(node)] = node.name or f"{type(node.layer).__name__.lower()}_{len(nodes)}"
                nodes.append({"name": names[id(node)], "layer": node.layer.description(), "inputs": taken})
            return names[id(node)]  # type: ignore[return-value]

        outputs = [name_of(node) for node in self._outputs]
        return {"inputs": [node.name for node in self._inputs], "nodes": nodes, "outputs": outputs}


@dataclass(frozen=True)
class Loss:
    """What a model is to make small: the mean over rows, as in PyTorch."""

    kind: ClassVar[str] = ""

    def description(self) -> dict[str, Any]:
        """As the engine reads it."""
        return {"kind": self.kind, **{name: value for name, value in vars(self).items() if value is not None}}


@dataclass(frozen=True)
class CrossEntropy(Loss):
    """Of scores, one for each class, and the number of the right class."""

    weights: Sequence[float] | None = None
    label_smoothing: float = 0.0
    ignore_index: int | None = None
    kind: ClassVar[str] = "CrossEntropy"


@dataclass(frozen=True)
class NLL(Loss):
    """Of logarithms of probabilities, and the number of the right class."""

    weights: Sequence[float] | None = None
    ignore_index: int | None = None
    kind: ClassVar[str] = "Nll"


@dataclass(frozen=True)
class MSE(Loss):
    """The square of the difference."""

    kind: ClassVar[str] = "Mse"


@dataclass(frozen=True)
class L1(Loss):
    """The difference without its sign."""

    kind: ClassVar[str] = "L1"


@dataclass(frozen=True)
class SmoothL1(Loss):
    """The square of small differences, the absolute value of others."""

    beta: float = 1.0
    kind: ClassVar[str] = "SmoothL1"


@dataclass(frozen=True)
class BCE(Loss):
    """Of probabilities."""

    kind: ClassVar[str] = "Bce"


@dataclass(frozen=True)
class BCEWithLogits(Loss):
    """Of scores."""

    kind: ClassVar[str] = "BceWithLogits"


@dataclass(frozen=True)
class KL(Loss):
    """How far a distribution is from one whose logarithms come out."""

    kind: ClassVar[str] = "Kl"


@dataclass(frozen=True)
class Poisson(Loss):
    """Of the logarithm of a rate, and counts."""

    kind: ClassVar[str] = "Poisson"


@dataclass(frozen=True)
class Hinge(Loss):
    """What is missing to `margin` on the right side; targets are 1 and -1."""

    margin: float = 1.0
    kind: ClassVar[str] = "Hinge"


@dataclass(frozen=True)
class Cosine(Loss):
    """One minus the cosine of the angle to the target."""

    kind: ClassVar[str] = "Cosine"
