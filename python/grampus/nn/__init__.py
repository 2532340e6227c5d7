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

from grampus._arguments import suggest
from grampus.nn.graph import (
    Described,
    Model,
    Sequential,
)
from grampus.nn.layers import (
    ELU,
    GELU,
    GRU,
    LSTM,
    AdaptiveAvgPool2d,
    Add,
    AvgPool2d,
    BatchNorm,
    BatchNorm1d,
    BatchNorm2d,
    Concat,
    Conv1d,
    Conv2d,
    ConvTranspose2d,
    Dropout,
    Embedding,
    Flatten,
    GlobalAvgPool,
    Input,
    Layer,
    LayerNorm,
    LeakyReLU,
    Linear,
    LogSoftmax,
    MaxPool2d,
    MultiHeadAttention,
    Multiply,
    Node,
    Permute,
    ReLU,
    Reshape,
    Sigmoid,
    SiLU,
    Softmax,
    Tanh,
    TransformerEncoderLayer,
)
from grampus.nn.losses import (
    BCE,
    KL,
    L1,
    MSE,
    NLL,
    BCEWithLogits,
    Cosine,
    CrossEntropy,
    Hinge,
    Loss,
    Poisson,
    SmoothL1,
)

__all__ = [
    "BCE",
    "ELU",
    "GELU",
    "GRU",
    "KL",
    "L1",
    "LSTM",
    "MSE",
    "NLL",
    "AdaptiveAvgPool2d",
    "Add",
    "AvgPool2d",
    "BCEWithLogits",
    "BatchNorm",
    "BatchNorm1d",
    "BatchNorm2d",
    "Concat",
    "Conv1d",
    "Conv2d",
    "ConvTranspose2d",
    "Cosine",
    "CrossEntropy",
    "Described",
    "Dropout",
    "Embedding",
    "Flatten",
    "GlobalAvgPool",
    "Hinge",
    "Input",
    "Layer",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "LogSoftmax",
    "Loss",
    "MaxPool2d",
    "Model",
    "MultiHeadAttention",
    "Multiply",
    "Node",
    "Permute",
    "Poisson",
    "ReLU",
    "Reshape",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "SmoothL1",
    "Softmax",
    "Tanh",
    "TransformerEncoderLayer",
]


suggest(globals())
