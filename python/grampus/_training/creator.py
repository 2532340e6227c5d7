"""Calling what users pass to make models, optimizers and data: seeded alike, on one of each host first."""

from __future__ import annotations

import inspect
import random
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from grampus import _native, context

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from grampus._training.lanes import Lanes


def required(function: Callable[..., Any]) -> tuple[int, int] | None:
    """How many positional arguments a function needs and takes; nothing where it cannot be told.

    >>> required(lambda config, batch_size, download=True: None)
    (2, 3)
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = sum(p.default is p.empty for p in positional)
    if inspect.isclass(function) and "config" not in [p.name for p in positional]:
        # Arguments with defaults are a class's own business: a width, a number of classes.
        return needed, needed
    several = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    return needed, sys.maxsize if several else len(positional)


def call(function: Callable[..., Any], what: str, shape: str, *arguments: Any) -> Any:
    """Call a creator with as many of the arguments as it needs, and as it takes of those with a default."""
    bounds = required(function)
    if bounds is None:
        return function(*arguments)
    needed, taken = bounds
    if needed > len(arguments):
        name = getattr(function, "__qualname__", repr(function))
        raise TypeError(f"the {what} {name} needs {needed} arguments: write it as {shape}")
    return function(*arguments[: max(needed, min(taken, len(arguments)))])


def in_turn(lanes: Lanes, make: Callable[[], Any]) -> Any:
    """Call on every worker: first on one of each host, since creators download files, then on the others."""
    group = lanes.group
    several = any(map(int, group._native.gather_bytes(b"%d" % (context.local_world_size() > 1))))
    is_first = context.local_rank() == 0
    made = make() if is_first else None
    if several:
        group.barrier()
    return made if is_first else make()


def seed_all(seed: int) -> None:
    """Seed the generators that code of users draws from, where they are loaded."""
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed & 0xFFFFFFFF)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed them for as long as this lasts: in the process of a user, what they draw stays theirs."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    drawn = random.getstate(), numpy and numpy.random.get_state()
    with ExitStack() as stack:
        if torch is not None:
            cuda = torch.cuda
            devices = range(cuda.device_count()) if cuda.is_initialized() else ()
            stack.enter_context(torch.random.fork_rng(devices))
        try:
            seed_all(seed)
            yield
        finally:
            random.setstate(drawn[0])
            if numpy is not None:
                numpy.random.set_state(drawn[1])


def make_seed(seed: int, what: int) -> int:
    """A seed for making something; `what` tells things apart."""
    return _native.lane_seed("make", seed, what, 0, 0)
