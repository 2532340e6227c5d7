"""Models that are trained as an operator of the user's says: see `grampus.TrainingOperator`.

Optimizers of an operator meet. Where every worker drives one lane, whoever calls `step()` waits for the
others: gradients are summed, and all apply the step. A worker whose lane has no rows, or has come to its
end, joins with zeros until all have ended. Where workers drive several lanes, one step for a batch is kept
until the last lane has called it.
"""

from __future__ import annotations

import copy
import itertools
import math
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch

from grampus import _native, _report
from grampus._training import creator, trees
from grampus._training.cleanup import uninterrupted
from grampus._training.leaving import wants_to_stop
from grampus._training.means import Means, as_number
from grampus._training.model import Reduction
from grampus.errors import CollectiveError
from grampus.frameworks import _torch_making, _torch_meeting, _torch_outputs, _torch_reduction, _torch_state
from grampus.frameworks._torch_criterion import CriterionCalls, pair_of, watched
from grampus.frameworks._torch_gradients import ProcessGroupGradients
from grampus.frameworks._torch_horovod import HorovodGradients
from grampus.frameworks._torch_meeting import END, MOVE, Word, meet, merged, present, share_of, step_of
from grampus.frameworks._torch_operator_evaluation import OperatorEvaluation, unless_empty
from grampus.operators import Timers, TrainingOperator, checked, overrides

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from grampus._training.feed import Batch

Tensor = Any
_OTHERS: dict[str, Any] = {"torch_distributed": ProcessGroupGradients, "horovod": HorovodGradients}


class Operated(OperatorEvaluation):
    """Models, optimizers and an operator."""

    # What the batch of this lane counts for among those of all lanes; where that shows only when they meet,
    # nothing, and what it counts for by itself.
    _share: float | None = 1.0
    _weight = 0.0

    def _prepare(self) -> None:
        spec, group = self.spec, self.lanes.group
        kind = spec.training_operator_cls or TrainingOperator
        closes = any(_torch_making.needs_closure(each) for each in self.optimizers)
        self.owns_epoch = overrides(kind, "train_epoch")
        self._owns_batch = self.owns_epoch or closes or overrides(kind, "train_batch")
        self.measures = not self._owns_batch
        self.judges = overrides(kind, "validate", "validate_batch")
        self._owns_validation = overrides(kind, "validate")
        self._answers = overrides(kind, "predict_batch")
        self.judgement = Means()
        self.applied: float | None = None
        # Whether every worker drives one lane.
        self._apart = self.lanes.total == group.size and len(self.lanes.mine) == 1
        several = self.owns_epoch or closes or len(self.optimizers) > 1
        if several and self._owns_batch and self.optimizers and not self._apart:
            raise ValueError(
                "an operator with several optimizers, an optimizer that needs a closure, or a train_epoch of "
                f"its own needs a worker for each lane: there are {self.lanes.total} lanes on {group.size} "
                "workers; leave lanes out, or start as many workers"
            )
        self._parameters = [
            [p for group in each.param_groups for p in group["params"]] for each in self.optimizers
        ]
        self.epoch = self._batch = 0
        self._applying = False
        self._in_batch = False
        self._steps = self._most_steps = self._gone_rows = 0
        # Batches of a train_epoch: of epochs that are done, and of this one.
        self._gone_batches = self._going_batches = 0
        # Gradients that wait for the other lanes of this worker, by lane and optimizer.
        self._waiting: dict[int, dict[int, list[Tensor | None]]] = {}
        self._losses: dict[int, float] = {}
        self._seen = 0
        # What schedulers are to be told after the batch, by lane.
        self._moves: dict[int, list[float | None]] = {}
        # Gradients of batches without a step, by lane; and whether there were any.
        self._left: dict[int, list[Tensor | None]] = {}
        self._adds_up = self._lossless = False
        self._says = 0.0
        self._other: Any = None
        self._real = [each.step for each in self.optimizers]
        for index, each in enumerate(self.optimizers if self._owns_batch else ()):
            each.step = self._stepping(index)
        creator.seed_all(creator.make_seed(self.lanes.seed, 4))
        self._calls = CriterionCalls()
        criterion, self._unwatch = watched(self.loss, self._calls)
        self.operator = kind(
            config=spec.config,
            models=_torch_making.models_of(self.module),
            optimizers=self.optimizers,
            world_rank=group.rank,
            criterion=criterion,
            schedulers=self.schedulers,
            device=self.device,
            precision=self.precision,
        )
        self.operator._move = self._move
        self.operator.setup(spec.config)

    def close(self) -> None:
        """Leave the process as it was."""
        self._unwatch()
        if self._other is not None:
            self._other.close()
        super().close()

    def besides(self) -> dict[str, Any]:
        """What the operator wants to be saved, too."""
        state = {**super().besides(), "operator": self.operator.state_dict()}
        return {**state, "batches": self._gone_batches} if self.owns_epoch else state

    def load_besides(self, state: dict[str, Any]) -> None:
        """Take up what `besides` returned."""
        super().load_besides(state)
        self._gone_batches = state.get("batches", 0)
        if state.get("operator"):
            self.operator.load_state_dict(state["operator"])

    @property
    def trained_by(self) -> Reduction:
        """A step of the user's own makes a loss of its own of what the criterion gives."""
        own = overrides(self.spec.training_operator_cls, "train_batch", "train_epoch")
        if not own:
            return self.reduction
        return _torch_reduction.reduction_of_steps(self.loss, self.spec.loss_weight)

    def skip(self) -> None:
        """Count the batch, and change nothing."""
        self._batch += 1
        super().skip()

    def warn(self, saved: bool) -> None:
        """Say what a loss would cost, where that is more than a step, and what lanes are weighed by."""
        own = overrides(self.spec.training_operator_cls, "train_batch", "train_epoch")
        if own and not self.lanes.alone:
            _torch_reduction.warn_of_criterion(self.loss, self.spec.loss_weight)
        if (self.owns_epoch or len(self.optimizers) > 1) and not saved and self.lanes.group.size > 1:
            _report.note(
                "the operator changes weights more than once between two points at which a run can go on: "
                "after the loss of a worker it may have to begin anew; pass checkpoint= to go on from there"
            )
        elif self._owns_batch and self._apart and self._buffers._has_any and not saved:  # type: ignore[union-attr]
            _report.note(
                "the first worker has the statistics of batch norm until a batch ends: if it is lost there, "
                "the run has to begin anew; pass checkpoint= to go on from there, or more lanes than workers"
            )

    # Training

    def epoch_begins(self, epoch: int = 0, batch: int = 0) -> None:
        """Get ready to train."""
        self.epoch, self._batch = epoch, batch
        if not self._owns_batch:
            super().epoch_begins(epoch, batch)
            return
        self.module.train()
        self.own = Means()
        self.operator.timers = Timers() if self.timers is None else self.timers
        kind = _OTHERS.get(self.spec.backend)
        if kind is not None and self._other is None and self.lanes.group.size > 1:
            self._other = kind([p for each in self._parameters for p in each], self.lanes)

    def train(self, lane: int, rows: int, share: float, seed: int, part: Batch | None) -> None:
        """Let the operator work on one lane's rows."""
        if not self._owns_batch:
            super().train(lane, rows, share, seed, part)
            return
        self.applied = None
        if part is None:
            return
        self._lane, self._share, self._in_batch = lane, share, True
        self._buffers.begin(lane)  # type: ignore[union-attr]
        if not self._apart:
            self._take_up(lane)
        before = None if share else [_copied(p.grad) for p in self.module.parameters()]
        self._calls.begin(self._keeps_call(lane))
        try:
            with self._refusing():
                said, rows = self._work(part, rows, seed)
        except CollectiveError:
            raise
        except Exception as error:
            if not self.owns_epoch:
                _torch_outputs.note(error, lane, rows, part, f" at step {self.step + 1} of the run")
            raise
        finally:
            self._in_batch = False
        if lane == 0 and self.precision is not None:
            self.precision.check_use()
        self.rows += rows
        if not share:
            # Means over rows that count for nothing are no numbers, and would make those of all lanes none.
            said = {name: value for name, value in said.items() if math.isfinite(as_number(value) or 0.0)}
        loss = self._loss_of(lane, said) if share else 0.0
        self._losses[lane] = loss * (rows if self.owns_epoch else share)
        self._seen = rows
        self._heard(lane, loss, part.numbers, 0)
        self._count(self.own, said, rows)
        self._look_at_call(lane)
        if not self.owns_epoch and share:
            self._check_rows(lane, rows)
        self._put_away(lane, before)
        said_here = self._buffers.end(lane)  # type: ignore[union-attr]
        self._says = said_here if lane == 0 else self._says

    def _work(self, part: Batch, rows: int, seed: int) -> tuple[Mapping[str, Any], int]:
        """What the operator says about one lane's rows, and how many there were."""
        if self.owns_epoch:
            return self._train_epoch(part)
        self._seed(seed)
        info = {**self.info, "batch_idx": self._batch, "global_step": self.step, "epoch_idx": self.epoch}
        return checked(self.operator.train_batch(self._here(part.values), info), "train_batch"), rows

    def _keeps_call(self, lane: int) -> bool:
        """Whether the criterion's first call for the next batch will be looked at."""
        return self._is_new or (self._check is not None and self._check.tries(lane))

    def _look_at_call(self, lane: int) -> None:
        """Look whether what the criterion has returned first is a mean over rows."""
        call = self._calls.end()
        if call is None:
            return
        (arguments, named), loss = call
        self._look_for_broadcast(lane, *pair_of(arguments, named))
        if self._check is None or not self._check.tries(lane):
            return
        self._check.add_loss(lane, loss)
        leaves = [leaf for leaf in trees.leaves(call[0]) if isinstance(leaf, torch.Tensor) and leaf.dim()]

        def loss_of(part: Any) -> Any:
            # A copy, since it may count its calls.
            return copy.deepcopy(self.loss)(*part[0], **part[1])

        # What a loss draws would come from the batches that follow.
        with torch.no_grad(), self._casting(), creator.seeded(0):
            self._check.try_loss(lane, len(leaves[0]) if leaves else 0, loss_of, call[0], loss)

    def _check_rows(self, lane: int, rows: int, batch: int | None = None) -> None:
        """Look how many elements rows have in what the criterion has compared."""
        if self._check is not None and self._calls.target is not None:
            self._check.add_size(lane, rows, self._calls.target, batch=batch)

    def _loss_of(self, lane: int, said: Mapping[str, Any]) -> float:
        loss = _torch_outputs.reported_loss(said)
        if loss is None and said and lane == 0 and not self._lossless:
            self._lossless = True
            _report.note(
                "the operator returns no loss, and 0 stands for it in records and for triggers: call one "
                "number 'train_loss', or let the names of several have 'loss' in them"
            )
        return loss or 0.0

    def _take_up(self, lane: int) -> None:
        """Let gradients be those that this lane has left: lanes of one worker know nothing of each other."""
        left = self._left.get(lane)
        for place, parameter in enumerate(self.module.parameters()):
            parameter.grad = None if left is None else left[place]

    def _put_away(self, lane: int, before: list[Tensor | None] | None) -> None:
        """Keep gradients of a batch without a step: the operator may add them up.

        Where its rows count for nothing they are those from before it, since its own may be NaN.
        """
        if self._steps or lane in self._waiting:
            self._left.pop(lane, None)
            return
        if before is not None:
            for parameter, grad in zip(self.module.parameters(), before, strict=True):
                parameter.grad = grad
        self._left[lane] = [p.grad for p in self.module.parameters()]
        if not self._adds_up and any(grad is not None for grad in self._left[lane]):
            self._adds_up = True
            if self.lanes.group.rank == 0:
                _report.note(
                    "the operator adds gradients up over batches: those since its last step are lost where a "
                    "worker is lost or the run is resumed; a larger batch_size with more lanes loses nothing"
                )

    def _train_epoch(self, part: Batch) -> tuple[Mapping[str, Any], int]:
        self._gone_rows = self._going_batches = 0
        info = {**self.info, "epoch_idx": self.epoch, "global_step": self._gone_batches}
        batches = unless_empty(self._batches(part.values))
        if batches is None:
            return {}, 0
        said = self.operator.train_epoch(batches, info)
        return checked(said, "train_epoch"), self._gone_rows

    def _batches(self, feed: Any) -> Iterator[Any]:
        """All batches of this worker in an epoch."""
        lanes = self.lanes
        for number in itertools.count():
            answer = feed.next()
            if answer is None:
                return
            total, weight, [(lane, rows, mine, batch)] = answer
            if total is None and not rows:
                return
            # For whoever looks whether there is any progress.
            _native.advance()
            self._going_batches = number + 1
            self._seed(_native.lane_seed("model", lanes.seed, self.epoch, number, lane))
            # What all lanes weigh shows when they meet for a step.
            self._share, self._weight = (None, mine) if weight is None else (mine / weight, 0.0)
            if rows:
                self._gone_rows += rows
                yield self._here(batch.values)
                self._check_rows(lane, rows, number)
                self._calls.renew()

    # Steps

    def _stepping(self, index: int) -> Callable[..., Any]:
        real = self._real[index]

        def step(closure: Callable[[], Any] | None = None) -> Any:
            if self._applying or not self._in_batch:
                return real(closure) if closure is not None else real()
            if closure is not None:
                self._check_search()
                return self._search(index, closure)
            self._check_scaled()
            if self._apart:
                self._together(index)
            else:
                self._keep(index)
            return None

        # Schedulers look for it, and would warn that another step has taken the place of theirs.
        step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
        return step

    def _check_scaled(self) -> None:
        if self.precision is not None and self.precision.scales and not self.precision.used:
            raise ValueError(
                "precision='fp16' needs scaled gradients: call self.backward(loss) instead of loss.backward()"
            )

    def _check_search(self) -> None:
        if not self._apart:
            raise ValueError(
                "a step with a closure needs a worker for each lane: there are "
                f"{self.lanes.total} lanes on {self.lanes.group.size} workers; leave lanes out, or start as "
                "many workers"
            )
        if self.precision is not None and self.precision.scales:
            raise ValueError("a step with a closure cannot scale losses: use precision='bf16' or None")

    def _taken(self, index: int) -> list[Tensor | None]:
        """This lane's gradients as they are; none where they count for nothing, which may be NaN."""
        if not self._counts:
            return [None] * len(self._parameters[index])
        found: list[Tensor | None] = []
        for parameter in self._parameters[index]:
            grad = None if parameter.grad is None else parameter.grad.detach()
            if grad is not None and grad.is_sparse:
                grad = grad.to_dense()
            found.append(grad)
        return found

    @property
    def _counts(self) -> bool:
        """Whether the batch counts for anything."""
        return bool(self._weight if self._share is None else self._share)

    def _weighed(self, grads: list[Tensor | None], words: list[Word]) -> list[Tensor | None]:
        """Gradients by what they count for among those of all who take the step."""
        share = share_of(words, self._weight) if self._share is None else self._share
        return grads if share == 1.0 else [None if grad is None else grad * share for grad in grads]

    def _keep(self, index: int) -> None:
        """Wait for the other lanes of this worker: the step is done when they have come as far."""
        waiting = self._waiting.setdefault(self._lane, {})
        if index in waiting:
            raise ValueError(
                "the operator takes more than one step for a batch, which needs a worker for each lane: "
                f"there are {self.lanes.total} lanes on {self.lanes.group.size} workers; leave lanes out, or "
                "start as many workers"
            )
        # A copy: what the lane does afterwards with its gradients is not part of the step.
        waiting[index] = [_copied(each) for each in self._weighed(self._taken(index), [])]

    def _together(self, index: int) -> None:
        grads = self._taken(index)
        words = meet(self.lanes.group, Word("step", index, present(grads), weight=self._weight))
        self._sum(index, {self.lanes.mine[0]: self._weighed(grads, words)}, [word.has for word in words])
        self._take_step(index)

    def _take_step(self, index: int) -> None:
        # Where another step follows and fails, this one is done and that one is not.
        self._torn = True
        self._applying = True
        # What the operator draws afterwards is its lane's own again.
        drawn = creator.seeded(0) if self._in_batch and not self.lanes.alone else nullcontext()
        try:
            with drawn:
                self._apply(self.optimizers[index], self._parameters[index])
        finally:
            self._applying = False
        self._steps += 1

    def _sum(self, index: int, lanes: dict[int, list[Tensor | None]], has: list[bytes]) -> None:
        """Let gradients be those of all lanes; what none of them has stays without."""
        parameters = self._parameters[index]
        used = [any(each and each[place] for each in has) for place in range(len(parameters))]
        for dtype in dict.fromkeys(p.dtype for p, is_used in zip(parameters, used, strict=True) if is_used):
            places = [i for i, p in enumerate(parameters) if used[i] and p.dtype == dtype]
            flats = {}
            for lane, grads in lanes.items():
                parts = [(grads[i], parameters[i]) for i in places]
                whole = [torch.zeros_like(own) if grad is None else grad for grad, own in parts]
                flats[lane] = torch.cat([part.reshape(-1) for part in whole])
            added = self._added(flats)
            sizes = [parameters[i].numel() for i in places]
            for i, part in zip(places, added.split(sizes), strict=True):
                parameters[i].grad = part.view(parameters[i].shape)
        for parameter, is_used in zip(parameters, used, strict=True):
            if not is_used:
                parameter.grad = None

    def _added(self, flats: dict[int, Tensor]) -> Tensor:
        if self._other is not None:
            [whole] = flats.values()
            self._other._sum_of_all(whole)
            return whole
        if self.lanes.alone:
            return next(iter(flats.values()))
        arrays = {lane: flat.cpu().contiguous() for lane, flat in flats.items()}
        self.lanes.group.all_reduce(arrays)
        return next(iter(arrays.values())).to(self.device)

    def _search(self, index: int, closure: Callable[[], Any] | None, met: list[Word] | None = None) -> Any:
        """A step that asks for the loss several times; who has no rows goes the same way with zeros.

        Who joins has met the others already.
        """

        def evaluate() -> Tensor:
            nonlocal met
            loss, weight = torch.zeros(()), 0.0
            for parameter in [] if closure is not None else self._parameters[index]:
                parameter.grad = None
            if closure is not None:
                self._applying = False
                own = closure().detach()
                weight = self._weight
                if self._counts:
                    loss = own if self._share is None else own * self._share
                self._applying = True
            grads = self._taken(index)
            words = met or meet(
                self.lanes.group, Word("search", index, present(grads), float(loss), weight=weight)
            )
            met = None
            self._sum(index, {self.lanes.mine[0]: self._weighed(grads, words)}, [word.has for word in words])
            if self.spec.clipping is not None:
                _torch_outputs.clip(self._parameters[index], self.spec.clipping)
            self._torn = True
            return torch.tensor(_torch_meeting.loss_of(words), device=self.device)

        self._applying = True
        try:
            found = self._real[index](evaluate)
        finally:
            self._applying = False
        self._steps += 1
        return found

    def commit(self) -> float | None:
        """Join the others until all have ended; then the batch is done."""
        if not self._owns_batch:
            return super().commit()
        loss = sum(self._losses.values())
        word = Word(END, loss=loss, stops=wants_to_stop(), says=self._says, rows=self._seen)
        found = self._check.take() if self._check is not None and self._check.step_ends() else None
        word = word._replace(moves=merged(self._moves.values()), found=found)
        try:
            words = self._ended(word)
        except CollectiveError:
            # Who has no rows knows from batches before how many steps there are.
            knows = bool(self._losses or self._most_steps) and max(self._steps, self._most_steps) == 1
            if self._torn and knows and self._buffers.take_own():  # type: ignore[union-attr]
                # Its one step is done here, whole: only the news of the end did not come.
                self._schedule(word.moves)
                # What the others would have said is not known: the loss is that of the rows here.
                part = self._seen if self.owns_epoch else self._share
                self.applied = loss / part if self._losses and part else loss
                self._done()
            raise
        total = sum(word.loss for word in words)
        total = total / max(1, sum(word.rows for word in words)) if self.owns_epoch else total
        self.stops = any(word.stops for word in words)
        if self._check is not None:
            self._check.tell([word.found for word in words if word.found is not None])
        with uninterrupted():
            # Lanes that have waited for each other take their one step now; the only optimizer is the first.
            if not self._apart and any(each.optimizer for each in words):
                self._take_step(0)
            # The weights are those of after the batch, even where a schedule fails now.
            self._torn, self.applied = False, float(total)
            self._schedule(merged(word.moves for word in words))
            self._done()
        return float(total)

    # Schedulers

    def _move(self, metric: float | None) -> None:
        """The operator wants schedulers to move: they do so alike on all workers."""
        metric = None if metric is None else as_number(metric)
        if self._in_batch and self.owns_epoch:
            moved = False
            while not moved:
                words = meet(self.lanes.group, Word(MOVE, moves=(metric,)))
                moved = step_of(words) is None
                self._join(words)
        else:
            self._moves.setdefault(self._lane if self._in_batch else -1, []).append(metric)

    def _ended(self, word: Word) -> list[Word]:
        if not self._apart:
            return self._step_of_all_lanes(word)
        while True:
            words = meet(self.lanes.group, word)
            if any(each.does != END for each in words):
                self._join(words)
                continue
            self._buffers.finish(words[0].says)  # type: ignore[union-attr]
            # Code of the user may change weights beside steps, and was not called where no rows are.
            if self.owns_epoch or not all(each.rows for each in words):
                _torch_state.spread(self.module, self.lanes.group)
            return words

    def _join(self, words: list[Word]) -> None:
        """Do with the others what some of them do: a step, with no gradients of one's own, or a move."""
        taken = step_of(words)
        if taken is None:
            self._torn = True
            self._schedule(merged(each.moves for each in words if each.does == MOVE))
        elif taken.does == "search":
            self._search(taken.optimizer, None, words)
        else:
            nothing: list[Tensor | None] = [None] * len(self._parameters[taken.optimizer])
            self._sum(taken.optimizer, {self.lanes.mine[0]: nothing}, [each.has for each in words])
            self._take_step(taken.optimizer)

    def _step_of_all_lanes(self, word: Word) -> list[Word]:
        """What all lanes say, and the sum of what they have waited with: of the first optimizer."""
        nothing: list[Tensor | None] = [None] * len(self._parameters[0])
        grads = {lane: self._waiting.get(lane, {}).get(0, nothing) for lane in self.lanes.mine}
        has = bytes(any(each) for each in zip(*(present(each) for each in grads.values()), strict=True))
        stepped = any(0 in waiting for waiting in self._waiting.values())
        words = meet(self.lanes.group, word._replace(optimizer=int(stepped), has=has))
        if any(each.optimizer for each in words):
            self._sum(0, grads, [each.has for each in words])
        # What others take part in comes before the step, so that a step is done as a whole.
        self._buffers.finish(words[0].says)  # type: ignore[union-attr]
        return words

    def _done(self) -> None:
        """A batch is done."""
        if self.precision is not None:
            self.precision.update()
        self._most_steps = max(self._most_steps, self._steps)
        self._steps = self._seen = 0
        self._gone_batches += self._going_batches
        self._going_batches = 0
        self._batch += 1
        self._waiting.clear()
        self._losses.clear()
        self._moves.clear()
        self._stepped()
        self.repeated.done()
        self._torn = False

    def roll_back(self) -> bool:
        """Forget what was begun of a batch; false where a part of its steps was done."""
        self._waiting.clear()
        self._losses.clear()
        self._moves.clear()
        self._steps = self._seen = 0
        return super().roll_back()

    def said(self) -> dict[str, float]:
        """What the operator has said about the epoch's batches, over all workers."""
        return self._said_by_all()


def _copied(grad: Tensor | None) -> Tensor | None:
    return None if grad is None else grad.clone()
