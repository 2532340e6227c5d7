"""How operators evaluate and predict: see `grampus.TrainingOperator`."""

from __future__ import annotations

import itertools
import pickle
from typing import TYPE_CHECKING, Any

import torch

from grampus import _native
from grampus._training.means import Means, as_number
from grampus.frameworks import _torch_outputs
from grampus.frameworks._torch_meeting import merged
from grampus.frameworks.torch import Model
from grampus.operators import checked, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from grampus._training.feed import Batch


class OperatorEvaluation(Model):
    """A model whose operator may evaluate and predict in its own way."""

    operator: Any
    epoch: int
    _owns_validation: bool
    _answers: bool
    # What schedulers are to be told, by lane; that of -1 outside of batches.
    _moves: dict[int, list[float | None]]

    def evaluate(self, lane: int, part: Batch, meters: Mapping[str, Any]) -> float:
        """Let the operator judge some rows, if it does."""
        if not self.judges:
            return super().evaluate(lane, part, meters)
        self._seed_answer(lane, part)
        try:
            with torch.no_grad(), self._timed("eval_fwd"):
                info = {**self._judging_info(), "batch_idx": self.place, "global_step": self.step}
                said = self.operator.validate_batch(self._here(part.values), info)
        except Exception as error:
            _torch_outputs.note(error, lane, len(part.rows), part)
            raise
        self._count(self.judgement, checked(said, "validate_batch"), len(part.rows))
        return 0.0

    def judge_all(self, batches: Iterator[Batch]) -> bool:
        """Let the operator judge all batches of this worker, where it does so itself; say whether."""
        self.judgement = Means()
        if self.timers is not None:
            self.operator.timers = self.timers
        if not self._owns_validation:
            return False
        rows = 0

        def values() -> Iterator[Any]:
            nonlocal rows
            for batch in batches:
                rows += rows_of(batch.values)
                _native.advance()
                yield self._here(batch.values)

        found = unless_empty(values())
        said: Mapping[str, Any] = {}
        with torch.no_grad():
            if found is not None:
                said = checked(self.operator.validate(found, self._judging_info()), "validate")
        # What it did not ask for still belongs to the work of all.
        for batch in batches:
            rows += rows_of(batch.values)
        self._count(self.judgement, said, rows)
        mine = tuple(self._moves.pop(-1, ()))
        # Peers of the group have proved the key of the job.
        told = self.lanes.group._native.gather_bytes(pickle.dumps(mine))
        self._schedule(merged(pickle.loads(each) for each in told))
        return True

    def _judging_info(self) -> dict[str, Any]:
        return {"epoch_idx": self.epoch, **self.info}

    def _answer(self, values: Any) -> Any:
        return self.operator.predict_batch(values) if self._answers else super()._answer(values)

    def _count(self, means: Means, said: Mapping[str, Any], rows: int) -> None:
        """Add up what was said about some rows."""
        values = {name: value for name, value in said.items() if name not in ("num_samples", "train_loss")}
        if "train_loss" in said:
            values["loss"] = said["train_loss"]
        means.add(values, int(as_number(said.get("num_samples")) or rows))

    def _schedule(self, metrics: tuple[float | None, ...]) -> None:
        for metric in metrics:
            for scheduler in self.schedulers:
                scheduler.step() if metric is None else scheduler.step(metric)


def unless_empty(batches: Iterator[Any]) -> Iterator[Any] | None:
    """All batches; nothing where there are none, of which code of users could make no mean."""
    first = next(batches, None)
    return None if first is None else itertools.chain([first], batches)
