"""Gradients are those of a plain loop, whatever users do with them."""

import plain_loop
import pytest
import torch
from clusters import one_cluster, scratch  # noqa: F401 - a fixture
from torch import nn
from torch.utils.checkpoint import checkpoint

import grampus as gp

runtime = one_cluster(workers=2)


def points(rows=45):
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(rows, 6, generator=generator)
    return {"x": x, "y": x[:, :2] ** 2}


def squared(output, target):
    return nn.functional.mse_loss(output, target)


def sgd(model, config):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def adamw(model, config):
    return torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)


def estimator(model, optimizer=sgd, loss=squared, **options):
    options = {"workers": 1, "lanes": 2, "threads_per_lane": 1, "seed": 7, **options}
    return gp.Estimator.from_torch(model=model, optimizer=optimizer, loss=loss, **options)


def assert_as_plain(
    model, optimizer=sgd, loss=squared, data=None, batch_size=8, epochs=2, rtol=1e-4, atol=1e-5, **options
):
    """Two lanes, on one worker and on two: equal bits, and to rounding those of a plain loop."""
    data = points() if data is None else data
    trained = []
    for workers in (2, 1):
        made = estimator(model, optimizer, loss, workers=workers)
        made.fit(data, batch_size=batch_size, epochs=epochs, **options)
        trained.append(made.state_dict())
    assert plain_loop.same_bits(*trained) == []
    plain = plain_loop.train(
        model, optimizer, loss, data, seed=7, epochs=epochs, batch_size=batch_size
    ).state_dict()
    plain_loop.assert_close(trained[0], plain, rtol=rtol, atol=atol)
    # One lane is the plain loop itself.
    alone = estimator(model, optimizer, loss, lanes=1)
    alone.fit(data, batch_size=batch_size, epochs=epochs)
    assert plain_loop.same_bits(alone.state_dict(), plain) == []
    return trained[0]


def first_weights(model):
    return estimator(model).state_dict()


class Net(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.last = nn.Linear(8, 2)

    def forward(self, x):
        return self.last(self.first(x).tanh())


# zero_grad in code of the user


class ForgetsGradients(Net):
    def forward(self, x):
        self.zero_grad(set_to_none=True)
        return super().forward(x)


class ZeroesGradients(Net):
    def forward(self, x):
        self.zero_grad(set_to_none=False)
        return super().forward(x)


@pytest.mark.parametrize("model", [ForgetsGradients, ZeroesGradients])
def test_zero_grad_in_forward(model):
    assert_as_plain(model)


class ZeroGrad(gp.callbacks.Callback):
    def __init__(self, set_to_none):
        self.set_to_none = set_to_none

    def on_step_end(self, run):
        run.model.zero_grad(set_to_none=self.set_to_none)


@pytest.mark.parametrize("set_to_none", [True, False])
def test_zero_grad_in_a_callback(set_to_none):
    assert_as_plain(Net, callbacks=[ZeroGrad(set_to_none)])


# Parameters that are not used always


class Rare(Net):
    """Few rows use `extra`: in most steps one lane does, in some steps none; nobody uses `never`."""

    def __init__(self, config):
        super().__init__(config)
        self.extra = nn.Linear(6, 2)
        self.never = nn.Linear(6, 2)

    def forward(self, x):
        output = super().forward(x)
        rows = (x[:, 0] > 1.3).nonzero()[:, 0]
        return output.index_add(0, rows, self.extra(x[rows])) if len(rows) else output


class RareAndForgotten(Rare):
    def forward(self, x):
        self.zero_grad(set_to_none=True)
        return super().forward(x)


class LookAtGradients(gp.callbacks.Callback):
    def __init__(self):
        self.found = []

    def on_step_end(self, run):
        self.found.append({name: p.grad is not None for name, p in run.model.named_parameters()})


@pytest.mark.parametrize("model", [Rare, RareAndForgotten])
def test_parameters_that_some_rows_use_and_none(model):
    looked = LookAtGradients()
    weights = assert_as_plain(model, adamw, batch_size=4, callbacks=[looked])
    assert torch.equal(weights["never.weight"], first_weights(model)["never.weight"])
    assert not any(step["never.weight"] for step in looked.found)
    used = [step["extra.weight"] for step in looked.found]
    assert 0 < sum(used) < len(used)
    assert all(step["last.weight"] for step in looked.found)


class Tied(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.there = nn.Linear(6, 6)
        self.back = nn.Linear(6, 6)
        self.back.weight = self.there.weight
        self.last = nn.Linear(6, 2)

    def forward(self, x):
        return self.last(self.back(self.there(x).tanh()).tanh())


def test_a_weight_of_two_layers():
    weights = assert_as_plain(Tied, adamw)
    assert torch.equal(weights["there.weight"], weights["back.weight"])


# Frozen parameters


class Frozen(Net):
    def __init__(self, config):
        super().__init__(config)
        self.first.requires_grad_(not config.get("frozen", True))


def test_frozen_parameters_and_a_later_fit_that_frees_them():
    looked = LookAtGradients()
    weights = assert_as_plain(Frozen, adamw, callbacks=[looked])
    before = first_weights(Frozen)
    assert torch.equal(weights["first.weight"], before["first.weight"])
    assert not torch.equal(weights["last.weight"], before["last.weight"])
    assert not any(step["first.weight"] for step in looked.found)
    found = []
    for workers in (1, 2):
        made = estimator(Frozen, adamw, workers=workers)
        made.fit(points())
        made.set_params(config={"frozen": False})
        made.fit(points())
        found.append(made.state_dict())
    assert plain_loop.same_bits(*found) == []
    assert not torch.equal(found[0]["first.weight"], before["first.weight"])


class FreesItself(Net):
    """Frees its first layer as an epoch begins, once it has seen some steps."""

    def __init__(self, config):
        super().__init__(config)
        self.first.requires_grad_(False)
        self.register_buffer("steps", torch.zeros(1))

    def train(self, mode=True):
        if mode and self.steps > 3:
            self.first.requires_grad_(True)
        return super().train(mode)

    def forward(self, x):
        self.steps += 1
        return super().forward(x)


def test_parameters_that_become_free_as_an_epoch_begins():
    weights = assert_as_plain(FreesItself, epochs=3)
    assert not torch.equal(weights["first.weight"], first_weights(FreesItself)["first.weight"])


class FreesItselfInForward(Net):
    def __init__(self, config):
        super().__init__(config)
        self.first.requires_grad_(False)

    def forward(self, x):
        self.first.requires_grad_(True)
        return super().forward(x)


@pytest.mark.parametrize("workers", [1, 2])
def test_parameters_that_become_free_within_an_epoch_are_an_error(workers):
    with pytest.raises(ValueError, match=r"first.weight.* was frozen as the epoch began"):
        estimator(FreesItselfInForward, workers=workers).fit(points())


class AllFrozen(Net):
    def __init__(self, config):
        super().__init__(config)
        self.requires_grad_(False)


@pytest.mark.parametrize("lanes", [1, 2])
def test_a_model_with_nothing_to_train_is_an_error(lanes):
    with pytest.raises(ValueError, match="no parameter that can be trained"):
        estimator(AllFrozen, lanes=lanes).fit(points())


# Sparse gradients


def words(rows=45):
    generator = torch.Generator().manual_seed(4)
    x = torch.randint(0, 9, (rows, 3), generator=generator)
    return {"x": x, "y": x[:, :2].float() / 9}


class Embedded(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.words = nn.Embedding(12, 2, sparse=True)
        self.rare = nn.EmbeddingBag(12, 2, sparse=True, mode="sum")

    def forward(self, x):
        output = self.words(x).mean(1)
        rows = (x[:, 0] == 8).nonzero()[:, 0]
        return output.index_add(0, rows, self.rare(x[rows])) if len(rows) else output


class EmbeddedAndDense(Embedded):
    def __init__(self, config):
        super().__init__(config)
        self.last = nn.Linear(2, 2)

    def forward(self, x):
        return self.last(super().forward(x))


def sparse_adam(model, config):
    return torch.optim.SparseAdam(list(model.parameters()), lr=0.02)


def plain_sgd(model, config):
    return torch.optim.SGD(model.parameters(), lr=0.5)


@pytest.mark.parametrize(
    ("model", "optimizer"),
    [(Embedded, sparse_adam), (Embedded, plain_sgd), (EmbeddedAndDense, plain_sgd)],
)
def test_sparse_gradients(model, optimizer):
    looked = LookAtGradients()
    weights = assert_as_plain(model, optimizer, data=words(), batch_size=4, callbacks=[looked])
    before = first_weights(model)
    assert torch.equal(weights["words.weight"][9:], before["words.weight"][9:])
    assert not torch.equal(weights["words.weight"][:9], before["words.weight"][:9])
    used = [step["rare.weight"] for step in looked.found]
    assert 0 < sum(used) < len(used)


class EmbeddedBothWays(nn.Module):
    """The output layer has the weights of the embedding: their gradient is sparse and dense."""

    def __init__(self, config):
        super().__init__()
        self.words = nn.Embedding(12, 2, sparse=True)

    def forward(self, x):
        return (self.words(x).mean(1) @ self.words.weight.T)[:, :2]


def test_a_gradient_that_is_sparse_and_dense():
    assert_as_plain(EmbeddedBothWays, plain_sgd, data=words())


# More than one backward


def with_a_backward_of_its_own(output, target):
    output.pow(2).mean().backward(retain_graph=True)
    return squared(output, target)


def test_a_backward_in_the_loss_counts_as_part_of_it():
    assert_as_plain(Net, loss=with_a_backward_of_its_own)


class Apart(Net):
    """Its own backward alone reaches `apart`, and leaves a graph behind."""

    def __init__(self, config):
        super().__init__(config)
        self.apart = nn.Linear(6, 2)

    def forward(self, x):
        if self.training:
            self.apart(x).pow(2).mean().backward(create_graph=True)
        return super().forward(x)


@pytest.mark.filterwarnings("ignore:Using backward")
def test_a_backward_in_forward_that_keeps_its_graph():
    weights = assert_as_plain(Apart)
    assert not torch.equal(weights["apart.weight"], first_weights(Apart)["apart.weight"])


class EmbeddedApart(Embedded):
    def forward(self, x):
        if self.training:
            self.words(x).pow(2).mean().backward()
        return super().forward(x)


def test_a_backward_of_its_own_with_sparse_gradients():
    assert_as_plain(EmbeddedApart, plain_sgd, data=words())


class Penalized(Net):
    def forward(self, x):
        x = x.detach().requires_grad_()
        output = super().forward(x)
        (slope,) = torch.autograd.grad(output.sum(), x, create_graph=True)
        return torch.cat([output, slope], 1)


def penalty(output, target):
    return squared(output[:, :2], target) + output[:, 2:].pow(2).mean()


def test_a_penalty_on_gradients():
    assert_as_plain(Penalized, loss=penalty)


# Ways to lie in memory, and to compute


class Image(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3)
        self.last = nn.Linear(4 * 16, 2)
        self.to(memory_format=torch.channels_last)

    def forward(self, x):
        return self.last(self.convolution(x.to(memory_format=torch.channels_last)).relu().flatten(1))


def images(rows=21):
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(rows, 3, 6, 6, generator=generator)
    return {"x": x, "y": x.mean((2, 3))[:, :2]}


def test_channels_last():
    assert_as_plain(Image, adamw, data=images())
    whole, halves = (estimator(Image, adamw) for _ in range(2))
    whole.fit(images(), epochs=2, batch_size=8)
    for _ in range(2):
        halves.fit(images(), batch_size=8)
    assert whole.digest() == halves.digest()


class Turned(Net):
    """A parameter that does not lie in memory row by row, one without axes, and one without elements."""

    def __init__(self, config):
        super().__init__(config)
        self.turned = nn.Parameter(torch.randn(8, 8).t())
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.nothing = nn.Parameter(torch.empty(0))

    def forward(self, x):
        return self.scale * self.last((self.first(x).tanh() @ self.turned).tanh()) + self.nothing.sum()


def test_parameters_of_odd_shapes():
    assert_as_plain(Turned, adamw)


class Mixed(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.middle = nn.Linear(8, 8).double()
        self.last = nn.Linear(8, 2)

    def forward(self, x):
        return self.last(self.middle(self.first(x).tanh().double()).tanh().float())


def test_parameters_of_two_types():
    weights = assert_as_plain(Mixed, adamw)
    assert weights["middle.weight"].dtype is torch.float64


class Large(nn.Module):
    """More than 8 MiB a layer, so that several sums are on their way while backward runs."""

    def __init__(self, config):
        super().__init__()
        self.first = nn.Linear(6, 1500)
        self.middle = nn.ModuleList(nn.Linear(1500, 1500) for _ in range(2))
        self.last = nn.Linear(1500, 2)

    def forward(self, x):
        x = self.first(x).tanh()
        for layer in self.middle:
            x = layer(x).tanh()
        return self.last(x)


class LargeAndUnused(Large):
    """Parameters that never come must not keep the sums of others waiting for ever."""

    def forward(self, x):
        return self.last(self.middle[1](self.first(x).tanh()).tanh())


@pytest.mark.parametrize("model", [Large, LargeAndUnused])
def test_several_buckets(model):
    assert_as_plain(model, plain_sgd_slow, data=points(13), epochs=1)


def plain_sgd_slow(model, config):
    return torch.optim.SGD(model.parameters(), lr=0.01)


class Recomputing(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.middle = nn.Linear(8, 8)
        self.last = nn.Linear(8, 2)

    def forward(self, x):
        x = self.first(x).tanh()
        # Twice: its gradient comes in two parts.
        for _ in range(2):
            x = checkpoint(self.middle, x, use_reentrant=self.reentrant).tanh()
        return self.last(x)


class Reentrant(Recomputing):
    reentrant = True


class NotReentrant(Recomputing):
    reentrant = False


@pytest.mark.parametrize("model", [Reentrant, NotReentrant])
def test_activations_that_are_computed_again(model):
    assert_as_plain(model)


class LargeReentrant(Large):
    def forward(self, x):
        x = self.first(x).tanh()
        for _ in range(2):
            x = checkpoint(self.middle[1], x, use_reentrant=True).tanh()
        return self.last(x)


def test_a_gradient_that_comes_after_its_sum_has_begun_is_an_error():
    with pytest.raises(ValueError, match="use_reentrant=False"):
        estimator(LargeReentrant, workers=2).fit(points(13), batch_size=8)
