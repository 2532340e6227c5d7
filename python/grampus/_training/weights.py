"""What an Estimator has learnt: the weights, and how they come and go."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grampus import _native, _ranks
from grampus._traceback import public_methods
from grampus._training import saved
from grampus._training.job import Clipping
from grampus._training.options import check_number

if TYPE_CHECKING:
    from typing_extensions import Self

    from grampus._training.job import Layout, Spec

# Where a run begins that goes on from nothing.
START: dict[str, Any] = {
    "epoch": 0,
    "step_in_epoch": 0,
    "step": 0,
    "loss_sum": 0.0,
    "weight": 0.0,
    "rows": 0,
    "seconds": 0.0,
    "waited": 0.0,
}

# Folders of others, and files of weights alone.
_FORMATS = (None, "dcp", "pretrained")
_FILES = (".safetensors", ".pt", ".pth")


def _holds_weights(place: str) -> bool:
    """Whether a place holds weights alone, and is no checkpoint of a run."""
    folder = Path(place)
    if not folder.is_dir():
        # Files of Lightning are on this machine; a store may be called anything.
        return place.endswith(_FILES) or (place.endswith(".ckpt") and "://" not in place)
    # A checkpoint of a run has a file of that name too.
    if (folder / "manifest.json").exists():
        return False
    names = (".metadata", "model.safetensors", "model.safetensors.index.json")
    return any((folder / name).exists() for name in names)


@public_methods
class Weights:
    """The part of an Estimator that keeps weights between calls."""

    _clipping: Clipping | None
    _layout: Layout | None
    _state: dict[str, Any] | None
    _at: dict[str, Any]
    _params: dict[str, Any]
    # Whether the last `fit` got features and targets apart: `predict` then takes what was its `x`.
    _apart = False

    def _framework(self) -> Any:
        raise NotImplementedError

    def _spec(self) -> Spec:
        raise NotImplementedError

    def _seed(self) -> int:
        raise NotImplementedError

    def _adopted(self, found: saved.Saved) -> None:
        raise NotImplementedError

    def _taken_along(self) -> dict[str, Any]:
        """What a call that all ranks of `grampus run` make together changes."""
        return {name: getattr(self, name) for name in ("_state", "_at", "_layout", "history")}

    def _take_along(self, taken: dict[str, Any]) -> None:
        """Take it from the first rank."""
        vars(self).update(taken)

    def get_model(self) -> Any:
        """The model with its present weights, in this process, ready to predict (`eval` mode)."""
        return self._framework().made(self._spec(), self._state, self._seed())

    def state_dict(self) -> dict[str, Any]:
        """The weights by name."""
        weights: dict[str, Any] = self.get_model().state_dict()
        return weights

    def load_state_dict(self, weights: Mapping[str, Any]) -> Self:
        """Take weights by name, as `state_dict` returns them; weights of another model are refused."""
        framework = self._framework()
        return self._take(
            framework.weights_from(weights, lambda: framework.made(self._spec(), None, self._seed()))
        )

    def _take(self, state: dict[str, Any]) -> Self:
        # What does not fit raises, and all is as it was.
        framework = self._framework()
        framework.made(self._spec(), state, self._seed())
        self._state = state
        return self

    def digest(self) -> str:
        """A hash of the weights: equal exactly where all of their bits are."""
        return str(self._framework().digest(self.get_model()))

    def save(
        self,
        path: str | os.PathLike[str],
        format: str | None = None,  # noqa: A002 - what others call it
        example: Any = None,
    ) -> str:
        """Save the weights in a format that others read, or all that training needs to a folder.

        Return the path. A folder may also be `s3://…`; it is what `fit(checkpoint=…)` writes.

        Args:
            path: a file that ends in `.safetensors`, `.pt`, `.pth` or `.onnx`, or a folder.
            format: of the folder: "dcp" for torch's Distributed Checkpoint, "pretrained" for what
                `from_pretrained` of Hugging Face's libraries reads; `None` for a checkpoint of Grampus.
            example: some rows as the model takes them, for `.onnx`: a tensor, or a tuple or dict of tensors.
        """
        place = os.fspath(path)
        if format not in _FORMATS:
            raise ValueError(f"format must be one of {', '.join(map(repr, _FORMATS))}, it is {format!r}")
        if example is not None and not place.endswith(".onnx"):
            raise ValueError(f"example is for .onnx files, and this is {place}: leave it out")
        if not _ranks.leads():
            # All ranks have the same, and the first one writes it.
            return place
        if format is not None or place.endswith(".onnx"):
            self._framework().save_as(self.get_model(), place, format, example)
        elif place.endswith(_FILES):
            self._framework().save_weights(self.get_model(), place)
        elif self._state is None:
            raise ValueError(
                f"nothing was trained or loaded yet: save the weights to {place}.safetensors instead"
            )
        else:
            saved.check_unused(saved.located(place), self._at["step"])
            store = _native.CheckpointStore(saved.located(place))
            meta = {"at": self._at, "first": self._at, "layout": vars(self._layout), "records": []}
            saved.write(store, self._state, meta)
        return place

    def load(self, path: str | os.PathLike[str], loss: Any = None, best: bool = False) -> Self:
        """Load what `save` or `fit(checkpoint=…)` wrote, or weights of others, by what is there.

        That is: files of weights (`.safetensors`, `.pt`, `.pth`), `.ckpt` files of Lightning, folders of
        Hugging Face's `save_pretrained` and of torch's Distributed Checkpoint. Reading runs no code. With
        `loss`, that is the loss from here on. Of a folder with several checkpoints it is the newest, or with
        `best` the one that `gp.Checkpoint(best=…)` of the run has kept.
        """
        place = os.fspath(path)
        framework = self._framework()
        found = None
        if not best and _holds_weights(place):
            state = framework.weights_of(place, lambda: framework.made(self._spec(), None, self._seed()))
        elif not best and Path(place).is_file():
            raise ValueError(
                f"{place} cannot be loaded: files of weights end in {', '.join(_FILES)} or .ckpt"
            )
        else:
            found = saved.read(saved.located(place), best)
            state = found.state
        self._take(state)
        if found is not None:
            if "layout" in found.meta:
                self._adopted(found)
            self._at = {**START, **found.meta.get("at", {})}
        if loss is not None:
            self._params["loss"] = loss
        return self

    def clear_gradient_clipping(self) -> None:
        """Let gradients be as they are, from the next `fit` on."""
        self._clipping = None

    def set_constant_gradient_clipping(self, min: float, max: float) -> None:  # noqa: A002 - the name of old
        """Clip every value of the gradients to the range from `min` to `max`, from the next `fit` on."""
        check_number(min, "min")
        check_number(max, "max")
        if not min < max:
            raise ValueError(
                f"gradients cannot be clipped to the range from {min} to {max}: min must be below max"
            )
        self._clipping = Clipping(least=float(min), most=float(max))

    def set_l2_norm_gradient_clipping(self, clip_norm: float) -> None:
        """Scale gradients whose norm over all parameters is above `clip_norm`, from the next `fit` on."""
        check_number(clip_norm, "clip_norm")
        if not clip_norm > 0:
            raise ValueError(f"clip_norm must be above 0, it is {clip_norm}")
        self._clipping = Clipping(norm=float(clip_norm))
