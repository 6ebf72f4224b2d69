"""Slow-downs have the distributions that they say, and those with a memory the speeds that mathematics gives them."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from simcluster_backends.sim.devices import DeviceModel, SteppedSlowdown, WarmingSlowdown, draw_factor, slowdown_of

from simcluster.rng import numpy_stream
from simcluster.topology import Device
from simcluster.topology.model.stragglers import (
    Constant,
    Exponential,
    Lognormal,
    Markov,
    Pareto,
    ShiftedExponential,
    Straggler,
    Thermal,
    Trace,
    TwoPoint,
)
from simcluster.transport import Cost

DRAWS = 20_000


def draws(straggler: Straggler) -> np.ndarray:
    random = numpy_stream(0, "test")
    return np.array([draw_factor(straggler, random) for _ in range(DRAWS)])


def share_within(found: np.ndarray, probability: float) -> object:
    """*probability*, give or take 5 standard errors of a share of the draws."""
    return pytest.approx(probability, abs=5 * math.sqrt(probability * (1 - probability) / len(found)))


def test_without_a_straggler_and_with_a_constant_one_the_factor_never_changes() -> None:
    assert DeviceModel(Device("d", 1e9), 0, "a").start(Cost(7e8), 3.0) == 0.7
    assert set(draws(Constant(3.0))) == {3.0}


def test_work_that_takes_nothing_draws_nothing() -> None:
    with_free, without = (slowdown_of(Exponential(2.0), numpy_stream(0, "test")) for _ in range(2))
    assert with_free.start(0.0, 0.0) == 0.0
    assert with_free.start(0.0, 1.0) == without.start(0.0, 1.0)


def test_a_lognormal_straggler_has_mean_one_and_the_given_sigma() -> None:
    found = draws(Lognormal(0.5))
    # The mean of exp(sigma Z - sigma^2/2) is 1; its deviation sqrt(exp(0.25) - 1) = 0.53, so 5 standard errors of
    # 20,000 draws are 0.019. Without the second term the mean would be exp(0.125) = 1.13.
    assert found.mean() == pytest.approx(1.0, abs=0.019)
    assert np.log(found).std() == pytest.approx(0.5, abs=5 * 0.5 / math.sqrt(2 * DRAWS))
    # Its median is exp(-sigma^2/2).
    assert (found > math.exp(-0.125)).mean() == share_within(found, 0.5)


def test_an_exponential_straggler_has_the_given_mean() -> None:
    found = draws(Exponential(2.5))
    # The deviation of an exponential is its mean: 5 standard errors.
    assert found.mean() == pytest.approx(2.5, abs=5 * 2.5 / math.sqrt(DRAWS))
    # A share of 1/e is above the mean, one of 1/e^3 above three times it.
    assert (found > 2.5).mean() == share_within(found, math.exp(-1))
    assert (found > 7.5).mean() == share_within(found, math.exp(-3))


def test_a_shifted_exponential_straggler_is_an_exponential_on_top_of_its_shift() -> None:
    found = draws(ShiftedExponential(0.5, 2.0))
    assert found.min() >= 2.0
    assert found.mean() == pytest.approx(2.5, abs=5 * 0.5 / math.sqrt(DRAWS))
    assert (found > 3.0).mean() == share_within(found, math.exp(-2))


def test_a_pareto_straggler_has_its_minimum_mean_and_tail() -> None:
    found = draws(Pareto(3.0, 2.0))
    assert found.min() >= 2.0
    # Mean m a/(a-1) = 3, variance m^2 a/((a-1)^2 (a-2)) = 4 x 3/(4 x 1) = 3.
    assert found.mean() == pytest.approx(3.0, abs=5 * math.sqrt(3 / DRAWS))
    # Above x with probability (2/x)^3: a power, not an exponential.
    for x in (3.0, 4.0, 10.0):
        assert (found > x).mean() == share_within(found, (2 / x) ** 3)


def test_a_two_point_straggler_is_slow_as_often_as_it_says() -> None:
    found = draws(TwoPoint(8.0, 0.1))
    assert set(found) == {1.0, 8.0}
    assert (found == 8.0).mean() == share_within(found, 0.1)


@pytest.mark.parametrize("straggler", [Lognormal(0.5), Exponential(2.0), ShiftedExponential(1.0), Pareto(3.0)])
def test_the_mean_that_a_kind_says_is_that_of_its_draws(straggler: Straggler) -> None:
    found = draws(straggler)
    assert found.mean() == pytest.approx(straggler.mean_factor, abs=5 * found.std() / math.sqrt(DRAWS))


# a factor that changes in time


def stepped(*steps: tuple[float, float]) -> SteppedSlowdown:
    return SteppedSlowdown(lambda _: iter(steps))


@pytest.mark.parametrize(
    ("start_s", "work_s", "takes_s"),
    [
        (0.0, 1.5, 1.5),
        (0.0, 3.0, 6.0),  # 2 s at full speed, the third at a quarter, which ends as the slowness does
        (0.0, 4.0, 7.0),  # and a fourth at full speed again
        (3.0, 0.5, 2.0),
        (5.0, 0.5, 1.25),  # 1 s for the first quarter, then as fast as ever
        (2.0, 0.25, 1.0),  # what begins at a change has the new factor
        (9.0, 1.0, 1.0),
        (0.0, 0.0, 0.0),
    ],
)
def test_work_that_a_change_falls_into_goes_on_at_the_new_speed(start_s: float, work_s: float, takes_s: float) -> None:
    assert stepped((0.0, 1.0), (2.0, 4.0), (6.0, 1.0)).start(start_s, work_s) == takes_s


def test_looking_ahead_forgets_no_step() -> None:
    """A piece of work that was cancelled early had been promised an end far ahead."""
    slowdown = stepped((0.0, 1.0), (2.0, 4.0), (6.0, 1.0))
    assert slowdown.start(0.0, 100.0) == 103.0
    slowdown.stop(3.0)
    assert slowdown.start(3.0, 0.5) == 2.0


def test_a_trace_slows_down_as_its_rows_say_and_its_last_one_stays() -> None:
    slowdown = slowdown_of(Trace(((0.0, 2.0), (10.0, 1.0), (20.0, 5.0))), numpy_stream(0, "test"))
    assert slowdown.start(0.0, 1.0) == 2.0
    assert slowdown.start(1e6, 1.0) == 5.0


# Markov

MARKOV = Markov(factor=4.0, slow_s=1.0, fast_s=3.0)


def factors_at(seed: int, times_s: Iterator[float]) -> list[float]:
    """The factor at each time, by pieces of work too short to see a change."""
    slowdown = slowdown_of(MARKOV, numpy_stream(seed, "straggler", "a"))
    return [round(slowdown.start(at_s, 1e-12) / 1e-12, 3) for at_s in times_s]


def test_a_markov_straggler_is_slow_for_its_share_of_time_from_the_beginning_on() -> None:
    # 30 s are 30 times the slower of the two, so that moments that far apart are as good as independent.
    found = np.array(factors_at(0, (30.0 * k for k in range(4000))))
    assert set(found) == {1.0, 4.0}
    assert (found == 4.0).mean() == share_within(found, 0.25)
    begins = np.array([factors_at(seed, iter([0.0]))[0] for seed in range(2000)])
    assert (begins == 4.0).mean() == share_within(begins, 0.25)


def test_a_markov_straggler_forgets_with_the_rate_of_both_changes_together() -> None:
    # P(slow at t | slow at 0) = share + (1 - share) exp(-(1/slow + 1/fast) t); at t = 3/4 ln 2 the exponential is 1/2.
    lag_s = 0.75 * math.log(2)
    pairs = np.array([factors_at(seed, iter([0.0, lag_s])) for seed in range(8000)])
    again = pairs[pairs[:, 0] == 4.0][:, 1] == 4.0
    assert again.mean() == share_within(again, 0.25 + 0.75 / 2)


def test_a_markov_stragglers_state_lives_on_whatever_work_there_is() -> None:
    busy = slowdown_of(MARKOV, numpy_stream(7, "straggler", "a"))
    at_s = 0.0
    while at_s < 50.0:
        at_s += busy.start(at_s, 0.3)
        busy.stop(at_s)
    idle = slowdown_of(MARKOV, numpy_stream(7, "straggler", "a"))
    assert busy.start(at_s, 5.0) == idle.start(at_s, 5.0)


def test_a_markov_straggler_that_nobody_looked_at_for_ages_is_as_likely_slow_as_ever() -> None:
    """And is there at once: a century of changes is not lived through one by one."""
    found = np.array([factors_at(seed, iter([1.0, 3e9]))[1] for seed in range(2000)])
    assert (found == 4.0).mean() == share_within(found, 0.25)


def test_long_work_on_a_markov_straggler_takes_what_its_mean_speed_says() -> None:
    slowdown = slowdown_of(MARKOV, numpy_stream(3, "straggler", "a"))
    work_s = 40_000.0
    takes_s = slowdown.start(0.0, work_s)
    # The speed is 3/4 x 1 + 1/4 x 1/4 on average. The slow share of a time T has variance 2 (ab)^2/((a+b)^3 T), with
    # a and b the mean times: 2 x 9/(64 T). A deviation d of it changes the speed by 3/4 d.
    deviation = math.sqrt(2 * 9 / (64 * takes_s))
    assert work_s / takes_s == pytest.approx(0.8125, abs=3 * 0.75 * deviation)


# thermal

THERMAL = Thermal(factor=3.0, heating_s=10.0, cooling_s=20.0)


def test_a_cold_device_is_as_fast_as_it_says_and_a_warm_one_slower_by_its_factor() -> None:
    assert WarmingSlowdown(THERMAL).start(0.0, 1e-9) == pytest.approx(1e-9, rel=1e-9)
    warm = WarmingSlowdown(THERMAL)
    warm.start(0.0, 1e6)
    warm.stop(3e6)
    assert warm.start(3e6, 1.0) == pytest.approx(3.0, rel=1e-12)


def test_long_work_from_cold_gains_h_ln_f_on_warm_work() -> None:
    # t = F w + h ln((1 + (F - 1) exp(-F w/h))/F), which nears F w - h ln F.
    assert WarmingSlowdown(THERMAL).start(0.0, 1000.0) == pytest.approx(3000 - 10 * math.log(3), rel=1e-12)


@pytest.mark.parametrize("work_s", [0.01, 1.0, 7.0, 50.0])
def test_the_work_done_while_it_warms_up_is_the_integral_of_the_speed(work_s: float) -> None:
    takes_s = WarmingSlowdown(THERMAL).start(0.0, work_s)
    steps = 200_000
    times_s = (np.arange(steps) + 0.5) * takes_s / steps
    speed = 1 / (3 - 2 * np.exp(-times_s / 10))
    assert speed.mean() * takes_s == pytest.approx(work_s, rel=1e-9)


def test_work_in_pieces_without_rest_takes_as_long_as_in_one() -> None:
    whole, pieces = WarmingSlowdown(THERMAL), WarmingSlowdown(THERMAL)
    at_s = 0.0
    for _ in range(10):
        at_s += pieces.start(at_s, 1.3)
        pieces.stop(at_s)
    assert at_s == pytest.approx(whole.start(0.0, 13.0), rel=1e-12)


def test_rest_cools_with_its_own_time_constant() -> None:
    slowdown = WarmingSlowdown(THERMAL)
    slowdown.start(0.0, 1e6)
    slowdown.stop(3e6)
    # 20 ln 2 s of rest halve what is above 1: from 3 to 2.
    assert slowdown.start(3e6 + 20 * math.log(2), 1e-9) == pytest.approx(2e-9, rel=1e-6)
    slowdown.stop(3e6 + 20 * math.log(2))
    assert slowdown.start(4e6, 1e-9) == pytest.approx(1e-9, rel=1e-9)


def test_cancelled_work_warms_up_for_the_time_that_it_ran() -> None:
    cancelled, short = WarmingSlowdown(THERMAL), WarmingSlowdown(THERMAL)
    cancelled.start(0.0, 100.0)
    cancelled.stop(5.0)
    ran_s = short.start(0.0, 2.0)
    short.stop(ran_s)
    # Neither rested: after 5 s the factor is 3 - 2 exp(-1/2).
    assert cancelled.start(5.0, 1e-9) == pytest.approx(1e-9 * (3 - 2 * math.exp(-0.5)), rel=1e-6)
    assert short.start(ran_s, 1e-9) == pytest.approx(1e-9 * (3 - 2 * math.exp(-ran_s / 10)), rel=1e-6)
