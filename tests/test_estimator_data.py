"""Data in all forms: every row is trained once an epoch, whatever holds it and however many workers read."""

import functools
import random
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from estimators import (  # noqa: F401 - fixtures
    Rows,
    RowsTogether,
    Stream,
    StreamOfLane,
    lines,
    note,
    numbers,
    runtime,
    scratch,
    seeing,
    values,
)
from torch import nn
from torch.utils import data as torch_data
from torch.utils.data import DataLoader, TensorDataset

import grampus as gp


def trained(folder):
    return values(folder / "trained")


# Forms


def pairs(count):
    return {"x": numbers(count), "y": numbers(count)}


FORMS = {
    "tensors": pairs,
    "arrays": lambda count: {name: part.numpy() for name, part in pairs(count).items()},
    "read-only arrays": lambda count: {name: frozen(part.numpy()) for name, part in pairs(count).items()},
    "tuple of arrays": lambda count: (numbers(count), numbers(count)),
    "tensor data set": lambda count: TensorDataset(numbers(count), numbers(count)),
    "data set": Rows,
    "data set of batches": RowsTogether,
    "loader": lambda count: DataLoader(Rows(count), batch_size=4),
    "loader of tensors": lambda count: DataLoader(
        TensorDataset(numbers(count), numbers(count)), batch_size=4
    ),
    "loader of a list": lambda count: DataLoader([Rows(count)[row] for row in range(count)], batch_size=4),
    "loader that shuffles": lambda count: DataLoader(Rows(count), batch_size=4, shuffle=True),
    "loader with processes": lambda count: DataLoader(Rows(count), batch_size=4, num_workers=2),
    "stream": Stream,
    "loader of a stream": lambda count: DataLoader(Stream(count), batch_size=4),
    "loader of a stream with a process": lambda count: DataLoader(Stream(count), batch_size=4, num_workers=1),
    "stream of lanes": StreamOfLane,
    "loader of a stream of lanes": lambda count: DataLoader(StreamOfLane(count), batch_size=4),
    "loader of a stream of lanes with a process": lambda count: DataLoader(
        StreamOfLane(count), batch_size=4, num_workers=1
    ),
    "creator": lambda count: lambda config: Rows(count),
    "creator of a loader": lambda count: lambda config, batch_size: DataLoader(Rows(count), batch_size),
}


def frozen(array):
    array = array.copy()
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_data_gives_every_row_once(form, tmp_path):
    est = seeing(tmp_path, workers=2)
    history = est.fit(FORMS[form](11), epochs=2, batch_size=4)
    assert trained(tmp_path) == sorted([*range(11)] * 2)
    assert history[-1]["samples"] == 11
    assert est.evaluate(FORMS[form](11), batch_size=4) == {"loss": 0.0, "num_samples": 11}
    assert values(tmp_path / "judged") == [*range(11)]


def test_columns_of_a_dict_and_of_a_frame(tmp_path):
    table = {"a": numbers(10), "b": numbers(10), "unused": numbers(10)}
    est = seeing(tmp_path, workers=2)
    est.fit(table, batch_size=4, feature_cols=["a"], label_cols=["b"])
    assert trained(tmp_path) == [*range(10)]
    frame = pd.DataFrame({name: column.flatten().numpy() for name, column in table.items()})
    est.fit(frame, batch_size=4, feature_cols="a", label_cols="b", validation_data=frame)
    assert trained(tmp_path) == sorted([*range(10)] * 2)
    assert est.evaluate(frame, feature_cols=["a"], label_cols=["b"])["num_samples"] == 10


class TwoInTwoOut(nn.Module):
    """Takes two inputs, by place or by name, and makes a small and a large output."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, left, right):
        return left + right + self.weight, left * right + self.weight


def both(outputs, targets):
    return sum(
        nn.functional.mse_loss(output, target) for output, target in zip(outputs, targets, strict=True)
    )


@pytest.mark.parametrize("kind", ["tuple", "list", "dict", "columns", "loader"])
def test_several_inputs_and_several_targets(kind):
    left, right = numbers(9), numbers(9).flip(0)
    targets = (left + right, left * right)
    est = gp.Estimator.from_torch(
        model=TwoInTwoOut, optimizer="sgd", loss=both, config={"lr": 0.1}, workers=2
    )
    options = {}
    if kind == "columns":
        data = {"left": left, "right": right, "sum": targets[0], "product": targets[1]}
        options = {"feature_cols": ["left", "right"], "label_cols": ["sum", "product"]}
    elif kind == "loader":
        rows = [(l, r, (s, p)) for l, r, s, p in zip(left, right, *targets, strict=True)]  # noqa: E741
        data = DataLoader(rows, batch_size=4)
    else:
        inputs = {"tuple": (left, right), "list": [left, right], "dict": {"left": left, "right": right}}
        data = {"x": inputs[kind], "y": targets}
    # The targets are met from the beginning, so nothing is learnt.
    assert est.fit(data, epochs=2, batch_size=4, **options)[-1]["loss"] == 0.0
    assert est.evaluate(data, batch_size=4, **options) == {"loss": 0.0, "num_samples": 9}


def test_dict_batches_of_a_loader(tmp_path):
    rows = [{"x": row, "y": row} for row in numbers(7)]
    est = seeing(tmp_path, workers=2)
    est.fit(DataLoader(rows, batch_size=3))
    assert trained(tmp_path) == [*range(7)]


# Loaders


def test_a_loaders_collate_function_is_used(tmp_path):
    def negative(rows):
        return tuple(-torch.stack(part) for part in zip(*rows, strict=True))

    est = seeing(tmp_path, workers=2)
    est.fit(DataLoader(Rows(6), batch_size=4, collate_fn=negative))
    assert trained(tmp_path) == [*range(-5, 1)]


@pytest.mark.parametrize("kind", [Rows, Stream])
def test_a_loader_that_drops_the_last_batch(kind, tmp_path):
    est = seeing(tmp_path, workers=2)
    history = est.fit(DataLoader(kind(11), batch_size=4, drop_last=True))
    assert len(trained(tmp_path)) == history[-1]["samples"] == 8


def samplers(kind):
    data = Rows(12)
    own = {
        "weighted": lambda: torch_data.WeightedRandomSampler([0.0] * 6 + [1.0] * 6, 9),
        "with replacement": lambda: torch_data.RandomSampler(data, replacement=True, num_samples=9),
        "subset": lambda: torch_data.SubsetRandomSampler([1, 3, 5, 7, 9]),
        "own generator": lambda: torch_data.RandomSampler(
            data, replacement=True, num_samples=9, generator=torch.Generator()
        ),
    }
    return DataLoader(data, batch_size=4, sampler=own[kind]())


@pytest.mark.parametrize("kind", ["weighted", "with replacement", "subset", "own generator"])
def test_a_sampler_chooses_alike_at_any_number_of_workers(kind, tmp_path):
    seen = {}
    for workers in (1, 2, 3):
        folder = tmp_path / str(workers)
        folder.mkdir()
        seeing(folder, workers=workers, lanes=3, seed=5).fit(samplers(kind), epochs=2)
        seen[workers] = lines(folder / "trained")
    assert sorted(seen[1]) == sorted(seen[2]) == sorted(seen[3])
    rows = [[row for line in part for row in line] for part in halves(seen[1])]
    if kind == "subset":
        assert [sorted(epoch) for epoch in rows] == [[1, 3, 5, 7, 9]] * 2
    else:
        assert [len(epoch) for epoch in rows] == [9, 9]
        assert all(row >= 6 for epoch in rows for row in epoch) or kind != "weighted"
    assert rows[0] != rows[1]


def halves(seen):
    return seen[: len(seen) // 2], seen[len(seen) // 2 :]


def test_a_distributed_sampler_loses_and_repeats_nothing(tmp_path):
    sampler = torch_data.DistributedSampler(Rows(11), num_replicas=2, rank=0)
    seeing(tmp_path, workers=3).fit(DataLoader(Rows(11), batch_size=4, sampler=sampler))
    assert trained(tmp_path) == [*range(11)]


class Uneven(torch_data.Sampler):
    """Batches of 1, 2, 3, … rows, and one of none."""

    def __init__(self, count):
        self.count = count

    def __iter__(self):
        first, size = 0, 1
        while first < self.count:
            yield list(range(first, min(first + size, self.count)))
            first, size = first + size, size + 1
            if size == 3:
                yield []


def test_a_sampler_of_uneven_batches(tmp_path):
    loader = DataLoader(Rows(14), batch_sampler=Uneven(14))
    history = seeing(tmp_path, workers=1, lanes=1).fit(loader)
    assert [len(line) for line in lines(tmp_path / "trained")] == [1, 2, 3, 4, 4]
    assert (history[-1]["steps"], history[-1]["samples"]) == (5, 14)
    seeing(tmp_path, workers=3).fit(loader)
    assert trained(tmp_path) == sorted([*range(14)] * 2)


def test_a_sampler_within_a_sampler_of_batches(tmp_path):
    inner = torch_data.SubsetRandomSampler([2, 4, 6, 8, 10])
    loader = DataLoader(Rows(12), batch_sampler=torch_data.BatchSampler(inner, 2, drop_last=True))
    history = seeing(tmp_path, workers=2).fit(loader)
    assert history[-1]["samples"] == 4
    assert set(trained(tmp_path)) < {2, 4, 6, 8, 10}


class Walking(torch_data.Sampler):
    """Keeps a state of its own, and so gives other rows each time it is asked."""

    def __init__(self):
        self.first = 0

    def __len__(self):
        return 4

    def __iter__(self):
        rows = [(self.first + row) % 40 for row in range(4)]
        self.first += 4
        return iter(rows)


def test_a_sampler_with_a_state_is_asked_equally_often_on_all_workers(tmp_path):
    est = seeing(tmp_path, workers=2)
    loader = DataLoader(Rows(40), batch_size=4, sampler=Walking())
    est.fit(loader, epochs=3, checkpoint=tmp_path / "saved")
    # Each line is one lane's half of a batch of four neighbours.
    starts = sorted(line[0] for line in lines(tmp_path / "trained"))
    assert [second - first for first, second in zip(starts[::2], starts[1::2], strict=True)] == [2, 2, 2]
    assert len(trained(tmp_path)) == len(set(trained(tmp_path))) == 12


# The size of batches


def sizes(folder):
    return [len(line) for line in lines(folder / "trained")]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [({}, [5, 5, 2]), ({"batch_size": None}, [5, 5, 2]), ({"batch_size": 5}, [5, 5, 2])],
    ids=["default", "none", "equal"],
)
def test_the_loaders_size_of_batches_is_taken(asked, expected, tmp_path):
    seeing(tmp_path, workers=1, lanes=1).fit(DataLoader(Rows(12), batch_size=5), **asked)
    assert sizes(tmp_path) == expected


def test_the_size_of_batches_is_that_of_all_workers_together(tmp_path):
    history = seeing(tmp_path, workers=3).fit(pairs(12), batch_size=6)
    assert sizes(tmp_path) == [2] * 6
    assert history[-1]["steps"] == 2


def test_two_sizes_of_batches_are_one_too_many(tmp_path):
    words = "batch_size=6 was asked for and the loader makes batches of 5: pass batch_size=None"
    for data in (DataLoader(Rows(12), batch_size=5), lambda config: DataLoader(Rows(12), batch_size=5)):
        with pytest.raises(ValueError, match=words):
            seeing(tmp_path, workers=2).fit(data, batch_size=6)
    # Validation has a loader of its own.
    seeing(tmp_path).fit(pairs(12), batch_size=6, validation_data=DataLoader(Rows(12), batch_size=5))


@pytest.mark.parametrize("data", [pairs(5), DataLoader(Rows(5), batch_size=2), StreamOfLane(9)], ids=type)
def test_fewer_rows_in_a_batch_than_lanes_is_said_and_works(data, tmp_path):
    size = None if isinstance(data, DataLoader) else 2
    with pytest.warns(match="batch_size=2 leaves some of the 3 lanes without rows"):
        history = seeing(tmp_path, workers=3).fit(data, batch_size=size)
    assert trained(tmp_path) == [*range(history[-1]["samples"])]
    assert history[-1]["samples"] == (9 if isinstance(data, StreamOfLane) else 5)


def test_enough_rows_for_all_lanes_is_not_worth_a_word(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        seeing(tmp_path, workers=3).fit(DataLoader(Rows(9), batch_size=3))


# Any number of rows and workers


@pytest.mark.parametrize("form", ["tensors", "data set", "stream", "stream of lanes"])
@pytest.mark.parametrize(("workers", "lanes"), [(1, 1), (1, 4), (2, 3), (3, 3)])
def test_any_number_of_rows_with_any_number_of_workers(form, workers, lanes, tmp_path):
    for count in (1, 2, 5, 33, 100):
        folder = tmp_path / str(count)
        folder.mkdir()
        est = seeing(folder, workers=workers, lanes=lanes)
        data = FORMS[form](count)
        est.fit(data, batch_size=8)
        assert trained(folder) == [*range(count)]
        assert est.evaluate(data, batch_size=8) == {"loss": 0.0, "num_samples": count}
        assert values(folder / "judged") == [*range(count)]
        found = est.predict(data, batch_size=8).flatten().tolist()
        assert (sorted(found) if form == "stream of lanes" else found) == [*range(count)]


@pytest.mark.parametrize("form", ["tensors", "data set", "stream", "stream of lanes"])
def test_no_rows(form, tmp_path):
    est = seeing(tmp_path, workers=2)
    data = FORMS[form](0)
    with pytest.raises(ValueError, match="no rows to train on"):
        est.fit(data)
    found = est.evaluate(data)
    assert np.isnan(found["loss"])
    assert found["num_samples"] == 0
    with pytest.raises(ValueError, match="no rows to predict"):
        est.predict(data)


def test_fewer_rows_than_the_only_batch_that_is_not_dropped(tmp_path):
    with pytest.raises(ValueError, match=r"no rows to train on.*drop_last"):
        seeing(tmp_path, workers=2).fit(DataLoader(Rows(3), batch_size=4, drop_last=True))


def test_more_workers_than_lanes(tmp_path):
    """Some of them have nothing to do, and nothing waits for them."""
    est = seeing(tmp_path, workers=3, lanes=2)
    est.fit(pairs(5), batch_size=2)
    assert trained(tmp_path) == [*range(5)]
    assert est.evaluate(pairs(5))["num_samples"] == 5


# Order and random numbers


@pytest.mark.parametrize("form", ["tensors", "loader that shuffles"])
def test_the_order_depends_on_seed_and_epoch_alone(form, tmp_path):
    def seen(name, **settings):
        folder = tmp_path / name
        folder.mkdir()
        seeing(folder, **settings).fit(FORMS[form](24), epochs=2, batch_size=4)
        return lines(folder / "trained")

    one = seen("one", workers=1, lanes=2, seed=3)
    assert sorted(one) == sorted(seen("two", workers=2, lanes=2, seed=3))
    first, second = ([row for line in half for row in line] for half in halves(one))
    assert sorted(first) == sorted(second) == [*range(24)]
    assert first != second
    assert first != sorted(first)
    assert sorted(one) != sorted(seen("other", workers=1, lanes=2, seed=4))
    # The lanes cut the batch, and nothing else.
    whole = seen("whole", workers=1, lanes=1, seed=3)
    assert [row for line in whole for row in line] == [*first, *second]


def test_a_loader_that_does_not_shuffle_is_read_in_its_order(tmp_path):
    seeing(tmp_path, workers=1, lanes=1).fit(DataLoader(Rows(9), batch_size=4))
    assert lines(tmp_path / "trained") == [(0, 1, 2, 3), (4, 5, 6, 7), (8,)]


class Augmented(Rows):
    """Adds what it draws from each of the generators that people use."""

    def __getitem__(self, row):
        drawn = random.random() + np.random.rand() + torch.rand(1).item()
        return torch.tensor([row + drawn / 4]), torch.zeros(1)


class AugmentedStream(Stream):
    """Is shuffled besides."""

    rows = Augmented(0)

    def mine(self):
        return range(self.count)

    def __iter__(self):
        rows = list(self.mine())
        random.shuffle(rows)
        return (self.rows[row] for row in rows)


class AugmentedStreamOfLane(AugmentedStream):
    def mine(self):
        lane = gp.lane()
        return range(lane.index, self.count, lane.count)


@pytest.mark.parametrize(
    ("kind", "processes"),
    [
        (Augmented, 0),
        (Augmented, 2),
        (AugmentedStream, 0),
        (AugmentedStream, 1),
        (AugmentedStreamOfLane, 0),
        (AugmentedStreamOfLane, 1),
    ],
)
def test_random_numbers_in_a_data_set_are_equal_at_any_number_of_workers(kind, processes, tmp_path):
    seen = []
    for workers in (1, 2, 3):
        folder = tmp_path / str(workers)
        folder.mkdir()
        loader = DataLoader(kind(20), batch_size=6, num_workers=processes)
        seeing(folder, workers=workers, lanes=3, seed=1).fit(loader, epochs=2)
        seen.append(sorted(lines(folder / "trained")))
    assert seen[0] == seen[1] == seen[2]
    rows = sorted(row for line in seen[0] for row in line)
    assert len(set(rows)) == 40
    assert [int(row) for row in rows] == sorted([*range(20)] * 2)


# Streams


class Batches(torch_data.IterableDataset):
    """Whole batches, as arrays; one of them is empty."""

    def __iter__(self):
        for size in (3, 0, 1, 5):
            rows = np.arange(size, dtype=np.float32).reshape(size, 1) + 10 * size
            yield rows, rows


def test_a_stream_of_batches(tmp_path):
    est = seeing(tmp_path, workers=2)
    history = est.fit(DataLoader(Batches(), batch_size=None))
    expected = [10, 30, 31, 32, 50, 51, 52, 53, 54]
    assert trained(tmp_path) == expected
    assert (history[-1]["steps"], history[-1]["samples"]) == (3, 9)
    assert est.evaluate(DataLoader(Batches(), batch_size=None))["num_samples"] == 9


class Shared(Stream):
    """Shares itself out among the processes of a loader, as torch asks for."""

    def __iter__(self):
        info = torch_data.get_worker_info()
        yield from (Rows(0)[row] for row in range(info.id, self.count, info.num_workers))


def test_a_stream_that_several_processes_read(tmp_path):
    seeing(tmp_path, workers=2).fit(DataLoader(Shared(21), batch_size=4, num_workers=2))
    assert trained(tmp_path) == [*range(21)]


# Creators


class Creator:
    """An object that can be called."""

    def __call__(self, config):
        return Rows(config["rows"])


def of_config(config, batch_size):
    return DataLoader(Rows(config["rows"]), batch_size=batch_size)


def with_defaults(config={}, batch_size=4, download=True, data_dir="./data"):  # noqa: B006 - as people write it
    assert download
    assert data_dir == "./data"
    return DataLoader(Rows(config["rows"]), batch_size=batch_size, shuffle=True, num_workers=0)


@pytest.mark.parametrize(
    "creator",
    [
        lambda config: Rows(config["rows"]),
        lambda: Rows(10),
        of_config,
        with_defaults,
        functools.partial(with_defaults, data_dir="./data"),
        Creator(),
    ],
    ids=["lambda", "nothing taken", "two arguments", "defaults", "partial", "object"],
)
def test_creators_of_data_in_all_their_shapes(creator, tmp_path):
    est = seeing(tmp_path, workers=2, config={"rows": 10})
    history = est.fit(creator, batch_size=5, validation_data=creator)
    assert trained(tmp_path) == [*range(10)]
    assert (history[-1]["steps"], history[-1]["val_num_samples"]) == (2, 10)


class FirstAlone:
    """Fails where the first worker of a host is not alone, or the others do not come together."""

    def __init__(self, folder, name):
        self.folder, self.name = Path(folder), name

    def __enter__(self):
        note(self.folder / self.name, [random.random(), np.random.rand(), torch.rand(1).item()])
        done, inside = self.folder / f"{self.name}-done", self.folder / f"{self.name}-inside"
        if gp.local_rank() == 0:
            time.sleep(0.2)
            assert not inside.exists()
            done.touch()
            return
        assert done.exists()
        note(inside, [gp.local_rank()])
        until = time.monotonic() + 10
        while len(lines(inside)) < 2:
            assert time.monotonic() < until, "the others came one after the other"
            time.sleep(0.01)

    def __exit__(self, *error):
        pass


def test_creators_run_on_the_first_worker_and_then_on_the_others_at_once(tmp_path):
    def made(name, make):
        def creator(*arguments):
            with FirstAlone(tmp_path, name):
                return make(*arguments)

        return creator

    make_model, make_optimizer = made("model", lambda: nn.Linear(1, 1)), made("optimizer", torch.optim.SGD)
    make_loss, make_data = made("loss", nn.MSELoss), made("data", pairs)
    make_scheduler = made("scheduler", torch.optim.lr_scheduler.ConstantLR)
    gp.Estimator.from_torch(
        model=lambda config: make_model(),
        optimizer=lambda model, config: make_optimizer(model.parameters(), 0.1),
        loss=lambda config: make_loss(),
        scheduler=lambda optimizer, config: make_scheduler(optimizer),
        workers=3,
    ).fit(lambda config: make_data(5), batch_size=5)
    for name in ("model", "optimizer", "loss", "scheduler", "data"):
        drawn = lines(tmp_path / name)
        assert len(drawn) == 3
        assert len(set(drawn)) == 1


def test_a_class_of_a_model_whose_arguments_all_have_values():
    class Net(nn.Linear):
        def __init__(self, width=1):
            super().__init__(width, 1)

    est = gp.Estimator.from_torch(
        model=Net, optimizer="sgd", loss=nn.MSELoss(), config={"lr": 0.1}, workers=1
    )
    assert est.fit(pairs(4))[-1]["samples"] == 4
