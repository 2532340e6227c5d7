"""What operations do to a shard, or to the list of them, whatever their kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grampus.errors import DataError
from grampus.shards import keys, rows, tables

if TYPE_CHECKING:
    from collections.abc import Sequence


def schema(value: Any) -> dict[str, list[Any]]:
    """Names and types of the columns of a shard."""
    kind = rows.kind_of(value)
    if kind == "table":
        return {"columns": value.column_names, "dtypes": list(value.schema.types)}
    if kind in rows.TABULAR:
        return {"columns": list(value.columns), "dtypes": list(value.dtypes)}
    if kind == "arrays" and isinstance(value, dict):
        return {"columns": list(value), "dtypes": [getattr(part, "dtype", None) for part in value.values()]}
    raise DataError(f"get_schema needs columns, these shards are {rows.NAMES[kind]}")


def selected(value: Any, columns: list[str]) -> Any:
    """Only these columns, in this order."""
    kind = rows.kind_of(value)
    if isinstance(value, dict):
        keys.check(columns, list(value))
        return {name: value[name] for name in columns}
    rows.one_kind([value], "select", rows.TABULAR)
    keys.check(columns, list(value.column_names if kind == "table" else value.columns))
    return value[columns] if kind == "frame" else value.select(columns)


def item(value: Any, key: Any) -> Any:
    """One column or entry."""
    kind = rows.kind_of(value)
    if kind in rows.TABULAR or isinstance(value, dict):
        chosen = selected(value, [key])
        return chosen[key] if isinstance(value, dict) or kind == "frame" else chosen
    try:
        return value[key]
    except (TypeError, KeyError, IndexError) as error:
        raise DataError(f"invalid key {key!r} for shards that are {rows.NAMES[kind]}: {error}") from None


def repartitioned(values: Sequence[Any], parts: int) -> list[Any]:
    """All rows in their order, cut evenly; other objects in lists."""
    kinds = {rows.kind_of(value) for value in values}
    if len(kinds) == 1 and kinds != {"object"}:
        return rows.recut(values, kinds.pop(), parts)
    if parts > len(values):
        raise DataError(
            f"the number of shards, {parts}, is larger than the number of objects, {len(values)}: "
            f"ask for at most {len(values)}"
        )
    return [list(values[start:stop]) for start, stop in rows.evenly(len(values), parts)]


def elements(values: Sequence[Any]) -> int:
    """How many elements each shard is a tuple or a list of."""
    lengths = {len(value) if isinstance(value, tuple | list) else -1 for value in values}
    if len(lengths) > 1 or -1 in lengths:
        raise DataError("split needs shards that are tuples or lists, all of as many elements")
    return lengths.pop()


def sampled(
    values: Sequence[Any], frac: float, replace: bool, weights: Any, random_state: int | None
) -> list[Any]:
    """A part of the rows, drawn from all of them, each left in its shard."""
    import numpy

    kind = rows.one_kind(values, "sample", [kind for kind in rows.NAMES if kind != "object"])
    sizes = [rows.count(value, kind) for value in values]
    total = sum(sizes)
    wanted = round(frac * total)
    chances = None if weights is None else _chances(values, kind, weights, total)
    if chances is not None and not replace and int((chances > 0).sum()) < wanted:
        raise DataError(f"sample cannot draw {wanted} rows: fewer have a weight above 0")
    chosen = numpy.random.default_rng(random_state).choice(total, wanted, replace=replace, p=chances)
    chosen.sort()
    edges = numpy.cumsum([0, *sizes])
    cuts = numpy.searchsorted(chosen, edges)
    return [
        rows.take(value, kind, chosen[cuts[place] : cuts[place + 1]] - edges[place])
        for place, value in enumerate(values)
    ]


def _chances(values: Sequence[Any], kind: str, weights: Any, total: int) -> Any:
    import numpy

    if isinstance(weights, str):
        if kind not in rows.TABULAR:
            raise DataError(f"weights={weights!r} names a column, these shards are {rows.NAMES[kind]}")
        table = rows.as_arrow(rows.together(values, kind))
        keys.check([weights], table.column_names)
        weights = keys.to_numbers(table[weights], weights)
    found = numpy.asarray(weights, numpy.float64)
    if found.shape != (total,):
        raise DataError(f"weights must be one number for each of {total} rows, their shape is {found.shape}")
    if not (found >= 0).all() or not numpy.isfinite(found).all() or found.sum() == 0:
        raise DataError("weights must be numbers from 0 on, not all of them 0")
    return found / found.sum()


def sorted_values(values: Sequence[Any], by: list[str] | None, ascending: bool | Sequence[bool]) -> list[Any]:
    """Rows in the order of some columns, or of all."""
    if by is None:
        by = schema(values[0])["columns"] if rows.kind_of(values[0]) in rows.TABULAR else []
    ways = [ascending] * len(by) if isinstance(ascending, bool) else list(ascending)
    if len(ways) != len(by):
        raise DataError(f"ascending has {len(ways)} entries for {len(by)} columns: give one for each")
    return tables.sort(values, by, ways)


def without_missing(values: Sequence[Any]) -> list[Any]:
    """Without columns in which a value is missing in any shard."""
    kept = [name for name, missing in tables.null_counts(values).items() if not missing]
    return [selected(value, kept) for value in values]


def assembled(value: Any, features: list[str], labels: list[str]) -> dict[str, Any]:
    """Columns of numbers, stacked to features and labels."""
    import numpy

    rows.one_kind([value], "assemble", rows.TABULAR)
    if not features or not labels:
        raise DataError("assemble needs at least one feature and one label")
    table = rows.as_arrow(selected(value, list(dict.fromkeys([*features, *labels]))))
    return {
        name: numpy.stack([keys.to_numbers(table[column], column) for column in columns], axis=1)
        for name, columns in (("x", features), ("y", labels))
    }


def stacked(value: Any) -> dict[str, Any]:
    """Pairs of features and labels as two arrays."""
    import numpy

    if isinstance(value, tuple) and len(value) == 2:
        features, labels = value
    elif isinstance(value, list) and value and all(isinstance(p, tuple) and len(p) == 2 for p in value):
        features, labels = zip(*value, strict=True)
    else:
        raise DataError(
            f"stack_feature_labels needs pairs of features and labels, or lists of them, a shard is a "
            f"{type(value).__name__}"
        )
    return {"x": numpy.asarray(features, numpy.float32), "y": numpy.asarray(labels, numpy.float32)}
