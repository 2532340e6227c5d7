"""Loaders and data sets of torch: Grampus reads the rows that torch's own loop would, in its order."""

import os
from typing import NamedTuple

import pytest
import torch
from estimators import Rows, Stream, lines, runtime, scratch, seeing, values  # noqa: F401 - fixtures
from processes import lives, wait_until
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence
from torch.utils import data as torch_data
from torch.utils.data import DataLoader

import grampus as gp


def batches_of(loader, epochs=1):
    """What a plain loop over a loader sees: the rows of each batch."""
    return [tuple(batch[0].flatten().tolist()) for _ in range(epochs) for batch in loader]


# Samplers with a generator


def seeded(seed=7):
    return torch.Generator().manual_seed(seed)


class Drawing(torch_data.Sampler):
    """A sampler of batches that draws from a generator of its own, as soon as it is asked."""

    def __init__(self):
        self.drawn_from = seeded()

    def __iter__(self):
        return iter(torch.randperm(12, generator=self.drawn_from).reshape(4, 3).tolist())


LOADERS = {
    "random": lambda: {"batch_size": 5, "sampler": torch_data.RandomSampler(Rows(12), generator=seeded())},
    "replacement": lambda: {
        "batch_size": 5,
        "sampler": torch_data.RandomSampler(Rows(12), replacement=True, num_samples=9, generator=seeded()),
    },
    "weighted": lambda: {
        "batch_size": 4,
        "sampler": torch_data.WeightedRandomSampler([1.0, 2.0, 3.0] * 4, 9, generator=seeded()),
    },
    "subset": lambda: {
        "batch_size": 2,
        "sampler": torch_data.SubsetRandomSampler([1, 3, 5, 7, 9], generator=seeded()),
    },
    "batches": lambda: {
        "batch_sampler": torch_data.BatchSampler(
            torch_data.RandomSampler(Rows(12), generator=seeded()), 5, drop_last=False
        )
    },
    "own batches": lambda: {"batch_sampler": Drawing()},
    "shuffle": lambda: {"batch_size": 5, "shuffle": True, "generator": seeded()},
    "shuffle in processes": lambda: {
        "batch_size": 5,
        "shuffle": True,
        "generator": seeded(),
        "num_workers": 1,
        "persistent_workers": True,
    },
}


@pytest.mark.parametrize("kind", LOADERS)
def test_a_generator_of_the_users_own_is_drawn_from_as_torch_does(kind, tmp_path):
    expected = batches_of(DataLoader(Rows(12), **LOADERS[kind]()), epochs=3)
    est = seeing(tmp_path, workers=1, lanes=1, seed=5)
    loader = DataLoader(Rows(12), **LOADERS[kind]())
    est.fit(loader, epochs=2)
    # A second fit goes on where a loop would.
    est.fit(loader, epochs=1)
    assert lines(tmp_path / "trained") == expected


def test_a_generator_draws_alike_on_every_worker_and_after_a_resume(tmp_path):
    def sampled(config=None):
        generator = torch.Generator()
        if config is not None:
            # Another seed on every worker.
            generator.seed()
        return DataLoader(Rows(12), 4, sampler=torch_data.RandomSampler(Rows(12), generator=generator))

    seeing(tmp_path, workers=3).fit(sampled, epochs=2)
    assert values(tmp_path / "trained") == sorted([*range(12)] * 2)

    loader = sampled()
    expected = batches_of(sampled(), epochs=3)
    for epochs, resume in ((1, False), (3, True)):
        est = seeing(tmp_path, workers=1, lanes=1, config={"folder": str(tmp_path / "resumed")})
        (tmp_path / "resumed").mkdir(exist_ok=True)
        est.fit(loader, epochs=epochs, checkpoint=tmp_path / "saved", resume=resume)
    assert lines(tmp_path / "resumed" / "trained") == expected


# Streams that share themselves out among a loader's processes


class Shared(Stream):
    """Shares itself out among the processes of a loader, as torch asks for."""

    def __iter__(self):
        info = torch_data.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        yield from (Rows(0)[row] for row in range(first, self.count, step))


class SharedTwice(Shared):
    """Has twice the rows where a worker_init_fn says so."""

    twice = False

    def __iter__(self):
        yield from super().__iter__()
        if torch_data.get_worker_info().dataset.twice:
            yield from super().__iter__()


def double(_):
    torch_data.get_worker_info().dataset.twice = True


class Noisy(Shared):
    """Draws random numbers, which the loader's generator seeds."""

    def __iter__(self):
        yield from ((x + torch.rand(1), y) for x, y in super().__iter__())


STREAMS = {
    "shared": lambda: DataLoader(Shared(21), batch_size=4, num_workers=2),
    "dropping": lambda: DataLoader(Shared(21), batch_size=4, num_workers=2, drop_last=True),
    "chained": lambda: DataLoader(
        torch_data.ChainDataset([Shared(9), Shared(12)]), batch_size=4, num_workers=2
    ),
    "begun by a function": lambda: DataLoader(
        SharedTwice(9), batch_size=4, num_workers=2, worker_init_fn=double
    ),
    "one process": lambda: DataLoader(Shared(10), batch_size=4, num_workers=1),
    "seeded": lambda: DataLoader(Noisy(9), batch_size=4, num_workers=2, generator=seeded()),
}


@pytest.mark.parametrize("kind", STREAMS)
def test_a_stream_that_shares_itself_out_has_torchs_batches(kind, tmp_path):
    expected = batches_of(STREAMS[kind](), epochs=2)
    seeing(tmp_path, workers=1, lanes=1).fit(STREAMS[kind](), epochs=2)
    found = lines(tmp_path / "trained")
    assert [len(batch) for batch in found] == [len(batch) for batch in expected]
    assert sum(found, ()) == pytest.approx(sum(expected, ()), rel=1e-4)


def test_lanes_cut_the_batches_of_such_a_stream(tmp_path):
    loader = STREAMS["shared"]()
    seeing(tmp_path, workers=2).fit(loader)
    halves = [half for batch in batches_of(loader) for half in (batch[:2], batch[2:]) if half]
    assert sorted(lines(tmp_path / "trained")) == sorted(halves)
    found = seeing(tmp_path, workers=2).predict(loader)
    assert found.flatten().tolist() == [row for batch in batches_of(loader) for row in batch]


# Processes that are kept from an epoch to the next


class Epochs(torch_data.IterableDataset):
    """Gives other rows in each epoch, by what it counts or is told; and says which process reads."""

    epoch = 0

    def __init__(self, folder):
        self.folder = folder

    def __iter__(self):
        self.epoch += 1
        (self.folder / f"process {os.getpid()}").touch()
        yield from (torch.tensor([[10.0 * self.epoch + row]] * 2).unbind() for row in range(6))


class EpochsOfLane(Epochs):
    def __iter__(self):
        lane = gp.lane()
        yield from (pair for row, pair in enumerate(super().__iter__()) if row % lane.count == lane.index)


class ToldEpochs(Epochs):
    def set_epoch(self, epoch):
        self.epoch = 2 * epoch


def persistent(data):
    return DataLoader(data, batch_size=2, num_workers=1, persistent_workers=True)


def processes(folder):
    return {int(path.name.split()[1]) for path in folder.glob("process *")}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("kind", [Epochs, EpochsOfLane])
def test_persistent_workers_go_on_with_their_stream(kind, workers, tmp_path):
    expected = sum(batches_of(persistent(Epochs(tmp_path)), epochs=3), ())
    for path in tmp_path.iterdir():
        path.unlink()
    est = seeing(tmp_path, workers=workers)
    est.fit(persistent(kind(tmp_path)), epochs=3)
    assert values(tmp_path / "trained") == sorted(expected)
    # One for each worker, and none is left.
    found = processes(tmp_path)
    assert len(found) == workers
    assert wait_until(lambda: not any(map(lives, found)))


def test_persistent_workers_of_validation_go_on_too(tmp_path):
    est = seeing(tmp_path, workers=1, lanes=1)
    est.fit(Rows(2), validation_data=persistent(Epochs(tmp_path)), epochs=2)
    assert lines(tmp_path / "judged") == batches_of(persistent(Epochs(tmp_path)), epochs=2)


def test_persistent_workers_begin_anew_for_a_stream_that_is_told_its_epoch(tmp_path):
    seeing(tmp_path, workers=1, lanes=1).fit(persistent(ToldEpochs(tmp_path)), epochs=3)
    firsts = [batch[0] for batch in lines(tmp_path / "trained")[::3]]
    assert firsts == [10.0, 30.0, 50.0]


def test_persistent_workers_that_begin_anew_in_a_later_epoch_are_warned_about(tmp_path):
    est = seeing(tmp_path, workers=1, lanes=1)
    est.fit(persistent(Epochs(tmp_path)), epochs=2)
    with pytest.warns(RuntimeWarning, match="persistent_workers=True begin anew in epoch 3"):
        est.fit(persistent(Epochs(tmp_path)))


# Data sets that look like something else


class Described(Rows):
    """A data set that knows the names of its columns."""

    columns = ("x", "y")


class Unrelated:
    """The same, of a class that is nothing of torch's."""

    columns = ("x", "y")

    def __len__(self):
        return 9

    def __getitem__(self, row):
        if row >= 9:
            raise IndexError(row)
        return Rows(9)[row]


@pytest.mark.parametrize("data", [Described(9), Unrelated()], ids=["torch's", "any"])
def test_a_data_set_with_columns_is_no_frame(data, tmp_path):
    est = seeing(tmp_path, workers=2)
    est.fit(data, batch_size=4)
    assert values(tmp_path / "trained") == [*range(9)]
    assert est.predict(data, batch_size=4).flatten().tolist() == [*range(9)]


# Rows that a loader drops in training


@pytest.mark.parametrize("processes", [0, 2])
@pytest.mark.parametrize("kind", [Rows, Shared])
def test_every_row_is_evaluated_and_predicted_where_a_loader_drops_the_last(kind, processes, tmp_path):
    loader = DataLoader(kind(11), batch_size=4, drop_last=True, num_workers=processes)
    est = seeing(tmp_path, workers=2)
    history = est.fit(loader, validation_data=loader)
    assert history[-1]["samples"] == 8
    assert history[-1]["val_num_samples"] == 11
    assert est.evaluate(loader)["num_samples"] == 11
    assert sorted(est.predict(loader).flatten().tolist()) == [*range(11)]


# Sequences of different lengths


class Sequences(torch_data.Dataset):
    """Sequences of one to four numbers, and their sum."""

    def __len__(self):
        return 10

    def __getitem__(self, row):
        sequence = torch.arange(row, row + 1 + row % 4, dtype=torch.float32).unsqueeze(1) / 10
        return sequence, sequence.sum(0)


class SequenceStream(torch_data.IterableDataset):
    def __iter__(self):
        yield from (Sequences()[row] for row in range(10))


def together(rows):
    sequences, sums = zip(*rows, strict=True)
    return pack_sequence(sequences, enforce_sorted=False), torch.stack(sums)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells, self.last = nn.GRU(1, 3), nn.Linear(3, 1)

    def forward(self, sequences):
        assert isinstance(sequences, PackedSequence)
        return self.last(self.cells(sequences)[1][0])


def recurrent(seed=0):
    torch.manual_seed(seed)
    return Recurrent()


def plain_loop(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in DataLoader(Sequences(), batch_size=4, collate_fn=together):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    return model


class Pair(NamedTuple):
    """A batch that moves itself, as many projects have."""

    x: torch.Tensor
    y: torch.Tensor

    def to(self, device):
        return Pair(self.x.to(device), self.y.to(device))


def paired(rows):
    return Pair(*(torch.stack(part) for part in zip(*rows, strict=True)))


class PairStream(torch_data.IterableDataset):
    def __iter__(self):
        for batch in DataLoader(Rows(10), batch_size=4):
            yield Pair(*batch)


@pytest.mark.parametrize(
    "loader",
    [DataLoader(Rows(10), batch_size=4, collate_fn=paired), DataLoader(PairStream(), batch_size=None)],
    ids=["collate", "batches"],
)
def test_a_tuple_with_a_method_to_is_no_leaf(loader):
    digests = set()
    for data in (DataLoader(Rows(10), batch_size=4), loader):
        torch.manual_seed(0)
        model = nn.Linear(1, 1)
        est = gp.Estimator.from_torch(
            model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.01), loss=nn.MSELoss(), workers=2
        )
        history = est.fit(data)
        assert history[-1]["samples"] == len(Rows(10))
        digests.add(est.digest())
    assert len(digests) == 1


@pytest.mark.parametrize("data", [Sequences(), SequenceStream()], ids=["data set", "stream"])
@pytest.mark.parametrize(("lanes", "processes"), [(1, 0), (2, 0), (2, 1)])
def test_packed_sequences_of_a_collate_function(data, lanes, processes):
    model = recurrent()
    est = gp.Estimator.from_torch(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        loss=nn.MSELoss(),
        workers=lanes,
    )
    loader = DataLoader(data, batch_size=4, collate_fn=together, num_workers=processes)
    history = est.fit(loader)
    assert history[-1]["samples"] == 10
    expected = plain_loop(recurrent())
    for name, value in expected.state_dict().items():
        torch.testing.assert_close(est.state_dict()[name], value)
    whole, sums = together([Sequences()[row] for row in range(10)])
    with torch.no_grad():
        outputs = expected(whole)
    found = est.evaluate(loader)
    assert found["num_samples"] == 10
    assert found["loss"] == pytest.approx(nn.functional.mse_loss(outputs, sums).item(), rel=1e-4)
    torch.testing.assert_close(est.predict(loader), outputs)

    def alone(rows):
        return together(rows)[0]

    torch.testing.assert_close(est.predict(DataLoader(data, batch_size=4, collate_fn=alone)), outputs)


def test_an_operator_counts_the_rows_of_packed_sequences():
    model = recurrent()
    est = gp.Estimator.from_torch(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        loss=nn.MSELoss(),
        training_operator_cls=type("Own", (gp.TrainingOperator,), {"train_batch": _train_batch}),
        workers=2,
    )
    assert est.fit(DataLoader(Sequences(), batch_size=4, collate_fn=together))[-1]["samples"] == 10


def _train_batch(self, batch, batch_info):
    said = gp.TrainingOperator.train_batch(self, batch, batch_info)
    assert said["num_samples"] == len(batch[1])
    return said


# Errors


class Broken(Rows):
    """Row 6 cannot be read."""

    def __getitem__(self, row):
        if row == 6:
            raise KeyError("no picture")
        return super().__getitem__(row)


class BrokenTogether(Broken):
    def __getitems__(self, rows):
        return [self[row] for row in rows]


class BrokenStream(Stream):
    def __iter__(self):
        yield from (Broken(self.count)[row] for row in range(self.count))


class BrokenShared(Shared):
    """Row 6, which is the fourth of the first process, cannot be read."""

    def __iter__(self):
        info = torch_data.get_worker_info()
        yield from (Broken(0)[row] for row in range(info.id, self.count, info.num_workers))


def refuse(rows):
    if any(x == 6 for x, _ in rows):
        raise ZeroDivisionError("no batch")
    return torch_data.default_collate(rows)


class NoPicture(Exception):
    """Cannot be made of a text."""

    def __init__(self, *, place):
        super().__init__(f"no picture at {place}")
        self.place = place

    def __reduce__(self):
        return _no_picture, (self.place,)


def _no_picture(place):
    return NoPicture(place=place)


class BrokenInItsWay(Rows):
    def __getitem__(self, row):
        if row == 6:
            raise NoPicture(place=row)
        return super().__getitem__(row)


class BrokenStreamInItsWay(Stream):
    def __iter__(self):
        yield from (BrokenInItsWay(0)[row] for row in range(self.count))


@pytest.mark.parametrize(
    ("data", "kind", "words"),
    [
        (Broken(9), KeyError, "in row 6 of the data set"),
        (DataLoader(Broken(9), batch_size=4), KeyError, "in row 6 of the data set"),
        (DataLoader(Broken(9), batch_size=4, num_workers=1), KeyError, "in row 6 of the data set"),
        (DataLoader(BrokenInItsWay(9), batch_size=4, num_workers=1), NoPicture, "in row 6 of the data set"),
        (DataLoader(BrokenTogether(9), batch_size=4), KeyError, "in one of the rows 6, 7 of the data set"),
        (BrokenStream(9), KeyError, "in row 6 of the data set"),
        (DataLoader(BrokenStream(9), batch_size=4, num_workers=1), KeyError, "in row 6 of the data set"),
        (
            DataLoader(BrokenStreamInItsWay(9), batch_size=4, num_workers=1, drop_last=True),
            NoPicture,
            "in row 6 of the data set",
        ),
        (
            DataLoader(BrokenStreamInItsWay(9), batch_size=None, num_workers=1),
            NoPicture,
            "in row 6 of the data set",
        ),
        (
            DataLoader(BrokenShared(21), batch_size=4, num_workers=2),
            KeyError,
            "in row 3 of the data set as process 0 of the loader reads it",
        ),
        (DataLoader(BrokenStream(9), batch_size=4), KeyError, "in row 6 of the data set"),
        (
            DataLoader(Rows(9), batch_size=4, collate_fn=refuse),
            ZeroDivisionError,
            "as the rows 6, 7 of the data set were put together",
        ),
        (
            DataLoader(Stream(9), batch_size=4, collate_fn=refuse),
            ZeroDivisionError,
            "as the rows 6, 7 of the data set were put together",
        ),
        (
            # The second process reads the rows 0 to 8 again.
            DataLoader(Stream(9), batch_size=4, collate_fn=refuse, num_workers=2),
            ZeroDivisionError,
            "as 2 rows of the data set were put together",
        ),
    ],
    ids=[
        "rows",
        "loader",
        "process",
        "own error",
        "together",
        "stream",
        "loader of a stream",
        "process of a stream",
        "own error of a stream",
        "own error of batches",
        "processes of a stream",
        "collate",
        "stream collate",
        "processes' collate",
    ],
)
def test_an_error_in_a_data_set_names_the_row(data, kind, words, tmp_path):
    est = seeing(tmp_path, workers=2)
    # A loader has a size of its own, and may leave it to the data set.
    size = None if isinstance(data, DataLoader) else 4
    for call in (est.fit, est.evaluate, est.predict):
        with pytest.raises(kind) as caught:
            call(data, batch_size=size)
        assert type(caught.value) is kind
        assert words in "".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
