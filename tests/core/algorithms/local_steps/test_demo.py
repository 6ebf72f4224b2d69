"""DeMo: against cosines written out one by one, plain gradients, which are a special case, and its own bookkeeping."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from simcluster.algorithms.local_steps.demo import _combine, _dct, _extract
from simcluster.lab.verify.claims.local_steps import waves
from tests.core.algorithms.trained import (
    SEED,
    WORKLOAD,
    train,
)


@pytest.mark.parametrize("size", [1, 2, 5, 64])
def test_the_transform_is_orthogonal_and_its_rows_are_the_cosines(size: int) -> None:
    matrix = _dct(size, torch.zeros(1, dtype=torch.float64))
    torch.testing.assert_close(matrix @ matrix.T, torch.eye(size, dtype=torch.float64), rtol=0, atol=1e-12)
    torch.testing.assert_close(matrix, torch.stack(waves(size)), rtol=0, atol=1e-12)


@given(st.integers(1, 40), st.integers(1, 9), st.integers(1, 9), st.integers(0, 2**31))
def test_what_is_shared_and_what_is_kept_is_all_there_was_and_what_is_shared_is_the_larger_part(
    length: int, size: int, k: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    m, gradient = torch.randn(2, length, dtype=torch.float64, generator=generator)
    transform = _dct(size, m)
    kept, values, places = _extract(m, [gradient], 0.9, transform, min(k, size))
    shared = _combine([(values, places)], transform, length, False)
    whole = 0.9 * m + gradient
    torch.testing.assert_close(kept + shared, whole, rtol=1e-10, atol=1e-10)
    # Of orthogonal components the k of s with the most energy are sent: at least k / s of it, but for padding.
    if length % size == 0:
        assert shared.square().sum() >= min(k, size) / size * whole.square().sum() * (1 - 1e-10)


def test_signs_make_steps_of_the_learning_rate() -> None:
    before = WORKLOAD.replica(0, 2, SEED, 1).snapshot()[0]
    moved = (train("demo", 2, steps=1, chunk=6, top_k=2).weights[0][0] - before).abs()
    torch.testing.assert_close(moved, torch.full_like(moved, 0.1), rtol=1e-9, atol=0)


@pytest.mark.parametrize(("chunk", "place_bytes"), [(4, 1), (256, 1), (300, 2)])
def test_k_coefficients_of_a_chunk_travel_with_places_of_as_few_bytes_as_they_fit_in(
    chunk: int, place_bytes: int
) -> None:
    few, more = (train("demo", 2, steps=1, chunk=chunk, top_k=k).sizes("q/1") for k in (1, 3))
    chunks = -(-6 // chunk)
    # from both to the other; headers are of one length
    assert [b - a for a, b in zip(few, more, strict=True)] == [chunks * 2 * (8 + place_bytes)] * 2
