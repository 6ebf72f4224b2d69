"""The gradients of a replica, and the random numbers that its model draws."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from simcluster.workloads import Batch
from simcluster.workloads.global_rng import borrowed
from tests.core.workloads.replicas import Spread, Summed, dropping_out, equal, replica_of, some_data, train


def test_gradients_are_those_of_backward():
    replica = replica_of()
    batch = next(replica.batches())
    loss, gradients = replica.loss_and_gradients(batch)
    twin = nn.Linear(6, 3)
    with torch.no_grad():
        for mine, given in zip(twin.parameters(), replica.parameters, strict=True):
            mine.copy_(given)
    expected = cross_entropy(twin(batch.inputs), batch.targets)
    expected.backward()
    assert loss == expected.item()
    assert equal(gradients, [parameter.grad for parameter in twin.parameters()])


def test_gradients_stay_when_others_are_computed_applied_or_changed():
    replica = replica_of(steps=2)
    first, second = replica.batches()
    _, kept = replica.loss_and_gradients(first)
    copies = [gradient.clone() for gradient in kept]
    _, others = replica.loss_and_gradients(second)
    replica.apply(others)
    for gradient in others:
        gradient.zero_()
    assert equal(kept, copies)


def test_parameters_that_share_a_gradient_get_one_each_and_unused_ones_get_zeros():
    replica = replica_of(Summed, loss=lambda outputs, _: outputs.mean())
    batch = next(replica.batches())
    _, (a, b, unused) = replica.loss_and_gradients(batch)
    assert torch.allclose(a, batch.inputs.mean(0))
    assert torch.equal(a, b)
    assert torch.equal(unused, torch.zeros(6))
    a.zero_()
    assert not torch.equal(a, b)


def test_a_gradient_that_is_one_number_for_all_can_be_changed_one_by_one():
    replica = replica_of(Spread, loss=lambda outputs, _: outputs.mean())
    _, (gradient,) = replica.loss_and_gradients(next(replica.batches()))
    gradient[0] = 5.0
    assert torch.equal(gradient, torch.tensor([5.0, 1, 1, 1, 1, 1]))


def test_frozen_parameters_are_left_out_and_left_alone():
    def half_frozen() -> nn.Module:
        model = nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 3))
        model[0].requires_grad_(False)
        return model

    replica = replica_of(half_frozen)
    assert replica.names == ["1.weight", "1.bias"]
    before = replica.state()
    train(replica)
    after = replica.state()
    assert torch.equal(before["model.0.weight"], after["model.0.weight"])
    assert not torch.equal(before["model.1.weight"], after["model.1.weight"])


def test_a_loss_that_is_no_scalar_is_refused_with_its_shape():
    replica = replica_of(loss=lambda outputs, targets: cross_entropy(outputs, targets, reduction="none"))
    with pytest.raises(ValueError, match=r"shape \(8,\); expected a scalar"):
        replica.loss_and_gradients(next(replica.batches()))


# Randomness in the model


def test_dropout_draws_by_seed_rank_and_step_whatever_was_drawn_before():
    def gradients(rank: int, seed: int, step: int) -> list[torch.Tensor]:
        replica = replica_of(dropping_out, rank=rank, seed=seed)
        torch.rand(13)
        for _ in range(step):
            replica.loss_and_gradients(Batch(*some_data(8), step=99))
        return replica.loss_and_gradients(Batch(*some_data(8), step=step))[1]

    # The weights and the batch are the same in all four: only what is dropped can differ.
    assert equal(gradients(0, 0, 1), gradients(0, 0, 1))
    assert not equal(gradients(0, 0, 1), gradients(1, 0, 1))
    assert not equal(gradients(0, 0, 1), gradients(0, 0, 2))


def test_training_with_dropout_leaves_the_global_generator_alone_and_repeats_in_any_company():
    alone = replica_of(dropping_out)
    before = torch.get_rng_state()
    train(alone)
    assert torch.equal(before, torch.get_rng_state())

    together = [replica_of(dropping_out, rank=rank) for rank in (0, 1)]
    for batches in zip(*(replica.batches() for replica in together), strict=True):
        for replica, batch in zip(together, batches, strict=True):
            replica.apply(replica.loss_and_gradients(batch)[1])
    assert together[0].weights_sha256() == alone.weights_sha256()


def test_a_model_that_is_known_to_draw_nothing_does_not_wait_for_the_generator() -> None:
    drawing, plain = replica_of(dropping_out), replica_of()
    batch = next(plain.batches())
    for replica in (drawing, plain):
        replica.gradient_cost(batch)
    with ThreadPoolExecutor(2) as pool, ThreadPoolExecutor(1) as holder:
        release = threading.Event()

        def hold() -> None:
            with borrowed(0):
                held.set()
                release.wait()

        held = threading.Event()
        holder.submit(hold)
        assert held.wait()
        waiting = pool.submit(drawing.loss_and_gradients, batch)
        assert pool.submit(plain.loss_and_gradients, batch).result()
        assert not waiting.done()
        release.set()
        assert waiting.result()


def test_replicas_with_dropout_in_threads_draw_what_they_draw_alone():
    replicas = [replica_of(dropping_out, rank=rank, size=4, steps=20) for rank in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(train, replicas))
    for rank, replica in enumerate(replicas):
        alone = replica_of(dropping_out, rank=rank, size=4, steps=20)
        train(alone)
        assert replica.weights_sha256() == alone.weights_sha256()
