"""Models: sequences and graphs of layers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grampus import _native
from grampus.nn.layers import Input, Layer, Node, TransformerEncoderLayer

if TYPE_CHECKING:
    from collections.abc import Sequence


# Where a file of weights says which layers they are of.
MODEL = "grampus.model"
# Longer ones are no headers.
_LONGEST = 100 << 20


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


class Saved(Described):
    """The layers that a file of weights describes, which `Estimator.save` of a native model wrote."""

    def __init__(self, path: str) -> None:
        """Read what stands beside the weights."""
        with Path(path).open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size)) if size <= _LONGEST else {}
        told = header.get("__metadata__", {}).get(MODEL)
        if told is None:
            raise ValueError(
                f"{path} does not say which layers its weights are of: pass a gp.nn model, and load it"
            )
        self._told: dict[str, Any] = json.loads(told)

    def description(self) -> dict[str, Any]:
        """As it stands in the file."""
        return self._told


class Sequential(Described):
    """Layers one behind the other, called by their number as in PyTorch."""

    def __init__(self, *layers: Layer | TransformerEncoderLayer) -> None:
        """With these layers."""
        self._layers = list(layers)

    def add(self, layer: Layer | TransformerEncoderLayer) -> Sequential:
        """Add a layer behind the last."""
        self._layers.append(layer)
        return self

    def description(self) -> dict[str, Any]:
        """As it stands in a file."""
        first = last = Input()
        for number, layer in enumerate(self._layers):
            last = layer(last, name=str(number))
        return Model(first, last).description()


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
