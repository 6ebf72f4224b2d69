"""A model held in parts: any subset of its parameters, in any order, has the bits of the model made whole."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from simcluster.workloads.global_rng import borrowed
from simcluster.workloads.initial.deferred import DeferredModel, RefusingWatch, is_present
from simcluster.workloads.initial.tape import Unrecordable
from simcluster.workloads.models.gpt import gpt
from simcluster.workloads.models.mnist import mnist_mlp
from simcluster.workloads.models.quadratic import quadratic


class Own(nn.Module):
    """A user's model: its initial weights come from every kind of code that a tape has to follow."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(30, 20)
        self.second = nn.Linear(20, 30, bias=False)
        self.second.weight = nn.Parameter(torch.randn(30, 20) * 0.1 + torch.eye(30, 20))
        self.embedding = nn.Embedding(50, 16, padding_idx=3)
        self.tied = self.embedding
        self.norm = nn.BatchNorm1d(4)
        self.scale = nn.Parameter(torch.tensor([1.0, 2.0]))
        self.frozen = nn.Parameter(torch.rand(5), requires_grad=False)
        self.register_buffer("mask", torch.tril(torch.ones(5, 5)))
        self.plain = torch.arange(7) * 2
        self.attention = nn.MultiheadAttention(8, 2)
        self.apply(self._initialise)
        with torch.no_grad():
            self.first.weight[2:4].fill_(7.0)
            self.first.weight[:, 0] = torch.tensor(range(20)).float()
            self.first.bias += torch.rand(20)

    def _initialise(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear):  # its draws depend on values: it rejects those out of range
            nn.init.trunc_normal_(module.weight, std=0.02, a=-0.04, b=0.04)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "gpt": gpt().model,
    "mnist_mlp": mnist_mlp().model,
    "quadratic": quadratic().model,
    "own": Own,
}


def seeded(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    def made() -> nn.Module:
        with borrowed(5, "weights"):
            return make()

    return made


@pytest.mark.parametrize("name", MODELS)
def test_each_parameter_alone_has_the_bits_of_the_whole_model(name: str) -> None:
    make = seeded(MODELS[name])
    whole, deferred = dict(make().named_parameters()), DeferredModel(make)
    found = dict(deferred.model.named_parameters())
    assert list(found) == list(whole)
    for key, parameter in reversed(found.items()):
        value = deferred.value(parameter)
        assert (value.dtype, value.shape) == (whole[key].dtype, whole[key].shape)
        assert torch.equal(value, whole[key]), key


@pytest.mark.parametrize("name", MODELS)
def test_a_subset_is_filled_in_place_and_the_rest_takes_no_memory(name: str) -> None:
    make = seeded(MODELS[name])
    whole, deferred = make(), DeferredModel(make)
    parameters = list(deferred.model.parameters())
    live, some = [parameter.detach() for parameter in parameters], parameters[::2]
    present = [is_present(parameter) for parameter in parameters]
    deferred.fill(some)
    for place, (tensor, expected) in enumerate(zip(live, whole.parameters(), strict=True)):
        assert is_present(tensor) == (present[place] or place % 2 == 0)
        assert not is_present(tensor) or torch.equal(tensor, expected)


def test_buffers_plain_tensors_and_frozen_parameters_have_their_values_at_once() -> None:
    make = seeded(Own)
    whole, found = make(), DeferredModel(make).model
    assert isinstance(whole, Own)
    assert isinstance(found, Own)
    pairs: list[tuple[Tensor, Tensor]] = [*zip(whole.buffers(), found.buffers(), strict=True)]
    for a, b in [*pairs, (whole.plain, found.plain), (whole.frozen, found.frozen)]:
        assert torch.equal(a, b)


def test_a_shared_parameter_stays_shared() -> None:
    found = DeferredModel(seeded(Own)).model
    assert isinstance(found, Own)
    assert found.tied.weight is found.embedding.weight


def test_torchs_generator_is_left_as_it_was() -> None:
    before = torch.get_rng_state()
    deferred = DeferredModel(seeded(Own))
    deferred.fill(deferred.model.parameters())
    assert torch.equal(torch.get_rng_state(), before)


def test_freed_weights_are_made_again_with_the_same_bits() -> None:
    deferred = DeferredModel(seeded(mnist_mlp().model))
    parameters = list(deferred.model.parameters())
    deferred.fill(parameters)
    before = [parameter.detach().clone() for parameter in parameters]
    deferred.drop(parameters)
    assert not any(map(is_present, parameters))
    deferred.fill(parameters)
    assert all(map(torch.equal, parameters, before))


def test_a_model_that_cannot_be_followed_is_refused() -> None:
    def orthogonal() -> nn.Module:
        linear = nn.Linear(3, 3)
        nn.init.orthogonal_(linear.weight)
        return linear

    def through_numpy() -> nn.Module:
        linear = nn.Linear(3, 3)
        linear.weight.detach().numpy()[:] = 1.0
        return linear

    for make in (orthogonal, through_numpy, lambda: nn.LSTM(2, 2)):
        with pytest.raises(Unrecordable):
            DeferredModel(make)


def test_reading_an_absent_parameter_is_refused_where_a_models_own_code_may() -> None:
    parameter = next(DeferredModel(seeded(mnist_mlp().model)).model.parameters())
    with RefusingWatch(), pytest.raises(Unrecordable):  # type: ignore[no-untyped-call]
        parameter.sum()


@pytest.mark.parametrize("name", MODELS)
def test_a_model_made_alike_is_the_same_in_all_that_is_not_random(name: str) -> None:
    exact, alike = DeferredModel(seeded(MODELS[name])), DeferredModel(seeded(MODELS[name]), alike=True)
    for a, b in zip(exact.model.parameters(), alike.model.parameters(), strict=True):
        assert (a.shape, a.dtype, is_present(a)) == (b.shape, b.dtype, is_present(b))
    for a, b in zip(exact.model.buffers(), alike.model.buffers(), strict=True):
        assert torch.equal(a, b)


def test_values_alike_have_the_distribution_of_the_exact_ones_and_are_the_same_each_time() -> None:
    def make() -> nn.Module:
        model = nn.Sequential(nn.Linear(1024, 512), nn.Linear(1024, 512))
        nn.init.normal_(model[1].weight, mean=3.0, std=0.5)
        return model

    deferred = DeferredModel(seeded(make), alike=True)
    uniform, normal = (deferred.value(layer.weight) for layer in deferred.model)  # type: ignore[arg-type]
    # 524,288 numbers of which the first 65,521 differ: a mean of those is off by 3 deviations of 0.5 / 256 = 0.006.
    assert abs(float(normal.mean()) - 3.0) < 0.006
    assert abs(float(normal.std()) - 0.5) < 0.006
    bound = 1 / 32  # Linear draws from -1/sqrt(1024) to that
    assert bound * 0.999 < float(uniform.max()) < bound
    assert torch.equal(uniform, deferred.value(deferred.model[0].weight))  # type: ignore[index]
    assert not torch.equal(uniform[0], uniform[64])  # 65,536 numbers later


def test_making_a_model_alike_draws_nothing() -> None:
    drawn: list[bool] = []

    def make() -> nn.Module:
        before = torch.get_rng_state()
        model = nn.Linear(300, 300)
        drawn.append(not torch.equal(before, torch.get_rng_state()))
        return model

    DeferredModel(make, alike=True)
    DeferredModel(make)
    assert drawn == [False, True]
