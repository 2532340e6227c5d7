"""Train a small model on every process, as PyTorch's tutorial does; the argument names the backend."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class ToyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1 = nn.Linear(10, 32)
        self.relu = nn.ReLU()
        self.norm = nn.BatchNorm1d(32)
        self.net2 = nn.Linear(32, 5)

    def forward(self, x):
        return self.net2(self.norm(self.relu(self.net1(x))))


def main():
    dist.init_process_group(sys.argv[1])
    torch.manual_seed(0)
    rows = TensorDataset(torch.randn(64, 10), torch.randn(64, 5))
    loader = DataLoader(rows, batch_size=8, sampler=DistributedSampler(rows))
    model = DistributedDataParallel(ToyModel())
    loss_function = nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)
        for inputs, labels in loader:
            optimizer.zero_grad()
            loss = loss_function(model(inputs), labels)
            loss.backward()
            optimizer.step()
            print(f"rank {dist.get_rank()} epoch {epoch} loss {loss.item().hex()}\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
