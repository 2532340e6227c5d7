"""Arrays of any layout are handled right or refused, and nothing beside them changes."""

import numpy as np
import pytest
from clusters import one_cluster

import grampus as gp
from grampus import _native

runtime = one_cluster(workers=2, preload=("numpy",))

COUNT = 8


def packed_record():
    """Five bytes from one number to the next: as elements, that rounds to one."""
    base = np.zeros(COUNT, [("x", "<f4"), ("y", "u1")])
    base["y"] = range(COUNT)
    return base, base["x"]


def wide_record():
    base = np.zeros(COUNT, [("x", "<f4"), ("y", "<f4")])
    base["y"] = range(COUNT)
    return base, base["x"]


def misaligned():
    base = np.arange(4 * COUNT + 4, dtype="u1")
    return base, base[1:-3].view("<f4")


def misaligned_record():
    """One number, which no stride tells of."""
    base = np.zeros(1, [("y", "u1"), ("x", "<f4", (COUNT,))])
    return base, base["x"][0]


def stepped():
    base = np.zeros(2 * COUNT, "<f4")
    return base, base[::2]


def backwards():
    base = np.zeros(COUNT, "<f4")
    return base, base[::-1]


def transposed():
    base = np.zeros((2, COUNT // 2), "<f4")
    return base, base.T


def broadcast():
    base = np.zeros(1, "<f4")
    return base, np.lib.stride_tricks.as_strided(base, (COUNT,), (0,))


def overlapping():
    base = np.zeros(COUNT, "<f4")
    return base, np.lib.stride_tricks.as_strided(base, (2, COUNT // 2), (4, 4))


def swapped():
    base = np.zeros(COUNT, ">f4")
    return base, base


def read_only():
    base = np.zeros(COUNT, "<f4")
    view = base.view()
    view.flags.writeable = False
    return base, view


def plain():
    base = np.zeros(COUNT, "<f4")
    return base, base


def one_row():
    """Strides of an axis of length 1 mean nothing."""
    base = np.zeros((1, COUNT), "<f4", order="F")
    return base, base


KINDS = {each.__name__: each for each in (plain, one_row, packed_record, wide_record, misaligned)}
KINDS |= {each.__name__: each for each in (misaligned_record, stepped, backwards, transposed)}
KINDS |= {each.__name__: each for each in (broadcast, overlapping, swapped, read_only)}
# What a call that only reads may take, besides: the memory of a read-only array is whole.
TAKEN = {"plain", "one_row"}


def values(rank, shape):
    return (np.arange(COUNT, dtype="f8") + 10 * rank + 1).reshape(shape)


def summed(shape):
    return sum(values(rank, shape) for rank in range(2))


def exchanged(array, to_send):
    """Between two: who was refused says so with a plain array, or the other would wait."""
    call, peer = gp.collective, 1 - gp.rank()
    if gp.rank() == (0 if to_send else 1):
        given = array if to_send else np.ascontiguousarray(array, "<f4")
        try:
            return call.send(given, peer)
        except (TypeError, ValueError):
            call.send(np.zeros(array.shape, "<f4"), peer)
            raise
    taken = np.zeros(array.shape, "<f4") if to_send else array
    try:
        return call.recv(taken, peer)
    except (TypeError, ValueError):
        call.recv(np.zeros(array.shape, "<f4"), peer)
        raise


def scattered(call, array):
    """Of what others than the root pass nothing is read; here they are refused with it."""
    _native.check_buffers([array, array])
    return call.scatter([array, array])


def broadcasted(call, array):
    """The root need not be able to write; here it is refused with the others."""
    if not array.flags.writeable:
        raise ValueError("read-only")
    return call.broadcast(array, 1)


# What is called; what the array becomes; what the call returns, where that is another array.
OPERATIONS = {
    "all_reduce": (lambda c, a: c.all_reduce(a), lambda r, s: summed(s), None),
    "lanes": (lambda c, a: c.all_reduce({gp.rank(): a}), lambda r, s: summed(s), None),
    "reduce": (lambda c, a: c.reduce(a), lambda r, s: values(r, s) if r else summed(s), None),
    "broadcast": (broadcasted, lambda r, s: values(1, s), None),
    "reduce_scatter": (
        lambda c, a: c.reduce_scatter(a),
        values,
        lambda r, s: np.split(summed(s), 2)[r] if s[0] % 2 == 0 else None,
    ),
    "out": (
        lambda c, a: c.reduce_scatter(np.ones(2 * COUNT, "<f4"), out=a),
        lambda r, s: np.full(s, 2.0),
        None,
    ),
    "all_gather": (lambda c, a: c.all_gather(a), values, lambda r, s: [values(0, s), values(1, s)]),
    "gather": (lambda c, a: c.gather(a), values, lambda r, s: None if r else [values(0, s), values(1, s)]),
    "scatter": (scattered, values, lambda r, s: values(0, s)),
    "all_to_all": (lambda c, a: c.all_to_all([a, a]), values, lambda r, s: [values(0, s), values(1, s)]),
    "norm": (lambda c, a: c.norm(a), None, None),
    "send": (lambda c, a: exchanged(a, to_send=True), values, None),
    "recv": (
        lambda c, a: exchanged(a, to_send=False),
        lambda r, s: values(1, s) if r == 0 else values(r, s),
        None,
    ),
}


def attempt(operation, kind):
    """What is wrong with one call on one array; nothing where it is right, or refused without a trace."""
    call, becomes, returns = OPERATIONS[operation]
    base, array = KINDS[kind]()
    # A norm is of what all hold alike.
    filled = array if array.flags.writeable else base
    filled[...] = values(0 if operation == "norm" else gp.rank(), filled.shape)
    before = base.copy()
    try:
        found = call(gp.collective, array)
    except (TypeError, ValueError) as error:
        if base.tobytes() != before.tobytes():
            return "refused, and the memory was changed"
        cannot_be_cut = "cannot be cut" in str(error) and array.shape[0] % 2
        return "" if kind not in TAKEN or cannot_be_cut else f"refused: {error}"
    if operation == "norm":
        right = np.linalg.norm(values(0, array.shape))
        return "" if np.isclose(found, right) else f"{found} and not {right}"
    wanted = before.copy()
    aim = wanted if array is base or kind == "read_only" else _same_view(array, base, wanted)
    aim[...] = becomes(gp.rank(), array.shape)
    if base.tobytes() != wanted.tobytes():
        return f"the memory holds {base.tolist()} and not {wanted.tolist()}"
    if returns is not None and not np.array_equal(found, wanted := returns(gp.rank(), array.shape)):
        return f"{found} and not {wanted}"
    return ""


def _same_view(array, base, other):
    """The elements of another memory that an array is of its base."""
    offset = array.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    return np.ndarray(array.shape, array.dtype, other.view("u1").data, offset, array.strides)


def attempt_all(operation):
    found = {}
    for kind in KINDS:
        if why := attempt(operation, kind):
            found[kind] = why
        # Whatever came of it, the group still adds up.
        assert gp.collective.all_reduce(np.ones(1)).tolist() == [2]
    return found


@pytest.mark.parametrize("operation", OPERATIONS)
def test_memory_beside_an_array_is_never_written(operation):
    assert gp.run(attempt_all, operation) == [{}, {}]


def test_the_sentence_says_what_to_do():
    def refusals():
        told = []
        for kind in (packed_record, misaligned, swapped):
            try:
                gp.collective.all_reduce(kind()[1])
            except (TypeError, ValueError) as error:
                told.append(str(error))
        return told

    packed, aligned, order = gp.run(refusals)[0]
    assert "not contiguous (shape [8], strides [5])" in packed and "ascontiguousarray" in packed
    assert "not aligned: f32 needs an address that 4 divides" in aligned and "pass a copy" in aligned
    assert "'>f4'" in order.replace('"', "'")


SHARED = {
    "lanes": lambda c, a: c.all_reduce({2 * gp.rank(): a[:4], 2 * gp.rank() + 1: a[2:6]}),
    "one lane twice": lambda c, a: c.all_reduce({2 * gp.rank(): a, 2 * gp.rank() + 1: a}),
    "a part that is not the own": lambda c, a: c.reduce_scatter(a, out=a[1:5]),
    "parts that are gathered": lambda c, a: c._native.all_gather(a[:4], [a[:4], a[2:6]], True),
    "parts that are gathered into the source": lambda c, a: c._native.all_gather(
        a[1:5], [a[4:], a[:4]], True
    ),
    "what comes and what goes": lambda c, a: c._native.all_to_all([a[:4], a[4:]], [a[2:6], a[6:]], True),
    "what is scattered": lambda c, a: c._native.scatter(
        [a[:4], a[4:]] if gp.rank() == 0 else [], a[2:6] if gp.rank() == 0 else a[:4], 0, True
    ),
}


def share(name):
    base = np.arange(COUNT, dtype="f4")
    try:
        SHARED[name](gp.collective.world(), base)
    except ValueError as error:
        assert base.tolist() == list(range(COUNT)), "it was changed"
        return str(error)
    except gp.errors.GrampusError as error:
        return f"{type(error).__name__}: {error}"
    return base.tolist()


@pytest.mark.parametrize("name", SHARED)
def test_buffers_that_overwrite_each_other_are_refused(name):
    found = gp.run(share, name) if name != "what is scattered" else gp.run(share_at_the_root)
    assert "share memory" in found[0] and "pass copies" in found[0]


def share_at_the_root():
    """Only the root can see it."""
    gp.collective.barrier()
    if gp.rank() == 0:
        return share("what is scattered")
    return ""


def own_parts():
    """What is allowed: one's own part, where it lies."""
    group, base = gp.collective.world(), np.arange(COUNT, dtype="f4")
    half = COUNT // 2
    mine = slice(gp.rank() * half, (gp.rank() + 1) * half)
    group._native.all_gather(base[mine], [base[:half], base[half:]], True)
    gathered = base.tolist()
    group.reduce_scatter(base, out=base[mine])
    return gathered, base[mine].tolist()


def test_the_own_part_may_be_written_where_it_lies():
    whole = list(range(COUNT))
    assert gp.run(own_parts) == [
        (whole, [2.0 * i for i in range(4)]),
        (whole, [2.0 * i for i in range(4, 8)]),
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_tensors_holds_the_numbers_or_is_refused(kind, tmp_path):
    base, array = KINDS[kind]()
    base[...] = np.zeros(1, base.dtype) if base.dtype.names else 1
    path = str(tmp_path / "one.safetensors")
    try:
        _native.write_tensors(path, {"x": (list(array.shape), "F32", array)}, {})
    except (TypeError, ValueError):
        assert kind not in TAKEN
        return
    [(shape, code, memory)] = _native.read_tensors(path).values()
    assert np.array_equal(np.asarray(memory).view("<f4").reshape(shape), array) and code == "F32"


@pytest.mark.parametrize("kind", KINDS)
def test_models_of_the_engine_train_on_any_array_alike(kind):
    """By the numbers that numpy sees, however they lie."""
    base, array = KINDS[kind]()
    rows = np.linspace(-1, 1, COUNT, dtype="f4").reshape(array.shape)
    if array.flags.writeable:
        array[...] = rows
    else:
        base[...] = rows
    seen = array.reshape(COUNT, 1) if kind in ("transposed", "overlapping", "one_row") else array[:, None]
    digests = [digest_of(seen), digest_of(np.array(seen, "<f4", order="C"))]
    assert digests[0] == digests[1]


def digest_of(x):
    model = gp.nn.Sequential().add(gp.nn.Linear(1, 1))
    est = gp.Estimator.from_native(
        model=model, loss=gp.nn.MSE(), optimizer=gp.optim.SGD(0.1), seed=1, lanes=2
    )
    est.fit({"x": x, "y": np.ones((COUNT, 1), "f4")}, batch_size=4)
    return est.digest()


@pytest.mark.parametrize("kind", KINDS)
def test_metrics_see_the_numbers_of_any_array(kind):
    base, array = KINDS[kind]()
    numbers = np.linspace(0, 1, array.size).reshape(array.shape)
    if array.flags.writeable:
        array[...] = numbers
    else:
        base[...] = numbers
    meter = gp.metrics.meter(gp.metrics.MSE())
    try:
        meter.update(array, np.zeros(array.shape, "f4"))
    except (TypeError, ValueError) as error:
        assert kind == "swapped", error
        return
    assert meter.value() == pytest.approx(np.mean(np.asarray(array, "f8") ** 2))


def odd_tensors():
    """Tensors whose memory does not hold their values as they are, and what they are worth."""
    import torch

    raw = torch.arange(33, dtype=torch.uint8)
    return {
        "negated": torch._neg_view(torch.tensor([2.0, 3.0])),
        "misaligned": torch.frombuffer(
            bytearray(raw.numpy().tobytes()), dtype=torch.float32, offset=1, count=8
        ),
    }


def gathered_tensors():
    """Through torch.distributed on one rank: what comes back is what went in."""
    import torch
    import torch.distributed as dist

    import grampus.frameworks.torch_backend  # noqa: F401 - registers the backend

    dist.init_process_group("grampus", store=dist.HashStore(), rank=0, world_size=1)
    wrong = []
    for name, tensor in odd_tensors().items():
        found = [torch.empty(tensor.shape, dtype=tensor.dtype)]
        dist.all_gather(found, tensor)
        if not torch.equal(found[0], tensor.clone()):
            wrong.append(name)
    dist.destroy_process_group()
    return wrong


def test_tensors_are_sent_by_value():
    pytest.importorskip("torch")
    assert gp.run(gathered_tensors, workers=1) == [[]]
