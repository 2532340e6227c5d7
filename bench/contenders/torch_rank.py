"""What each rank of torchrun does: import torch."""

import torch

assert torch.__version__
