"""What an Estimator has learnt: the weights, and how they come and go."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from grampus import _native
from grampus._training import saved
from grampus._training.job import Clipping

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


class Weights:
    """The part of an Estimator that keeps weights between calls."""

    _clipping: Clipping | None
    _layout: Layout | None
    _state: dict[str, Any] | None
    _at: dict[str, Any]

    def _framework(self) -> Any:
        raise NotImplementedError

    def _spec(self) -> Spec:
        raise NotImplementedError

    def _seed(self) -> int:
        raise NotImplementedError

    def _adopted(self, found: saved.Saved) -> None:
        raise NotImplementedError

    def get_model(self) -> Any:
        """The model with its present weights, in this process, ready to predict (`eval` mode)."""
        return self._framework().made(self._spec(), self._state, self._seed())

    def state_dict(self) -> dict[str, Any]:
        """The weights by name."""
        weights: dict[str, Any] = self.get_model().state_dict()
        return weights

    def digest(self) -> str:
        """A hash of the weights: equal exactly where all of their bits are."""
        return str(self._framework().digest(self.get_model()))

    def save(self, path: str | os.PathLike[str]) -> str:
        """Save the weights to a `.safetensors` or `.pt` file, or all that training needs to a folder.

        Return the path. A folder may also be `s3://…`; it is what `fit(checkpoint=…)` writes.
        """
        place = os.fspath(path)
        if place.endswith((".safetensors", ".pt", ".pth")):
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

    def load(self, path: str | os.PathLike[str]) -> Self:
        """Load what `save` or `fit(checkpoint=…)` wrote, or any `.pt` or `.safetensors` file of weights."""
        place = os.fspath(path)
        framework = self._framework()
        if place.endswith((".safetensors", ".pt", ".pth")):
            state = framework.weights_of(place)
        else:
            found = saved.read(saved.located(place))
            state, self._at = found.state, {**START, **found.meta.get("at", {})}
            if "layout" in found.meta:
                self._adopted(found)
        framework.made(self._spec(), state, self._seed())
        self._state = state
        return self

    def clear_gradient_clipping(self) -> None:
        """Let gradients be as they are, from the next `fit` on."""
        self._clipping = None

    def set_constant_gradient_clipping(self, min: float, max: float) -> None:  # noqa: A002 - the name of old
        """Clip every value of the gradients to the range from `min` to `max`, from the next `fit` on."""
        if not min < max:
            raise ValueError(
                f"gradients cannot be clipped to the range from {min} to {max}: min must be below max"
            )
        self._clipping = Clipping(least=float(min), most=float(max))

    def set_l2_norm_gradient_clipping(self, clip_norm: float) -> None:
        """Scale gradients whose norm over all parameters is above `clip_norm`, from the next `fit` on."""
        if not clip_norm > 0:
            raise ValueError(f"clip_norm must be above 0, it is {clip_norm}")
        self._clipping = Clipping(norm=float(clip_norm))
