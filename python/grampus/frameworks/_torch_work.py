"""Calls on their way, as torch sees them."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Sequence
from datetime import timedelta
from queue import SimpleQueue
from typing import Any

from torch.distributed.distributed_c10d import Work
from torch.futures import Future

from grampus import _native
from grampus.frameworks._torch_memory import Loan

Tensor = Any

# How long the completing thread waits in one go; the wait itself has the group's deadline.
_LONG = 3600.0

# How long a program that ends waits for the thread: torch aborts where Python ends while a future is set.
_AT_EXIT = 0.5

# How long whoever asks for the future of a call on so few bytes sees it through itself. Of larger ones DDP
# makes several, during which it goes on computing.
_LINGER = 0.01
_SMALL = 1 << 20


class Done(Work):  # type: ignore[misc]
    """A call that was through before it returned."""

    def __init__(self, value: Sequence[Tensor]) -> None:
        Work.__init__(self)
        self._value = value

    def result(self) -> list[Tensor]:
        """The tensors that the call wrote."""
        return list(self._value)

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Nothing to wait for."""
        del timeout
        return True

    def is_completed(self) -> bool:
        """Whether the call is through."""
        return True

    def is_success(self) -> bool:
        """Whether it went well."""
        return True

    def get_future(self) -> Any:
        """A future that is there already."""
        future = Future()
        future.set_result(list(self._value))
        return future


class Pending(Work):  # type: ignore[misc]
    """A call that may still be on its way. Whoever waits drives it; only a future needs a thread."""

    def __init__(
        self, handle: _native.Handle, value: Sequence[Tensor], loan: Loan | None, completion: Completion
    ) -> None:
        Work.__init__(self)
        self.handle = handle
        self._value = value
        self._loan = loan
        self._lock = None if loan is None else threading.Lock()
        self._completion = completion
        self._future: Any = None

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Wait for the end of the call."""
        self.handle.wait(timeout.total_seconds() if timeout else None)
        self._give_back()
        return True

    def synchronize(self) -> None:
        """The same as to wait."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether the call is through, well or not."""
        return self.handle.done()

    def is_success(self) -> bool:
        """Whether the call is through and went well."""
        return self.handle.done() and self.exception() is None

    def exception(self) -> Exception | None:
        """The error of a call that is through."""
        try:
            self.handle.outcome(0)
        except Exception as error:
            return error
        return None

    def result(self) -> list[Tensor]:
        """The tensors that the call wrote."""
        return list(self._value)

    def get_future(self) -> Any:
        """A future of the tensors that the call wrote."""
        if self._future is None:
            gate = Future(devices=list({tensor.device for tensor in self._value if tensor.is_cuda}))
            if self.handle.done() or self._see_through():
                self._future = gate
                gate.set_result(self._settle())
            else:
                # The error of a callback is one that DDP understands, that of `set_exception` is not.
                self._future = gate.then(lambda _: self._settle())
                self._completion.add(self.handle, gate)
        return self._future

    def _see_through(self) -> bool:
        """To hand a small sum over to threads costs more than to see it through, unless others are late."""
        small = sum(tensor.numel() * tensor.element_size() for tensor in self._value) <= _SMALL
        return small and self.handle.linger(_LINGER)

    def _settle(self) -> list[Tensor]:
        self.handle.outcome(_LONG)
        self._give_back()
        return list(self._value)

    def _give_back(self) -> None:
        if self._loan is not None and self._lock is not None:
            with self._lock:
                self._loan.give_back()


class Completion:
    """Completes futures from a thread of its own, which is there once it was needed.

    Calls of a group end in the order in which they were made, so one thread waits for one after the other.
    """

    def __init__(self) -> None:
        self._waiting: SimpleQueue[tuple[_native.Handle, Any] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def add(self, handle: _native.Handle, gate: Any) -> None:
        """Open the gate when the call is through."""
        if self._thread is None:
            # It must not keep a program alive that ends without leaving the group.
            self._thread = threading.Thread(target=self._serve, name="grampus-torch", daemon=True)
            self._thread.start()
            atexit.register(self.close, _AT_EXIT)
        self._waiting.put((handle, gate))

    def close(self, within: float | None = None) -> None:
        """End the thread; the calls that it waits for must end by themselves."""
        atexit.unregister(self.close)
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join(within)
            self._thread = None

    def _serve(self) -> None:
        while (item := self._waiting.get()) is not None:
            handle, gate = item
            _await_end(handle)
            gate.set_result(None)


def _await_end(handle: _native.Handle) -> None:
    try:
        while not handle.outcome(_LONG):
            pass
    except Exception:
        # Whoever asks for the outcome gets it.
        return
