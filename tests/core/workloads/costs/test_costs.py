"""What work costs: FLOPs and bytes, against arithmetic by hand and against torch's own count."""

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.flop_counter import FlopCounterMode

from simcluster.transport import FREE
from simcluster.workloads import mnist_mlp
from simcluster.workloads.operator_costs import OperatorCount, elementwise_cost, matrix_cost


def test_the_digit_network_costs_what_the_arithmetic_says():
    replica = mnist_mlp(hidden=128, batch_size=32).replica(0, 5, 0, 1)
    forward = 2 * 32 * (784 * 128 + 128 * 10)
    # Backward is two products a layer, but nobody asks for the gradient of the first layer's input.
    backward = 2 * forward - 2 * 32 * 784 * 128
    assert replica.gradient_cost(next(replica.batches())).flops == forward + backward == 13_090_816


def test_plain_descent_writes_each_weight_once():
    # 784*128 + 128 + 128*10 + 10 weights; w += -lr * g reads w and g and writes w: 3 * 4 bytes each.
    cost = mnist_mlp().replica(0, 5, 0, 1).apply_cost()
    assert (cost.flops, cost.memory_bytes) == (101_770, 12 * 101_770)


def test_momentum_and_clipping_cost_more_than_plain_descent():
    plain, momentum, clipped = (
        mnist_mlp(**settings).replica(0, 5, 0, 1).apply_cost()
        for settings in ({}, {"momentum": 0.9}, {"clip_norm": 0.1})
    )
    # Momentum: b *= mu, b += g, w -= lr * b, three writes a weight instead of one.
    assert momentum.flops == 3 * plain.flops
    assert clipped.flops > plain.flops


def test_a_product_moves_its_three_matrices():
    a, b = torch.ones(3, 5), torch.ones(5, 7)
    cost = matrix_cost(lambda: a @ b)
    assert cost.flops == 2 * 3 * 5 * 7
    assert cost.memory_bytes == 4 * (3 * 5 + 5 * 7 + 3 * 7)


def test_views_cost_nothing_and_elements_count_once_each():
    a = torch.ones(4, 6)
    assert elementwise_cost(lambda: a.t().unsqueeze(0)) == FREE
    cost = elementwise_cost(lambda: a + a)
    assert (cost.flops, cost.memory_bytes) == (24, 3 * 4 * 24)


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (nn.Sequential(nn.Linear(20, 30), nn.Tanh(), nn.Linear(30, 4)), (8, 20)),
        (
            nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 49, 4)),
            (2, 3, 16, 16),
        ),
        (nn.GRU(6, 10), (5, 2, 6)),
    ],
)
def test_the_count_equals_that_of_torch(model, shape):
    def work():
        output = model(torch.ones(shape))
        loss = (output[0] if isinstance(output, tuple) else output).square().mean()
        torch.autograd.grad(loss, list(model.parameters()))

    with FlopCounterMode(display=False) as theirs:
        work()
    assert matrix_cost(work).flops == theirs.get_total_flops() > 0


def test_attention_is_counted_where_torch_has_no_entry_for_the_processor():
    query = torch.ones(2, 4, 10, 8, requires_grad=True)
    with OperatorCount() as count:
        scaled_dot_product_attention(query, query, query).sum().backward()
    # 2 * batch * heads * length^2 * width for each of two products forward and five backward.
    assert count.matrix_flops == 2 * (2 * 4 * 10 * 10 * 8) * (2 + 5)


def test_an_lstm_is_counted_where_torch_has_no_entry_for_the_processor():
    model = nn.LSTM(6, 10)
    with OperatorCount() as count:
        model(torch.ones(5, 2, 6))[0].sum().backward()
    # Four gates of 10 see 6 inputs and 10 hidden values, at 5 * 2 places; backward is twice forward.
    assert count.matrix_flops == 3 * 2 * (5 * 2) * (4 * 10) * (6 + 10)


def test_products_with_vectors_count_a_multiply_and_an_add_each():
    matrix, vector = torch.ones(3, 5), torch.ones(5)
    # mv 2 * 15, dot 2 * 5, addmv 2 * 15.
    assert matrix_cost(lambda: (matrix @ vector, vector @ vector)).flops == 30 + 10
    assert matrix_cost(lambda: torch.addmv(torch.ones(3), matrix, vector)).flops == 30


def test_operators_are_counted_and_views_are_none():
    a = torch.ones(4, 4)
    assert matrix_cost(lambda: (a @ a).relu().t()).operators == 2
    assert elementwise_cost(lambda: a.add(1).add(2).view(16)).operators == 2
    # Each layer more has its product and its ReLU forward and as many again backward, at least.
    shallow, deep = (mlp_cost(depth).operators for depth in (2, 4))
    assert deep - shallow >= 2 * 4


def mlp_cost(depth):
    layers = [layer for _ in range(depth) for layer in (nn.Linear(4, 4), nn.ReLU())]
    model = nn.Sequential(*layers)
    return matrix_cost(lambda: model(torch.ones(2, 4)).sum().backward())


def test_work_is_called_by_its_workload_and_what_is_done():
    replica = mnist_mlp().replica(0, 5, 0, 1)
    assert replica.gradient_cost(next(replica.batches())).kind == "mnist_mlp/gradient"
    assert replica.apply_cost().kind == "mnist_mlp/apply"
    timed = mnist_mlp().replica(0, 5, 0, 1, numerics="none")
    assert timed.gradient_cost(next(timed.batches())).kind == "mnist_mlp/gradient"
    assert timed.apply_cost().kind == "mnist_mlp/apply"
