"""What scikit-learn asks of an estimator."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from grampus._training.options import DEFAULT_BATCH_SIZE

if TYPE_CHECKING:
    from typing_extensions import Self


class Params:
    """Settings that can be read, changed and copied, and a score."""

    _params: dict[str, Any]
    _layout: Any

    def _check(self) -> None:
        raise NotImplementedError

    def evaluate(self, data: Any, batch_size: int | None = DEFAULT_BATCH_SIZE) -> dict[str, Any]:
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
            raise ValueError(f"there is no parameter {unknown[0]!r}: there are {known}")
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

    def score(self, data: Any, batch_size: int | None = DEFAULT_BATCH_SIZE) -> float:
        """The first metric over all rows, or the negative loss where there is none: more is better."""
        found = self.evaluate(data, batch_size)
        names = [name for name in found if name not in ("loss", "num_samples")]
        return float(found[names[0]]) if names else -float(found["loss"])
