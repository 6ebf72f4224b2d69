"""Wi-Fi as air time: stations of one medium share its seconds, each at its own rate; what is relayed counts twice."""

from __future__ import annotations

import pytest
import torch
from simcluster_backends.sim.plain_flows import finish_times

from simcluster.collectives import ring_all_reduce
from simcluster.topology import Topology, load, loads
from simcluster.topology.plain_flows import PlainFlow
from simcluster.transport import Transport
from tests.support.clusters import now, run

Mb = 125_000.0


def cell(*rates_Mbps: float, keys: str = "medium: home") -> Topology:
    """Stations n0, n1, ... of these rates and a wired server around an access point."""
    nodes = "".join(f"  n{index}: {{flops: 1 GFLOP/s}}\n" for index in range(len(rates_Mbps)))
    links = "".join(
        f"  - {{between: [n{index}, ap], bandwidth: {rate} Mbps, latency: 0 s, {keys}}}\n"
        for index, rate in enumerate(rates_Mbps)
    )
    wired = "  - {between: [server, ap], bandwidth: 1 Gbps, latency: 0 s}\n"
    return loads(f"nodes:\n{nodes}  server: {{flops: 1 GFLOP/s}}\n  ap: {{kind: switch}}\nlinks:\n{links}{wired}")


def up(station: int, megabits: float, start_s: float = 0.0) -> PlainFlow:
    return PlainFlow(f"n{station}", "server", megabits * Mb, start_s)


def test_a_slow_station_slows_a_fast_one_down_to_its_own_throughput() -> None:
    # The anomaly of Wi-Fi: x/54 + x/6 = 1, so each gets 5.4 Mb/s. Fair shares of air would be 27 and 3.
    assert finish_times(cell(54, 6), [up(0, 5.4), up(1, 5.4)]) == pytest.approx([1.0, 1.0], rel=1e-9)


def test_alone_each_station_has_its_own_rate() -> None:
    assert finish_times(cell(54, 6), [up(0, 54)]) == pytest.approx([1.0], rel=1e-9)
    assert finish_times(cell(54, 6), [up(1, 6)]) == pytest.approx([1.0], rel=1e-9)


def test_when_the_slow_one_is_done_the_fast_one_has_the_air_to_itself() -> None:
    # 2.7 Mb each in half a second, then 54 Mb/s for the rest
    times = finish_times(cell(54, 6), [up(0, 2.7 + 27), up(1, 2.7)])
    assert times == pytest.approx([1.0, 0.5], rel=1e-9)


def test_from_station_to_station_every_byte_is_on_the_air_twice() -> None:
    # x/54 + x/6 = 1 for one flow that is relayed; at equal rates half of them
    assert finish_times(cell(54, 6), [PlainFlow("n0", "n1", 5.4 * Mb)]) == pytest.approx([1.0], rel=1e-9)
    assert finish_times(cell(54, 54), [PlainFlow("n0", "n1", 27 * Mb)]) == pytest.approx([1.0], rel=1e-9)


def test_both_ways_share_the_air() -> None:
    down = PlainFlow("server", "n0", 27 * Mb)
    assert finish_times(cell(54, 6), [up(0, 27), down]) == pytest.approx([1.0, 1.0], rel=1e-9)


def test_without_a_medium_or_on_another_one_stations_do_not_meet() -> None:
    flows = [up(0, 54), up(1, 6)]
    assert finish_times(cell(54, 6, keys="duplex: half"), flows) == pytest.approx([1.0, 1.0], rel=1e-9)
    elsewhere = load(cell(54, 6), overrides={"links.n1-ap.medium": "next-door"})
    assert finish_times(elsewhere, flows) == pytest.approx([1.0, 1.0], rel=1e-9)
    assert finish_times(cell(54, 6), flows)[0] > 1.8


def test_five_stations_of_different_rates_get_the_harmonic_share() -> None:
    rates = [54, 24, 12, 6, 1]
    share = 1 / sum(1 / rate for rate in rates)
    assert finish_times(cell(*rates), [up(index, share) for index in range(5)]) == pytest.approx([1.0] * 5, rel=1e-9)


def test_acknowledgements_take_air_too() -> None:
    keys = "medium: home, ack_share: 0.25"
    assert finish_times(cell(50, 50, keys=keys), [up(0, 40)]) == pytest.approx([1.0], rel=1e-9)
    assert finish_times(cell(50, 50, keys=keys), [up(0, 20), up(1, 20)]) == pytest.approx([1.0, 1.0], rel=1e-9)


def test_lv08_uses_its_share_of_the_air() -> None:
    assert finish_times(cell(54, 6), [up(0, 54)], "lv08") == pytest.approx([1 / 0.97], rel=1e-9)


def test_background_takes_air_at_the_rate_of_its_station() -> None:
    # Others send 3 Mb/s over n1's link of 6: half of the air. n0 has the other half of 54 Mb/s.
    busy = load(cell(54, 6), overrides={"links.n1-ap.background": "3 Mbps"})
    assert finish_times(busy, [up(0, 27)]) == pytest.approx([1.0], rel=1e-9)


def test_a_ring_all_reduce_through_an_access_point_moves_all_its_bytes_twice() -> None:
    # p stations of B: per round p parts of M/p, each twice on the air: 2 (p-1) 2 M/B
    size, stations = 54 * 125_000, 4
    topology = cell(*[54.0] * stations)

    async def body(node: Transport) -> float:
        if node.name != "server":
            await ring_all_reduce(_Part(node, stations), torch.empty(size, dtype=torch.uint8, device="meta"), "r")  # type: ignore[arg-type]
        return now()

    times = run(topology, *[body] * (stations + 1))
    assert max(times) == pytest.approx(2 * (stations - 1) * 2 * 1.0, rel=1e-9)


class _Part:
    """The first *size* nodes of a cluster: what a collective among them sees."""

    def __init__(self, node: Transport, size: int) -> None:
        self.rank, self.size, self.name = node.rank, size, node.name
        self.send, self.recv = node.send, node.recv
