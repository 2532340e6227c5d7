"""Trees of dicts, tuples and lists, whose leaves are what a framework takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from grampus.columns import ColumnStep

if TYPE_CHECKING:
    from grampus.shards.batches import Columns

Tree = Any


def mapped(function: Callable[[Any], Any], tree: Tree) -> Tree:
    """A tree of dicts, tuples and lists with another thing at each leaf."""
    if isinstance(tree, Mapping):
        return {name: mapped(function, value) for name, value in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(mapped(function, value) for value in tree))
    if isinstance(tree, list | tuple):
        return type(tree)(mapped(function, value) for value in tree)
    return function(tree)


def leaves(tree: Tree) -> list[Any]:
    """All leaves of a tree, in order."""
    found: list[Any] = []
    mapped(found.append, tree)
    return found


def columns(
    data: Mapping[str, Any], names: Columns | None, what: str, made: Callable[[str, Any], Any]
) -> Tree:
    """What is made of the named columns of a dict or frame: one alone, several as a tuple."""
    if names is None:
        return None
    wanted: list[Any] = [names] if isinstance(names, str | ColumnStep) else list(names)
    steps = [name for name in wanted if isinstance(name, ColumnStep | list)]
    if steps:
        raise TypeError(
            f"{what} has {steps[0]!r}, and steps and lists of columns are for tables: make one, such as "
            "gp.Shards.from_pandas(pandas.DataFrame(data))"
        )
    missing = [name for name in wanted if name not in data]
    if missing:
        have = ", ".join(map(repr, data))
        raise KeyError(f"{what} names {missing[0]!r}, which is not there: there are {have}")
    found = tuple(made(name, data[name]) for name in wanted)
    return found[0] if len(found) == 1 else found
