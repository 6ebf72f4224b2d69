"""The workload whose answer is known."""

import torch

from simcluster.workloads import Batch, quadratic


def test_the_gradient_is_that_of_least_squares():
    workload = quadratic(features=3, samples=40, dtype="float64")
    x, y = workload.train_samples.inputs, workload.train_samples.targets
    replica = workload.replica(0, 1, 0, 1)
    loss, (gradient,) = replica.loss_and_gradients(Batch(x, y))
    residual = x @ replica.parameters[0].T - y
    assert abs(loss - residual.square().sum().item() / 80) < 1e-14
    assert torch.allclose(gradient, residual.T @ x / 40, rtol=0, atol=1e-14)


def test_descent_finds_the_weights_of_the_normal_equations():
    workload = quadratic(features=3, samples=64, batch_size=64, learning_rate=0.3, dtype="float64")
    replica = workload.replica(0, 1, 0, 300)
    for batch in replica.batches():
        replica.apply(replica.loss_and_gradients(batch)[1])
    best = torch.linalg.lstsq(workload.train_samples.inputs, workload.train_samples.targets).solution.T
    assert torch.allclose(replica.parameters[0], best, rtol=0, atol=1e-12)


def test_without_noise_the_loss_goes_to_zero_and_with_it_to_half_its_variance():
    def best_loss(noise: float) -> float:
        replica = quadratic(features=2, samples=4000, noise=noise, batch_size=100).replica(0, 1, 0, 400)
        for batch in replica.batches():
            replica.apply(replica.loss_and_gradients(batch)[1])
        return replica.evaluate()["loss"]

    assert best_loss(0.0) < 1e-10
    # Half of 0.5^2, over 1,000 held-out samples.
    assert abs(best_loss(0.5) - 0.125) < 0.02


def test_the_data_depends_on_its_own_seed_and_not_on_the_runs():
    assert torch.equal(quadratic().train_samples.inputs, quadratic().train_samples.inputs)
    assert not torch.equal(quadratic().train_samples.inputs, quadratic(data_seed=1).train_samples.inputs)


def test_a_quarter_as_many_samples_are_held_out():
    workload = quadratic(samples=30, features=5)
    assert workload.train_samples.inputs.shape == (30, 5)
    assert workload.test_samples is not None
    assert workload.test_samples.inputs.shape == (8, 5)
