"""Torch's global generator is lent out and comes back as it was."""

import pytest
import torch

from simcluster.workloads import mnist_mlp
from simcluster.workloads.global_rng import borrowed


def test_the_generator_is_given_back_as_it_was_even_after_an_error():
    before = torch.get_rng_state()
    with pytest.raises(KeyError), borrowed(3):
        torch.rand(7)
        raise KeyError
    assert torch.equal(before, torch.get_rng_state())


def test_equal_seeds_draw_equal_numbers_and_others_do_not():
    def draw(seed: int) -> torch.Tensor:
        with borrowed(seed):
            return torch.rand(5)

    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))


def test_a_shard_of_a_model_leaves_the_generator_as_it_was():
    replica = mnist_mlp(hidden=4, batch_size=4).replica(0, 2, 0, 1)
    before = torch.get_rng_state()
    replica.tensor_shard()
    assert torch.equal(before, torch.get_rng_state())
