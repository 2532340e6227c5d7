"""Trees of dicts, tuples and lists, whose leaves are what a framework takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from grampus.columns import ColumnStep
from grampus.errors import DataError

if TYPE_CHECKING:
    from grampus.shards.batches import Columns

Tree = Any
# Arrays that an error names.
_SHOWN = 4


def is_one(tree: Tree) -> bool:
    """Whether a tuple is a leaf: PyTorch's PackedSequence, without importing PyTorch.

    A batch of the user's may be a tuple with a method `to`, too, and has parts.
    """
    return isinstance(tree, tuple) and hasattr(tree, "batch_sizes") and hasattr(tree, "unsorted_indices")


def is_frame(value: Any) -> bool:
    """Whether this is a data frame, of whatever library; data sets may have an attribute `columns`, too."""
    frames = ("iloc", "__dataframe__", "__arrow_c_stream__")
    return hasattr(value, "columns") and any(hasattr(value, name) for name in frames)


def mapped(function: Callable[[Any], Any], tree: Tree) -> Tree:
    """A tree of dicts, tuples and lists with another thing at each leaf."""
    if isinstance(tree, Mapping):
        return {name: mapped(function, value) for name, value in tree.items()}
    if is_one(tree):
        return function(tree)
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
    data: Mapping[str, Any],
    names: Columns | None,
    what: str,
    made: Callable[[str, Any], Any],
    beside: Callable[[list[Any]], Any],
) -> Tree:
    """What is made of the named columns of a dict or frame: one alone, several as a tuple.

    Those in a list of their own are put `beside` each other, in one matrix.
    """
    if names is None:
        return None
    wanted: list[Any] = [names] if isinstance(names, str | ColumnStep) else list(names)

    def one(name: Any) -> Any:
        if isinstance(name, list):
            return beside([one(each) for each in name])
        if isinstance(name, ColumnStep):
            raise TypeError(
                f"{what} has {name!r}, and steps are for tables: make one, such as "
                "gp.Shards.from_pandas(pandas.DataFrame(data))"
            )
        if name not in data:
            have = ", ".join(map(repr, data))
            raise KeyError(f"{what} names {name!r}, which is not there: there are {have}")
        values = data[name]
        if is_frame(data):
            _check_nulls(values, name)
        return made(name, values)

    found = tuple(map(one, wanted))
    return found[0] if len(found) == 1 else found


def _check_nulls(values: Any, name: Any) -> None:
    """In a frame NaN is null, too: it is one in other tables that are made of the frame."""
    is_null = getattr(values, "isna", None)
    if is_null is None:
        return
    import numpy

    nulls = numpy.asarray(is_null(), dtype=bool)
    rows = nulls.reshape(len(nulls), -1).any(1) if nulls.size else nulls
    if rows.any():
        raise DataError(
            f"row {int(rows.argmax())}, column {name!r} is null, and a model needs a value: fill it, or "
            "leave such rows out (dropna)"
        )


def uneven(arrays: Sequence[tuple[str, tuple[int, ...]]]) -> ValueError:
    """What to raise where arrays, each with its place and shape, do not have equally many rows.

    >>> str(uneven([(f"[{number}]", ()) for number in range(600)]))[:75]
    'the arrays differ in their number of rows: [0] (), [1] (), [2] (), [3] () a'
    """
    shown = ", ".join(f"{place} {shape}".strip() for place, shape in arrays[:_SHOWN]) or "there are none"
    more = f" and {len(arrays) - _SHOWN} more" if len(arrays) > _SHOWN else ""
    advice = "the first axis of each must count the rows"
    if any(shape == () for _, shape in arrays):
        advice += ", and lists of numbers are no arrays: pass numpy.asarray(…)"
    return ValueError(f"the arrays differ in their number of rows: {shown}{more}; {advice}")


def side_by_side(shapes: Sequence[tuple[int, ...]]) -> None:
    """Check that columns of these shapes make a matrix: with one number a row, or a vector that is alone."""
    if len(shapes) > 1 and any(len(shape) != 1 for shape in shapes):
        raise ValueError(
            f"columns of shapes {', '.join(map(str, shapes))} do not stand side by side in one matrix: "
            "name those with more than one number a row by themselves"
        )
