"""How long work takes: the roofline, and stragglers whose draws have the distribution that they say."""

from __future__ import annotations

import math

import numpy as np
import pytest

from backends.sim.devices import DeviceModel, straggler_factor
from simcluster.rng import numpy_stream
from simcluster.topology import Device, Straggler
from simcluster.transport import FREE, Cost

DRAWS = 20_000


def draws(straggler: Straggler) -> np.ndarray:
    random = numpy_stream(0, "test")
    return np.array([straggler_factor(straggler, random) for _ in range(DRAWS)])


@pytest.mark.parametrize(
    ("cost", "duration_s"),
    [
        (Cost(2e9, 1e8), 2.0),  # 2 s of arithmetic hide 1 s of memory
        (Cost(1e9, 3e8), 3.0),  # the other way round
        (FREE, 0.0),
    ],
)
def test_work_takes_the_slower_of_arithmetic_and_memory(cost: Cost, duration_s: float) -> None:
    assert DeviceModel(Device("d", 1e9, 1e8), 0, "a").duration_s(cost) == duration_s


def test_a_constant_straggler_is_always_as_slow() -> None:
    assert set(draws(Straggler("constant", factor=3.0))) == {3.0}


def test_a_lognormal_straggler_has_mean_one_and_the_given_sigma() -> None:
    found = draws(Straggler("lognormal", sigma=0.5))
    # The mean of exp(sigma Z - sigma^2/2) is 1; its deviation sqrt(exp(0.25) - 1) = 0.53, so 5 standard errors of
    # 20,000 draws are 0.019. Without the second term the mean would be exp(0.125) = 1.13.
    assert found.mean() == pytest.approx(1.0, abs=0.019)
    assert np.log(found).std() == pytest.approx(0.5, abs=5 * 0.5 / math.sqrt(2 * DRAWS))


def test_an_exponential_straggler_has_the_given_mean() -> None:
    found = draws(Straggler("exponential", mean=2.5))
    # The deviation of an exponential is its mean: 5 standard errors.
    assert found.mean() == pytest.approx(2.5, abs=5 * 2.5 / math.sqrt(DRAWS))
    # A share of 1/e is above the mean.
    assert (found > 2.5).mean() == pytest.approx(math.exp(-1), abs=5 * 0.5 / math.sqrt(DRAWS))


def test_a_two_point_straggler_is_slow_as_often_as_it_says() -> None:
    found = draws(Straggler("two-point", factor=8.0, probability=0.1))
    assert set(found) == {1.0, 8.0}
    assert (found == 8.0).mean() == pytest.approx(0.1, abs=5 * 0.3 / math.sqrt(DRAWS))


def test_every_piece_of_work_is_drawn_anew_from_its_own_nodes_stream() -> None:
    device = Device("d", 1.0, straggler=Straggler("lognormal", sigma=0.5))

    def durations(seed: int, name: str) -> list[float]:
        model = DeviceModel(device, seed, name)
        return [model.duration_s(Cost(1.0)) for _ in range(5)]

    assert len(set(durations(0, "a"))) == 5
    assert durations(0, "a") == durations(0, "a")
    assert set(durations(0, "a")).isdisjoint(durations(0, "b"))
    assert set(durations(0, "a")).isdisjoint(durations(1, "a"))
