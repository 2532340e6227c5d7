"""Batches of this worker's lanes, in the order that the formula gives."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from grampus import _native
from grampus._training.creator import seed_all
from grampus._training.lanes import reading

if TYPE_CHECKING:
    from grampus._training.lanes import Lanes

# Rows that are named where there may be many.
_NAMED = 8


class Ask(NamedTuple):
    """Rows that are to be read for a lane, and what reading them draws its random numbers from."""

    rows: bytearray | range | Sequence[int]
    seed: int
    # Place of the first of them in the batch.
    start: int


def row_numbers(rows: Any) -> list[int]:
    """The numbers of rows that were asked for."""
    return memoryview(rows).cast("q").tolist() if isinstance(rows, bytearray) else list(rows)


def listed(rows: Any) -> str:
    """The numbers of rows, for people."""
    numbers = row_numbers(rows)
    shown = ", ".join(map(str, numbers[:_NAMED]))
    return f"{shown}, … ({len(numbers)} in all)" if len(numbers) > _NAMED else shown


class Batch(NamedTuple):
    """Rows as the framework takes them, which were asked for, and the place of the first among all."""

    rows: Any
    values: Any
    first: int
    # The numbers of the rows in the data, one for each row of the values; nothing where they are not known.
    numbers: Any = None

    @property
    def size(self) -> int:
        """Rows of the values: some of those that were asked for may have been left out.

        >>> Batch(range(3), [1.0, 2.0], 0, [0, 2]).size
        2
        """
        return len(row_numbers(self.rows if self.numbers is None else self.numbers))


class Renumbered(NamedTuple):
    """What a table has read where its rows have other numbers in the data than those that were asked for."""

    values: Any
    numbers: Any


class Table(Protocol):
    """Rows that can be read in any order."""

    def places(self, epoch: int) -> Places:
        """What is read in an epoch."""
        ...

    def read(self, asks: Iterable[Ask]) -> Iterator[Any]:
        """Read batches, one for every ask: the values, or `Renumbered` ones."""
        ...


class Places(NamedTuple):
    """What is read in an epoch: rows in the order of the formula, or those that a sampler has chosen."""

    total: int
    shuffled: bool = False
    chosen: Sequence[int] | None = None
    batches: Sequence[Sequence[int]] | None = None
    drop_last: bool = False
    # Counts the rows of a batch, where those that cannot be used are left out and no others take their place.
    counted: Callable[[Any], int] | None = None


Weigh = Callable[[Any], float]
# Lane, rows that count, what they weigh, and the batch, of which all rows may be left out.
Part = tuple[int, int, float, "Batch | None"]
Answer = tuple["int | None", "float | None", list[Part]]


class TableFeed:
    """Batches of rows that can be read in any order."""

    def __init__(self, table: Table, lanes: Lanes, batch_size: int, weigh: Weigh | None = None) -> None:
        """`batch_size` is that of all lanes together."""
        self._table = table
        self._lanes = lanes
        self.batch_size = batch_size
        self._weigh = weigh
        self._batches: Iterator[Answer] = iter(())
        # Whether batches are where the model is, and whether nothing of the user's reads them.
        self.resident = bool(getattr(table, "resident", False))
        self.reads_by_itself = weigh is None and bool(getattr(table, "reads_by_itself", False))

    def steps(self, epoch: int) -> int:
        """How many batches an epoch has."""
        places = self._table.places(epoch)
        if places.batches is not None:
            return len(places.batches)
        whole, rest = divmod(places.total, self.batch_size)
        return whole + (1 if rest and not places.drop_last else 0)

    def samples(self, epoch: int) -> int:
        """How many rows an epoch has."""
        places = self._table.places(epoch)
        if places.batches is not None:
            return sum(len(batch) for batch in places.batches)
        return places.total - (places.total % self.batch_size if places.drop_last else 0)

    def table_rows(self, epoch: int) -> int | None:
        """Rows from which those of an epoch are taken, each once; nothing where a sampler may repeat some."""
        places = self._table.places(epoch)
        return places.total if places.chosen is None and places.batches is None else None

    def open(self, epoch: int, step: int) -> None:
        """Go to a step of an epoch."""
        places = self._table.places(epoch)
        plan = _Plan(places, self._lanes, self.batch_size, epoch)
        self._batches = self._answers(plan, range(step, self.steps(epoch)), places.counted)

    def next(self) -> Answer | None:
        """The next batch; nothing at the end of the epoch."""
        return next(self._batches, None)

    def close(self) -> None:
        """Let go of all that reads, such as processes."""
        self._batches = iter(())

    def _answers(self, plan: _Plan, steps: range, counted: Callable[[Any], int] | None) -> Iterator[Answer]:
        asked: deque[tuple[int, int, list[tuple[int, int, Ask | None]]]] = deque()
        ready: deque[Any] = deque()

        def asks() -> Iterator[Ask]:
            for step in steps:
                parts = list(plan.parts(step))
                asked.append((plan.first(step), plan.size(step), parts))
                yield from (ask for _, _, ask in parts if ask is not None)

        # Whoever reads may ask for more than it is asked for, to have it ready.
        read = self._table.read(asks())
        for _ in steps:
            while not asked:
                # Asked for nothing yet, or this worker has no rows in this batch.
                ready.extend(itertools.islice(read, 1))
            first, rows, parts = asked.popleft()
            answer: list[Part] = []
            for lane, count, ask in parts:
                if ask is None:
                    answer.append((lane, 0, 0.0, None))
                    continue
                values, numbers = ready.popleft() if ready else next(read), ask.rows
                if isinstance(values, Renumbered):
                    values, numbers = values
                batch = Batch(ask.rows, values, first + ask.start, numbers)
                if counted is not None:
                    count = counted(values)
                    if count == 0:
                        answer.append((lane, 0, 0.0, batch))
                        continue
                weight = float(count) if self._weigh is None else float(self._weigh(values))
                answer.append((lane, count, weight, batch))
            # Nobody knows alone what all lanes weigh together.
            yield rows, None if counted or self._weigh else float(rows), answer


class _Plan:
    """Which rows each of this worker's lanes reads at a step of an epoch."""

    def __init__(self, places: Places, lanes: Lanes, size: int, epoch: int) -> None:
        self._places = places
        self._lanes = lanes
        self._size = size
        self._epoch = epoch
        self._order = _native.Order(lanes.seed, epoch, places.total) if places.shuffled else None
        self._firsts = list(itertools.accumulate(map(len, places.batches or ()), initial=0))

    def size(self, step: int) -> int:
        """Rows of the whole batch."""
        places = self._places
        if places.batches is not None:
            return len(places.batches[step])
        return min(self._size, places.total - step * self._size)

    def first(self, step: int) -> int:
        """Rows of all batches before."""
        return step * self._size if self._places.batches is None else self._firsts[step]

    def parts(self, step: int) -> Iterator[tuple[int, int, Ask | None]]:
        """Lane, number of rows, and what to ask for."""
        places, lanes = self._places, self._lanes
        rows = self.size(step)
        # A sampler of batches gives each the size that it likes, so each is cut by itself.
        size = rows if places.batches is not None else self._size
        for lane in lanes.mine:
            start, end = _native.rows_of(lane, lanes.total, size, rows)
            if start == end:
                yield lane, 0, None
                continue
            seed = _native.lane_seed("data", lanes.seed, self._epoch, step, lane)
            yield lane, end - start, Ask(self._rows(step, start, end), seed, start)

    def _rows(self, step: int, start: int, end: int) -> bytearray | range | Sequence[int]:
        places = self._places
        if places.batches is not None:
            return list(places.batches[step][start:end])
        first = step * self._size
        if places.chosen is not None:
            return places.chosen[first + start : first + end]
        if self._order is not None:
            return self._order.rows(first + start, first + end)
        return range(first + start, first + end)


class Stream(Protocol):
    """Rows that can only be read from the beginning."""

    # Whether it gives batches instead of rows.
    batched: bool
    # Whether rows come in lists, each a batch of all lanes.
    listed: bool
    # Whether rows that make no whole batch are left out.
    drop_last: bool
    # Whether rows come one after another, as they stand in the data, and so can be numbered.
    numbered: bool

    def rows(self, epoch: int) -> Iterator[Any]:
        """All rows of an epoch; of one lane where the stream asks for it."""
        ...

    def collate(self, rows: list[Any], first: int | None) -> Any:
        """Rows as the framework takes them; `first` is the number of the first of them, where it is known."""
        ...

    def size(self, batch: Any) -> int:
        """Rows of a batch."""
        ...

    def cut(self, batch: Any, start: int, end: int) -> Any:
        """Some rows of a batch."""
        ...


class StreamFeed:
    """Batches of rows that can only be read from the beginning.

    Every worker reads all of them and takes those of its lanes, unless the stream asks for its lane.
    """

    resident = False

    def __init__(self, stream: Stream, lanes: Lanes, batch_size: int, weigh: Weigh | None = None) -> None:
        """`batch_size` is that of all lanes together."""
        self._stream = stream
        self._lanes = lanes
        self.batch_size = batch_size
        self._weigh = weigh
        self._batches: Iterator[Answer] = iter(())
        # Processes that are kept from an epoch before tell nobody any more that they ask for their lane.
        self._is_apart = False

    def steps(self, epoch: int) -> None:
        """Nobody knows how many batches there are."""

    def samples(self, epoch: int) -> None:
        """Nobody knows how many rows there are."""

    def table_rows(self, epoch: int) -> None:
        """Nobody knows how many rows there are."""

    def open(self, epoch: int, step: int) -> None:
        """Go to a step of an epoch, which means to read all that comes before."""
        rows, apart = self._begun(epoch, self._lanes.mine[0])
        self._batches = self._apart(rows, epoch, step) if apart else self._shared(rows, epoch, step)

    def _begun(self, epoch: int, lane: int) -> tuple[Iterator[Any], bool]:
        """The rows of an epoch, and whether they are those of the lane alone.

        That shows when the first is read, so all lanes begin with equal random numbers: a stream that is read
        whole must be the same to all workers.
        """
        self._seed(epoch, 0, 0)
        with reading(lane, self._lanes.total) as present:
            present.forget()
            rows = iter(self._stream.rows(epoch))
            if self._stream.batched:
                # A step without rows would be taken for the end.
                rows = filter(self._stream.size, rows)
            head = list(itertools.islice(rows, 1))
            self._is_apart |= present.asked
            return itertools.chain(head, rows), self._is_apart

    def next(self) -> Answer | None:
        """The next batch; nothing at the end of the epoch."""
        return next(self._batches, None)

    def close(self) -> None:
        """Let go of all that reads, such as processes."""
        self._batches = iter(())

    def _shared(self, rows: Iterator[Any], epoch: int, step: int) -> Iterator[Answer]:
        lanes, stream, first = self._lanes, self._stream, 0
        if stream.listed and stream.drop_last:
            # Several processes may each end with a batch that is not whole.
            rows = (taken for taken in rows if len(taken) == self.batch_size)
        for at in itertools.count():
            if at:
                self._seed(epoch, at, 0)
            if stream.listed:
                taken: list[Any] = next(rows, [])
            else:
                taken = list(itertools.islice(rows, 1 if stream.batched else self.batch_size))
            count = stream.size(taken[0]) if stream.batched and taken else len(taken)
            size = count if stream.batched else self.batch_size
            if not taken or (stream.drop_last and count < size):
                return
            if at >= step:
                parts = []
                for lane in lanes.mine:
                    start, end = _native.rows_of(lane, lanes.total, size, count)
                    parts.append(self._part(lane, taken, start, end, first, stream.numbered))
                yield count, float(count) if self._weigh is None else None, parts
            first += count

    def _apart(self, rows: Iterator[Any], epoch: int, step: int) -> Iterator[Answer]:
        lanes, stream = self._lanes, self._stream
        readers = {lanes.mine[0]: rows}
        readers |= {lane: self._begun(epoch, lane)[0] for lane in lanes.mine[1:]}
        if stream.listed:
            readers = {lane: itertools.chain.from_iterable(lists) for lane, lists in readers.items()}
        first = 0
        for at in itertools.count():
            parts = []
            for lane, reader in readers.items():
                start, end = _native.rows_of(lane, lanes.total, self.batch_size, self.batch_size)
                # Nobody else reads the rows of this lane, so it takes one also where its share is none.
                size = 1 if stream.batched else max(end - start, 1)
                self._seed(epoch, at, lane)
                with reading(lane, lanes.total):
                    taken = list(itertools.islice(reader, size))
                if stream.drop_last and len(taken) < size:
                    taken = []
                count = stream.size(taken[0]) if stream.batched and taken else len(taken)
                if at >= step:
                    parts.append(self._part(lane, taken, 0, count, first + start, numbered=False))
            first += self.batch_size
            if at >= step:
                # The others may have rows where this worker has none: they are asked.
                yield None, None, parts

    def _part(self, lane: int, taken: list[Any], start: int, end: int, first: int, numbered: bool) -> Part:
        if start == end:
            return lane, 0, 0.0, None
        stream = self._stream
        if stream.batched:
            values = stream.cut(taken[0], start, end)
        else:
            values = stream.collate(taken[start:end], first + start if numbered else None)
        weight = float(end - start) if self._weigh is None else float(self._weigh(values))
        rows = range(first + start, first + end)
        return lane, end - start, weight, Batch(rows, values, first + start, rows if numbered else None)

    def _seed(self, epoch: int, step: int, lane: int) -> None:
        seed_all(_native.lane_seed("data", self._lanes.seed, epoch, step, lane))
