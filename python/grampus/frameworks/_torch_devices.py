"""Where a model computes, and with which numbers."""

from __future__ import annotations

import queue
import threading
from collections import deque
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.utils.rnn import PackedSequence

from grampus import _forks, _report, context
from grampus._training import trees
from grampus.frameworks._torch_memory import pinned

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from grampus._training.feed import Answer, StreamFeed, TableFeed

Tensor = Any
_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
# Arrays are kept on a GPU where they take no more than this share of what is free there.
_RESIDENT = 0.25


def device_of(module: Any, asked: str | None) -> torch.device:
    """Where a model is to be: where it is already, where the user wants it, or on this worker's GPU.

    Workers of a host take its GPUs in turn; with fewer GPUs than workers, some share one.
    """
    now: torch.device = next((p.device for p in module.parameters()), torch.device("cpu"))
    if now.type != "cpu":
        return now
    wanted = None if asked is None else _device(asked)
    count = torch.cuda.device_count() if wanted is None or wanted.type == "cuda" else 0
    if wanted is not None and wanted.type == "cuda" and count == 0:
        raise ValueError(
            f"device={asked!r} was asked for, and this worker sees no GPU: leave device out, "
            "or ask an engine for some (gpus_per_worker)"
        )
    if wanted is not None and wanted != torch.device("cuda"):
        return wanted
    return torch.device("cuda", context.local_rank() % count) if count else now


def _device(asked: Any) -> torch.device:
    try:
        return torch.device(asked)
    except (RuntimeError, TypeError):
        raise ValueError(f"device must be 'cpu' or 'cuda', it is {asked!r}") from None


def settle(module: Any, asked: str | None) -> torch.device:
    """Put a model where it is to be; one that code of the user has put somewhere stays, in parts too."""
    device = device_of(module, asked)
    if device.type == "cuda":
        torch.cuda.set_device(device)
        _forks.leave_garbage_to_parent()
    if all(p.device.type == "cpu" for p in module.parameters()):
        module.to(device)
    return device


class Precision:
    """Forward in half precision: weights, gradients and optimizers keep theirs."""

    def __init__(self, name: str, device: torch.device, optimizers: Sequence[Any] = ()) -> None:
        """`bf16` or `fp16`; the latter needs larger losses, so that small gradients do not vanish."""
        self._optimizers = optimizers
        # Those that have taken a step with the present scale, which changes when all have.
        self._stepped: list[Any] = []
        self._device = device.type
        self._type = _TYPES[name]
        self.scales = name == "fp16"
        self._scaler = torch.amp.GradScaler(device.type) if self.scales else None
        if self._scaler is not None:
            # It begins with the first loss, which a worker without rows has yet to meet.
            self._scaler.scale(torch.zeros((), device=device))
        # Whether a loss was scaled here.
        self.used = False
        self._name = name
        # Whether anything was computed in half precision, and whether that was looked for.
        self._has_cast = self._is_checked = False

    def autocast(self) -> AbstractContextManager[Any]:
        """Inside, operations that are fit for it compute in half precision."""
        self._has_cast = True
        found: AbstractContextManager[Any] = torch.autocast(self._device, self._type)
        return found

    def check_use(self) -> None:
        """Say once that an operator computes as if no precision had been asked for."""
        if not self._has_cast and not self._is_checked:
            _report.note(
                f"precision={self._name!r} has no effect on the operator's own steps: let them compute "
                "forward inside `with self.autocast():`, or leave it out"
            )
        self._is_checked = True

    def scaled(self, loss: Tensor) -> Tensor:
        """The loss from which to go backward."""
        self.used = True
        return loss if self._scaler is None else self._scaler.scale(loss)

    def unscale(self, optimizer: Any) -> None:
        """Gradients as they would be without scaling."""
        if self._scaler is not None:
            if any(each is optimizer for each in self._stepped):
                self.update()
            self._scaler.unscale_(optimizer)

    def step(self, optimizer: Any) -> None:
        """Let the optimizer take a step, unless gradients have overflown: then the scale becomes smaller."""
        if self._scaler is None:
            optimizer.step()
            return
        self._scaler.step(optimizer)
        self._stepped.append(optimizer)
        if len(self._stepped) == len(self._optimizers):
            self.update()

    def update(self) -> None:
        """Change the scale, if it is time; gradients that wait for a step are brought to the new one."""
        if self._scaler is None or not self._stepped:
            return
        all_stepped = len(self._stepped) == len(self._optimizers)
        self._stepped = []
        if all_stepped:
            self._scaler.update()
            return
        before = self._scaler.get_scale()
        self._scaler.update()
        change = self._scaler.get_scale() / before
        grouped = (group["params"] for each in self._optimizers for group in each.param_groups)
        for parameter in {id(p): p for params in grouped for p in params}.values():
            if change != 1.0 and parameter.grad is not None:
                parameter.grad.mul_(change)

    def state(self) -> dict[str, Any]:
        """What a run needs to go on."""
        return {} if self._scaler is None else dict(self._scaler.state_dict())

    def load(self, state: dict[str, Any]) -> None:
        """Go on."""
        if self._scaler is not None and state:
            self._scaler.load_state_dict(state)


def resident(tree: Any, device: torch.device) -> Any:
    """Arrays on the GPU where they take little of it: then no batch has to travel there."""
    if device.type != "cuda":
        return tree
    size = sum(leaf.numel() * leaf.element_size() for leaf in trees.leaves(tree))
    free, _ = torch.cuda.mem_get_info(device)
    return trees.mapped(lambda leaf: leaf.to(device), tree) if size <= _RESIDENT * free else tree


class Ahead:
    """Batches that travel to a GPU while the one before is worked on.

    What Grampus's own threads read is sent by a thread, too: whoever keeps a GPU busy has no time for it.
    """

    # Batches that are there, or on their way.
    _READY = 2

    def __init__(self, feed: TableFeed | StreamFeed, device: torch.device) -> None:
        """Of a feed whose batches are in the host."""
        self._feed = feed
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._batches: Iterator[Answer] = iter(())
        self._apart = bool(getattr(feed, "reads_by_itself", False))
        self._sender: _Sender | None = None
        self.batch_size = feed.batch_size

    def __getattr__(self, name: str) -> Any:
        return getattr(self._feed, name)

    def open(self, epoch: int, step: int) -> None:
        """Go to a step of an epoch."""
        self._end()
        self._feed.open(epoch, step)
        if self._apart:
            self._sender = _Sender(self._sent(), self._READY)
        self._batches = map(self._arrived, self._sent() if self._sender is None else self._sender)

    def next(self) -> Answer | None:
        """The next batch; nothing at the end of the epoch."""
        return next(self._batches, None)

    def close(self) -> None:
        """Let go of all that reads."""
        self._end()
        self._feed.close()

    def _end(self) -> None:
        self._batches = iter(())
        if self._sender is not None:
            self._sender.close()
            self._sender = None

    def _sent(self) -> Iterator[tuple[Answer, Any]]:
        before: tuple[Answer, Any] | None = None
        while (answer := self._feed.next()) is not None:
            after = self._send(answer)
            if before is not None:
                yield before
            before = after
        if before is not None:
            yield before

    def _send(self, answer: Answer) -> tuple[Answer, Any]:
        rows, weight, parts = answer
        with torch.cuda.stream(self._stream):
            sent = [
                (*part[:3], None if part[3] is None else part[3]._replace(values=self._moved(part[3].values)))
                for part in parts
            ]
            return (rows, weight, sent), self._stream.record_event()

    def _moved(self, values: Any) -> Any:
        def move(leaf: Any) -> Any:
            if isinstance(leaf, PackedSequence):
                return leaf.pin_memory().to(self._device, non_blocking=True)
            if not isinstance(leaf, torch.Tensor) or leaf.device == self._device:
                return leaf
            # Only from pinned memory does a copy run beside the host.
            return pinned(leaf).to(self._device, non_blocking=True)

        return trees.mapped(move, values)

    def _arrived(self, sent: tuple[Answer, Any]) -> Answer:
        answer, event = sent
        now = torch.cuda.current_stream(self._device)
        now.wait_event(event)
        for part in answer[2]:
            for leaf in [] if part[3] is None else _tensors(part[3].values):
                if isinstance(leaf, torch.Tensor) and leaf.is_cuda:
                    # Its memory is given to others only when this stream has used it.
                    leaf.record_stream(now)
        return answer


def _tensors(values: Any) -> Iterator[Any]:
    """All leaves; of sequences that are packed, their tensors."""
    for leaf in trees.leaves(values):
        yield from leaf if isinstance(leaf, PackedSequence) else (leaf,)


class _Sender:
    """A thread that makes some things ready ahead of time."""

    # Whoever ends it waits so long for what it is at.
    _WITHIN = 30.0
    _LOOKS = 0.1

    def __init__(self, made: Iterator[Any], ahead: int) -> None:
        self._made = made
        self._ready: queue.Queue[tuple[str, Any]] = queue.Queue(ahead)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, name="grampus-ahead", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[Any]:
        while True:
            kind, found = self._ready.get()
            if kind == "end":
                return
            if kind == "failed":
                raise found
            yield found

    def _work(self) -> None:
        try:
            for each in self._made:
                if not self._put(("made", each)):
                    return
            self._put(("end", None))
        except BaseException as error:
            self._put(("failed", error))

    def _put(self, what: tuple[str, Any]) -> bool:
        while not self._stopped.is_set():
            try:
                self._ready.put(what, timeout=self._LOOKS)
            except queue.Full:
                continue
            return True
        return False

    def close(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._thread.join(self._WITHIN)


class Late:
    """Losses on their way from a GPU, for which the host does not wait."""

    # Steps by which the host may be ahead: enough to keep the GPU busy, and little memory.
    _AHEAD = 4
    # Losses that travel together: each journey costs the host time.
    _TOGETHER = 8

    def __init__(self) -> None:
        self._steps: deque[Any] = deque()
        self._kept: list[tuple[Tensor, Any]] = []
        self._sent: deque[tuple[Tensor, list[Any], Any]] = deque()

    def add(self, loss: Tensor, besides: Any, judged: Any = None) -> None:
        """The loss of a step, what is known of it in the host, and what metrics are to see."""
        seen = None if judged is None else trees.mapped(_sent_home, judged)
        self._kept.append((loss.detach(), (besides, seen)))
        self._steps.append(_marked())
        if len(self._steps) > self._AHEAD:
            self._steps.popleft().synchronize()
        # Outputs take more room than losses do.
        if judged is not None or len(self._kept) == self._TOGETHER:
            self._send()

    def _send(self) -> None:
        losses = _sent_home(torch.stack([loss.reshape(()) for loss, _ in self._kept]))
        self._sent.append((losses, [told for _, told in self._kept], _marked()))
        self._kept = []

    def come(self, wait: bool) -> list[tuple[float, Any, Any]]:
        """What has arrived, from the oldest on; all where it is to wait."""
        if wait and self._kept:
            self._send()
        if wait and self._sent:
            self._sent[-1][2].synchronize()
        found: list[tuple[float, Any, Any]] = []
        while self._sent and self._sent[0][2].query():
            losses, told, _ = self._sent.popleft()
            found += [(loss, *each) for loss, each in zip(losses.tolist(), told, strict=True)]
        return found


def _marked() -> Any:
    """What tells when all that was asked of the GPU so far is done."""
    event = torch.cuda.Event()
    event.record()
    return event


def _sent_home(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor) or not leaf.is_cuda:
        return leaf
    host = torch.empty(leaf.shape, dtype=leaf.dtype, pin_memory=True)
    return host.copy_(leaf.detach(), non_blocking=True)
