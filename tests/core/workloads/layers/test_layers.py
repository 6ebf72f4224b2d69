"""A model layer by layer: the bits and the FLOPs of the whole, whatever is between; and models that do not say how."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from simcluster.collectives.flat import unflatten_parts
from simcluster.errors import UsageError
from simcluster.unknown_number import UnknownNumber
from simcluster.workloads import Batch, Replica, Workload, gpt, mnist_mlp, quadratic
from tests.core.workloads.costs.test_sketch import Attention, workload_of

GPT: dict[str, Any] = {"context": 8, "batch_size": 4, "width": 16, "heads": 2, "layers": 2}
WORKLOADS = {
    "mlp": lambda: mnist_mlp(hidden=16, batch_size=8),
    "tied": lambda: gpt(**GPT),
    "gated": lambda: gpt(**GPT, size="7b", kv_heads=1, feed_forward=24, vocabulary=300),
    "no parameters at first": lambda: workload_of(
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(40, 6), nn.Tanh(), nn.LayerNorm(6)), (4, 5, 8)
    ),
    "frozen": lambda: workload_of(frozen, (4, 8)),
    "one layer": lambda: workload_of(lambda: nn.Sequential(nn.Linear(8, 3)), (4, 8)),
}


def frozen() -> nn.Module:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3))
    for parameter in model[0].parameters():
        parameter.requires_grad_(False)
    return model


def replica_of(workload: Workload, numerics: Any = "real") -> Replica:
    return workload.replica(0, 1, 0, 3, numerics=numerics)


def staged(replica: Replica, batch: Batch) -> tuple[float, list[Tensor]]:
    """Loss and gradients, layer by layer."""
    layers, value = replica.layers(), batch.inputs
    for layer in layers[:-1]:
        value = layer.forward(value)
    loss = layers[-1].loss(value, batch.targets)
    gradients: list[Tensor] = [torch.zeros_like(parameter) for parameter in replica.parameters]
    gradient = None
    for layer in reversed(layers):
        gradient, own = layer.backward(gradient)
        for place, part in zip(layer.parameters, own, strict=True):
            gradients[place] = gradients[place] + part
    return loss, gradients


@pytest.mark.parametrize("name", WORKLOADS)
def test_layer_by_layer_are_the_bits_of_the_whole(name: str) -> None:
    replica = replica_of(WORKLOADS[name]())
    for batch in replica.batches():
        loss, gradients = replica.loss_and_gradients(batch)
        by_layer = staged(replica, batch)
        assert by_layer[0] == loss
        for mine, whole in zip(by_layer[1], gradients, strict=True):
            assert torch.equal(mine, whole)
        replica.apply(gradients)


@pytest.mark.parametrize("numerics", ["real", "none"])
@pytest.mark.parametrize("name", WORKLOADS)
def test_all_layers_together_cost_the_flops_of_the_gradient(name: str, numerics: str) -> None:
    replica = replica_of(WORKLOADS[name](), numerics)
    batch = next(replica.batches())
    costs = replica.layer_costs(batch)
    assert len(costs) == len(replica.layers())
    whole = replica.gradient_cost(batch)
    assert sum(cost.total.flops for cost in costs) == whole.flops
    # What is handed from layer to layer is summed or zeroed a little differently.
    assert sum(cost.total.memory_bytes for cost in costs) == pytest.approx(whole.memory_bytes, rel=0.05)
    assert {kind for cost in costs for kind in (cost.forward.kind, cost.backward.kind)} == {whole.kind}


@pytest.mark.parametrize("name", WORKLOADS)
def test_uncomputed_layers_cost_the_same_and_hand_on_the_same_shapes(name: str) -> None:
    workload = WORKLOADS[name]()
    real, none = replica_of(workload), replica_of(workload, "none")
    batch, shapes = next(real.batches()), next(none.batches())
    assert real.layer_costs(batch) == none.layer_costs(shapes)
    value, shape = batch.inputs, shapes.inputs
    for computed, timed, cost in zip(real.layers()[:-1], none.layers()[:-1], real.layer_costs(batch), strict=False):
        value, shape = computed.forward(value), timed.forward(shape)
        assert (value.shape, value.dtype) == (shape.shape, shape.dtype)
        assert cost.output_bytes == value.nbytes
    assert real.layers()[-1].loss(value, batch.targets) > 0
    assert isinstance(none.layers()[-1].loss(shape, shapes.targets), UnknownNumber)
    above = below = None
    for computed, timed in zip(reversed(real.layers()), reversed(none.layers()), strict=True):
        (above, mine), (below, theirs) = computed.backward(above), timed.backward(below)
        assert (above is None) == (below is None)
        assert above is None or below is None or above.shape == below.shape
        assert [part.shape for part in mine] == [part.shape for part in theirs]
        assert len(computed._stash) == len(timed._stash) == 0


def test_layers_merged_into_stages_are_the_bits_of_the_whole() -> None:
    replica = replica_of(WORKLOADS["tied"]())
    batch = next(replica.batches())
    stages = [replica.layers().merged(0, 2), replica.layers().merged(2, 7)]
    assert [stage.name for stage in stages] == ["layers 0 to 1", "layers 2 to 6"]
    loss = stages[1].loss(stages[0].forward(batch.inputs), batch.targets)
    gradient, last = stages[1].backward()
    _, first = stages[0].backward(gradient)
    whole_loss, whole = replica.loss_and_gradients(batch)
    assert loss == whole_loss
    assert sorted(stages[0].parameters + stages[1].parameters) == [0, *range(len(whole))], "the embedding is in both"
    for place, gradient in zip(stages[0].parameters, first, strict=True):
        both = gradient + last[stages[1].parameters.index(0)] if place == 0 else gradient
        assert torch.equal(both, whole[place])


def test_the_shares_of_micro_batches_add_up_to_the_batch() -> None:
    replica = replica_of(WORKLOADS["mlp"]())
    batch = next(replica.batches())
    stage = replica.layers().merged(0, 3)
    parts = list(zip(batch.inputs.split(2), batch.targets.split(2), strict=True))
    losses = [stage.loss(inputs, targets, number) for number, (inputs, targets) in enumerate(parts)]
    assert len(stage._stash) == 4
    sums: list[Any] = [0.0] * 4
    for number in range(4):
        _, gradients = stage.backward(micro=number, share=0.25)
        sums = [total + gradient for total, gradient in zip(sums, gradients, strict=True)]
    assert not stage._stash
    loss, whole = replica.loss_and_gradients(batch)
    assert sum(losses) / 4 == pytest.approx(loss, rel=1e-5)
    for total, gradient in zip(sums, whole, strict=True):
        torch.testing.assert_close(total, gradient)


def test_a_parameter_of_two_layers_is_told_with_both() -> None:
    assert replica_of(WORKLOADS["tied"]()).layers().shared() == {0: [0, 6]}
    assert replica_of(WORKLOADS["gated"]()).layers().shared() == {}


def test_weights_may_go_and_come_between_forward_and_backward() -> None:
    replica = replica_of(WORKLOADS["mlp"]())
    batch, layers = next(replica.batches()), replica.layers()
    _, whole = replica.loss_and_gradients(batch)
    weights = [parameter.clone() for parameter in replica.parameters[2:]]
    layers[2].loss(layers[1].forward(layers[0].forward(batch.inputs)), batch.targets)
    layers[2].fill([torch.full_like(weight, torch.nan) for weight in weights])
    layers[2].fill(weights)
    _, gradients = layers[2].backward()
    assert torch.equal(gradients[0], whole[2])
    with pytest.raises(ValueError, match=r"layer 2: a parameter of shape \(10, 16\), got \(10,\)"):
        layers[2].fill(weights[::-1])


def test_weights_may_come_in_parts_that_are_joined_in_their_place() -> None:
    replica = replica_of(WORKLOADS["mlp"]())
    layer = replica.layers()[2]
    weights = [replica.parameters[place].clone() for place in layer.parameters]
    vector = torch.cat([weight.flatten() for weight in weights])
    like = [weight.to("meta") for weight in weights]
    for count in (1, 2, 3, 7):
        parts = unflatten_parts(list(vector.tensor_split(count)), like)
        assert [sum(map(len, pieces)) for pieces in parts] == [weight.numel() for weight in weights]
        layer.fill([torch.full_like(weight, torch.nan) for weight in weights])
        layer.fill(parts)
        for place, weight in zip(layer.parameters, weights, strict=True):
            assert torch.equal(replica.parameters[place], weight)
    with pytest.raises(ValueError, match=r"layer 2: a parameter of shape \(10, 16\), got \(10,\) and \(1,\)"):
        layer.fill([[torch.ones(10), torch.ones(1)], [torch.ones(10)]])


def test_a_layer_that_drops_out_drops_others_each_time_and_the_same_in_every_run() -> None:
    def seen() -> list[Tensor]:
        workload = workload_of(lambda: nn.Sequential(nn.Linear(8, 64), nn.Dropout(0.5), nn.Linear(64, 3)), (4, 8))
        replica = replica_of(workload)
        batch = next(replica.batches())
        replica.layer_costs(batch)
        return [replica.layers()[1].forward(torch.ones(4, 64), micro) for micro in range(2)]

    first, second = seen()
    assert not torch.equal(first, second)
    assert torch.equal(first, seen()[0])
    assert 0.2 < (first == 0).float().mean() < 0.8


def test_a_mistake_with_micro_batches_is_told() -> None:
    layer = replica_of(WORKLOADS["mlp"]()).layers()[0]
    layer.forward(torch.ones(2, 784), 5)
    with pytest.raises(ValueError, match="layer 0: micro-batch 5 already has a pending forward pass"):
        layer.forward(torch.ones(2, 784), 5)
    layer.backward(torch.ones(2, 16), 5)
    with pytest.raises(ValueError, match="layer 0: micro-batch 5 has no pending forward pass"):
        layer.backward(torch.ones(2, 16), 5)
    with pytest.raises(ValueError, match="layer 0 is not the last layer, which computes the loss"):
        layer.loss(torch.ones(2, 784), torch.ones(2))


class Own(nn.Module):
    """Two layers, of which it says what it is told to say."""

    def __init__(self, says: Any) -> None:
        super().__init__()
        self.one, self.two, self.says = nn.Linear(8, 8), nn.Linear(8, 3), says

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.two(torch.tanh(self.one(inputs)))
        return scores

    def layers(self) -> Any:
        return self.says(self)


@pytest.mark.parametrize("numerics", ["real", "none"])
@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (Attention, r"model: found Attention, which does not say .* a method `layers\(self\)"),
        (
            lambda: Own(lambda own: [own.one]),
            r"found none of Own that has the parameter two.weight, two.bias, expected",
        ),
        (lambda: Own(lambda own: []), r"model.layers: found \[\], expected one module or more"),
        (lambda: Own(lambda own: [torch.tanh]), "model.layers: .* expected one module or more"),
        (
            lambda: nn.Sequential(nn.Linear(8, 3), nn.ReLU(inplace=True)),
            "found layer 1, ReLU.*, expected inplace=False",
        ),
    ],
)
def test_a_model_that_does_not_say_what_its_layers_are_is_told_how_to(model: Any, problem: str, numerics: str) -> None:
    with pytest.raises(UsageError, match=problem):
        replica_of(workload_of(model, (4, 8)), numerics).layers()


def test_layers_that_are_not_all_that_the_model_does_are_found_out() -> None:
    replica = replica_of(workload_of(lambda: Own(lambda own: [own.one, own.two]), (4, 8)))  # tanh is missing
    with pytest.raises(UsageError, match=r"layers of Own with a loss of .* where the model has"):
        replica.layer_costs(next(replica.batches()))


def test_a_module_without_parts_is_a_single_layer() -> None:
    replica = replica_of(quadratic())
    batch = next(replica.batches())
    assert len(replica.layers()) == 1
    assert torch.equal(staged(replica, batch)[1][0], replica.loss_and_gradients(batch)[1][0])


@pytest.mark.parametrize("name", ["mlp", "tied"])
def test_gradients_added_as_they_are_found_are_the_bits_of_those_added_at_the_end(name: str) -> None:
    replica = replica_of(WORKLOADS[name]())
    batch = next(replica.batches())
    count = len(list(replica.layers()))
    stage, last = replica.layers().merged(0, count - 1), replica.layers().merged(count - 1, count)
    sums, parts = ([torch.full_like(replica.shapes[p], 0.5, device="cpu") for p in stage.parameters] for _ in range(2))
    for micro in range(2):
        last.loss(stage.forward(batch.inputs, micro), batch.targets, micro)
        above, own = last.backward(micro=micro)
        last.loss(stage.forward(batch.inputs, (micro, "again")), batch.targets, (micro, "again"))
        into = [torch.zeros_like(gradient) for gradient in own]
        same, none = last.backward(None, (micro, "again"), 1.0, into)
        assert above is not None
        assert same is not None
        assert torch.equal(above, same)
        assert none == []
        assert all(map(torch.equal, into, own))
        for total, gradient in zip(sums, stage.backward(above, micro)[1], strict=True):
            total.add_(gradient)
        assert stage.backward(above, (micro, "again"), 1.0, parts) == (None, [])
    assert all(map(torch.equal, sums, parts))
