"""Torch's global generator is lent out and comes back as it was."""

import pytest
import torch

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
