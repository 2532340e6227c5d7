"""Which object cannot be pickled, and where it came from."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Deep enough for a model inside a trainer inside a closure; a limit all the same.
_DEEPEST = 6


def explain(value: Any, name: str) -> str:
    """Say which part of `value`, called `name`, cannot be pickled.

    >>> import threading
    >>> lock = threading.Lock()
    >>> print(explain({"model": [1, lock]}, "argument 0"))
    argument 0 -> ['model'] -> [1] is a lock, which cannot be sent to another process
    """
    path, culprit = _search(value, name, _DEEPEST, set())
    return f"{' -> '.join(path)} is a {type(culprit).__name__}, which cannot be sent to another process"


def fails(value: Any) -> bool:
    import cloudpickle

    try:
        cloudpickle.dumps(value, protocol=5, buffer_callback=lambda _: None)
    except Exception:
        return True
    return False


def _search(value: Any, name: str, depth: int, seen: set[int]) -> tuple[list[str], Any]:
    """Follow the first part that fails by itself, down to one whose parts are all fine."""
    seen.add(id(value))
    if depth > 0:
        for part_name, part in _parts(value):
            if id(part) not in seen and fails(part):
                path, culprit = _search(part, part_name, depth - 1, seen)
                return [name, *path], culprit
    return [name], value


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, types.FunctionType):
        yield from _function_parts(value)
    elif isinstance(value, types.MethodType):
        yield "its object", value.__self__
    elif isinstance(value, dict):
        yield from ((f"[{key!r}]", part) for key, part in value.items())
    elif isinstance(value, list | tuple):
        yield from ((f"[{place}]", part) for place, part in enumerate(value))
    elif isinstance(value, set | frozenset):
        yield from (("an element", part) for part in value)
    elif hasattr(value, "__dict__"):
        yield from ((f"attribute {key!r}", part) for key, part in vars(value).items())


def _function_parts(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    code = function.__code__
    place = f"({code.co_filename}:{code.co_firstlineno})"
    for variable, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield f"variable {variable!r} of the enclosing function {place}", cell.cell_contents
        except ValueError:
            continue  # the variable was never set
    for variable in code.co_names:
        if variable in function.__globals__ and not isinstance(
            function.__globals__[variable], types.ModuleType
        ):
            yield f"global variable {variable!r} {place}", function.__globals__[variable]
    for place_in_list, default in enumerate(function.__defaults__ or ()):
        yield f"default value {place_in_list} {place}", default


def describe(function: Callable[..., Any]) -> str:
    """Name a function with its place in the source."""
    name = getattr(function, "__qualname__", type(function).__name__)
    code = getattr(function, "__code__", None)
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code else str(name)
