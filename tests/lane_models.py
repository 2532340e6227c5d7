"""Models whose weights would depend on who drives which lane, if anybody were careless."""

import random

import numpy as np
import torch
from torch import nn


class Dropping(nn.Sequential):
    """Dropout, whose random numbers belong to a lane, and batch norm, whose statistics do."""

    def __init__(self, config):
        super().__init__(
            nn.Linear(8, 16),
            nn.BatchNorm1d(16),
            nn.ReLU(),
            nn.Dropout(0.3),
            nn.Linear(16, 3),
            nn.Dropout(0.1),
        )


class Convolving(nn.Sequential):
    def __init__(self, config):
        super().__init__(
            nn.Conv2d(3, 6, 3),
            nn.BatchNorm2d(6),
            nn.ReLU(),
            nn.Dropout2d(0.2),
            nn.Flatten(),
            nn.Linear(216, 3),
        )


class Recurrent(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.lstm = nn.LSTM(2, 5, num_layers=2, dropout=0.2, batch_first=True)
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        states, _ = self.lstm(x.view(len(x), 4, 2))
        return self.head(states[:, -1])


class Drawing(nn.Module):
    """Draws from all three generators."""

    def __init__(self, config):
        super().__init__()
        self.linear = nn.Linear(8, 3)

    def forward(self, x):
        noise = torch.rand(x.shape) + float(np.random.rand()) + random.random()
        return self.linear(x + 0.1 * noise)


class Counting(nn.Module):
    """A buffer that every lane changes in its own way, and a large one that nobody changes."""

    def __init__(self, config):
        super().__init__()
        self.linear = nn.Linear(8, 3)
        self.register_buffer("seen", torch.zeros(8))
        self.register_buffer("table", torch.randn(1 << 19))

    def forward(self, x):
        self.seen += x.mean(0)
        return self.linear(x + 0.1 * self.seen + self.table[:8])


class Replacing(nn.Module):
    """A buffer that is replaced instead of changed."""

    def __init__(self, config):
        super().__init__()
        self.linear = nn.Linear(8, 3)
        self.register_buffer("seen", torch.zeros(8))

    def forward(self, x):
        self.seen = 0.9 * self.seen + x.mean(0)
        return self.linear(x - self.seen)


class Codebook(nn.Module):
    """A large buffer that is changed without torch's knowledge, as in many vector quantizers."""

    def __init__(self, config):
        super().__init__()
        self.linear = nn.Linear(8, 3)
        self.register_buffer("codes", torch.zeros(1 << 16, 8))

    def forward(self, x):
        self.codes.data.add_(x.mean(0))
        return self.linear(x + 0.1 * self.codes[7])


class Counted(nn.Module):
    """A buffer that evaluation changes too, and random numbers that it draws."""

    def __init__(self, config):
        super().__init__()
        self.linear = nn.Linear(8, 3)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls += 1
        counted = 0.01 * self.calls if self.training else 0.0
        return self.linear(x + counted + 0.1 * torch.rand(x.shape))


class Attending(nn.Module):
    """Attention with dropout, and a norm that keeps vectors of its own as buffers."""

    def __init__(self, config):
        super().__init__()
        self.attention = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.2, batch_first=True)
        self.head = nn.utils.parametrizations.spectral_norm(nn.Linear(8, 3))

    def forward(self, x):
        return self.head(self.attention(x.view(len(x), 2, 4)).flatten(1))


class Double(nn.Sequential):
    def __init__(self, config):
        super().__init__(nn.Linear(8, 6), nn.Dropout(0.2), nn.Linear(6, 3))
        self.double()

    def forward(self, x):
        return super().forward(x.double())


class Half(nn.Sequential):
    def __init__(self, config):
        super().__init__(nn.Linear(8, 6), nn.LayerNorm(6), nn.Dropout(0.2), nn.Linear(6, 3))
        self.bfloat16()

    def forward(self, x):
        return super().forward(x.bfloat16())
