"""What is found without computing is what computing finds: shapes, states, and costs to the byte."""

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from simcluster.errors import UsageError
from simcluster.workloads import Batch, Workload, gpt, mnist_mlp, quadratic, sgd


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.split = nn.Linear(8, 24)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        heads = self.split(inputs).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        return scaled_dot_product_attention(*heads, is_causal=True)


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.layer = kind(8, 6, 2, batch_first=True)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layer(inputs)[0]


class Shared(nn.Module):
    """Autograd hands out one gradient for both *a* and *b*, one number for all of *c*, and none for *d*."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d = (nn.Parameter(torch.ones(8)) for _ in range(4))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs @ (self.a + self.b) + self.c.sum()


class Constant(nn.Module):
    """Makes tensors of its own while it runs, and has one that was made elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return (inputs * self.weight + ELSEWHERE) * torch.arange(8) + torch.tensor([2.0])


ELSEWHERE = torch.linspace(0, 1, 8)
SEQUENCES, IMAGES, NUMBERS = (4, 5, 8), (4, 3, 12, 12), (4, 8)
MODELS = {
    "linear": (lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)), NUMBERS),
    "dropout": (lambda: nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.LayerNorm(16), nn.GELU()), NUMBERS),
    "attention": (Attention, SEQUENCES),
    "transformer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), SEQUENCES),
    "lstm": (lambda: Recurrent(nn.LSTM), SEQUENCES),
    "gru": (lambda: Recurrent(nn.GRU), SEQUENCES),
    "rnn": (lambda: Recurrent(nn.RNN), SEQUENCES),
    "convolution": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 8, 3, groups=8),
            nn.Flatten(),
        ),
        IMAGES,
    ),
    "transposed": (lambda: nn.Sequential(nn.ConvTranspose2d(3, 8, 3), nn.GroupNorm(2, 8), nn.AvgPool2d(2)), IMAGES),
    "shared": (Shared, NUMBERS),
    "constant": (Constant, NUMBERS),
}


def workload_of(model, shape, **changes) -> Workload:
    settings = {
        "loss": lambda outputs, _: outputs.square().mean(),
        "train": (torch.ones((40, *shape[1:])), torch.zeros(40)),
        "optimizer": sgd(0.1),
        "batch_size": shape[0],
    }
    return Workload(model=model, **settings | changes)


def replicas_of(workload: Workload):
    return [workload.replica(0, 2, 0, 3, numerics=numerics) for numerics in ("real", "none")]


@pytest.mark.parametrize("name", MODELS)
def test_a_gradient_costs_the_same_whether_it_is_computed_or_not(name):
    real, none = replicas_of(workload_of(*MODELS[name]))
    assert real.gradient_cost(next(real.batches())) == none.gradient_cost(next(none.batches()))


@pytest.mark.slow
@pytest.mark.parametrize(
    "workload",
    [
        gpt(kv_heads=2, clip_norm=None),
        gpt(optimizer="sgd", momentum=0.9),
        mnist_mlp(optimizer="adamw"),
        mnist_mlp(clip_norm=1e9),
        mnist_mlp(clip_norm=1e-9),
        quadratic(dtype="float64"),
    ],
)
def test_everything_of_a_replica_is_as_large_and_costs_as_much(workload):
    real, none = replicas_of(workload)
    batch, shapes = next(real.batches()), next(none.batches())
    assert real.gradient_cost(batch) == none.gradient_cost(shapes)
    assert real.apply_cost() == none.apply_cost()
    assert real.names == none.names

    def sizes(tensors):
        return [(tensor.shape, tensor.dtype) for tensor in tensors]

    assert sizes([batch.inputs, batch.targets]) == sizes([shapes.inputs, shapes.targets])
    for ask in (
        lambda replica, batch: replica.parameters,
        lambda replica, batch: replica.snapshot(),
        lambda replica, batch: replica.loss_and_gradients(batch)[1],
        lambda replica, batch: list(replica.state().values()),
    ):
        assert sizes(ask(real, batch)) == sizes(ask(none, shapes))
        assert all(tensor.is_meta for tensor in ask(none, shapes))
    assert list(real.state()) == list(none.state())
    for replica in (real, none):
        replica.apply(replica.snapshot())
    assert list(real.state()) == list(none.state()), "the optimizer's state, which the first step makes, included"
    assert sizes(real.state().values()) == sizes(none.state().values())
    assert real.evaluate().keys() == none.evaluate().keys()


def test_a_step_costs_the_same_whether_it_is_clipped_or_not():
    loose, tight = (mnist_mlp(clip_norm=norm).replica(0, 1, 0, 1).apply_cost() for norm in (1e9, 1e-9))
    assert loose == tight


@pytest.mark.slow
def test_a_model_of_70_billion_parameters_weighs_nothing():
    replica = gpt(size="70b", batch_size=1).replica(0, 1024, 0, 1, numerics="none")
    assert sum(parameter.numel() for parameter in replica.parameters) > 69e9
    # 2 FLOPs forward and 4 backward for each weight but the embeddings' and each of 4096 tokens, and attention's:
    # 80 layers, 64 heads of 128, 2 + 5 products of 2 * 4096^2 * 128.
    weights = sum(parameter.numel() for parameter in replica.parameters if parameter.dim() == 2) - (32000 + 4096) * 8192
    expected = 6 * weights * 4096 + 80 * 64 * 7 * 2 * 4096**2 * 128
    assert replica.gradient_cost(next(replica.batches())).flops == expected


def test_the_sketch_is_made_once_for_all_ranks_and_draws_nothing():
    made = []

    def model() -> nn.Module:
        made.append(1)
        return nn.Linear(8, 3)

    workload = workload_of(model, NUMBERS)
    before = torch.get_rng_state()
    for rank in range(20):
        replica = workload.replica(rank, 20, 0, 1, numerics="none")
        replica.gradient_cost(next(replica.batches()))
        replica.apply_cost()
    assert len(made) == 1
    assert torch.equal(before, torch.get_rng_state())


class Deciding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs * self.weight if inputs.sum().item() > 0 else inputs - self.weight


@pytest.mark.parametrize(
    "changes",
    [
        {"model": Deciding},
        {"loss": lambda outputs, _: outputs[outputs > 0].mean() if bool(outputs.any()) else outputs.mean()},
        {"loss": lambda outputs, _: torch.from_numpy(outputs.detach().numpy()).mean()},
    ],
)
def test_work_that_depends_on_values_is_refused_with_what_to_do(changes):
    workload = workload_of(**{"model": lambda: nn.Linear(8, 3), "shape": NUMBERS} | changes)
    replica = workload.replica(0, 1, 0, 1, numerics="none")
    batch = next(replica.batches())
    with pytest.raises(UsageError, match=r"numerics: found none, but the model and its loss .* expected real, or work"):
        replica.gradient_cost(batch)
    with pytest.raises(UsageError):
        replica.loss_and_gradients(batch)


def test_a_model_made_by_values_is_refused_too():
    def model() -> nn.Module:
        return nn.Linear(8, int(torch.ones(3).sum().item() * torch.rand(1).item()) + 1)

    with pytest.raises(UsageError, match="none, but the model cannot do without values"):
        workload_of(model, NUMBERS).replica(0, 1, 0, 1, numerics="none")


def test_a_batch_of_another_shape_costs_what_it_costs_and_a_wrong_one_is_told():
    real, none = replicas_of(workload_of(*MODELS["linear"]))
    half = Batch(torch.ones(2, 8), torch.zeros(2))
    small = Batch(half.inputs.to("meta"), half.targets.to("meta"))
    assert none.gradient_cost(small) == real.gradient_cost(half)
    with pytest.raises(UsageError, match="none, but the model and its loss"):
        none.loss_and_gradients(Batch(torch.empty(2, 9, device="meta"), small.targets))
