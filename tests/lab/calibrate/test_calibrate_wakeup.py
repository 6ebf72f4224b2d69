"""A calibration finds how long a thread waits for a core of its machine: what the rehearsed steps take longer."""

from __future__ import annotations

from statistics import median

import pytest

from simcluster.lab.calibrate import calibrate
from simcluster.lab.calibrate.rehearsed import MOST_WAKEUP_S, rehearsed_again, wakeup_of
from simcluster.lab.calibrate.samples import STEP
from simcluster.topology import Topology, load, loads


def machine(wakeup: str) -> Topology:
    node = {"machine": "m", "send_overhead": "100 us", "recv_overhead": "100 us"}
    rates = {"a": "10 GFLOP/s", "b": "11 GFLOP/s", "c": "13 GFLOP/s"}  # unlike, so that no two threads end at once
    pairs = [("a", "b"), ("a", "c"), ("b", "c")]
    links = [{"between": list(pair), "bandwidth": "8 Gbps", "latency": "50 us"} for pair in pairs]
    machines = {"m": {"cores": 2, "wakeup": wakeup}}
    return loads(
        {"machines": machines, "nodes": {name: node | {"flops": rate} for name, rate in rates.items()}, "links": links}
    )


@pytest.mark.slow
@pytest.mark.parametrize("wakeup_s", [0.0, 1e-3])
def test_the_wait_is_found_again(wakeup_s: float) -> None:
    found = calibrate(machine(f"{wakeup_s} s"), backend="sim", workload={"name": "mnist_mlp"})
    own = {number: [row for row in found.rounds.rows if row.number == number] for number in found.rounds.kept}
    without = machine("0 s")
    fitted_s = wakeup_of(without, own)
    assert fitted_s == pytest.approx(wakeup_s, rel=0.15, abs=3e-5)  # a step may end in another order
    again = load(without.document | {"machines": {"m": {"cores": 2, "wakeup": f"{fitted_s} s"}}})
    misfit = median(rehearsed_again(again, rows, 0, number)[0] for number, rows in own.items())
    assert misfit == pytest.approx(1.0, abs=0.05)


@pytest.mark.slow
def test_a_wait_that_explains_nothing_stays_small() -> None:
    found = calibrate(machine("0 s"), backend="sim", workload={"name": "mnist_mlp"})
    slow = [row._replace(seconds=100 * row.seconds) if row.parts[0] == STEP else row for row in found.rounds.rows]
    own = {number: [row for row in slow if row.number == number] for number in found.rounds.kept}
    assert 0 < wakeup_of(machine("0 s"), own) <= MOST_WAKEUP_S
    assert wakeup_of(machine("0 s"), {}) == 0
