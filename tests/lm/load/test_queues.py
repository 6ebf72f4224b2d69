"""The formulas of queues, which judge the schedulers, agree with a queue that knows none of them."""

from __future__ import annotations

import numpy as np
import pytest

from simcluster.lm.load.answers import AnsweredRequest
from simcluster.lm.load.arrivals import intervals_s
from simcluster.lm.load.metrics import figures
from simcluster.rng import numpy_stream
from tests.support.queues import agrees, md1_wait_s, mean_number, mg1_wait_s, mm1_wait_s, mmk_wait_s, served

RATE, COUNT = 2.0, 600_000


def waits_s(services_s: np.ndarray, servers: int = 1) -> list[float]:
    arrivals_s = np.cumsum(intervals_s(RATE, COUNT, 1.0, numpy_stream(1, "queue")))
    spans = served(arrivals_s.tolist(), services_s.tolist(), servers)
    return [start_s - at_s for at_s, (start_s, _) in zip(arrivals_s.tolist(), spans, strict=True)]


def exponential(mean_s: float) -> np.ndarray:
    return numpy_stream(2, "service").exponential(mean_s, COUNT)


@pytest.mark.slow
def test_waits_of_an_exponential_server_are_those_of_mm1() -> None:
    # Load 0.7: 2 x 2 x 0.35^2 / (2 x 0.3) = 0.8167 s.
    assert mm1_wait_s(RATE, 0.35) == pytest.approx(0.49 / 0.6, rel=1e-9)
    assert agrees(waits_s(exponential(0.35)), mm1_wait_s(RATE, 0.35))


def test_waits_of_a_constant_server_are_half_as_long() -> None:
    assert md1_wait_s(RATE, 0.35) == pytest.approx(mm1_wait_s(RATE, 0.35) / 2, rel=1e-9)
    assert agrees(waits_s(np.full(COUNT, 0.35)), md1_wait_s(RATE, 0.35))


def test_waits_depend_on_the_variance_of_the_service_alone() -> None:
    # Uniform from 0.2 to 0.5 s: mean 0.35, variance 0.3^2 / 12.
    services_s = numpy_stream(2, "service").uniform(0.2, 0.5, COUNT)
    assert agrees(waits_s(services_s), mg1_wait_s(RATE, 0.35, 0.0075))


@pytest.mark.slow
@pytest.mark.parametrize(("servers", "mean_s"), [(2, 0.7), (4, 1.5)])
def test_waits_at_several_servers_are_those_of_mmk(servers: int, mean_s: float) -> None:
    assert agrees(waits_s(exponential(mean_s), servers), mmk_wait_s(RATE, mean_s, servers))


def test_one_of_k_servers_is_mm1() -> None:
    assert mmk_wait_s(RATE, 0.35, 1) == pytest.approx(mm1_wait_s(RATE, 0.35), rel=1e-9)


@pytest.mark.slow
def test_a_wrong_formula_is_found_out() -> None:
    found = waits_s(np.full(COUNT, 0.35))
    assert not agrees(found, mm1_wait_s(RATE, 0.35))
    assert not agrees(found, 1.05 * md1_wait_s(RATE, 0.35))


def test_the_mean_number_in_the_system_is_counted_event_by_event_and_by_littles_law() -> None:
    arrivals_s = np.cumsum(intervals_s(RATE, 1000, 0.3, numpy_stream(3, "queue"))).tolist()
    ends_s = [end_s for _, end_s in served(arrivals_s, exponential(0.4)[:1000].tolist())]
    answers = [AnsweredRequest(at_s, (end_s,), end_s, 1, 1) for at_s, end_s in zip(arrivals_s, ends_s, strict=True)]
    counted = mean_number(zip(arrivals_s, ends_s, strict=True))
    assert figures(answers).mean_in_system == pytest.approx(counted, rel=1e-9)
