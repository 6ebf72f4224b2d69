"""Arrivals and lengths: means and spreads as asked for, streams that do not disturb each other."""

from __future__ import annotations

import math

import numpy as np
import pytest

from simcluster.errors import UsageError
from simcluster.lm.load.arrivals import OfferedRequest, at_rate, intervals_s, offered
from simcluster.lm.load.lengths import MOST_TOKENS, Length, fixed, length_of
from simcluster.rng import numpy_stream

COUNT = 100_000


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_intervals_have_the_mean_of_the_rate_and_the_spread_of_the_burstiness(burstiness: float) -> None:
    found = intervals_s(2.0, COUNT, burstiness, numpy_stream(1, "load"))
    # The mean's standard error is std / sqrt(n); std = 0.5 / sqrt(burstiness). Four of them.
    std_s = 0.5 / math.sqrt(burstiness)
    assert abs(found.mean() - 0.5) < 4 * std_s / math.sqrt(COUNT)
    # Of a gamma distribution the variance's relative error is sqrt((2 + 6 / burstiness) / n).
    assert found.var() == pytest.approx(std_s**2, rel=4 * math.sqrt((2 + 6 / burstiness) / COUNT))


def test_counts_of_a_poisson_process_have_a_variance_equal_to_their_mean() -> None:
    at_s = np.cumsum(intervals_s(5.0, COUNT, 1.0, numpy_stream(1, "load")))
    counts = np.histogram(at_s, np.arange(0.0, math.floor(at_s[-1])))[0]
    # About 20,000 windows of a second with 5 each: index of dispersion 1, standard error sqrt(2 / 20,000) = 0.01.
    assert counts.var() / counts.mean() == pytest.approx(1.0, abs=0.04)


def test_another_rate_offers_the_same_requests_at_proportional_times() -> None:
    slow, fast = (offered(rate, 50, fixed(10), length_of("geometric:20", "--n"), seed=3) for rate in (1.0, 4.0))
    assert [(one.prompt_tokens, one.output_tokens) for one in slow] == [
        (one.prompt_tokens, one.output_tokens) for one in fast
    ]
    assert [one.arrival_s for one in fast] == pytest.approx([one.arrival_s / 4 for one in slow], rel=1e-12)


def test_a_seed_decides_and_another_one_changes_everything() -> None:
    first, again, other = (offered(2.0, 20, fixed(1), length_of("uniform:1:900", "--n"), seed) for seed in (1, 1, 2))
    assert first == again
    assert all(a.arrival_s != b.arrival_s for a, b in zip(first, other, strict=True))


def test_an_infinite_rate_lets_all_arrive_at_once() -> None:
    assert {one.arrival_s for one in offered(math.inf, 9, fixed(1), fixed(1))} == {0.0}


def test_a_given_rate_stretches_a_load() -> None:
    # Two intervals in 3 s become two in 1 s.
    requests = [OfferedRequest(at_s, 1, 1) for at_s in (0.0, 2.0, 3.0)]
    assert [one.arrival_s for one in at_rate(requests, 2.0)] == pytest.approx([0.0, 2 / 3, 1.0])
    assert at_rate(requests[:1], 2.0) == requests[:1]


@pytest.mark.parametrize(
    ("text", "mean", "std"),
    [
        ("512", 512, 0),
        ("uniform:101:900", 500.5, math.sqrt((800**2 - 1) / 12)),
        ("geometric:200", 200, math.sqrt(200 * 199)),
        # exp(sigma^2 / 2) times the median, and a spread of sqrt(exp(sigma^2) - 1) times the mean.
        ("lognormal:300:0.5", 300 * math.exp(0.125), 300 * math.exp(0.125) * math.sqrt(math.exp(0.25) - 1)),
    ],
)
def test_lengths_have_the_mean_and_the_spread_of_their_distribution(text: str, mean: float, std: float) -> None:
    found = np.array(length_of(text, "--n").draw(COUNT, numpy_stream(1, "lengths")))
    assert abs(found.mean() - mean) <= 4 * std / math.sqrt(COUNT) + 0.01
    assert found.std() == pytest.approx(std, rel=0.03)


def test_lengths_stay_within_the_limits() -> None:
    found = length_of("lognormal:2:10", "--n").draw(1000, numpy_stream(1, "lengths"))
    assert (min(found), max(found)) == (1, MOST_TOKENS)
    assert set(length_of("uniform:7:8", "--n").draw(100, numpy_stream(1, "lengths"))) == {7, 8}
    assert length_of("7", "--n") == Length("fixed", (7.0,))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0", "--n: found '0', expected TOKENS, a whole number from 1 to 1,000,000"),
        ("1.5", "a whole number"),
        ("nan", "a whole number"),
        ("many", "expected N, uniform:LEAST:MOST"),
        ("unifrom:1:2", "unknown distribution 'unifrom'; did you mean 'uniform'?"),
        ("uniform:3", "expected N, uniform:LEAST:MOST"),
        ("uniform:3:2", "LEAST not above MOST"),
        ("lognormal:3:inf", "SIGMA, a number from 0 to 10"),
        ("geometric:1e99", "MEAN, a number from 1 to 1,000,000"),
    ],
)
def test_a_wrong_length_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        length_of(text, "--n")
    assert said in str(error.value)
