"""DeMo: against cosines written out one by one, plain gradients, which are a special case, and its own bookkeeping."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from simcluster.algorithms.local_steps.demo import _combine, _dct, _extract
from simcluster.lab.verify.claims.local_steps import demo as reference
from simcluster.lab.verify.claims.local_steps import waves
from simcluster.workloads import quadratic, train_alone
from tests.core.algorithms.trained import (
    EVEN,
    SEED,
    WORKLOAD,
    changes_something,
    close,
    lost_somebody,
    takes_the_same_time_without_values,
    train,
)

DEFAULTS = {"momentum": 0.999, "chunk": 64, "top_k": 8, "update": "sign"}
WIDE = quadratic(features=20, samples=256, batch_size=4, learning_rate=0.01, dtype="float64")


@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize(
    "settings",
    [{"chunk": 8, "top_k": 2}, {"chunk": 5, "top_k": 1, "update": "mean"}, {"chunk": 64, "top_k": 3, "momentum": 0.5}],
    ids=str,
)
def test_it_is_the_naive_loop(settings: dict[str, Any], size: int) -> None:
    run = train("demo", size, workload=WIDE, **settings)
    close(run.weights, reference(WIDE, size, SEED, 12, {**DEFAULTS, **settings}), rounding=1e-10)
    assert all(torch.equal(vector, run.vectors[0]) for vector in run.vectors), "all end with the same bits"


@pytest.mark.parametrize("size", [1, 3, 4])
def test_if_all_is_shared_momentum_keeps_nothing_back_and_the_mean_is_one_process(size: int) -> None:
    run = train("demo", size, chunk=4, top_k=4, update="mean")
    close(run.weights, [train_alone(WORKLOAD, size, SEED, 12)] * size, rounding=1e-10)


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


@pytest.mark.parametrize("settings", [{"momentum": 0.5}, {"chunk": 3}, {"top_k": 1}, {"update": "mean"}], ids=str)
def test_every_setting_changes_something(settings: dict[str, Any]) -> None:
    changes_something("demo", settings, {"chunk": 6, "top_k": 2}, EVEN)


@pytest.mark.parametrize("settings", [{}, {"chunk": 4, "top_k": 2, "update": "mean"}], ids=str)
def test_without_values_it_takes_the_same_time(settings: dict[str, Any]) -> None:
    takes_the_same_time_without_values("demo", **settings)


def test_it_ends_with_the_rank_that_is_lost() -> None:
    run = train("demo", EVEN, faults=["kind: crash, node: n2, at: 9 ms"])
    assert all(lost_somebody(result) for result in run.results[:2])
