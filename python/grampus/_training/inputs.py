"""What a call of an Estimator reads, and who holds it for the workers meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from grampus import frames
from grampus._training import recovery, trees
from grampus._training.job import Data
from grampus._training.options import DEFAULT_BATCH_SIZE, check_size
from grampus._warning import warn
from grampus.shards import delivery, feeding, rows
from grampus.shards.batches import Rows, wanted
from grampus.shards.collection import Shards
from grampus.triggers import Trigger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from grampus.cluster import Cluster
    from grampus.frames.supply import Site, Supply
    from grampus.shards.batches import Columns

# Tasks for each worker that read files: those that end early take more.
_TASKS = 2


def paired(data: Any, y: Any, second: str) -> Any:
    """Features and targets that were passed apart, as in scikit-learn, as the pairs that they are.

    `second` is the argument that people may have meant.
    """
    if y is None:
        return data
    if isinstance(y, int | Trigger):
        raise TypeError(f"y is {y!r}, and targets are arrays: write {second}={y!r}")
    try:
        return _array(data), _array(y)
    except TypeError as error:
        raise TypeError(
            f"y goes with arrays and frames of features, and {error}: leave y out, and let the data hold the "
            "targets (label_cols= names those of tables)"
        ) from None


def without_epochs(y: Any, epochs: Any) -> tuple[Any, Any]:
    """Targets, and for how long to train: a number in the place of targets is one of epochs, as in Orca.

    >>> without_epochs(3, 1)
    (None, 3)
    """
    is_end = isinstance(y, int | Trigger) and not isinstance(y, bool)
    return (None, y) if is_end and epochs == 1 else (y, epochs)


def named_columns(
    framework: Any, data: Any, feature_cols: Columns | None, label_cols: Columns | None
) -> tuple[Columns | None, Columns | None]:
    """The columns that were named; where none were, those that a framework has names for."""
    usual: tuple[str, str] | None = getattr(framework, "COLUMNS", None)
    if usual is None or feature_cols is not None or label_cols is not None or not _is_tabular(data):
        return feature_cols, label_cols
    return usual


def _is_tabular(data: Any) -> bool:
    """Whether data has columns of which some must be named."""
    if frames.frame_of(data) is not None or trees.is_frame(data) or feeding.is_path(data):
        return True
    if not isinstance(data, Shards):
        return False
    if data._source is not None:
        return data._source.image_col is None
    return data._computed()[0].form.kind in rows.TABULAR


def features(data: Any) -> Any:
    """What `fit(x, y)` takes for `x`, as inputs alone; `None` for other data."""
    try:
        found = _array(data)
    except TypeError:
        return None
    return found if isinstance(data, Mapping) else {"x": found}


def _array(value: Any) -> Any:
    """A tree of arrays, of frames and lists of numbers, too."""
    if hasattr(value, "to_numpy"):
        return value.to_numpy()
    if hasattr(value, "shape"):
        return value
    if isinstance(value, dict):
        return {name: _array(part) for name, part in value.items()}
    if isinstance(value, list | tuple) and value:
        first = trees.leaves(value)[:1]
        if first and (isinstance(first[0], int | float) or getattr(first[0], "shape", None) == ()):
            import numpy as np

            return np.asarray(value)
        return type(value)(_array(part) for part in value)
    raise TypeError(f"a {type(value).__name__} is none")


class Inputs:
    """The data of one call. What an engine holds for it goes when the call has ended."""

    def __init__(
        self,
        cluster: Cluster,
        framework: Any,
        batch_size: int | None,
        columns: tuple[Columns | None, Columns | None],
        order_by: Any = None,
    ) -> None:
        """`columns` are those of features and of labels; `order_by` those by which frames are sorted."""
        self._cluster = cluster
        self._framework = framework
        self._size = None if batch_size is None else check_size(batch_size, "batch_size")
        self._given = batch_size is not DEFAULT_BATCH_SIZE
        self._columns = columns
        self._order_by = order_by
        self._held: list[tuple[Data, Supply]] = []
        # Memory of this process that workers of other hosts read.
        self._loads: dict[str, delivery.Load] = {}
        # Whether some of the data has columns.
        self._has_columns = False
        # Whether the first data of the call came as features and targets apart.
        self._apart = False

    def data(self, value: Any, y: Any = None, second: str = "epochs") -> Data:
        """Data as it travels to the workers; `y` are targets that were passed apart.

        `second` is the argument that people may have meant by `y`.
        """
        self._columns = named_columns(self._framework, value, *self._columns)
        value, self._apart = paired(value, y, second), y is not None
        return self._data(value)

    def _data(self, value: Any) -> Data:
        if self._order_by is not None and not self._held and frames.frame_of(value) is None:
            raise ValueError("order_by is for DataFrames of Spark and Datasets of Ray: leave it out")
        supply = self._supplied(value)
        if supply is not None:
            self._has_columns = True
            data = Data(supply.kept, self._size, self._given, *self._columns)
            self._held.append((data, supply))
            return data
        shards, loads = feeding.shards_of(value, *self._columns), list[delivery.Load]()
        self._has_columns |= shards is not None or self._named(value)
        if shards is not None:
            value = feeding.shared_rows(shards, *self._columns)
            if not self._cluster.shares_memory:
                value, loads = delivery.sent(value, shards)
                loads = [self._loads.setdefault(load.segment.name, load) for load in loads]
        value = self._framework.portable(value)
        return Data(value, self._size, self._given, *self._columns, loads, self._apart)

    def data_also(self, value: Any) -> Data | None:
        """Data beside that for which the size of batches was given, if there is any: the last of the call."""
        if self._apart and isinstance(value, list | tuple) and len(value) == 2:
            value = paired(value[0], value[1], "validation_data")
        found = None if value is None else replace(self._data(value), given=False)
        self._check_columns()
        return found

    def only(self, value: Any, y: Any, apart: bool = False) -> Data:
        """Data of a call that has no other; `apart` where it is what `features` returned."""
        found = replace(self.data(value, y, "batch_size"), apart=apart or y is not None)
        self._check_columns()
        return found

    def _named(self, value: Any) -> bool:
        """Whether this has columns, or may return what has."""
        features, labels = self._columns
        if isinstance(value, Mapping) and features is None and labels is not None:
            raise ValueError("label_cols= was passed without feature_cols=: pass both, or leave it out")
        data_sets = hasattr(value, "column_names")
        creators = callable(value) and not hasattr(value, "__getitem__")
        return isinstance(value, Mapping) or trees.is_frame(value) or data_sets or creators

    def _check_columns(self) -> None:
        """Refuse names of columns where no data of the call has any: they would have no effect."""
        names = ("feature_cols=", "label_cols=")
        asked = [name for name, columns in zip(names, self._columns, strict=True) if columns is not None]
        if asked and not self._has_columns:
            raise ValueError(
                f"{' and '.join(asked)} would have no effect: only tables, frames, files and dicts have "
                "columns, and this data has none; leave it out"
            )

    def _supplied(self, value: Any) -> Supply | None:
        """Rows that executors hold: of a frame of an engine, or of files where the workers are on one."""
        from grampus.frames import supply

        frame = frames.frame_of(value)
        site, tasks = self._site(), _TASKS * self._cluster.workers
        if frame is not None:
            skip = isinstance(value, Shards) and value._skip
            read = wanted(*self._columns)
            found, doubt = supply.of_frame(frame, read, site, tasks, self._order_by, skip)
            if doubt is not None:
                warn(doubt)
            return found
        if site is None:
            return None
        shards = feeding.shards_of(value, *self._columns)
        rows = None if shards is None else feeding.rows_of(shards, *self._columns)
        if isinstance(rows, Rows) and rows.paths is not None and rows.window is None:
            return supply.of_files(rows.paths, rows.wanted, site, tasks, rows.skip)
        return None

    def _site(self) -> Site | None:
        """The engine of the workers; where ports are given, each frame listens at the next one."""
        site = self._cluster.site
        if site is None or not site.port:
            return site
        return site._replace(port=site.port + 1 + len(self._held))

    def heal(self) -> None:
        """Have rows that were lost with executors read again."""
        for data, supply in self._held:
            if supply.heal(self._call):
                data.value = supply.kept
        self._deliver()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep the workers until this ends, with all rows of this process where they can be read."""
        with self._cluster.held(), delivery.released(self._cluster, list(self._loads.values())):
            self._deliver()
            yield

    def _deliver(self) -> None:
        recovery.repeated(lambda: delivery.deliver(self._cluster, list(self._loads.values())))

    def _call(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """On those workers that are there."""
        return recovery.repeated(lambda: self._cluster._call(function, args, {}, None, least=1))

    @property
    def copied_bytes(self) -> int:
        """How much was written when engines packed rows."""
        return sum(supply.copied_bytes for _, supply in self._held)

    def __enter__(self) -> Inputs:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of all that is held."""
        for _, supply in self._held:
            supply.close()
