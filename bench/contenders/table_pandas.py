"""A table to shuffled batches as one does it by hand: pandas, a TensorDataset and a DataLoader."""

import pandas as pd
import torch
from torch.utils.data import DataLoader, TensorDataset

from measured import arguments, report

OPTIONS = arguments()


def read():
    table = pd.read_parquet(OPTIONS.path)
    label = table.pop("label")
    features = torch.from_numpy(table.to_numpy("float32"))
    dataset = TensorDataset(features, torch.from_numpy(label.to_numpy("int64")))
    loader = DataLoader(dataset, batch_size=OPTIONS.batch, shuffle=True, num_workers=OPTIONS.procs)
    return sum(len(labels) for _, labels in loader)


report(read)
