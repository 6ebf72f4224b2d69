"""The convolutional network: its size, its cost, and what it learns from the digits of the package."""

from __future__ import annotations

import pytest

from simcluster.workloads import joined_batches, mnist_cnn


@pytest.mark.parametrize("channels", [1, 16])
def test_the_stated_bytes_are_those_of_the_model(channels: int) -> None:
    workload = mnist_cnn(channels=channels)
    assert workload.weights_bytes == sum(p.nbytes for p in workload.replica(0, 1, 0, 1).parameters)


def test_the_flops_are_those_of_its_products_in_both_passes() -> None:
    """Per image, as multiply-adds: conv 1: 24^2*25*C; conv 2: 8^2*25*C*2C; output: 32C*10. The backward pass takes
    twice the forward pass, except that the pixels need no gradient: conv 1 and its input take one product there."""
    channels, batch = 2, 3
    replica = mnist_cnn(channels=channels, batch_size=batch).replica(0, 1, 0, 1)
    first, second, output = 24**2 * 25 * channels, 8**2 * 25 * channels * 2 * channels, 32 * channels * 10
    expected = 2 * batch * (2 * first + 3 * second + 3 * output)
    assert replica.gradient_cost(next(replica.batches())).flops == expected


def test_timing_only_counts_the_same_cost() -> None:
    workload = mnist_cnn(channels=2, batch_size=4)
    real, none = (workload.replica(0, 2, 0, 1, numerics=numerics) for numerics in ("real", "none"))
    assert real.gradient_cost(next(real.batches())) == none.gradient_cost(next(none.batches()))


@pytest.mark.slow
def test_one_epoch_of_the_packages_digits_on_two_ranks_passes_90_percent() -> None:
    """4,000 images in joined batches of 2 x 32 are 63 steps. Measured 0.934 to 0.943 over three seeds."""
    workload = mnist_cnn()
    replicas = [workload.replica(rank, 2, 0, epochs=1) for rank in range(2)]
    for batch in joined_batches(replicas):
        replicas[0].apply(replicas[0].loss_and_gradients(batch)[1])
    assert replicas[0].evaluate()["accuracy"] > 0.9
