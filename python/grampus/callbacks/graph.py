"""The model as a graph of operations."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from grampus.callbacks._checks import check_installed
from grampus.callbacks.callback import Callback, Run


class ModelGraph(Callback):
    """Shows the model as a graph in TensorBoard. Needs the package `tensorboard`.

    The model is run on the example as a run begins, as torch's own `SummaryWriter.add_graph` does it; the run
    itself is not changed by that.

    Args:
        example: inputs of the model: a tensor, or a tuple of its arguments. `None` takes the model's
            `example_input_array`, if it has one.
    """

    def __init__(self, example: Any = None) -> None:
        self.example = example

    def on_run_begin(self, run: Run) -> None:
        """Trace the model, and send what was found."""
        example = getattr(run.model, "example_input_array", None) if self.example is None else self.example
        if example is None:
            raise ValueError("ModelGraph needs inputs to run the model with: pass ModelGraph(example=batch)")
        check_installed("tensorboard", "tensorboard", "ModelGraph")
        from torch.utils.tensorboard._pytorch_graph import graph

        with _unchanged(run.model), warnings.catch_warnings():
            # Torch speaks of its own tracer here, which nobody has asked for by name.
            warnings.simplefilter("ignore")
            found, _ = graph(run.model, _moved(example, run.model))
        run.graph(found.SerializeToString())


@contextmanager
def _unchanged(model: Any) -> Iterator[None]:
    """Leave buffers, attributes and random numbers as they are: other workers do not trace the model."""
    import torch

    held = [(module, dict(vars(module)), dict(module._buffers)) for module in model.modules()]
    values = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        for module, attributes, buffers in held:
            vars(module).clear()
            vars(module).update(attributes)
            module._buffers.update(buffers)
        with torch.no_grad():
            for buffer, before in values:
                buffer.copy_(before)


def _moved(example: Any, model: Any) -> Any:
    """The example where the model is."""
    place = next((parameter.device for parameter in model.parameters()), None)
    parts = example if isinstance(example, tuple) else (example,)
    moved = tuple(part.to(place) if hasattr(part, "to") else part for part in parts)
    return moved if isinstance(example, tuple) else moved[0]
