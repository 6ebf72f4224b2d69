"""1-bit Adam: Adam while it warms up, signs with error feedback after."""

from __future__ import annotations

import pytest
import torch

from simcluster.workloads import Workload, joined_batches, mnist_mlp, quadratic
from tests.core.algorithms.trained import SEED, Trained, train

STEPS = 12
WORKLOAD = quadratic(features=7, batch_size=4, dtype="float64", learning_rate=0.05)


def adam(size: int, workload: Workload = WORKLOAD, steps: int = STEPS, *, warmup: int) -> Trained:
    return train("one_bit_adam", size, workload=workload, steps=steps, warmup=warmup)


@pytest.mark.parametrize("size", [1, 3])
def test_while_it_warms_up_it_is_torchs_adam_on_the_joined_batches(size: int) -> None:
    replicas = adam(size, warmup=STEPS).replicas
    alone = [WORKLOAD.replica(rank, size, SEED, STEPS) for rank in range(size)]
    weights = [parameter.clone().requires_grad_() for parameter in alone[0].parameters]
    torchs = torch.optim.Adam(weights, lr=0.05)
    for batch in joined_batches(alone):
        for weight, gradient in zip(weights, alone[0].loss_and_gradients(batch)[1], strict=True):
            weight.grad = gradient
        torchs.step()
        alone[0].load([weight.detach() for weight in weights])
    torch.testing.assert_close(replicas[0].parameters, alone[0].parameters, rtol=1e-9, atol=1e-12)


def test_after_the_warm_up_a_number_takes_a_bit() -> None:
    # 784 -> 16 -> 10: 12,730 numbers. A ring of two sends each once each way; so do the signs, and four amounts more.
    workload = mnist_mlp(hidden=16)
    sent = {warmup: adam(2, workload, 10, warmup=warmup).records[0].bytes_sent for warmup in (4, 5)}
    whole, headers = 12_730 * 4, 2 * 100
    signs = 12_730 / 8 + 2 * 4 * 4
    assert whole - signs - headers < sent[5] - sent[4] < whole - signs + headers


def test_a_weight_without_a_gradient_in_the_warm_up_stays_as_it_is() -> None:
    # Its variance is zero: the amount that comes with its sign, divided by epsilon, would throw it far away.
    workload = quadratic(features=4, batch_size=4, dtype="float64")
    workload.train_samples.inputs[:, 2] = 0
    replicas = adam(2, workload, 20, warmup=5).replicas
    before = workload.replica(0, 2, SEED, 1).parameters[0][0]
    after = replicas[0].parameters[0][0]
    assert after[2] == before[2]
    assert bool((after[[0, 1, 3]] != before[[0, 1, 3]]).all())
