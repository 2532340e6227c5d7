"""What scikit-learn asks of an estimator."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from grampus._arguments import closest
from grampus._direction import better_way
from grampus._figures import is_number
from grampus._traceback import public_methods
from grampus._training.options import DEFAULT_BATCH_SIZE
from grampus.metrics import directions

if TYPE_CHECKING:
    from typing_extensions import Self


@public_methods
class Params:
    """Settings that can be read, changed and copied, and a score."""

    _params: dict[str, Any]
    _layout: Any

    def _check(self) -> None:
        raise NotImplementedError

    def evaluate(
        self, data: Any, y: Any = None, batch_size: int | None = DEFAULT_BATCH_SIZE
    ) -> dict[str, Any]:
        """Loss and metrics over all rows."""
        raise NotImplementedError

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002 - scikit-learn passes it
        """What this was made with."""
        return dict(self._params)

    def set_params(self, **params: Any) -> Self:
        """Change what this was made with. What was trained is kept."""
        unknown = sorted(params.keys() - self._params.keys())
        if unknown:
            known = ", ".join(sorted(self._params))
            match = closest(unknown[0], self._params)
            more = f"did you mean {match}=?" if match else f"there are {known}"
            raise ValueError(f"there is no parameter {unknown[0]!r}: {more}")
        before, self._params = self._params, {**self._params, **params}
        try:
            self._check()
        except (TypeError, ValueError):
            self._params = before
            raise
        self._layout = None
        return self

    def __sklearn_clone__(self) -> Self:
        """An untrained one, made with the same; what holds parts of a module is copied together with it."""
        return type(self)(**copy.deepcopy(self._params))

    def score(self, data: Any, y: Any = None, batch_size: int | None = DEFAULT_BATCH_SIZE) -> float:
        """The first metric over all rows, or the loss where there is none: more is better.

        Losses and errors, of which less is better, are negative.
        """
        found = self.evaluate(data, y, batch_size)
        name = next((name for name in found if name not in ("loss", "num_samples")), "loss")
        way = better_way(name, directions(self._params["metrics"]))
        if way is None or not is_number(found[name]):
            raise ValueError(
                f"score is the first metric, and nothing says whether more or less of {name!r} is better: "
                "put another one first, or set `higher_is_better` to True or False on your function"
            )
        return float(found[name]) if way == "max" else -float(found[name])
