"""Where a model computes, and with which numbers."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch

from grampus import context
from grampus._training import trees

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    count = torch.cuda.device_count() if asked != "cpu" else 0
    if asked is not None and asked != "cuda":
        return torch.device(asked)
    if count == 0:
        if asked == "cuda":
            raise ValueError("device='cuda' was asked for, and this worker sees no GPU: leave device out")
        return now
    return torch.device("cuda", context.local_rank() % count)


class Precision:
    """Forward in half precision: weights, gradients and optimizers keep theirs."""

    def __init__(self, name: str, device: torch.device) -> None:
        """`bf16` or `fp16`; the latter needs larger losses, so that small gradients do not vanish."""
        self._device = device.type
        self._type = _TYPES[name]
        self.scales = name == "fp16"
        self._scaler = torch.amp.GradScaler(device.type) if self.scales else None

    def autocast(self) -> AbstractContextManager[Any]:
        """Inside, operations that are fit for it compute in half precision."""
        found: AbstractContextManager[Any] = torch.autocast(self._device, self._type)
        return found

    def scaled(self, loss: Tensor) -> Tensor:
        """The loss from which to go backward."""
        return loss if self._scaler is None else self._scaler.scale(loss)

    def unscale(self, optimizer: Any) -> None:
        """Gradients as they would be without scaling."""
        if self._scaler is not None:
            self._scaler.unscale_(optimizer)

    def step(self, optimizer: Any) -> None:
        """Let the optimizer take a step, unless gradients have overflown: then the scale becomes smaller."""
        if self._scaler is None:
            optimizer.step()
            return
        self._scaler.step(optimizer)
        self._scaler.update()

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
    """Batches that travel to a GPU while the one before is worked on."""

    def __init__(self, feed: TableFeed | StreamFeed, device: torch.device) -> None:
        """Of a feed whose batches are in the host."""
        self._feed = feed
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._batches: Iterator[Answer] = iter(())
        self.batch_size = feed.batch_size

    def __getattr__(self, name: str) -> Any:
        return getattr(self._feed, name)

    def open(self, epoch: int, step: int) -> None:
        """Go to a step of an epoch."""
        self._feed.open(epoch, step)
        self._batches = self._sent()

    def next(self) -> Answer | None:
        """The next batch; nothing at the end of the epoch."""
        return next(self._batches, None)

    def close(self) -> None:
        """Let go of all that reads."""
        self._batches = iter(())
        self._feed.close()

    def _sent(self) -> Iterator[Answer]:
        under_way: tuple[Answer, Any] | None = None
        while True:
            answer = self._feed.next()
            sent = None if answer is None else self._send(answer)
            if under_way is not None:
                yield self._arrived(*under_way)
            if sent is None:
                return
            under_way = sent

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
            if not isinstance(leaf, torch.Tensor) or leaf.device == self._device:
                return leaf
            # Only from pinned memory does a copy run beside the host; torch keeps such memory for the next.
            return leaf.pin_memory().to(self._device, non_blocking=True)

        return trees.mapped(move, values)

    def _arrived(self, answer: Answer, event: Any) -> Answer:
        now = torch.cuda.current_stream(self._device)
        now.wait_event(event)
        for part in answer[2]:
            for leaf in [] if part[3] is None else trees.leaves(part[3].values):
                if isinstance(leaf, torch.Tensor) and leaf.is_cuda:
                    # Its memory is given to others only when this stream has used it.
                    leaf.record_stream(now)
        return answer


class Late:
    """Losses and outputs on their way from a GPU, for which the host does not wait."""

    # Steps by which the host may be ahead: enough to keep the GPU busy, and little memory.
    _AHEAD = 4

    def __init__(self) -> None:
        self._waiting: list[tuple[Any, Any]] = []

    def add(self, told: Any) -> None:
        """Something that holds tensors of the GPU."""
        host = trees.mapped(_sent_home, told)
        event = torch.cuda.Event()
        event.record()
        self._waiting.append((host, event))
        if len(self._waiting) > self._AHEAD:
            self._waiting[-self._AHEAD - 1][1].synchronize()

    def come(self, wait: bool) -> list[Any]:
        """What has arrived, from the oldest on; all where it is to wait."""
        if wait and self._waiting:
            self._waiting[-1][1].synchronize()
        count = 0
        while count < len(self._waiting) and self._waiting[count][1].query():
            count += 1
        found, self._waiting = self._waiting[:count], self._waiting[count:]
        return [host for host, _ in found]


def _sent_home(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor) or not leaf.is_cuda:
        return leaf
    host = torch.empty(leaf.shape, dtype=leaf.dtype, pin_memory=True)
    return host.copy_(leaf.detach(), non_blocking=True)
