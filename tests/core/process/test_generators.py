"""Global generators: each rank's own, the caller's again afterwards, and the system's randomness is noticed."""

from __future__ import annotations

import os
import random
import secrets
import uuid
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
import torch

from simcluster.process import generators
from simcluster.process.generators import GeneratorStates, RankGenerators, copied, of_rank, seeded
from simcluster.process.system_randomness import system_draws_noticed
from simcluster.rng import seed_sequence


def draw() -> list[float]:
    """Numbers of each generator; normal ones come in pairs, so that a second one is in store every other time."""
    pairs = random.gauss(0, 1), float(np.random.randn()), float(torch.randn(1))
    return [random.random(), *pairs, float(torch.rand(1)), float(np.random.rand())]


def begin(ranks: RankGenerators, stack: ExitStack, name: str) -> GeneratorStates:
    stack.enter_context(ranks.own(seed_sequence(0, name), lambda what, at: None))
    own = of_rank.get()
    assert own is not None
    return own


@pytest.mark.parametrize("known_layout", [True, False])
def test_ranks_that_take_turns_draw_what_each_would_alone(known_layout: bool, monkeypatch: Any) -> None:
    if not known_layout:
        monkeypatch.setattr(generators, "_IS_PLAIN", False)
    ranks, found, caller = RankGenerators(), [list[list[float]]() for _ in range(3)], copied()
    with ExitStack() as stack:
        owns = [begin(ranks, stack, f"rank {rank}") for rank in range(3)]
        for turns in ((0, 1, 2), (2, 1), (1, 1, 0), (2, 0), (0, 2, 1)):
            for rank in turns:
                ranks.enter(owns[rank])
                found[rank].append(draw())
    assert copied() == caller
    for rank, mine in enumerate(found):
        with ranks.own(seed_sequence(0, f"rank {rank}"), lambda what, at: None):
            assert [draw() for _ in mine] == mine


def test_the_layout_of_pythons_state_is_known_here() -> None:
    assert generators._IS_PLAIN


def test_a_block_is_seeded_whatever_was_drawn_before_and_restores_another_generator_of_numpy() -> None:
    found, theirs = [], np.random.get_bit_generator()
    try:
        for other in (np.random.MT19937(1), np.random.PCG64(2)):
            np.random.set_bit_generator(other)
            before = np.random.get_state(legacy=False)
            with seeded(seed_sequence(3)) as have_drawn:
                assert not have_drawn()
                found.append(draw())
                assert have_drawn()
            assert np.random.get_bit_generator() is other
            assert str(np.random.get_state(legacy=False)) == str(before)
    finally:
        np.random.set_bit_generator(theirs)
    assert found[0] == found[1]


def test_draws_from_the_system_are_noticed_with_their_line_and_those_of_seeded_generators_are_not() -> None:
    heard: list[tuple[str, str]] = []
    real = os.urandom
    with system_draws_noticed(lambda *draw: heard.append(draw)):
        random.Random(1).random(), np.random.default_rng(1).random(), random.seed(1)
        assert heard == []
        for each in (
            lambda: os.urandom(2), lambda: secrets.token_hex(2), uuid.uuid4, random.Random, random.seed,
            lambda: random.SystemRandom().random(), np.random.default_rng,
        ):  # fmt: skip
            each()
            assert len(heard) == 1, each
            assert f"{__file__}:" in heard.pop()[1]
    assert os.urandom is real
